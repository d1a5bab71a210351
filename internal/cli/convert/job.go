// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const jobNode = "everynode.invalid/node"

// job converts a Job for one node, or adds the node to the NodeJob of another Job that does the same.
func (c *converter) job(source *unstructured.Unstructured) error {
	job, err := into[batchv1.Job](c, source)
	if err != nil {
		return err
	}
	spec, pod := &job.Spec, &job.Spec.Template.Spec
	node, isName := pod.NodeName, pod.NodeName != ""
	if !isName {
		node = pod.NodeSelector[corev1.LabelHostname]
		delete(pod.NodeSelector, corev1.LabelHostname)
	}
	if node == "" {
		return errors.New("it does not choose a node by nodeName, or by a nodeSelector of kubernetes.io/hostname, so it runs once in the " +
			"cluster. Keep the Job. To run it on each node, write a NodeJob with task.template")
	}
	name := strings.ReplaceAll(strings.ReplaceAll(cmp.Or(source.GetName(), source.GetGenerateName()), node, ""), "--", "-")
	d := c.newDraft(cmp.Or(strings.Trim(name, "-."), source.GetName()), &spec.Template, source)
	if err := cmp.Or(d.isPatch(), d.selectNodes()); err != nil {
		return err
	}
	d.readLabels()
	d.setTask()
	d.runsAgain()
	d.job.Spec.Retry.Limit = cmp.Or(spec.BackoffLimit, new(int32(6))) // the default of Kubernetes
	d.failOn("retry.limit is the backoffLimit of the Job.")
	d.timeout(spec.ActiveDeadlineSeconds)
	body, err := json.Marshal([]any{d.job.Namespace, isName, d.job.Spec})
	if err != nil {
		return err
	}
	d.key = strings.ReplaceAll(string(body), node, jobNode)
	if i := slices.IndexFunc(c.drafts, func(o *draft) bool { return o.key == d.key }); c.drafts[i] != d {
		c.drafts = c.drafts[:len(c.drafts)-1]
		d = c.drafts[i]
		d.sources = append(d.sources, source)
	}
	d.selectNode(node, isName)
	d.nameFields()
	return nil
}

// selectNode adds the node of a Job.
func (d *draft) selectNode(node string, isName bool) {
	nodes, isFirst := &d.job.Spec.Nodes, len(d.sources) == 1
	// The choice of the node is not in the key, so what remains is elsewhere, such as in a command or a volume.
	if isFirst && strings.Contains(d.key, jobNode) {
		d.todo("the Job names the node %s not only to choose it, and the NodeJob has this for all nodes\n"+
			"A script has the name of its node in $EVERYNODE_NODE_NAME, and a template gets it with env.valueFrom.fieldRef.", node)
	}
	switch {
	case isPlaceholder(node):
		d.todo("the Job has a placeholder for its node, and the NodeJob runs on all nodes\n" +
			"If the Job is created for nodes that a user chooses, such as one to clean up, select them in spec.nodes. " +
			"A loop that creates a Job for each node is not needed.")
		return
	case isName && isFirst:
		// A pod with nodeName runs on a node whatever its NoSchedule taints are.
		noSchedule := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		nodes.Tolerations = append(nodes.Tolerations, noSchedule)
	case isFirst:
		nodes.Selector = cmp.Or(nodes.Selector, &metav1.LabelSelector{})
		nodes.Selector.MatchExpressions = append(nodes.Selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn})
	}
	d.note("The NodeJob runs only on the nodes of the Jobs. To run it also on nodes that join later, do not select these in spec.nodes.")
	list := &nodes.Names
	if !isName {
		list = &nodes.Selector.MatchExpressions[len(nodes.Selector.MatchExpressions)-1].Values
	}
	add(list, "%s", []any{node})
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
	if err := cmp.Or(d.isPatch(), d.selectNodes()); err != nil {
		return err
	}
	d.readLabels()
	d.setTask()
	d.runsAgain()
	d.timeout(job.Spec.CompletionPolicy.ActiveDeadlineSeconds)
	d.note(oneNodeFirst)
	if job.Spec.CompletionPolicy.Type != "Never" && d.job.Spec.Nodes.Names == nil {
		d.todo("with completionPolicy Always, the default, nodes that join later do not run the task, and a NodeJob runs it there\n" +
			"List the nodes in nodes.names, or use kubectl everynode run, if these must not run it.")
	}
	d.job.Spec.Rollout.MaxConcurrent = job.Spec.Parallelism
	d.job.Spec.Retry.Limit = new(job.Spec.FailurePolicy.RestartLimit)
	if d.job.Spec.Rollout.MaxFailures = new(intstr.FromInt32(0)); job.Spec.FailurePolicy.Type == "Continue" {
		d.job.Spec.Rollout.MaxFailures = new(intstr.FromString("100%"))
	}
	d.nameFields()
	return nil
}
