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
	unknown []string
	job     *batchv1.Job
	nodes   []string
	// byName says that nodes are names of nodes, and not values of the label kubernetes.io/hostname.
	byName bool
}

const jobNode = "everynode.invalid/node"

// groupJob adds a Job to the others that do the same on another node.
func (c *converter) groupJob(source *unstructured.Unstructured) error {
	job, unknown, err := into[batchv1.Job](source)
	if err != nil {
		return err
	}
	if err := matchesNoNode(&job.Spec.Template.Spec); err != nil {
		return err
	}
	node, byName := takeNode(&job.Spec.Template.Spec)
	if node == "" {
		return errors.New("it does not choose a node (spec.template.spec.nodeName, or a selector of kubernetes.io/hostname), so it runs once in the cluster, not once on each node. " +
			"Keep the Job. To run it on each node, write a NodeJob with task.template")
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
	group := c.jobs[i]
	group.sources, group.unknown, group.nodes = append(group.sources, source), append(group.unknown, unknown...), append(group.nodes, node)
	return nil
}

// takeNode removes the choice of a node from a pod, and returns the node: by its name, or by the label kubernetes.io/hostname.
func takeNode(pod *corev1.PodSpec) (node string, byName bool) {
	if pod.NodeName != "" {
		node, pod.NodeName = pod.NodeName, ""
		return node, true
	}
	if value, ok := pod.NodeSelector[corev1.LabelHostname]; ok {
		delete(pod.NodeSelector, corev1.LabelHostname)
		return value, false
	}
	terms := slices.DeleteFunc(requiredTerms(pod), matchesNothing)
	if len(terms) != 1 {
		return "", false
	}
	take := func(from *[]corev1.NodeSelectorRequirement, key string) {
		i := slices.IndexFunc(*from, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == key && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1
		})
		if i >= 0 && node == "" {
			node, byName = (*from)[i].Values[0], key == metav1.ObjectNameField
			*from = slices.Delete(*from, i, i+1)
		}
	}
	take(&terms[0].MatchFields, metav1.ObjectNameField)
	take(&terms[0].MatchExpressions, corev1.LabelHostname)
	required := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required.NodeSelectorTerms = terms; matchesNothing(terms[0]) {
		pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil // nothing else is required
	}
	return node, byName
}

// convertJobs converts Jobs that do the same on different nodes.
func (c *converter) convertJobs(group *jobGroup) {
	spec := &group.job.Spec
	d := c.newDraft(c.newWork(group.sources[0], &spec.Template), commonName(group), group.sources...)
	d.selectNodes("")
	d.setJobNodes(group)
	d.setTask()
	d.runsAgain()
	limited(d, &d.job.Spec.Retry.Limit, spec.BackoffLimit, 100, "backoffLimit", "retry.limit")
	d.timeouts(spec.ActiveDeadlineSeconds, "activeDeadlineSeconds")
	d.finish(spec.TTLSecondsAfterFinished)
	if spec.Suspend != nil && *spec.Suspend {
		d.note("The Job is suspended. Do not resume the NodeJob until you want the task to run.")
	}
	// The choice of the node was removed, so what remains is elsewhere, such as in a command or a volume.
	if strings.Contains(group.key, jobNode) {
		d.todo("the Job names the node %s not only to choose it, and the NodeJob has this for all nodes\n"+
			"A script has the name of its node in $EVERYNODE_NODE_NAME, and a template gets it from the field spec.nodeName (env.valueFrom.fieldRef).", group.nodes[0])
	}
	d.nameFields(group.unknown)
}

// setJobNodes selects the nodes of the Jobs.
func (d *draft) setJobNodes(group *jobGroup) {
	names := slices.Compact(slices.Sorted(slices.Values(group.nodes)))
	nodes := &d.job.Spec.Nodes
	switch {
	case slices.ContainsFunc(names, isPlaceholder):
		d.note("The Job is a template, with a placeholder for the node. The NodeJob runs on all nodes that it selects, and on those that join later. The loop that creates the Jobs is not needed.")
	case group.byName:
		nodes.Names = names
		// A pod with nodeName runs on a node whatever its NoSchedule taints are.
		nodes.Tolerations = append(nodes.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
		d.note("nodes.names: only these nodes. Without it, the task also runs on nodes that join later.")
	default:
		nodes.Selector = cmp.Or(nodes.Selector, &metav1.LabelSelector{})
		nodes.Selector.MatchExpressions = append(nodes.Selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: names})
		d.note("nodes.selector: only these nodes. Without %s, the task also runs on nodes that join later.", corev1.LabelHostname)
	}
}

// commonName returns the name of the first Job without that of its node.
func commonName(group *jobGroup) string {
	first := group.sources[0]
	name := strings.ReplaceAll(cmp.Or(first.GetName(), first.GetGenerateName()), group.nodes[0], "")
	return cmp.Or(strings.Trim(strings.ReplaceAll(name, "--", "-"), "-."), first.GetName())
}

// broadcastJob has the fields of a BroadcastJob, from apps.kruise.io/v1alpha1 and v1beta1.
type broadcastJob struct {
	Spec struct {
		Parallelism      *intstr.IntOrString    `json:"parallelism,omitempty"`
		Template         corev1.PodTemplateSpec `json:"template"`
		CompletionPolicy struct {
			Type                    string `json:"type,omitempty"`
			ActiveDeadlineSeconds   *int64 `json:"activeDeadlineSeconds,omitempty"`
			TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
		} `json:"completionPolicy,omitzero"`
		FailurePolicy struct {
			Type         string `json:"type,omitempty"`
			RestartLimit int32  `json:"restartLimit,omitempty"`
		} `json:"failurePolicy,omitzero"`
		Paused bool `json:"paused,omitempty"`
	} `json:"spec"`
}

// broadcastJob converts a BroadcastJob.
func (c *converter) broadcastJob(source *unstructured.Unstructured) error {
	job, unknown, err := into[broadcastJob](source)
	if err != nil {
		return err
	}
	if err := matchesNoNode(&job.Spec.Template.Spec); err != nil {
		return err
	}
	d := c.newDraft(c.newWork(source, &job.Spec.Template), source.GetName(), source)
	d.selectNodes("")
	d.setTask()
	if job.Spec.Parallelism != nil {
		d.concurrent(job.Spec.Parallelism, "parallelism")
	} else {
		d.note("The BroadcastJob has no parallelism, so it runs on all nodes at once. A NodeJob runs on one node first, and then on 25%% at once. Set rollout.maxConcurrent for another limit.")
	}
	d.runsAgain()
	d.broadcastPolicies(job)
	d.nameFields(unknown)
	return nil
}

// broadcastPolicies converts when a BroadcastJob ends, and what it does after a failure.
func (d *draft) broadcastPolicies(job *broadcastJob) {
	completion, failure := job.Spec.CompletionPolicy, job.Spec.FailurePolicy
	switch completion.Type {
	case "", "Always":
		if d.job.Spec.Nodes.Names == nil {
			d.note("completionPolicy.type Always ends after the existing nodes. The NodeJob also runs on nodes that join later. To exclude them, list the nodes in nodes.names.")
		}
	case "Never":
	default:
		d.todo("completionPolicy.type %s is unknown", completion.Type)
	}
	d.timeouts(completion.ActiveDeadlineSeconds, "completionPolicy.activeDeadlineSeconds")
	if deadline := completion.ActiveDeadlineSeconds; deadline != nil {
		d.note("task.timeoutSeconds is for each node. When you resume the NodeJob, startingDeadlineSeconds: %d is a limit for all of it, from its creation.", *deadline)
	}
	d.finish(completion.TTLSecondsAfterFinished)
	limited(d, &d.job.Spec.Retry.Limit, &failure.RestartLimit, 100, "failurePolicy.restartLimit", "retry.limit")
	switch failure.Type {
	case "Continue":
		d.job.Spec.Rollout.MaxFailures = new(intstr.FromString("100%"))
	case "", "FailFast", "Pause":
		d.job.Spec.Rollout.MaxFailures = new(intstr.FromInt32(0))
		d.note("rollout.maxFailures: after the first failed node, the task starts on no other node.")
	default:
		d.todo("failurePolicy.type %s is unknown: set rollout.maxFailures", failure.Type)
	}
	if job.Spec.Paused {
		d.note("The BroadcastJob is paused. Do not resume the NodeJob until you want the task to run.")
	}
}
