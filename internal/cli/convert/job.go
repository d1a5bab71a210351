// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// jobGroup has the Jobs that do the same on different nodes.
type jobGroup struct {
	sources []*unstructured.Unstructured
	unknown []string
	job     *batchv1.Job
	nodes   []string
	// namesNode says that the Jobs name their nodes also elsewhere, such as in a command or a volume.
	namesNode bool
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
	group := c.keys[key]
	if group == nil {
		group = &jobGroup{job: job, byName: byName, namesNode: strings.Contains(string(body), node)}
		c.keys[key] = group
		c.jobs = append(c.jobs, group)
	}
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
	take := func(from *[]corev1.NodeSelectorRequirement, key string) (node string) {
		*from = slices.DeleteFunc(*from, func(r corev1.NodeSelectorRequirement) bool {
			if node != "" || r.Key != key || r.Operator != corev1.NodeSelectorOpIn || len(r.Values) != 1 {
				return false
			}
			node = r.Values[0]
			return true
		})
		return node
	}
	node = take(&terms[0].MatchFields, metav1.ObjectNameField)
	if byName = node != ""; !byName {
		node = take(&terms[0].MatchExpressions, corev1.LabelHostname)
	}
	required := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required.NodeSelectorTerms = terms; matchesNothing(terms[0]) {
		pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil // nothing else is required
	}
	return node, byName
}

// convertJobs converts Jobs that do the same on different nodes.
func (c *converter) convertJobs(group *jobGroup) *draft {
	d := c.newDraft(group.sources...)
	d.rename(commonName(group))
	spec := &group.job.Spec
	pod := &spec.Template.Spec
	w := c.newWork(d, &spec.Template)
	d.selectNodes(pod, nil)
	d.setJobNodes(group)
	d.setTask(w)
	d.runsAgain()
	limited(d, &d.job.Spec.Retry.Limit, spec.BackoffLimit, 100, "backoffLimit", "retry.limit")
	d.timeouts(spec.ActiveDeadlineSeconds, pod.ActiveDeadlineSeconds, "activeDeadlineSeconds")
	d.timeLimit()
	d.finish(spec.TTLSecondsAfterFinished)
	if spec.Suspend != nil && *spec.Suspend {
		d.note("The Job is suspended. Do not resume the NodeJob until you want the task to run.")
	}
	if node := group.nodes[0]; group.namesNode {
		d.todo("the Job names the node %s not only to choose it, and the NodeJob has this for all nodes\nA script has the name of its node in $EVERYNODE_NODE_NAME, and a template gets it from the field spec.nodeName (env.valueFrom.fieldRef).", node)
	}
	d.nameFields(group.unknown)
	return d
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
		if nodes.Selector == nil {
			nodes.Selector = &metav1.LabelSelector{}
		}
		nodes.Selector.MatchExpressions = append(nodes.Selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: names})
		d.note("nodes.selector: only these nodes. Without %s, the task also runs on nodes that join later.", corev1.LabelHostname)
	}
}

// commonName returns the name that the Jobs have in common.
func commonName(group *jobGroup) string {
	first := group.sources[0]
	name := first.GetName()
	if name == "" {
		name = first.GetGenerateName()
	}
	if without := strings.ReplaceAll(name, group.nodes[0], ""); without != name {
		name = strings.ReplaceAll(without, "--", "-")
	} else {
		for _, source := range group.sources[1:] {
			for !strings.HasPrefix(source.GetName(), name) {
				name = name[:len(name)-1]
			}
		}
	}
	if trimmed := strings.Trim(name, "-."); trimmed != "" {
		return trimmed
	}
	return first.GetName()
}
