// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
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
	fields  []*fields
	job     *batchv1.Job
	nodes   []string
	// byName says that nodes are names of nodes, and not values of the label kubernetes.io/hostname.
	byName bool
}

const jobNode = "everynode.invalid/node"

// groupJob adds a Job to the others that do the same on another node.
func (c *converter) groupJob(source *unstructured.Unstructured) error {
	job, found, err := into[batchv1.Job](source)
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
	job.Spec.Selector, job.Spec.Template.Labels = nil, nil
	body, err := json.Marshal([]any{source.GetNamespace(), job.Spec, byName})
	if err != nil {
		return err
	}
	key := strings.ReplaceAll(string(body), node, jobNode)
	group := c.jobs[key]
	if group == nil {
		group = &jobGroup{job: job, byName: byName}
		c.jobs[key] = group
		c.order = append(c.order, func() *draft { return c.convertJobs(group) })
	}
	group.sources, group.fields, group.nodes = append(group.sources, source), append(group.fields, found), append(group.nodes, node)
	return nil
}

// takeNode removes the choice of a node from a pod, and returns the node.
func takeNode(pod *corev1.PodSpec) (node string, byName bool) {
	if pod.NodeName != "" {
		node, pod.NodeName = pod.NodeName, ""
		return node, true
	}
	if value, ok := pod.NodeSelector[corev1.LabelHostname]; ok {
		delete(pod.NodeSelector, corev1.LabelHostname)
		return value, false
	}
	return takeNodeOfTerms(pod)
}

// takeNodeOfTerms removes the choice of a node from the node affinity, if all its terms choose the same node.
func takeNodeOfTerms(pod *corev1.PodSpec) (node string, byName bool) {
	terms := slices.DeleteFunc(requiredTerms(pod), isEmpty)
	for i := range terms {
		chosen, isName := nodeOfTerm(&terms[i])
		if chosen == "" || i > 0 && (chosen != node || isName != byName) {
			return "", false
		}
		node, byName = chosen, isName
	}
	if node == "" {
		return "", false
	}
	required := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required.NodeSelectorTerms = terms; slices.ContainsFunc(terms, isEmpty) {
		// Nothing else is required.
		pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
	}
	return node, byName
}

// nodeOfTerm removes the choice of a node from a term: by its name, or by the label kubernetes.io/hostname.
func nodeOfTerm(t *corev1.NodeSelectorTerm) (node string, byName bool) {
	take := func(from []corev1.NodeSelectorRequirement, key string) ([]corev1.NodeSelectorRequirement, string) {
		i := slices.IndexFunc(from, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == key && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1
		})
		if i < 0 {
			return from, ""
		}
		node := from[i].Values[0]
		return slices.Delete(from, i, i+1), node
	}
	if t.MatchFields, node = take(t.MatchFields, metav1.ObjectNameField); node != "" {
		return node, true
	}
	t.MatchExpressions, node = take(t.MatchExpressions, corev1.LabelHostname)
	return node, false
}

// convertJobs converts Jobs that do the same on different nodes.
func (c *converter) convertJobs(group *jobGroup) *draft {
	d := newDraft(c.options, group.sources...)
	d.rename(commonName(group))
	job := group.job
	pod := &job.Spec.Template.Spec
	w := c.workload(&job.Spec.Template, group.sources[0])
	w.placeholder = placeholderName(group.nodes[0])
	for i := range pod.InitContainers {
		w.addStep(&pod.InitContainers[i], true)
	}
	for i := range pod.Containers {
		w.addStep(&pod.Containers[i], false)
	}
	d.selectNodes(pod, everyRequirement)
	d.setJobNodes(group)
	d.setChanges(w.changes, d.mergeChanges(w))
	d.setTask(w)
	d.runsAgain()
	d.retries(job.Spec.BackoffLimit, "backoffLimit")
	d.deadlines(job.Spec.ActiveDeadlineSeconds, pod.ActiveDeadlineSeconds, "activeDeadlineSeconds")
	d.finish(job.Spec.TTLSecondsAfterFinished)
	d.jobTodos(&job.Spec)
	d.account = accountOf(pod)
	rules := jobRules()
	maps.Copy(rules, podRules(d.usesTemplate(), nil))
	d.nameFields(w, "", rules, group.fields...)
	if text := fmt.Sprint(d.spec.field("task").value.(*object).lines(0)); strings.Contains(text, group.nodes[0]) {
		d.spec.todo("task", "the task names the node %s. A script has the name of its node in $EVERYNODE_NODE_NAME.", group.nodes[0])
	}
	return d
}

// jobTodos names the fields of a Job that have no equivalent.
func (d *draft) jobTodos(spec *batchv1.JobSpec) {
	if spec.Completions != nil && *spec.Completions > 1 {
		d.spec.todo("task", "completions is %d, and a NodeJob runs the task once on each node.", *spec.Completions)
	}
	if spec.Suspend != nil && *spec.Suspend {
		d.note("The Job is suspended. Do not resume the NodeJob until you want the task to run.")
	}
	if spec.PodFailurePolicy != nil {
		d.spec.todo("task", "podFailurePolicy has no equivalent.")
	}
	if spec.SuccessPolicy != nil {
		d.spec.todo("task", "successPolicy has no equivalent.")
	}
}

// setJobNodes selects the nodes of the Jobs.
func (d *draft) setJobNodes(group *jobGroup) {
	nodes := slices.Sorted(maps.Keys(setOf(group.nodes)))
	switch {
	case slices.ContainsFunc(nodes, isPlaceholder):
		d.note("The Job is a template, with a placeholder for the node. The NodeJob runs on all nodes that it selects, and on those that join later. The loop that creates the Jobs is not needed.")
	case group.byName:
		d.spec.in("nodes").set("names", generic(nodes), "Only these nodes. Without nodes.names, the task also runs on nodes that join later.")
	default:
		selector := equalSelector(corev1.LabelHostname, nodes)
		if current, ok := d.spec.in("nodes").field("selector").value.(map[string]any); ok {
			mergeSelector(current, selector)
			return
		}
		d.setSelector(selector)
		d.spec.in("nodes").note("selector", "Only these nodes. Without kubernetes.io/hostname, the task also runs on nodes that join later.")
	}
}

// placeholderName returns the name of the variable in $NAME or ${NAME}; "" for other names of nodes.
func placeholderName(node string) string {
	if m := regexp.MustCompile(`^\$\{?([A-Za-z_]\w*)\}?$`).FindStringSubmatch(node); m != nil {
		return m[1]
	}
	return ""
}

// mergeSelector adds the requirements of a selector to one that is written.
func mergeSelector(current map[string]any, selector *metav1.LabelSelector) {
	added, _ := generic(selector).(map[string]any)
	for key, value := range added {
		switch value := value.(type) {
		case map[string]any:
			inner, _ := current[key].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
			}
			maps.Copy(inner, value)
			current[key] = inner
		case []any:
			inner, _ := current[key].([]any)
			current[key] = append(inner, value...)
		}
	}
}

func setOf(names []string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
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
