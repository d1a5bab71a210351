// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A DaemonSet restarts its pods for ever. To run something once, its pod excludes its node by a label when it is done, or
// it waits without end.

// daemonSet converts a DaemonSet that runs once.
func (c *converter) daemonSet(source *unstructured.Unstructured) (*draft, error) {
	ds, found, err := into[appsv1.DaemonSet](source)
	if err != nil {
		return nil, err
	}
	if err := matchesNoNode(&ds.Spec.Template.Spec); err != nil {
		return nil, err
	}
	d := newDraft(c.options, source)
	w := c.workload(&ds.Spec.Template, source)
	w.always = true
	pod := &ds.Spec.Template.Spec
	for i := range pod.InitContainers {
		if pod.InitContainers[i].RestartPolicy != nil {
			return nil, permanent("its init container %s is a sidecar", pod.InitContainers[i].Name)
		}
		w.addStep(&pod.InitContainers[i], true)
	}
	for i := range pod.Containers {
		if container := &pod.Containers[i]; isIdle(container) {
			d.dropContainer(container, "only waits")
		} else {
			w.addStep(container, false)
		}
	}
	marker := markerOf(w)
	if err := runsOnce(w, marker); err != nil {
		return nil, err
	}
	d.selectNodes(pod, func(r corev1.NodeSelectorRequirement) bool {
		return marker.excludes && r.Key == marker.change.key && excludes(r)
	})
	d.setMarker(marker)
	d.setChanges(w.changes, d.mergeChanges(w))
	d.setTask(w)
	d.setReruns(w, marker)
	d.setUpdates(ds.Spec.UpdateStrategy)
	d.account = accountOf(pod)
	rules := daemonSetRules()
	maps.Copy(rules, podRules(d.usesTemplate(), selectorLabels(ds.Spec.Selector)))
	d.nameFields(w, "", rules, found)
	return d, nil
}

// marker is the label by which the pods of a DaemonSet show that they are done.
type marker struct {
	change nodeChange
	// excludes says that the affinity excludes nodes with the label, and requests that the selector requires it.
	excludes, requests bool
	// byProgram says that a program of the image sets it, which the manifest does not show.
	byProgram   bool
	requirement corev1.NodeSelectorRequirement
}

// othersKey matches labels by which clouds and Kubernetes describe nodes. No pod sets them.
var othersKey = regexp.MustCompile(`(^|[./])(kubernetes\.io|k8s\.io|amazonaws\.com|azure\.com|google\.com|karpenter\.sh|openshift\.io)/|^beta\.|^type$`)

func markerOf(w *workload) marker {
	pod := &w.template.Spec
	excluded := affinityWith(pod)
	for key, requirement := range excluded {
		if change, ok := labelsSet(w.changes, key); ok && !change.remove {
			return marker{change: change, excludes: true, requirement: requirement}
		}
	}
	for _, change := range w.changes {
		if change.remove && change.kind == "label" && requires(pod, change.key) {
			return marker{change: change, requests: true}
		}
	}
	if accountOf(pod) == "" || len(w.changes) > 0 {
		return marker{}
	}
	return markerOfProgram(excluded)
}

// markerOfProgram returns the label that a program of the image probably sets.
func markerOfProgram(excluded map[string]corev1.NodeSelectorRequirement) marker {
	for _, key := range slices.Sorted(maps.Keys(excluded)) {
		if requirement := excluded[key]; requirement.Operator == corev1.NodeSelectorOpDoesNotExist && !othersKey.MatchString(key) {
			return marker{change: nodeChange{kind: "label", key: key, value: "$"}, excludes: true, byProgram: true, requirement: requirement}
		}
	}
	return marker{}
}

func accountOf(pod *corev1.PodSpec) string {
	return cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount)
}

// requires reports whether the pod runs only on nodes with a label.
func requires(pod *corev1.PodSpec, key string) bool {
	if _, ok := pod.NodeSelector[key]; ok {
		return true
	}
	return slices.ContainsFunc(requirements(pod), func(r corev1.NodeSelectorRequirement) bool {
		return r.Key == key && (r.Operator == corev1.NodeSelectorOpIn || r.Operator == corev1.NodeSelectorOpExists)
	})
}

// permanent returns an error that says why a DaemonSet does not run once, and what to write instead.
func permanent(format string, args ...any) error {
	return fmt.Errorf("%s, so it runs permanently, and a NodeJob runs a task that ends. Keep the DaemonSet. "+
		"If a part of it is a task that ends, write a NodeJob for this part: kubectl everynode create script NAME -f FILE, or task.template for a program with an image", fmt.Sprintf(format, args...))
}

// runsOnce returns an error for a DaemonSet that is a server.
func runsOnce(w *workload, m marker) error {
	if len(w.steps) == 0 {
		return errors.New("its containers only wait, so there is no task to convert. To pull images on every node, write a NodeJob with task.template")
	}
	if m.requests || m.excludes && !m.byProgram {
		return nil
	}
	for _, s := range w.steps {
		if err := s.ends(m, w.namespace); err != nil && !s.init {
			return err
		}
	}
	return nil
}

// ends returns an error for a container that runs permanently.
func (s *step) ends(m marker, namespace string) error {
	switch container := s.container; {
	case len(container.Ports) > 0:
		return permanent("its container %s has ports", container.Name)
	case container.LivenessProbe != nil || container.ReadinessProbe != nil:
		return permanent("its container %s has probes", container.Name)
	case m.byProgram, s.waits:
		return nil
	case s.from != nil:
		name := s.from.ConfigMapKeyRef.Name
		return fmt.Errorf("the script of its container %s is in the ConfigMap %s, which is not in the file. Add the ConfigMap to the file: kubectl get configmap %s%s -o yaml",
			container.Name, name, name, inNamespace(namespace))
	default:
		return permanent("its container %s has no wait such as sleep infinity at its end, and does not set a label that its node affinity excludes", container.Name)
	}
}

// setMarker says which nodes are done, and removes the label from the selection.
func (d *draft) setMarker(m marker) {
	key, value := m.change.key, m.change.value
	switch {
	case !m.excludes:
		return
	case m.byProgram:
		d.drop("the node affinity to nodes without the label %s", key)
		d.note("TODO: This assumes that the program sets the label %s on its node and then ends. If it does not end, it is not a task for a NodeJob.", key)
	default:
		d.drop("the node affinity to nodes without the label %s, and the label: a node that is done has a record", key)
	}
	if m.change.isDynamic() || value == "" {
		d.assumeDone(map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": "Exists"}}})
		return
	}
	d.assumeDone(map[string]any{"matchLabels": map[string]any{key: value}})
}

// setReruns keeps when the pod runs its work again.
func (d *draft) setReruns(w *workload, m marker) {
	every := 0
	for _, s := range w.steps {
		every = max(every, s.every)
	}
	switch {
	case every > 0:
		d.spec.in("rerun").set("periodSeconds", min(max(every, 10), 31536000), "The script repeated its work in a loop.")
	case m.excludes || m.requests:
		return
	}
	if every == 0 {
		d.spec.in("rerun").set("onReboot", true, "The pod of the DaemonSet ran it again after each reboot. Remove this if the effect of the task outlasts a reboot.")
	}
	d.runsAgain()
}

// runsAgain says that the NodeJob cannot know where the source has run.
func (d *draft) runsAgain() {
	d.note("The %s does not label the nodes on which it has run, so the task runs once on each node, also on these. "+
		"To prevent this, skip the nodes before you resume the NodeJob: kubectl everynode skip %s NODE…%s", d.kind(), d.name, inNamespace(d.namespace))
}

// setUpdates converts how many pods are replaced at once.
func (d *draft) setUpdates(strategy appsv1.DaemonSetUpdateStrategy) {
	if strategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		d.spec.in("rerun").set("onRevisionChange", false, "updateStrategy OnDelete: a change of the task runs only on nodes that are not done yet.")
	}
	if rolling := strategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil && *rolling.MaxUnavailable != intstr.FromInt32(0) {
		d.concurrent(*rolling.MaxUnavailable, "updateStrategy.rollingUpdate.maxUnavailable")
	}
}

// selectorLabels returns the labels by which a DaemonSet finds its pods.
func selectorLabels(selector *metav1.LabelSelector) map[string]string {
	if selector == nil {
		return nil
	}
	return selector.MatchLabels
}

func (d *draft) usesTemplate() bool {
	_, ok := d.spec.in("task").field("template").value.(map[string]any)
	return ok
}

// equalSelector returns a selector with one value of a label.
func equalSelector(key string, values []string) *metav1.LabelSelector {
	if len(values) == 1 {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: values[0]}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
}

func isPlaceholder(name string) bool { return strings.ContainsAny(name, "${<[%") }
