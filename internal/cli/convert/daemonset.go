// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
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

// A DaemonSet restarts its pods for ever. To run something once, its pod excludes its node by a label when it is done, or
// it waits without end.

// daemonSet converts a DaemonSet that runs once.
func (c *converter) daemonSet(source *unstructured.Unstructured) error {
	ds, unknown, err := into[appsv1.DaemonSet](source)
	if err != nil {
		return err
	}
	if err := matchesNoNode(&ds.Spec.Template.Spec); err != nil {
		return err
	}
	d := c.newDraft(c.newWork(source, &ds.Spec.Template), source.GetName(), source)
	d.repeats = true
	mark, unsure := d.readLabels()
	if err := d.dropIdle(); err != nil {
		return err
	}
	for _, s := range d.steps {
		if why := d.mayLast(s, unsure); why != "" {
			return errors.New(why)
		}
	}
	d.selectNodes(mark)
	d.setTask()
	d.timeouts(nil, "")
	if mark == "" && len(d.job.Spec.RemoveLabels) == 0 {
		d.job.Spec.Rerun.OnReboot = true
		d.note("rerun.onReboot: the pod of the DaemonSet ran again after each reboot. Remove this if the effect of the task outlasts a reboot.")
		d.runsAgain()
	}
	d.setUpdates(ds.Spec.UpdateStrategy)
	d.nameFields(unknown)
	return nil
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
func (d *draft) dropIdle() error {
	hook := ""
	d.steps = slices.DeleteFunc(d.steps, func(s step) bool {
		if s.isIdle() {
			d.drop("the container %s with the image %s, which only waits", s.Name, s.Image)
			if s.Lifecycle != nil && s.Lifecycle.PostStart != nil {
				hook = s.Name
			}
		}
		return s.isIdle()
	})
	switch {
	case len(d.steps) > 0:
		return nil
	case hook != "":
		return fmt.Errorf("the work of its container %s is in lifecycle.postStart, which a task does not have, and the container only waits. Write a NodeJob for this work: kubectl everynode create script NAME -f FILE", hook)
	}
	return errors.New("its containers only wait, so there is no task to convert. To pull images on every node, write a NodeJob with task.template")
}

const (
	instead = "A NodeJob runs a task that ends. If a part of the DaemonSet is one, write a NodeJob for this part: kubectl everynode create script NAME -f FILE, or task.template for a program with an image"
	keep    = "Keep the DaemonSet. " + instead
	keepIf  = "If it runs permanently, keep the DaemonSet. " + instead
)

// mayLast returns why a container may run permanently; "" if the files show that it ends, or waits when it is done. unsure says that a
// TODO already says so.
func (d *draft) mayLast(s step, unsure bool) string {
	switch server := s.isServer(); {
	case s.RestartPolicy != nil:
		return fmt.Sprintf("its init container %s is a sidecar, which runs permanently. %s", s.Name, keep)
	case s.init:
		return ""
	case server != "":
		return fmt.Sprintf("its container %s has %s, so it is a server. %s", s.Name, server, keep)
	case unsure:
		return ""
	}
	return d.isNotShown(s)
}

// isServer returns what only a server has; "" if there is nothing.
func (s step) isServer() string {
	if len(s.Ports) > 0 {
		return "ports"
	}
	probes := map[string]*corev1.Probe{"livenessProbe": s.LivenessProbe, "readinessProbe": s.ReadinessProbe, "startupProbe": s.StartupProbe}
	for _, name := range slices.Sorted(maps.Keys(probes)) {
		if probe := probes[name]; probe != nil && probe.Exec == nil {
			return "a " + name + " over the network"
		}
	}
	return ""
}

// isNotShown returns why the files do not show that a container ends, or waits when it is done; "" if they do.
func (d *draft) isNotShown(s step) string {
	p, hasProgram := s.program, len(s.Command) > 0
	switch {
	case p.absent.kind != "":
		return fmt.Sprintf("the program of its container %s is in the %s, which is not in the file. Add it: kubectl get %s %s%s -o yaml",
			s.Name, p.absent, strings.ToLower(p.absent.kind), p.absent.name, inNamespace(d.namespace))
	case isStartupScript(s.Container), hasProgram && !s.shown.invalid && (s.shown.unknown == "" || len(s.shown.endless) > 0):
		return ""
	case s.shown.invalid:
		return fmt.Sprintf("the script of its container %s is not one of a POSIX shell or Bash, so whether it ends is not known. %s", s.Name, instead)
	case p.script != "":
		return fmt.Sprintf("the script of its container %s runs %s, and the manifest does not show whether that ends. %s", s.Name, s.shown.unknown, keepIf)
	case hasProgram:
		return fmt.Sprintf("its container %s runs %s, and the manifest does not show what that does. %s", s.Name, s.shown.unknown, keepIf)
	}
	return fmt.Sprintf("its container %s runs the image %s, and the manifest does not show what that does. %s", s.Name, s.Image, keepIf)
}

// readLabels compares the labels that the scripts change on the node with those by which the pod selects it. mark is the label that they
// set when they are done, and that the node affinity excludes: nodes with it count as done. unsure says that a program may set one, which
// the manifest does not show.
func (d *draft) readLabels() (mark string, unsure bool) {
	changes := map[string]string{}
	for _, s := range d.steps {
		maps.Copy(changes, s.shown.labels)
	}
	for _, r := range d.requirements() {
		switch value := changes[r.Key]; {
		case r.Key == mark && excludes(r):
		case mark == "" && marksDone(r, value):
			mark = r.Key
			d.drop("the node affinity to nodes without the label %s: a node that is done has a record", r.Key)
			d.job.Spec.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{Selector: oneOf(r.Key, r.Values)}
			d.note("nodes.assumeDone: nodes with the label %s are done, and do not run the task.", r.Key)
		case value != "" || changes["$"] != "":
			d.nameChange(r, value)
		case d.mayMark(r):
			unsure = true
			d.todo("the manifest does not show whether the program ends, and whether it sets the label %s on its node when it is done\n"+
				"If it does not end, keep the DaemonSet. The NodeJob selects nodes without the label, so a node that gets it is no longer selected. If the program sets it, "+
				"remove the requirement from nodes.selector, and write: nodes.assumeDone: {selector: {matchExpressions: [{key: %s, operator: Exists}]}}", r.Key, r.Key)
		}
	}
	return mark, unsure
}

// marksDone reports whether a label with the value excludes a node that had none.
func marksDone(r corev1.NodeSelectorRequirement, value string) bool {
	return value != "" && value != "-" && (r.Operator == corev1.NodeSelectorOpDoesNotExist || r.Operator == corev1.NodeSelectorOpNotIn && slices.Contains(r.Values, value))
}

// nameChange says that a script changes a label by which the source selects nodes.
func (d *draft) nameChange(r corev1.NodeSelectorRequirement, value string) {
	if value != "-" || excludes(r) {
		d.todo("the script may change the label %s of its node, by which the source selects nodes\n"+
			"A node must stay selected while the task runs. Remove the command, or the requirement from nodes.selector.", r.Key)
		return
	}
	if !slices.Contains(d.job.Spec.RemoveLabels, r.Key) {
		d.job.Spec.RemoveLabels = append(d.job.Spec.RemoveLabels, r.Key)
	}
	d.todo("the script removes the label %s from its node, and removeLabels does that when the node is done\nRemove the command: while the task runs, its node must stay selected.", r.Key)
}

// mayMark reports whether a program that the files do not show may set a label that excludes its node.
func (d *draft) mayMark(r corev1.NodeSelectorRequirement) bool {
	prefix, _, _ := strings.Cut(r.Key, "/")
	return r.Operator == corev1.NodeSelectorOpDoesNotExist && d.pod.ServiceAccountName+d.pod.DeprecatedServiceAccount != "" &&
		slices.ContainsFunc(d.steps, func(s step) bool { return s.program.script == "" && !s.isIdle() }) &&
		!slices.ContainsFunc(ofProviders, func(domain string) bool { return strings.HasSuffix("."+prefix, "."+domain) })
}

// ofProviders are domains of labels by which clouds and Kubernetes describe nodes.
var ofProviders = []string{"kubernetes.io", "k8s.io", "amazonaws.com", "azure.com", "google.com", "karpenter.sh", "openshift.io"}

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
	switch len(values) {
	case 0:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}}}
	case 1:
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: values[0]}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
}
