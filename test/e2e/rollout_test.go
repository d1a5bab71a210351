// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
)

// canaryFirst is a rollout as it is by default, but for a canary that the test chooses: one of the nodes
// that joined for it, since what happens to a canary would disturb the others.
func (w *world) canaryFirst(soakSeconds int32) v1alpha1.RolloutSpec {
	return v1alpha1.RolloutSpec{Steps: []v1alpha1.RolloutStep{
		{Name: "canary", Nodes: new(intstr.FromInt32(1)), SoakSeconds: soakSeconds,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"world": w.Namespace}}},
		{Name: "all"},
	}}
}

// oldest sorts nodes as a step takes them that is for a number of nodes.
func (w *world) oldest(names ...string) []string {
	w.T.Helper()
	made := map[string]time.Time{}
	for _, name := range names {
		made[name] = w.node(name).CreationTimestamp.Time
	}
	slices.SortFunc(names, func(a, b string) int {
		if c := made[a].Compare(made[b]); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	return names
}

// counted waits until the status counts the nodes like that.
func (w *world) counted(job string, want v1alpha1.NodeCounts) v1alpha1.NodeJob {
	w.T.Helper()
	var live v1alpha1.NodeJob
	w.Eventually(fmt.Sprintf("the counts of %s are %+v", job, want), func() error {
		if live = w.Get(job); live.Status.Nodes != want {
			return fmt.Errorf("they are %+v", live.Status.Nodes)
		}
		return nil
	})
	return live
}

// conditionLog is each reason that a condition of a test's NodeJobs ever had while it was True, as a watch tells it: looking
// now and then would miss some.
type conditionLog struct {
	mu   sync.Mutex
	seen map[string]bool
}

// logConditions begins the log. To be called before the NodeJob is made.
func (w *world) logConditions() *conditionLog {
	w.T.Helper()
	log := &conditionLog{seen: map[string]bool{}}
	w.watch(&v1alpha1.NodeJobList{}, func(event watch.Event) {
		job, ok := event.Object.(*v1alpha1.NodeJob)
		if !ok {
			return
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, c := range job.Status.Conditions {
			if c.Status == metav1.ConditionTrue {
				log.seen[job.Name+" "+c.Type+" "+c.Reason] = true
			}
		}
	})
	return log
}

// eventually waits until the condition has been True for that reason, be it for a moment.
func (l *conditionLog) eventually(w *world, job, kind, reason string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("%s is or was %s (%s)", job, kind, reason), func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.seen[job+" "+kind+" "+reason] {
			return fmt.Errorf("seen were %q", slices.Sorted(maps.Keys(l.seen)))
		}
		return nil
	})
}

// untouched checks that nothing of the NodeJob was ever on the node.
func (w *world) untouched(log *podLog, job, node string) {
	w.T.Helper()
	if on := w.On(job, node); on.Present {
		w.T.Errorf("%s carries label %q and record %+v for %s", node, on.Label, on.Record, job)
	}
	for _, p := range log.of(job) {
		if p.pod.Spec.NodeName == node {
			w.T.Errorf("pod %s of %s was on %s", p.pod.Name, job, node)
		}
	}
}

// TestR18_OneNodeFirstThenTheOthers says nothing of a rollout in its NodeJob.
func TestR18_OneNodeFirstThenTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := w.logPods()
	nodes := w.oldest("node-1", "node-2")
	w.job("default", w.timed(w.hold()), onNodes(nodes...), func(s *v1alpha1.NodeJobSpec) { s.Rollout = v1alpha1.RolloutSpec{} })
	w.runningPod(nodes[0])
	live := w.counted("default", v1alpha1.NodeCounts{Total: 2, Running: 1, Waiting: 1})
	if live.Status.Rollout.Step != "canary" {
		t.Errorf("the step is %q", live.Status.Rollout.Step)
	}
	c := w.Condition("default", v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonInProgress)
	wantText(t, c.Message, "1 WaitingForStep ("+nodes[1]+")")
	w.letGo(nodes[0])
	w.runningPod(nodes[1])
	w.letGo(nodes[1])
	w.complete("default")
	if got, want := log.story("default"), []string{"task 1 on " + nodes[0], "task 1 on " + nodes[1]}; !slices.Equal(got, want) {
		t.Errorf("the pods were %q, want %q", got, want)
	}
	if first, second := w.spans(
		nodes[0],
	), w.spans(
		nodes[1],
	); len(first) != 1 || len(second) != 1 ||
		second[0].began.Before(first[0].ended) {
		t.Errorf("the first node ran %v, the second %v", first, second)
	}
}

// TestR18_PromotedStepByStepWithASoak promotes from one node to the nodes with a label, which soak, and then to the
// rest, each time with the command in the status. A node that joins later does not wait.
func TestR18_PromotedStepByStepWithASoak(t *testing.T) {
	t.Parallel()
	const soak = 5 * time.Second
	w := newWorld(t)
	early := w.join(cluster.NodeOptions{Labels: map[string]string{"ring": w.Namespace}})
	nodes := append(w.oldest("node-1", "node-2"), early)
	log, conditions := w.logPods(), w.logConditions()
	one := intstr.FromInt32(1)
	w.job(
		"steps",
		w.timed(w.mark()+"; while [ -e "+w.markFile()+".hold ]; do sleep 0.1; done"),
		onNodes(append(nodes, w.Namespace+"-late")...),
		func(s *v1alpha1.NodeJobSpec) {
			s.Rollout = v1alpha1.RolloutSpec{MaxConcurrent: &one, PromoteTo: "canary", Steps: []v1alpha1.RolloutStep{
				{Name: "canary", Nodes: &one},
				{
					Name:        "early",
					Selector:    &metav1.LabelSelector{MatchLabels: map[string]string{"ring": w.Namespace}},
					SoakSeconds: int32(soak / time.Second),
				},
				{Name: "all"},
			}}
		},
	)
	awaiting := func(step string, done int32) metav1.Condition {
		t.Helper()
		w.counted("steps", v1alpha1.NodeCounts{Total: 3, Done: done, Waiting: 3 - done})
		c := w.Condition("steps", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingPromotion)
		live := w.Get("steps")
		for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
			if !meta.IsStatusConditionFalse(live.Status.Conditions, kind) {
				t.Errorf("%s is not False: %+v", kind, live.Status.Conditions)
			}
		}
		if live.Status.Rollout.Step != step {
			t.Errorf("the step is %q, want %q", live.Status.Rollout.Step, step)
		}
		return c
	}

	c := awaiting("canary", 1)
	w.untouched(log, "steps", nodes[1])
	w.untouched(log, "steps", early)
	promotedToEarly := time.Now()
	w.asTold(c.Message, `"promoteTo":"early"`)

	conditions.eventually(w, "steps", v1alpha1.ConditionReconciling, v1alpha1.ReasonSoaking)
	c = awaiting("early", 2)
	if took := time.Since(w.spans(early)[0].ended); took < soak {
		t.Errorf("the step passed %s after its node was done, and is to soak %s", took, soak)
	}
	w.untouched(log, "steps", nodes[1])
	promotedToAll := time.Now()
	w.asTold(c.Message, `"promoteTo":"all"`)

	w.complete("steps")
	if got, want := log.story(
		"steps",
	), []string{
		"task 1 on " + nodes[0],
		"task 1 on " + early,
		"task 1 on " + nodes[1],
	}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("the pods were %q, want %q", got, want)
	}
	if began := w.spans(early)[0].began; began.Before(promotedToEarly) {
		t.Errorf("the step began at %s, before it was promoted to at %s", began, promotedToEarly)
	}
	if began := w.spans(nodes[1])[0].began; began.Before(promotedToAll) {
		t.Errorf("the last step began at %s, before it was promoted to at %s", began, promotedToAll)
	}
	if w.Get("steps").Status.Rollout.StableAt.IsZero() {
		t.Error("the revision is not stable")
	}

	// A node with a rerun has the only slot. The node that joins has no network plugin: if it became Ready before the
	// manager sees it, it would wait for the slot as well.
	w.sh("node-2", "touch "+w.markFile()+".hold")
	w.unlabel("steps", "node-2")
	held := w.runningPod("node-2")
	late := w.join(cluster.NodeOptions{Name: w.Namespace + "-late", WithoutCNI: true})
	w.Done("steps", late)
	if p, _ := log.find(held.UID); p.over {
		t.Error("the node with the slot ended before the new node had run")
	}
	w.sh("node-2", "rm "+w.markFile()+".hold")
	w.complete("steps")
}

// TestALostCanaryStopsTheRollout covers a task that makes its node unavailable. Three NodeJobs have the same canary:
// one runs there, one soaks, and one waits for promotion. Then the node is deleted and recreated, as a cloud provider
// does with an unhealthy node. The new node must not be the next canary, or the task would make one node after the
// other unavailable.
func TestALostCanaryStopsTheRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	canary := w.join(cluster.NodeOptions{Name: w.Namespace + "-a"})
	log := w.logPods()
	nodes := onNodes(canary, w.Namespace+"-b", "node-2")
	rollout := func(s *v1alpha1.NodeJobSpec) { s.Rollout, s.Retry.Limit = w.canaryFirst(0), new(int32(0)) }
	w.job("awaits", "true", nodes, rollout, func(s *v1alpha1.NodeJobSpec) { s.Rollout.PromoteTo = "canary" })
	w.job("soaks", "true", nodes, rollout, func(s *v1alpha1.NodeJobSpec) { s.Rollout.Steps[0].SoakSeconds = 3600 })
	w.Condition("awaits", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingPromotion)
	w.Condition("soaks", v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonSoaking)
	w.job("runs", w.hold(), nodes, rollout, func(s *v1alpha1.NodeJobSpec) { s.Task.TimeoutSeconds = new(int32(10)) })
	w.began(canary)
	uid := w.node(canary).UID
	must(t, real.StopKubelet(w.Ctx, canary))
	must(t, real.KillRuntime(w.Ctx, canary))
	lost := time.Now()

	jobs := []string{"awaits", "runs", "soaks"}
	for _, job := range []string{"runs", "soaks"} {
		c := w.Condition(job, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
		t.Logf("%s has stopped %.1f s after the node became unreachable: %s", job, time.Since(lost).Seconds(), c.Message)
		wantText(t, c.Message, canary)
	}
	if dead := w.Get(
		"soaks",
	).Status.Rollout.UnrecordedFailures; len(dead) != 1 || dead[0].UID != uid ||
		dead[0].Reason != v1alpha1.ReasonNotReadyInSoak {
		t.Errorf("the unrecorded failures are %+v", dead)
	}
	if rec := w.On("runs", canary).Record; rec == nil || rec.Outcome != record.Failed || rec.Reason != v1alpha1.ReasonNodeUnreachable {
		t.Errorf("the record is %+v", rec)
	}
	w.Eventually("the node is at risk", func() error {
		if risks := w.Get("awaits").Status.ControllerState.Rollout.AtRisk; len(risks) != 1 || risks[0].UID != uid || risks[0].Failed {
			return fmt.Errorf("at risk are %+v", risks)
		}
		return nil
	})
	must(t, admin.Delete(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: canary}}))
	for job, reason := range map[string]string{
		"awaits": v1alpha1.ReasonNotReadyNodeDeleted, "runs": v1alpha1.ReasonFailedNodeDeleted, "soaks": v1alpha1.ReasonNotReadyNodeDeleted,
	} {
		w.Eventually("the node is an unrecorded failure of "+job, func() error {
			dead := w.Get(job).Status.Rollout.UnrecordedFailures
			if len(dead) != 1 || dead[0].Node != canary || dead[0].UID != uid || dead[0].Reason != reason {
				return fmt.Errorf("they are %+v, want %s for %s", dead, reason, canary)
			}
			return nil
		})
	}

	replacement := w.join(cluster.NodeOptions{Name: w.Namespace + "-b"})
	for _, job := range jobs {
		w.Eventually(job+" has seen the replacement and starts nothing", func() error {
			c := meta.FindStatusCondition(w.Get(job).Status.Conditions, v1alpha1.ConditionReconciling)
			if !strings.Contains(c.Message, "waiting: 2 MaxFailuresExceeded") {
				return errors.New(c.Message)
			}
			return nil
		})
		w.untouched(log, job, replacement)
		w.untouched(log, job, "node-2")
	}
	w.letGo(replacement)
	w.letGo("node-2")
	for _, job := range jobs {
		c := w.Condition(job, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
		w.asTold(c.Message, "annotate nodejob")
		w.Done(job, replacement)
		w.Eventually(job+" has no casualties any more", func() error {
			if dead := w.Get(job).Status.Rollout.UnrecordedFailures; len(dead) > 0 {
				return fmt.Errorf("they are %+v", dead)
			}
			return nil
		})
	}
	w.Done("runs", "node-2")
	w.Condition("runs", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
}
