// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
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
func (c *converter) daemonSet(source *unstructured.Unstructured) ([]*draft, error) {
	ds, unknown, err := into[appsv1.DaemonSet](source)
	if err != nil {
		return nil, err
	}
	pod := &ds.Spec.Template.Spec
	if err := matchesNoNode(pod); err != nil {
		return nil, err
	}
	d := c.newDraft(source)
	w := c.newWork(d, &ds.Spec.Template)
	w.repeats = true
	marks, unsure := w.marks(d)
	if err := w.dropIdle(d); err != nil {
		return nil, err
	}
	for _, s := range w.steps {
		if err := w.runsOnce(s, unsure); err != nil {
			return nil, err
		}
	}
	d.selectNodes(pod, marks)
	d.setTask(w)
	d.timeLimit()
	if len(marks) == 0 && len(d.job.Spec.RemoveLabels) == 0 {
		d.job.Spec.Rerun.OnReboot = true
		d.note("rerun.onReboot: the pod of the DaemonSet ran again after each reboot. Remove this if the effect of the task outlasts a reboot.")
		d.runsAgain()
	}
	d.setUpdates(ds.Spec.UpdateStrategy)
	d.nameFields(unknown)
	return []*draft{d}, nil
}

// setUpdates converts how many pods are replaced at once.
func (d *draft) setUpdates(strategy appsv1.DaemonSetUpdateStrategy) {
	switch strategy.Type {
	case "", appsv1.RollingUpdateDaemonSetStrategyType:
	case appsv1.OnDeleteDaemonSetStrategyType:
		d.job.Spec.Rerun.OnRevisionChange = new(false)
		d.note("rerun.onRevisionChange: with updateStrategy OnDelete, a change of the task runs only on nodes that are not done yet.")
	default:
		d.todo("updateStrategy.type %s is unknown", strategy.Type)
	}
	if rolling := strategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil && *rolling.MaxUnavailable != intstr.FromInt32(0) {
		d.concurrent(rolling.MaxUnavailable, "updateStrategy.rollingUpdate.maxUnavailable")
	}
}

// dropIdle removes containers that only wait.
func (w *work) dropIdle(d *draft) error {
	w.steps = slices.DeleteFunc(w.steps, func(s step) bool {
		if s.init || !isIdle(s) {
			return false
		}
		d.drop("the container %s with the image %s, which only waits", s.Name, s.Image)
		return true
	})
	if len(w.steps) == 0 {
		return errors.New("its containers only wait, so there is no task to convert. To pull images on every node, write a NodeJob with task.template")
	}
	return nil
}

// pauseImage matches the names of images whose program only waits.
var pauseImage = regexp.MustCompile(`^pause(-(amd64|arm64|arm|ppc64le|s390x))?$`)

// isIdle reports whether a container only waits.
func isIdle(s step) bool {
	argv := s.program.argv
	if len(s.Command) == 0 {
		name, _, _ := strings.Cut(path.Base(s.Image), ":")
		name, _, _ = strings.Cut(name, "@")
		return len(argv) == 0 && pauseImage.MatchString(name) || len(argv) > 0 && waits(argv)
	}
	if len(s.Ports) > 0 {
		return false
	}
	if s.program.script == "" {
		return waits(argv)
	}
	shown := read(s.program.script)
	return !shown.invalid && !shown.work && len(shown.waits)+len(shown.loops) > 0
}

// runsOnce returns an error for a container that is a server, or does something that the files do not show. unsure says that a TODO
// already says so.
func (w *work) runsOnce(s step, unsure bool) error {
	const instead = "A NodeJob runs a task that ends. If a part of the DaemonSet is one, write a NodeJob for this part: kubectl everynode create script NAME -f FILE, or task.template for a program with an image"
	if s.RestartPolicy != nil {
		return fmt.Errorf("its init container %s is a sidecar, which runs permanently. Keep the DaemonSet. %s", s.Name, instead)
	}
	if s.init {
		return nil
	}
	if len(s.Ports) > 0 {
		return fmt.Errorf("its container %s has ports, so it is a server. Keep the DaemonSet. %s", s.Name, instead)
	}
	for name, probe := range map[string]*corev1.Probe{"livenessProbe": s.LivenessProbe, "readinessProbe": s.ReadinessProbe, "startupProbe": s.StartupProbe} {
		if probe != nil && probe.Exec == nil {
			return fmt.Errorf("its container %s has a %s over the network, so it is a server. Keep the DaemonSet. %s", s.Name, name, instead)
		}
	}
	if unsure || startupScript(s.Container) != nil && s.program.absent.kind == "" {
		return nil
	}
	return w.shows(s, instead)
}

// shows returns an error for a container of which the files do not show that it ends, or waits when it is done.
func (w *work) shows(s step, instead string) error {
	p := s.program
	switch {
	case p.absent.kind != "":
		return fmt.Errorf("the program of its container %s is in the %s, which is not in the file. Add it: kubectl get %s %s%s -o yaml",
			s.Name, p.absent, strings.ToLower(p.absent.kind), p.absent.name, inNamespace(w.namespace))
	case p.script != "":
		switch shown := read(p.script); {
		case shown.invalid:
			return fmt.Errorf("the script of its container %s is not one of a POSIX shell or Bash, so whether it ends is not known. %s", s.Name, instead)
		case shown.unknown != "" && len(shown.waits)+len(shown.loops) == 0:
			return fmt.Errorf("the script of its container %s runs %s, and the manifest does not show whether that ends. If it runs permanently, keep the DaemonSet. %s", s.Name, shown.unknown, instead)
		}
		return nil
	case len(s.Command) > 0 && ends(unwrapped(p.argv)):
		return nil
	}
	what := "the image " + s.Image
	if len(p.argv) > 0 && len(s.Command) > 0 {
		what = p.argv[0]
	}
	return fmt.Errorf("its container %s runs %s, and the manifest does not show what that does. If it runs permanently, keep the DaemonSet. %s", s.Name, what, instead)
}

// marks returns the labels that a pod sets on its node when it is done, and that its node affinity excludes. Nodes with the label count
// as done. unsure says that a program may set one, which the manifest does not show.
func (w *work) marks(d *draft) (marks map[string]bool, unsure bool) {
	marks = map[string]bool{}
	labels := w.labelChanges()
	for _, r := range requirements(w.pod) {
		switch {
		case !excludes(r) || marks[r.Key]:
		case sets(labels, r) && len(marks) == 0:
			marks[r.Key] = true
			d.drop("the node affinity to nodes without the label %s: a node that is done has a record", r.Key)
			d.assumeDone(excludedBy(r))
			d.note("nodes.assumeDone: nodes with the label %s are done, and do not run the task.", r.Key)
		case labels[r.Key] != "" || labels["$"] != "":
			d.todo(changesLabel+"Remove the command, or the requirement from nodes.selector.", r.Key)
		case w.mayMark(r):
			unsure = true
			d.todo("the manifest does not show whether the program ends, and whether it sets the label %s on its node when it is done\n"+
				"If it does not end, keep the DaemonSet. The NodeJob selects nodes without the label, so a node that gets it is no longer selected. If the program sets it, "+
				"remove the requirement from nodes.selector, and write: nodes.assumeDone: {selector: {matchExpressions: [{key: %s, operator: Exists}]}}", r.Key, r.Key)
		}
	}
	w.changesRequired(d, labels)
	return marks, unsure
}

const changesLabel = "the script may change the label %s of its node, by which the source selects nodes\nA node must stay selected while the task runs. "

// changesRequired says which labels the script changes although the source selects nodes by them.
func (w *work) changesRequired(d *draft, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(w.required())) {
		if labels[key] == "-" {
			d.job.Spec.RemoveLabels = append(d.job.Spec.RemoveLabels, key)
			d.todo("the script removes the label %s from its node, and removeLabels does that when the node is done\nRemove the command: while the task runs, its node must stay selected.", key)
		} else if labels[key] != "" || labels["$"] != "" {
			d.todo(changesLabel+"Remove the command, or the label from nodes.selector.", key)
		}
	}
}

// sets reports whether a script sets a label so that a requirement excludes its node.
func sets(labels map[string]string, r corev1.NodeSelectorRequirement) bool {
	value, isSet := labels[r.Key]
	return isSet && value != "-" && (r.Operator == corev1.NodeSelectorOpDoesNotExist || slices.Contains(r.Values, value))
}

// excludedBy returns a selector for the nodes that a requirement excludes.
func excludedBy(r corev1.NodeSelectorRequirement) *metav1.LabelSelector {
	if r.Operator == corev1.NodeSelectorOpNotIn {
		return oneOf(r.Key, r.Values)
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: r.Key, Operator: metav1.LabelSelectorOpExists}}}
}

// mayMark reports whether a program that the files do not show may set a label that excludes its node.
func (w *work) mayMark(r corev1.NodeSelectorRequirement) bool {
	return r.Operator == corev1.NodeSelectorOpDoesNotExist && accountOf(w.pod) != "" && !w.isShown() && !isOfProvider(r.Key)
}

// labelChanges returns the labels that scripts set on nodes with kubectl, with their values, and - for those that they remove. The key
// is $ for labels that the scripts do not show.
func (w *work) labelChanges() map[string]string {
	changes := map[string]string{}
	for _, s := range w.steps {
		if text := w.text(s); strings.Contains(text, "PATCH") && strings.Contains(text, "/nodes/") {
			changes["$"] = "$"
		}
		for _, words := range read(s.program.script).commands {
			if words = unwrapped(words); path.Base(words[0]) == "kubectl" {
				labelsIn(words, changes)
			}
		}
	}
	return changes
}

// labelsIn adds the labels that a command of kubectl changes on nodes.
func labelsIn(words []string, changes map[string]string) {
	i := slices.Index(words, "label")
	if i < 0 || !slices.ContainsFunc(words[i:], func(word string) bool { return strings.HasPrefix(word, "no") }) {
		return
	}
	for _, word := range words[i+1:] {
		key, value, sets := strings.Cut(word, "=")
		if strings.HasPrefix(word, "-") || !sets && !strings.HasSuffix(word, "-") {
			continue
		}
		if !sets {
			key, value = strings.TrimSuffix(key, "-"), "-"
		}
		if strings.Contains(key, "$") {
			key = "$"
		}
		changes[key] = cmp.Or(value, "$")
	}
}

// isShown reports whether the files show what all containers do.
func (w *work) isShown() bool {
	return !slices.ContainsFunc(w.steps, func(s step) bool { return s.program.script == "" && !isIdle(s) })
}

// isOfProvider reports whether a label is one by which clouds and Kubernetes describe nodes.
func isOfProvider(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "amazonaws.com", "azure.com", "google.com", "karpenter.sh", "openshift.io"},
		func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) })
}

// required returns the labels that the node of a pod must have.
func (w *work) required() map[string]bool {
	keys := map[string]bool{}
	for key := range w.pod.NodeSelector {
		keys[key] = true
	}
	for _, r := range requirements(w.pod) {
		if r.Operator == corev1.NodeSelectorOpIn || r.Operator == corev1.NodeSelectorOpExists {
			keys[r.Key] = true
		}
	}
	return keys
}

func accountOf(pod *corev1.PodSpec) string {
	return cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount)
}

// oneOf returns a selector for some values of a label.
func oneOf(key string, values []string) *metav1.LabelSelector {
	if len(values) == 1 {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: values[0]}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
}
