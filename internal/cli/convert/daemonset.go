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
	if err := cmp.Or(isServer(source), d.selectNodes(), d.dropIdle(), d.isNotShown()); err != nil {
		return err
	}
	d.readLabels()
	d.setTask()
	d.timeout(nil)
	if d.job.Spec.Nodes.AssumeDone == nil && len(d.job.Spec.RemoveLabels) == 0 {
		d.job.Spec.Rerun.OnReboot = true
		d.note("rerun.onReboot: the DaemonSet repeated its pod when it ended, and after a reboot. Remove this if the effect remains.")
		d.runsAgain()
	}
	if r := ds.Spec.UpdateStrategy.RollingUpdate; r != nil && r.MaxUnavailable != nil && *r.MaxUnavailable != intstr.FromInt32(0) {
		d.job.Spec.Rollout.MaxConcurrent = r.MaxUnavailable
	}
	d.nameFields()
	return nil
}

const instead = "For a part that ends, write a NodeJob: kubectl everynode create script NAME -f FILE, or task.template for an image"

// isServer returns an error for a DaemonSet with a field that only servers have.
func isServer(source *unstructured.Unstructured) error {
	for _, f := range flatten("", source.Object) {
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
			if len(s.Command) == 0 && len(s.argv) > 0 && !programs.Bare.MatchString(s.Image) {
				d.todo("the manifest does not show whether the image %s of the container %s does more than to run %s\n"+
					"If it does, add its work to the task.", s.Image, s.Name, d.quote(strings.Join(s.argv, " ")))
			}
			d.drop("the container %s with the image %s, which only waits", s.Name, s.Image)
		}
		return s.isIdle()
	})
	if len(d.steps) == 0 {
		return errors.New("its containers only wait. For work in lifecycle.postStart, or to pull images, write a NodeJob")
	}
	return nil
}

// isNotShown returns an error if the files do not show that each container ends, or waits when it is done.
func (d *draft) isNotShown() error {
	for _, s := range d.steps {
		what := "runs " + d.quote(s.shown.unknown)
		switch {
		case s.init:
			continue
		case s.absent.kind != "" && (s.script == "" || s.shown.unknown != ""):
			return fmt.Errorf("the program of its container %s is in the %s, which is not in the file. Add it: kubectl get %s %s%s -o yaml",
				s.Name, s.absent, strings.ToLower(s.absent.kind), s.absent.name, d.inNamespace())
		case !s.isShown():
			what = "runs the image " + s.Image
		case s.shown.unknown == "" || len(s.shown.endless) > 0 || s.startupScript() != nil:
			continue
		}
		return fmt.Errorf("its container %s %s, and the manifest does not show whether that ends. "+
			"If it runs permanently, keep the DaemonSet. %s", s.Name, what, instead)
	}
	return nil
}

// readLabels compares the labels that the scripts change on the node with those by which the pod selects it.
func (d *draft) readLabels() {
	changes := map[string]string{}
	hasAccount := d.template.Spec.ServiceAccountName+d.template.Spec.DeprecatedServiceAccount != ""
	isHidden := false
	for _, s := range d.steps {
		maps.Copy(changes, s.shown.labels)
		if programs.Patch.MatchString(s.text) {
			changes["$"] = "$"
		}
		isHidden = isHidden || hasAccount && (s.script == "" || s.shown.unknown != "")
	}
	selector := cmp.Or(d.job.Spec.Nodes.Selector, &metav1.LabelSelector{})
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		d.readLabel(metav1.LabelSelectorRequirement{Key: key}, changes, isHidden)
	}
	mark := ""
	for _, r := range selector.MatchExpressions {
		if r.Key != mark && d.readLabel(r, changes, isHidden) {
			mark = r.Key
		}
	}
	selector.MatchExpressions = slices.DeleteFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Key == mark && inverse[r.Operator] != ""
	})
	d.job.Spec.Nodes.Selector = notEmpty(selector)
}

// inverse has the operators that exclude nodes, and those that select the nodes that they exclude.
var inverse = map[metav1.LabelSelectorOperator]metav1.LabelSelectorOperator{
	metav1.LabelSelectorOpDoesNotExist: metav1.LabelSelectorOpExists, metav1.LabelSelectorOpNotIn: metav1.LabelSelectorOpIn,
}

// marksDone reports whether a label with the value excludes a node that had none.
func marksDone(r metav1.LabelSelectorRequirement, value string) bool {
	return inverse[r.Operator] != "" && value != "" && value != "-" && (r.Values == nil || slices.Contains(r.Values, value))
}

// readLabel reports whether a script sets a label that excludes its node. Such nodes are done. isHidden says that a program may set it too.
func (d *draft) readLabel(r metav1.LabelSelectorRequirement, changes map[string]string, isHidden bool) bool {
	nodes, value, inverse := &d.job.Spec.Nodes, changes[r.Key], inverse[r.Operator]
	switch {
	case nodes.AssumeDone == nil && marksDone(r, value):
		r.Operator = inverse
		done := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
		nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{Selector: done}
		d.drop("the node affinity to nodes without the label %s: a node that is done has a record", r.Key)
		d.note("nodes.assumeDone: nodes with the label %s are done, and do not run the task.", r.Key)
		return true
	case value != "" || changes["$"] != "" && !programs.Providers.MatchString(r.Key):
		if value == "-" && inverse == "" {
			add(&d.job.Spec.RemoveLabels, "%s", []any{r.Key})
		}
		d.todo("the script may change the label %s of its node, by which the source selects nodes\n"+
			"A node must stay selected while the task runs. Remove the command: removeLabels removes a label when the node is done.", r.Key)
	case isHidden && inverse == metav1.LabelSelectorOpExists && !programs.Providers.MatchString(r.Key):
		d.todo("the manifest does not show whether the program sets the label %s on its node when it is done\n"+
			"A node must stay selected. If the program sets it, move the requirement to nodes.assumeDone, with the operator Exists.", r.Key)
	}
	return false
}
