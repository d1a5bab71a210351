// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A DaemonSet restarts its pods forever. To run something once, its pod excludes its node by a label when it is done, or
// it waits without end.

// daemonSet converts a DaemonSet that runs once.
func (c *converter) daemonSet(source *unstructured.Unstructured) error {
	ds, err := into[appsv1.DaemonSet](c, source)
	if err != nil {
		return err
	}
	d := c.newDraft(source.GetName(), &ds.Spec.Template, source)
	d.repeats = true
	mark := d.readLabels()
	if err := cmp.Or(isServer(source), d.dropIdle(), d.isNotShown(), d.selectNodes(mark)); err != nil {
		return err
	}
	d.setTask()
	d.timeouts(nil, "")
	if mark == "" && len(d.job.Spec.RemoveLabels) == 0 {
		d.job.Spec.Rerun.OnReboot = true
		d.note("rerun.onReboot: the pod of the DaemonSet ran again after each reboot, and the kubelet repeated it when it ended. " +
			"Remove this if the effect of the task outlasts a reboot.")
		d.runsAgain()
	}
	if r := ds.Spec.UpdateStrategy.RollingUpdate; r != nil && r.MaxUnavailable != nil && *r.MaxUnavailable != intstr.FromInt32(0) {
		d.concurrent(r.MaxUnavailable, "updateStrategy.rollingUpdate.maxUnavailable")
	}
	d.nameFields()
	return nil
}

const instead = "A NodeJob runs a task that ends. If a part of the DaemonSet is one, write a NodeJob for this part: " +
	"kubectl everynode create script NAME -f FILE, or task.template for a program with an image"

// isServer returns an error for a DaemonSet with a field that only servers have.
func isServer(source *unstructured.Unstructured) error {
	for _, f := range flatten(source.Object) {
		if path := programs.Servers.FindString(f.path); path != "" {
			return fmt.Errorf("it has the field %s, so it is a server. Keep the DaemonSet. %s", path, instead)
		}
	}
	return nil
}

// dropIdle removes containers that only wait.
func (d *draft) dropIdle() error {
	d.steps = slices.DeleteFunc(d.steps, func(s step) bool {
		if s.isIdle() {
			d.drop("the container %s with the image %s, which only waits", s.Name, s.Image)
		}
		return s.isIdle()
	})
	if len(d.steps) == 0 {
		return errors.New("its containers only wait, so there is no task to convert. For work in lifecycle.postStart, write a NodeJob: " +
			"kubectl everynode create script NAME -f FILE. To pull images on every node, write a NodeJob with task.template")
	}
	return nil
}

// isNotShown returns an error if the files do not show that each container ends, or waits when it is done.
func (d *draft) isNotShown() error {
	for _, s := range d.steps {
		what := "runs " + s.shown.unknown
		switch {
		case s.init:
			continue
		case s.absent.kind != "":
			return fmt.Errorf("the program of its container %s is in the %s, which is not in the file. Add it: kubectl get %s %s%s -o yaml",
				s.Name, s.absent, strings.ToLower(s.absent.kind), s.absent.name, inNamespace(d.namespace))
		case s.startupScript() != nil:
			continue
		case s.shown.invalid:
			what = "has a script that is not one of a POSIX shell or Bash"
		case !s.isShown():
			what = "runs the image " + s.Image
		case s.shown.unknown == "" || len(s.shown.endless) > 0:
			continue
		}
		return fmt.Errorf("its container %s %s, and the manifest does not show whether that ends. "+
			"If it runs permanently, keep the DaemonSet. %s", s.Name, what, instead)
	}
	return nil
}

// readLabels compares the labels that the scripts change on the node with those by which the pod selects it. mark is the label that they
// set when they are done, and that the node affinity excludes: nodes with it count as done.
func (d *draft) readLabels() (mark string) {
	changes := map[string]string{}
	for _, s := range d.steps {
		maps.Copy(changes, s.shown.labels)
		if strings.Contains(s.text, "PATCH") && strings.Contains(s.text, "/nodes/") {
			changes["$"] = "$"
		}
	}
	isHidden := func(s step) bool { return s.script == "" && !s.isIdle() }
	mayLabel := d.pod.ServiceAccountName+d.pod.DeprecatedServiceAccount != "" && slices.ContainsFunc(d.steps, isHidden)
	for _, r := range d.requirements() {
		switch value := changes[r.Key]; {
		case r.Key == mark && excludes(r):
		case mark == "" && marksDone(r, value):
			mark = r.Key
			d.drop("the node affinity to nodes without the label %s: a node that is done has a record", r.Key)
			d.job.Spec.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{Selector: oneOf(r.Key, r.Values)}
			d.note("nodes.assumeDone: nodes with the label %s are done, and do not run the task.", r.Key)
		case value == "-" && !excludes(r):
			add(&d.job.Spec.RemoveLabels, "%s", []any{r.Key})
			d.todo("the script removes the label %s from its node, and removeLabels does that when the node is done\n"+
				"Remove the command: while the task runs, its node must stay selected.", r.Key)
		case value != "" || changes["$"] != "":
			d.todo("the script may change the label %s of its node, by which the source selects nodes\n"+
				"A node must stay selected while the task runs. Remove the command, or the requirement from nodes.selector.", r.Key)
		case mayLabel && r.Operator == corev1.NodeSelectorOpDoesNotExist && !programs.Providers.MatchString(r.Key):
			d.todo("the manifest does not show whether the program sets the label %s on its node when it is done\n"+
				"A node must stay selected. If the program sets it, remove the requirement from nodes.selector, and write: "+
				"nodes.assumeDone: {selector: {matchExpressions: [{key: %[1]s, operator: Exists}]}}", r.Key)
		}
	}
	return mark
}

// marksDone reports whether a label with the value excludes a node that had none.
func marksDone(r corev1.NodeSelectorRequirement, value string) bool {
	return value != "" && value != "-" &&
		(r.Operator == corev1.NodeSelectorOpDoesNotExist || r.Operator == corev1.NodeSelectorOpNotIn && slices.Contains(r.Values, value))
}

// requirements returns what the node affinity and the node selector of the pod require.
func (w *work) requirements() []corev1.NodeSelectorRequirement {
	var found []corev1.NodeSelectorRequirement
	for _, t := range requiredTerms(w.pod) {
		found = append(found, t.MatchExpressions...)
	}
	for _, key := range slices.Sorted(maps.Keys(w.pod.NodeSelector)) {
		found = append(found, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{w.pod.NodeSelector[key]}})
	}
	return found
}

// oneOf returns a selector for some values of a label; for all if there are none.
func oneOf(key string, values []string) *metav1.LabelSelector {
	if len(values) == 1 {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: values[0]}}
	}
	r := metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists, Values: values}
	if len(values) > 0 {
		r.Operator = metav1.LabelSelectorOpIn
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
}
