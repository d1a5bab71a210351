// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// jobGroup has the Jobs that do the same on different nodes.
type jobGroup struct {
	// key is what they have in common.
	key     string
	sources []*unstructured.Unstructured
	job     *batchv1.Job
	nodes   []string
	// byName says that nodes are names of nodes, and not values of the label kubernetes.io/hostname.
	byName bool
}

const jobNode = "everynode.invalid/node"

// groupJob adds a Job to the others that do the same on another node.
func (c *converter) groupJob(source *unstructured.Unstructured) error {
	job, err := into[batchv1.Job](c, source)
	if err != nil {
		return err
	}
	pod := &job.Spec.Template.Spec
	node, byName := pod.NodeName, pod.NodeName != ""
	if pod.NodeName = ""; !byName {
		node = pod.NodeSelector[corev1.LabelHostname]
		delete(pod.NodeSelector, corev1.LabelHostname)
	}
	if node == "" {
		return errors.New("it does not choose a node (spec.template.spec.nodeName, or a nodeSelector of kubernetes.io/hostname), so it runs " +
			"once in the cluster, not once on each node. Keep the Job. To run it on each node, write a NodeJob with task.template")
	}
	// The API server adds labels with the UID of the Job.
	job.Spec.Selector = nil
	maps.DeleteFunc(job.Spec.Template.Labels, func(key, _ string) bool { return slices.Contains(byKubernetes, key) })
	body, err := json.Marshal([]any{source.GetNamespace(), job.Spec, byName})
	if err != nil {
		return err
	}
	key := strings.ReplaceAll(string(body), node, jobNode)
	i := slices.IndexFunc(c.jobs, func(g *jobGroup) bool { return g.key == key })
	if i < 0 {
		i = len(c.jobs)
		c.jobs = append(c.jobs, &jobGroup{key: key, job: job, byName: byName})
	}
	c.jobs[i].sources, c.jobs[i].nodes = append(c.jobs[i].sources, source), append(c.jobs[i].nodes, node)
	return nil
}

// convertJobs converts Jobs that do the same on different nodes.
func (c *converter) convertJobs(group *jobGroup) error {
	spec := &group.job.Spec
	d := c.newDraft(commonName(group), &spec.Template, group.sources...)
	if err := d.selectNodes(""); err != nil {
		return err
	}
	d.setJobNodes(group)
	d.setTask()
	d.runsAgain()
	if spec.BackoffLimit != nil {
		d.job.Spec.Retry.Limit = d.limit(int64(*spec.BackoffLimit), 100, "backoffLimit")
	}
	d.timeouts(spec.ActiveDeadlineSeconds, "activeDeadlineSeconds")
	// The choice of the node was removed, so what remains is elsewhere, such as in a command or a volume.
	if strings.Contains(group.key, jobNode) {
		d.todo("the Job names the node %s not only to choose it, and the NodeJob has this for all nodes\n"+
			"A script has the name of its node in $EVERYNODE_NODE_NAME, and a template gets it from the field spec.nodeName "+
			"(env.valueFrom.fieldRef).", group.nodes[0])
	}
	d.nameFields()
	return nil
}

// setJobNodes selects the nodes of the Jobs.
func (d *draft) setJobNodes(group *jobGroup) {
	names := slices.Compact(slices.Sorted(slices.Values(group.nodes)))
	nodes := &d.job.Spec.Nodes
	switch {
	case slices.ContainsFunc(names, isPlaceholder):
		d.note("The Job is a template, with a placeholder for the node. The NodeJob runs on all nodes that it selects, and on those that join " +
			"later. The loop that creates the Jobs is not needed.")
		return
	case group.byName:
		nodes.Names = names
		// A pod with nodeName runs on a node whatever its NoSchedule taints are.
		nodes.Tolerations = append(nodes.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	default:
		nodes.Selector = cmp.Or(nodes.Selector, &metav1.LabelSelector{})
		nodes.Selector.MatchExpressions = append(nodes.Selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: names})
	}
	d.note("The NodeJob runs only on the nodes of the Jobs. To run it also on nodes that join later, do not select these in spec.nodes.")
}

// commonName returns the name of the first Job without that of its node.
func commonName(group *jobGroup) string {
	first := group.sources[0]
	name := strings.ReplaceAll(cmp.Or(first.GetName(), first.GetGenerateName()), group.nodes[0], "")
	return cmp.Or(strings.Trim(strings.ReplaceAll(name, "--", "-"), "-."), first.GetName())
}

// broadcastJob has the fields of a BroadcastJob that a NodeJob has too, from apps.kruise.io/v1alpha1 and v1beta1. fields.yaml says what
// becomes of the others.
type broadcastJob struct {
	Spec struct {
		Parallelism      *intstr.IntOrString    `json:"parallelism,omitempty"`
		Template         corev1.PodTemplateSpec `json:"template"`
		CompletionPolicy struct {
			Type                  string `json:"type,omitempty"`
			ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
		} `json:"completionPolicy,omitzero"`
		FailurePolicy struct {
			Type         string `json:"type,omitempty"`
			RestartLimit int32  `json:"restartLimit,omitempty"`
		} `json:"failurePolicy,omitzero"`
	} `json:"spec"`
}

// broadcastJob converts a BroadcastJob.
func (c *converter) broadcastJob(source *unstructured.Unstructured) error {
	job, err := into[broadcastJob](c, source)
	if err != nil {
		return err
	}
	d := c.newDraft(source.GetName(), &job.Spec.Template, source)
	if err := d.selectNodes(""); err != nil {
		return err
	}
	d.setTask()
	if job.Spec.Parallelism != nil {
		d.concurrent(job.Spec.Parallelism, "parallelism")
	} else {
		d.note("The BroadcastJob has no parallelism, so it runs on all nodes at once. A NodeJob runs on one node first, and then on 25%% at once. " +
			"Set rollout.maxConcurrent for another limit.")
	}
	d.runsAgain()
	if job.Spec.CompletionPolicy.Type != "Never" && d.job.Spec.Nodes.Names == nil {
		d.note("The BroadcastJob ends after the existing nodes. The NodeJob also runs on nodes that join later, unless nodes.names lists the nodes.")
	}
	d.timeouts(job.Spec.CompletionPolicy.ActiveDeadlineSeconds, "completionPolicy.activeDeadlineSeconds")
	d.job.Spec.Retry.Limit = d.limit(int64(job.Spec.FailurePolicy.RestartLimit), 100, "failurePolicy.restartLimit")
	if d.job.Spec.Rollout.MaxFailures = new(intstr.FromInt32(0)); job.Spec.FailurePolicy.Type == "Continue" {
		d.job.Spec.Rollout.MaxFailures = new(intstr.FromString("100%"))
	}
	d.nameFields()
	return nil
}
