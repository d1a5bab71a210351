// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// label sets a label on a node, or removes it with "".
func (w *world) label(node, key, value string) {
	w.T.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key)
	}
	must(w.T, admin.Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, mergePatch(patch)))
}

// change changes the spec of a NodeJob.
func (w *world) change(job *v1alpha1.NodeJob, spec string) {
	w.T.Helper()
	must(w.T, admin.Patch(w.Ctx, job, mergePatch(`{"spec":`+spec+`}`)))
}

// retry requests a retry on all failed nodes.
func (w *world) retry(job *v1alpha1.NodeJob, token string) {
	w.T.Helper()
	must(w.T, admin.Patch(w.Ctx, job, mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.RetryAnnotation, token))))
}

// runOn are the nodes on which pods run, sorted.
func (w *world) runOn() []string {
	w.T.Helper()
	nodes := []string{}
	for _, pod := range w.Pods() {
		if !over(&pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// stepsAre waits until the status counts the nodes of the steps like this.
func (w *world) stepsAre(job string, want ...v1alpha1.StepStatus) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("the steps are %+v", want), func() error {
		r := w.live(job).Status.Rollout
		if r == nil || !slices.Equal(r.Steps, want) {
			return fmt.Errorf("the rollout is %+v", r)
		}
		return nil
	})
}

func selects(key string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: "yes"}}
}

func TestANodeThatMatchesTwoStepsIsInTheFirst(t *testing.T) {
	w := newWorld(t)
	for _, node := range []string{"twice-1", "twice-2", "twice-3"} {
		w.node(node)
	}
	w.label("twice-2", "first", "yes")
	w.label("twice-2", "second", "yes")
	w.label("twice-3", "second", "yes")
	startManager(t, noFaults)
	w.job("twice", func(s *v1alpha1.NodeJobSpec) {
		s.Rollout = v1alpha1.RolloutSpec{MaxConcurrent: percent("100%"), Steps: []v1alpha1.RolloutStep{
			{Name: "first", Selector: selects("first")}, {Name: "second", Selector: selects("second")}, {Name: "rest"},
		}}
	})
	for _, node := range []string{"twice-2", "twice-3", "twice-1"} {
		pod := w.podOn(node)
		if running := w.runOn(); !slices.Equal(running, []string{node}) {
			t.Errorf("there are pods on %v, want %s", running, node)
		}
		w.end(pod, 0, "")
	}
	w.Condition("twice", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	w.stepsAre("twice", v1alpha1.StepStatus{Name: "first", Nodes: 1, Done: 1}, v1alpha1.StepStatus{Name: "second", Nodes: 1, Done: 1},
		v1alpha1.StepStatus{Name: "rest", Nodes: 1, Done: 1})
}

func TestAPercentageOfNoNodesWaitsForThem(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.job("none", func(s *v1alpha1.NodeJobSpec) {
		s.Rollout = v1alpha1.RolloutSpec{MaxConcurrent: percent("50%"), MaxFailures: percent("50%"), Steps: []v1alpha1.RolloutStep{
			{Name: "half", Nodes: percent("50%")}, {Name: "rest"},
		}}
	})
	w.Condition("none", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonNoMatchingNodes)
	w.stepsAre("none", v1alpha1.StepStatus{Name: "half"}, v1alpha1.StepStatus{Name: "rest"})
	if r := w.live("none").Status.Rollout; r.Step != "half" || !r.StableAt.IsZero() {
		t.Errorf("with no node the rollout is %+v", r)
	}
	w.node("half-1")
	w.end(w.podOn("half-1"), 0, "")
	w.Condition("none", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
}

func TestAStepWhoseSelectorMatchesNothingHoldsTheRolloutAndIsNamed(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("empty-1")
	w.node("empty-2")
	w.job("empty", func(s *v1alpha1.NodeJobSpec) {
		s.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "edge", Selector: selects("edge"), Nodes: percent("50%")}, {Name: "rest"}}
	})
	c := w.Condition("empty", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonStepWithoutNodes)
	wantText(t, c.Message, "step edge of the rollout contains no node", "Correct the selector of the step", "remove the step")
	if running := w.runOn(); len(running) > 0 {
		t.Errorf("there are pods on %v", running)
	}
	w.label("empty-2", "edge", "yes")
	w.end(w.podOn("empty-2"), 0, "")
	w.end(w.podOn("empty-1"), 0, "")
	w.Condition("empty", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
}

func TestAStepWhoseSelectorCannotBeUsedIsNamed(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("odd-1")
	job := w.job("odd", func(s *v1alpha1.NodeJobSpec) {
		s.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "a", Nodes: number(1)}, {Name: "b", Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Like", Values: []string{"y"}}},
		}}, {Name: "c"}}
	})
	c := w.Condition("odd", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidSelector)
	wantText(t, c.Message, "spec.rollout.steps[1].selector cannot be used", "Like", "Correct it")
	if running := w.runOn(); len(running) > 0 {
		t.Errorf("there are pods on %v", running)
	}
	w.change(job, `{"rollout":{"steps":[{"name":"c"}]}}`)
	w.end(w.podOn("odd-1"), 0, "")
	w.Condition("odd", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
}

// TestNothingStartsThatCouldNotBeUndone : the task itself could run, but its rollback is not there.
func TestNothingStartsThatCouldNotBeUndone(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("undone-1")
	w.job("no-undo", func(s *v1alpha1.NodeJobSpec) {
		s.Rollback = &v1alpha1.RollbackSpec{
			ScriptBlock: v1alpha1.ScriptBlock{
				ScriptFrom: &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "undo", Key: "sh"}},
			},
		}
	})
	c := w.Condition("no-undo", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotFound)
	wantText(t, c.Message, "spec.rollback.scriptFrom", w.Namespace+"/undo does not exist", "Create it")
	if running := w.runOn(); len(running) > 0 {
		t.Errorf("there are pods on %v", running)
	}
	must(
		t,
		admin.Create(
			w.Ctx,
			&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "undo", Labels: scriptLabel},
				Data:       map[string]string{"sh": "true"},
			},
		),
	)
	w.end(w.podOn("undone-1"), 0, "")
	w.Condition("no-undo", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
}

func TestAFailedCanaryStopsTheRolloutUntilItIsRetried(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("halt-1")
	w.node("halt-2")
	job := w.job("halts", func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Rollout = v1alpha1.RolloutSpec{} // one node, then all; none may fail
	})
	w.end(w.podOn("halt-1"), 3, `{"exitCode":3,"message":"no space left"}`)
	c := w.Condition("halts", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
	wantText(t, c.Message, "rollout.maxFailures allows 0", "halt-1: TaskFailed, exit code 3: no space left",
		"kubectl -n "+w.Namespace+" annotate nodejob halts "+v1alpha1.RetryAnnotation)
	if running := w.runOn(); len(running) > 0 {
		t.Errorf("there are pods on %v", running)
	}
	w.retry(job, "1")
	w.end(w.podOn("halt-1"), 3, "")
	w.Eventually("it has failed once more", func() error {
		if rec := w.On("halts", "halt-1").Record; rec.Retry == "" {
			return errors.New("it has not")
		}
		return nil
	})
	w.Condition("halts", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
	w.NoPods()
	w.retry(job, "2")
	w.end(w.podOn("halt-1"), 0, "")
	w.end(w.podOn("halt-2"), 0, "")
	w.Condition("halts", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
}

func TestARolloutGoesNoFurtherThanItIsPromotedTo(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("prom-1")
	w.node("prom-2")
	job := w.job("promoted", func(s *v1alpha1.NodeJobSpec) { s.Rollout = v1alpha1.RolloutSpec{PromoteTo: "canary"} })
	w.end(w.podOn("prom-1"), 0, "")
	for kind, status := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionComplete: metav1.ConditionUnknown, v1alpha1.ConditionReconciling: metav1.ConditionFalse,
	} {
		c := w.Condition("promoted", kind, status, v1alpha1.ReasonAwaitingPromotion)
		wantText(
			t,
			c.Message,
			"step canary has passed",
			"To continue with step all: ",
			`patch nodejob promoted --type=merge -p '{"spec":{"rollout":{"promoteTo":"all"}}}'`,
		)
	}
	w.NoPods()
	w.change(job, `{"rollout":{"promoteTo":"all"}}`)
	w.end(w.podOn("prom-2"), 0, "")
	w.Condition("promoted", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
}

// cordoned waits until a node is cordoned for this NodeJob; for "", until it is open.
func (w *world) cordoned(node, by string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("%s is cordoned for %q", node, by), func() error {
		live := w.liveNode(node)
		if live.Spec.Unschedulable != (by != "") || live.Annotations[v1alpha1.CordonedAnnotation] != by {
			return fmt.Errorf("it is %+v with %v", live.Spec, live.Annotations)
		}
		return nil
	})
}

// TestANodeIsUncordonedWhenTheReasonEnds by each thing that ends its reason.
func TestANodeIsUncordonedWhenTheReasonEnds(t *testing.T) {
	for name, end := range map[string]func(w *world, job *v1alpha1.NodeJob, node string){
		"when the node is skipped": func(w *world, job *v1alpha1.NodeJob, node string) {
			w.label(node, v1alpha1.RecordKey(w.Namespace, job.Name), w.live(job.Name).Status.Revision)
		},
		"when onFailure.action is set to None": func(w *world, job *v1alpha1.NodeJob, _ string) {
			w.change(job, `{"onFailure":{"action":"None"}}`)
		},
		"when the node is not selected any more": func(w *world, _ *v1alpha1.NodeJob, node string) {
			w.label(node, "selected", "")
		},
		"when the NodeJob is deleted": func(w *world, job *v1alpha1.NodeJob, _ string) {
			must(w.T, admin.Delete(w.Ctx, job))
			w.gone(job)
		},
		// No manager would uncordon it later.
		"also when its records are retained": func(w *world, job *v1alpha1.NodeJob, _ string) {
			w.change(job, `{"deletionPolicy":"Retain"}`)
			must(w.T, admin.Delete(w.Ctx, job))
			w.gone(job)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			node := "back-" + w.Namespace
			w.node(node)
			w.label(node, "selected", "yes")
			job := w.job("gives-back", func(s *v1alpha1.NodeJobSpec) {
				s.Retry.Limit = new(int32(0))
				s.OnFailure.Action = v1alpha1.FailureActionCordon
				s.Nodes.Selector.MatchLabels["selected"] = "yes"
			})
			w.end(w.podOf(node, task.Task), 1, "")
			key := v1alpha1.RecordKey(w.Namespace, "gives-back")
			w.cordoned(node, key)
			w.Condition("gives-back", v1alpha1.ConditionStalled, metav1.ConditionTrue, "")
			end(w, job, node)
			w.cordoned(node, "")
		})
	}
}
