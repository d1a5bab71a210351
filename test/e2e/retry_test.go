// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
)

// TestR20_RetriesBackOffExponentiallyAndLeaveTheNode measures from the end of each attempt to the creation of the next pod.
// The backoff begins when the manager records the end. On a busy machine the kubelet reports it seconds late.
func TestR20_RetriesBackOffExponentiallyAndLeaveTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := w.logPods()
	w.job("backs-off", w.mark()+"; exit 3", onNode2, func(s *v1alpha1.NodeJobSpec) {
		s.Retry = v1alpha1.RetrySpec{Limit: new(int32(6)), BackoffSeconds: new(int32(1)), MaxBackoffSeconds: new(int32(4))}
	})
	if rec := w.failed("backs-off", "node-2"); rec.Attempts != 7 || *rec.ExitCode != 3 {
		t.Errorf("the record is %+v", rec)
	}
	w.NoPods()
	w.wantRan("node-2", 7)
	pods := log.of("backs-off")
	if len(pods) != 7 {
		t.Fatalf("the pods were %q", log.story("backs-off"))
	}
	waits := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second}
	for i, want := range waits {
		ended := pods[i].pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt
		gap, sinceReport := pods[i+1].made.Sub(ended.Time), pods[i+1].made.Sub(pods[i].ended)
		t.Logf(
			"retry %d came %.2f s after the end of attempt %d, and %.2f s after its report",
			i+1,
			gap.Seconds(),
			i+1,
			sinceReport.Seconds(),
		)
		if gap < want {
			t.Errorf("retry %d came after %s, want at least %s", i+1, gap, want)
		}
		// How late a retry comes depends on the machine. Without maxBackoffSeconds, the last would come after 32 s at the earliest.
		if unlimited := time.Second << i; i == len(waits)-1 && sinceReport >= unlimited {
			t.Errorf("retry %d came %s after the report of attempt %d, as without maxBackoffSeconds", i+1, sinceReport, i+1)
		}
	}
	w.wantCordoned("node-2", false)
	w.Condition("backs-off", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
}

func TestR20_AFailedNodeIsCordonedUnlessSomebodyElseHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	fixed := w.markFile() + ".fixed"
	cordon := func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.OnFailure.Action = v1alpha1.FailureActionCordon
	}
	w.job("cordons", "[ -e "+fixed+" ] || exit 3", cordon)
	w.job("cordons-too", "exit 4", cordon)
	for _, job := range []string{"cordons", "cordons-too"} {
		w.Eventually(job+" has set the node aside", func() error {
			if f := w.Get(job).Status.Failures; len(f) != 1 || f[0].Quarantine != v1alpha1.ReasonCordoned {
				return fmt.Errorf("the failures are %+v", f)
			}
			return nil
		})
	}
	w.wantCordoned(node, true, "cordons", "cordons-too")

	// One node is skipped by a user, the other is repaired and retried. The last one is uncordoned.
	c := w.Condition("cordons-too", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	w.asTold(c.Message, "label node", "NAME", node)
	w.complete("cordons-too")
	w.Eventually("the node is cordoned for the other alone", func() error {
		if by := record.CordonedBy(w.node(node).Annotations); !slices.Equal(by, []string{v1alpha1.RecordKey(w.Namespace, "cordons")}) {
			return fmt.Errorf("it is for %q", by)
		}
		return nil
	})
	w.wantCordoned(node, true, "cordons")
	w.sh(node, "touch "+fixed)
	c = w.Condition("cordons", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	w.asTold(c.Message, "annotate nodejob")
	w.Done("cordons", node)
	w.wantCordoned(node, false)

	// A node that a user uncordons is not cordoned again.
	w.job("overruled", "exit 5", cordon)
	w.Eventually("the node is cordoned again", func() error {
		if f := w.Get("overruled").Status.Failures; len(f) != 1 || f[0].Quarantine != v1alpha1.ReasonCordoned {
			return fmt.Errorf("the failures are %+v", f)
		}
		return nil
	})
	w.kubectl("uncordon", node)
	w.Eventually("the node is uncordoned", func() error {
		if f := w.Get("overruled").Status.Failures; len(f) != 1 || f[0].Quarantine != "" {
			return fmt.Errorf("the failures are %+v", f)
		}
		return nil
	})
	w.wantCordoned(node, false)

	w.kubectl("cordon", node)
	w.sh(node, "rm "+fixed)
	w.job("not-ours", "[ -e "+fixed+" ] || exit 3", cordon)
	c = w.Condition("not-ours", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	w.wantCordoned(node, true)
	w.sh(node, "touch "+fixed)
	w.asTold(c.Message, "annotate nodejob")
	w.complete("not-ours")
	w.wantCordoned(node, true)
}

// TestR20_FailedNodesAreTriedAgainOrSkippedOnRequest runs the commands in the status.
func TestR20_FailedNodesAreTriedAgainOrSkippedOnRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("asked", w.mark()+"; [ -e "+w.markFile()+".fixed ] || exit 3", onNodes("node-1", "node-2"), func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
	})
	told := func() string {
		t.Helper()
		return w.Condition("asked", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed).Message
	}
	w.counted("asked", v1alpha1.NodeCounts{Total: 2, Failed: 2})

	// One node, which fails again.
	first := w.On("asked", "node-1").Record
	w.asTold(told(), "annotate node NAME", "NAME", "node-1")
	w.Eventually("node-1 was tried again", func() error {
		if rec := w.On("asked", "node-1").Record; rec == nil || rec.PodUID == first.PodUID {
			return fmt.Errorf("the record is %+v", rec)
		}
		return nil
	})
	w.wantRan("node-1", 2)
	w.wantRan("node-2", 1)
	w.counted("asked", v1alpha1.NodeCounts{Total: 2, Failed: 2})

	// All failed nodes, one of which is repaired.
	w.sh("node-2", "touch "+w.markFile()+".fixed")
	w.asTold(told(), "annotate nodejob")
	w.Done("asked", "node-2")
	live := w.counted("asked", v1alpha1.NodeCounts{Total: 2, Done: 1, Failed: 1})
	w.wantRan("node-1", 3)
	w.wantRan("node-2", 2)

	// The other is skipped.
	w.asTold(told(), "label node", "NAME", "node-1")
	w.complete("asked")
	w.wantRan("node-1", 3)
	if on := w.On("asked", "node-1"); on.Label != live.Status.Revision {
		t.Errorf("node-1 carries the label %q, want %q", on.Label, live.Status.Revision)
	}
}
