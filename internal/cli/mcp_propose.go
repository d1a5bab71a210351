// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// proposer owns the fields of a proposed NodeJob (metadata.managedFields).
const proposer = client.FieldOwner("kubectl-everynode-mcp")

// proposal is the result of the tool propose.
type proposal struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Next      string `json:"next" jsonschema:"what a person has to do"`
	// Plan is the output of the command plan.
	Plan toolOutput `json:"plan"`
}

// propose creates a suspended NodeJob. The API server checks it before anything is written, and so does the plan.
func (a assistant) propose(ctx context.Context, _ *mcp.CallToolRequest, in ofManifest) (*mcp.CallToolResult, proposal, error) {
	ctx, cancel := context.WithTimeout(ctx, maxToolTime)
	defer cancel()
	job, c, err := a.proposed(in)
	if err != nil {
		return nil, proposal{}, cmdutil.Explain(err)
	}
	if err := roomForAnother(ctx, c, job.Namespace); err != nil {
		return nil, proposal{}, notCreated(job.Namespace+"/"+job.Name, err)
	}
	nameProposal(job)
	name := client.ObjectKeyFromObject(job).String()
	if err := c.Create(ctx, job.DeepCopy(), client.DryRunAll, proposer); err != nil {
		return nil, proposal{}, notCreated(name, err)
	}
	manifest, err := yaml.Marshal(job)
	if err != nil {
		return nil, proposal{}, err
	}
	p := proposal{Namespace: job.Namespace, Name: job.Name, Plan: a.execute(ctx, string(manifest), "plan", "--filename=-")}
	if p.Plan.ExitCode != cmdutil.ExitOK {
		p.Next = "Nothing was created, because the plan failed: correct the manifest, and propose it again"
		return &mcp.CallToolResult{IsError: true}, p, nil
	}
	if err := c.Create(ctx, job, proposer); err != nil {
		return nil, proposal{}, notCreated(name, err)
	}
	p.Next = steer.UntilResumed(job) + fmt.Sprintf(". Before that, a person reads it: kubectl get nodejob %s -n %s -o yaml", job.Name, job.Namespace)
	return nil, p, nil
}

// maxProposals limits the proposals of a namespace that no person has resumed or deleted.
const maxProposals = 10

// roomForAnother returns an error if too many proposals of the namespace wait for a person.
func roomForAnother(ctx context.Context, c client.Client, namespace string) error {
	var jobs v1alpha1.NodeJobList
	if err := c.List(ctx, &jobs, client.InNamespace(namespace), client.MatchingLabels{cmdutil.CreatedByLabel: cmdutil.CreatedByMCP}); err != nil {
		return err
	}
	jobs.Items = slices.DeleteFunc(jobs.Items, func(j v1alpha1.NodeJob) bool { return !j.Spec.Suspend })
	if len(jobs.Items) < maxProposals {
		return nil
	}
	return fmt.Errorf("%d proposals wait in namespace %s, and no more are possible: a person reviews them, and resumes or deletes them: kubectl get nodejobs -n %s -l %s=%s",
		len(jobs.Items), namespace, namespace, cmdutil.CreatedByLabel, cmdutil.CreatedByMCP)
}

// nameProposal gives a proposal a name to which no other object can refer, such as by spec.dependsOn, and which no manifest of a user has.
func nameProposal(job *v1alpha1.NodeJob) {
	const mostOfName = 40
	job.Name = "proposal-" + strings.TrimRight(job.Name[:min(len(job.Name), mostOfName)], "-.") + "-" + rand.String(10)
	job.Labels = maps.Clone(job.Labels)
	if job.Labels == nil {
		job.Labels = map[string]string{}
	}
	job.Labels[cmdutil.CreatedByLabel] = cmdutil.CreatedByMCP
}

func notCreated(name string, err error) error {
	return fmt.Errorf("NodeJob %s was not created: %w", name, cmdutil.Explain(err))
}

// proposed returns the NodeJob of a manifest, suspended. It rejects a manifest that would have an effect beside this NodeJob, or while
// this is suspended.
func (a assistant) proposed(in ofManifest) (*v1alpha1.NodeJob, client.Client, error) {
	if len(in.Manifest) > maxManifest {
		return nil, nil, tooLong()
	}
	namespace, err := a.Namespace()
	if err != nil {
		return nil, nil, err
	}
	if in.Namespace != "" {
		namespace = in.Namespace
	}
	file, err := readFile("the manifest", strings.NewReader(in.Manifest), namespace)
	if err != nil {
		return nil, nil, err
	}
	others := len(file.guards) + len(file.budgets) + len(file.configMaps) + len(file.secrets) + len(file.accounts) + len(file.skipped)
	if len(file.jobs) != 1 || others > 0 {
		return nil, nil, fmt.Errorf("the manifest has %d NodeJobs and %d other objects: propose one NodeJob at a time, and nothing else", len(file.jobs), others)
	}
	job := file.jobs[0]
	if err := startsNothing(job); err != nil {
		return nil, nil, err
	}
	job.Spec.Suspend = true
	job.Status = v1alpha1.NodeJobStatus{}
	c, err := a.Client()
	return job, c, err
}

// startsNothing rejects what has an effect although spec.suspend is true: a gate closes on nodes, a node condition can be read by
// others, and annotations of Everynode are requests.
func startsNothing(job *v1alpha1.NodeJob) error {
	switch {
	case job.Name == "":
		return errors.New("metadata.name is missing: give the NodeJob a name")
	case job.Spec.Gate != nil:
		return errors.New("spec.gate closes nodes while the NodeJob is suspended: leave it out, and ask a person to add it")
	case job.Spec.TTLSecondsAfterFinished != nil:
		return errors.New("spec.ttlSecondsAfterFinished deletes a NodeJob that is suspended: leave it out, and ask a person to add it")
	case len(job.Finalizers)+len(job.OwnerReferences) > 0:
		return errors.New("metadata.finalizers and metadata.ownerReferences cannot be proposed: leave them out")
	}
	for i, p := range job.Spec.Publish {
		if p.Condition != "" {
			return fmt.Errorf("spec.publish[%d].condition is written to nodes while the NodeJob is suspended: leave it out, and ask a person to add it", i)
		}
	}
	for _, key := range slices.Concat(slices.Collect(maps.Keys(job.Annotations)), slices.Collect(maps.Keys(job.Labels))) {
		if domain, _, _ := strings.Cut(key, "/"); domain == v1alpha1.Group || strings.HasSuffix(domain, "."+v1alpha1.Group) {
			return fmt.Errorf("metadata: %s belongs to Everynode and can request something: leave it out", key)
		}
	}
	return nil
}
