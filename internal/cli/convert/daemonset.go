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
	if err := cmp.Or(isServer(source), d.isPatch(), d.selectNodes(), d.dropIdle()); err != nil {
		return err
	}
	ends := d.readLabels()
	if err := d.isNotShown(ends); err != nil {
		return err
	}
	d.setTask()
	d.failOn("A DaemonSet retries without limit, and a NodeJob up to retry.limit.")
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

// isNotShown returns an error if the files do not show that each container waits when its work is done, or that a label ends it.
func (d *draft) isNotShown(ends bool) error {
	for _, s := range d.steps {
		_, waits := s.waiting(true)
		what := "the image " + s.Image
		switch {
		case s.init, waits > 0:
			continue
		case s.absent.kind != "":
			return fmt.Errorf("the program of its container %s is in the %s, which is not in the file. Add it: kubectl get %s %s%s -o yaml",
				s.Name, s.absent, strings.ToLower(s.absent.kind), s.absent.name, d.inNamespace())
		case ends, s.startupScript() != nil:
			continue
		case s.isShown():
			lines := strings.Split(strings.TrimSpace(s.shown()), "\n")
			what = d.quote(cmp.Or(lines[len(lines)-1], "an empty command"))
		}
		return fmt.Errorf("its container %s runs %s, and the manifest does not show whether that ends. "+
			"If it runs permanently, keep the DaemonSet. %s", s.Name, what, instead)
	}
	return nil
}

// nodeLabels is what the containers show of the labels of their node.
type nodeLabels struct {
	text string
	// isHidden says that they change labels that they do not show, and opaque is the container of a DaemonSet that may do so.
	isHidden bool
	opaque   string
}

func (d *draft) shownLabels() (l nodeLabels) {
	mayChange := d.kind() == "DaemonSet" && d.template.Spec.ServiceAccountName+d.template.Spec.DeprecatedServiceAccount != ""
	for _, s := range d.steps {
		text := strings.ReplaceAll(s.text, "\\\n", " ")
		l.text += "\n" + text
		l.isHidden = l.isHidden || programs.Patch.MatchString(s.text) || programs.HiddenLabel.MatchString(text)
		if _, waits := s.waiting(true); mayChange && !s.init && waits == 0 {
			l.opaque = s.Name
		}
	}
	return l
}

// readLabels compares the labels that the scripts change on the node with those by which the pod selects it. It reports whether such a
// change ends a container of a DaemonSet.
func (d *draft) readLabels() (ends bool) {
	shown, selector := d.shownLabels(), cmp.Or(d.job.Spec.Nodes.Selector, &metav1.LabelSelector{})
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		ends = d.mayChange(metav1.LabelSelectorRequirement{Key: key}, shown) || ends
	}
	for _, r := range selector.MatchExpressions {
		ends = d.readLabel(r, shown) || ends
	}
	if done := d.job.Spec.Nodes.AssumeDone; done != nil {
		selector.MatchExpressions = slices.DeleteFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == done.Selector.MatchExpressions[0].Key && inverse[r.Operator] != ""
		})
	}
	d.job.Spec.Nodes.Selector = notEmpty(selector)
	return ends
}

// readLabel reports whether a container sets a label that excludes its node, surely or perhaps. Such nodes are done.
func (d *draft) readLabel(r metav1.LabelSelectorRequirement, shown nodeLabels) bool {
	if done := d.job.Spec.Nodes.AssumeDone; done != nil {
		return done.Selector.MatchExpressions[0].Key == r.Key || d.mayChange(r, shown)
	}
	isOpaque := shown.opaque != "" && r.Operator == metav1.LabelSelectorOpDoesNotExist && !programs.Providers.MatchString(r.Key)
	switch {
	case marksDone(r, labelled(shown.text, r.Key)):
		d.assumeDone(r)
	case d.mayChange(r, shown):
	case isOpaque:
		d.assumeDone(r)
		d.todo("the manifest does not show whether the container %s ends and sets the label %s on its node\n"+
			"If it runs permanently, keep the DaemonSet. If another program sets the label, to exclude nodes, move the requirement from "+
			"nodes.assumeDone to nodes.selector, with the operator DoesNotExist.", shown.opaque, r.Key)
	default:
		return false
	}
	return true
}

// inverse has the operators that exclude nodes, and those that select the nodes that they exclude.
var inverse = map[metav1.LabelSelectorOperator]metav1.LabelSelectorOperator{
	metav1.LabelSelectorOpDoesNotExist: metav1.LabelSelectorOpExists, metav1.LabelSelectorOpNotIn: metav1.LabelSelectorOpIn,
}

// marksDone reports whether a label with the value excludes a node that had none.
func marksDone(r metav1.LabelSelectorRequirement, value string) bool {
	return inverse[r.Operator] != "" && value != "" && value != "-" && (r.Values == nil || slices.Contains(r.Values, value))
}

// assumeDone lets the nodes that a requirement excludes be done.
func (d *draft) assumeDone(r metav1.LabelSelectorRequirement) {
	r.Operator = inverse[r.Operator]
	done := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
	d.job.Spec.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{Selector: done}
	d.drop("the node affinity to nodes without the label %s: a node that is done has a record", r.Key)
	d.note("nodes.assumeDone: nodes with the label %s are done, and do not run the task.", r.Key)
}

// mayChange reports whether a script may change a label by which its node is selected.
func (d *draft) mayChange(r metav1.LabelSelectorRequirement, shown nodeLabels) bool {
	value := labelled(shown.text, r.Key)
	if value == "" && (!shown.isHidden || programs.Providers.MatchString(r.Key)) {
		return false
	}
	if value == "-" && inverse[r.Operator] == "" {
		add(&d.job.Spec.RemoveLabels, "%s", []any{r.Key})
	}
	d.todo("the script may change the label %s of its node, by which the source selects nodes\n"+
		"A node must stay selected while the task runs. Remove the command: removeLabels removes a label when the node is done.", r.Key)
	return true
}
