// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// rolling is a status of revision rev in a step of three, with a true condition and the reason of Complete.
func rolling(step, condition, reason string, changes ...func(*v1alpha1.NodeJobStatus)) v1alpha1.NodeJobStatus {
	st := v1alpha1.NodeJobStatus{
		Revision: "rev",
		Nodes:    v1alpha1.NodeCounts{Total: 9, Done: 4},
		Rollout: &v1alpha1.RolloutStatus{
			Step: step,
			Steps: []v1alpha1.StepStatus{
				{Name: "one", Nodes: 1, Done: 1},
				{Name: "half", Nodes: 4, Done: 3, Failed: 1},
				{Name: "all", Nodes: 4},
			},
		},
	}
	for _, kind := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionRollbackFailed} {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: "it is " + reason}
		if kind == condition {
			c.Status = metav1.ConditionTrue
		}
		st.Conditions = append(st.Conditions, c)
	}
	for _, change := range changes {
		change(&st)
	}
	return st
}

func moving(step string, changes ...func(*v1alpha1.NodeJobStatus)) v1alpha1.NodeJobStatus {
	return rolling(step, v1alpha1.ConditionReconciling, v1alpha1.ReasonInProgress, changes...)
}

func complete(changes ...func(*v1alpha1.NodeJobStatus)) v1alpha1.NodeJobStatus {
	return rolling("all", v1alpha1.ConditionComplete, v1alpha1.ReasonAllNodesDone, append(changes, stable)...)
}

func stopped(reason string, changes ...func(*v1alpha1.NodeJobStatus)) v1alpha1.NodeJobStatus {
	return rolling("half", v1alpha1.ConditionStalled, reason, changes...)
}

func waiting(step string) v1alpha1.NodeJobStatus {
	return rolling(step, "", v1alpha1.ReasonAwaitingPromotion)
}

func stable(st *v1alpha1.NodeJobStatus) { st.Rollout.StableAt = metav1.NewTime(noon) }

func failed(n int32) func(*v1alpha1.NodeJobStatus) {
	return func(st *v1alpha1.NodeJobStatus) { st.Nodes.Failed = n }
}

func revision(name string) func(*v1alpha1.NodeJobStatus) {
	return func(st *v1alpha1.NodeJobStatus) { st.Revision = name }
}

func unrecovered(st *v1alpha1.NodeJobStatus) {
	st.Conditions[3].Status, st.Conditions[3].Message = metav1.ConditionTrue, "the rollback also failed on 1 node"
}

// edited is a status after the spec has changed, without a new revision.
func edited(st *v1alpha1.NodeJobStatus) { st.ObservedGeneration = 2 }

// TestNotificationsOfNodeJobs writes a sequence of statuses and compares the notifications of each.
func TestNotificationsOfNodeJobs(t *testing.T) {
	const (
		started    = "Started rev one: revision rev begins; nodes to do: 5"
		oneDone    = "StepCompleted rev one: step one of revision rev is completed: 1 of 1 node is done"
		halfDone   = "StepCompleted rev half: step half of revision rev is completed: 3 of 4 nodes are done, 1 failed"
		isComplete = "Complete rev all: it is AllNodesDone"
		tooMany    = "Stopped rev half: it is MaxFailuresExceeded"
		someFailed = "Stopped rev half: it is NodesFailed"
		forbidden  = "Stopped rev half: it is PodForbidden"
	)
	type statuses = []v1alpha1.NodeJobStatus
	for name, tt := range map[string]struct {
		// before is the status when notifications are enabled.
		before v1alpha1.NodeJobStatus
		then   statuses
		want   []string
	}{
		"a rollout from the start to the end": {
			then: statuses{moving("one"), moving("half"), moving("all"), complete()},
			want: []string{started, oneDone, halfDone, isComplete},
		},
		"steps that pass at once": {
			then: statuses{moving("one"), complete()},
			want: []string{started, oneDone, halfDone, isComplete},
		},
		"nothing changes": {before: moving("one"), then: statuses{moving("one")}},
		"the last step passes while nodes have failed": {
			before: moving("all"),
			then:   statuses{moving("all", stable), stopped(v1alpha1.ReasonNodesFailed, stable, failed(1))},
			want:   []string{"StepCompleted rev all: step all of revision rev is completed: 0 of 4 nodes are done", someFailed},
		},
		"a rollout that was complete before notifications were enabled": {before: complete(), then: statuses{complete(failed(0))}},
		"a rollout that waits for promotion, and is promoted": {
			before: moving("one"),
			then:   statuses{waiting("one"), moving("half"), waiting("half"), moving("all"), complete()},
			want:   []string{oneDone, "AwaitingPromotion rev one: it is AwaitingPromotion", halfDone, "AwaitingPromotion rev half: it is AwaitingPromotion", isComplete},
		},
		"a node that joins while the rollout waits for promotion": {
			before: moving("one"),
			then:   statuses{waiting("one"), moving("one"), waiting("one")},
			want:   []string{oneDone, "AwaitingPromotion rev one: it is AwaitingPromotion"},
		},
		"a node that joins or runs again after the rollout": {
			before: moving("all"),
			then:   statuses{complete(), moving("all", stable), complete()},
			want:   []string{isComplete},
		},
		"a new revision": {
			before: moving("all"),
			then:   statuses{complete(), moving("one", revision("next"))},
			want:   []string{isComplete, "Started next one: revision next begins; nodes to do: 5"},
		},
		"a revision that returns": {
			before: moving("one"),
			then:   statuses{moving("one", revision("next")), moving("one")},
			want:   []string{"Started next one: revision next begins; nodes to do: 5", started},
		},
		"a revision that is unknown for a while": {
			before: moving("one"),
			then:   statuses{stopped(v1alpha1.ReasonConfigMapNotFound, revision("")), moving("one")},
			want:   []string{"Stopped half: it is ConfigMapNotFound"},
		},
		"too many failures, a retry, and too many failures again": {
			before: moving("half"),
			then:   statuses{stopped(v1alpha1.ReasonMaxFailuresExceeded, failed(2)), moving("half", failed(0)), stopped(v1alpha1.ReasonMaxFailuresExceeded, failed(2))},
			want:   []string{tooMany, tooMany},
		},
		"too many failures of deleted nodes, a retry, and too many failures again": {
			before: moving("half"),
			then:   statuses{stopped(v1alpha1.ReasonMaxFailuresExceeded), moving("half"), stopped(v1alpha1.ReasonMaxFailuresExceeded)},
			want:   []string{tooMany, tooMany},
		},
		"too many failures, and then success": {
			before: moving("all"),
			then:   statuses{complete(), stopped(v1alpha1.ReasonMaxFailuresExceeded, failed(2)), moving("all", stable), complete()},
			want:   []string{isComplete, tooMany, isComplete},
		},
		"a stopped rollout in which more nodes fail": {
			before: moving("half"),
			then:   statuses{stopped(v1alpha1.ReasonMaxFailuresExceeded, failed(2)), stopped(v1alpha1.ReasonMaxFailuresExceeded, failed(3))},
			want:   []string{tooMany},
		},
		"failed nodes, and another node that joins": {
			before: moving("half"),
			then:   statuses{stopped(v1alpha1.ReasonNodesFailed, failed(1)), moving("half", failed(1)), stopped(v1alpha1.ReasonNodesFailed, failed(1))},
			want:   []string{someFailed},
		},
		"failed nodes that are retried and fail again": {
			before: moving("half"),
			then:   statuses{stopped(v1alpha1.ReasonNodesFailed, failed(1)), moving("half", failed(0)), stopped(v1alpha1.ReasonNodesFailed, failed(1))},
			want:   []string{someFailed, someFailed},
		},
		"a quota that is full from time to time": {
			before: moving("half"),
			then:   statuses{stopped(v1alpha1.ReasonPodForbidden), moving("half"), stopped(v1alpha1.ReasonPodForbidden)},
			want:   []string{forbidden},
		},
		"a NodeJob that is changed and refused again": {
			before: moving("half"),
			then:   statuses{stopped(v1alpha1.ReasonPodForbidden), moving("half", edited), stopped(v1alpha1.ReasonPodForbidden, edited)},
			want:   []string{forbidden, forbidden},
		},
		"another reason": {
			before: moving("half"),
			then:   statuses{stopped(v1alpha1.ReasonPodForbidden), stopped(v1alpha1.ReasonMaxFailuresExceeded)},
			want:   []string{forbidden, tooMany},
		},
		"a rollback that fails": {
			before: moving("half"),
			then:   statuses{moving("half", unrecovered), moving("half", unrecovered), moving("half"), moving("half", unrecovered)},
			want:   []string{"RollbackFailed rev half: the rollback also failed on 1 node", "RollbackFailed rev half: the rollback also failed on 1 node"},
		},
		"a status without steps": {
			then: statuses{{Revision: "rev"}},
			want: []string{"Started rev: revision rev begins; nodes to do: 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: tt.before}
			var got []string
			for i := range tt.then {
				job.Generation = max(tt.then[i].ObservedGeneration, 1)
				got = append(got, lines(write(job, tt.then[i]))...)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("notifications (-want +got):\n%s", diff)
			}
		})
	}
}

// write replaces the status of the NodeJob, and returns the notifications.
func write(job *v1alpha1.NodeJob, after v1alpha1.NodeJobStatus) []v1alpha1.Notification {
	state, made := nodeJob(job, &after, noon)
	after.ControllerState.Notifications = &state
	job.Status = after
	return made
}

func lines(made []v1alpha1.Notification) []string {
	var texts []string
	for i := range made {
		n := &made[i]
		texts = append(texts, strings.Join(strings.Fields(fmt.Sprint(n.Type, " ", n.Revision, " ", n.Step, n.Node)), " ")+": "+n.Message)
	}
	return texts
}

func TestANotificationHasTheStateOfItsTime(t *testing.T) {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "job", Generation: 3, Annotations: map[string]string{v1alpha1.ChangedByAnnotation: "jane\n"},
	}}
	after := stopped(
		v1alpha1.ReasonNodesFailed,
		func(st *v1alpha1.NodeJobStatus) { st.Conditions[2].Message = strings.Repeat("a\x1b", 1000) },
	)
	_, made := nodeJob(job, &after, noon.Add(time.Second/2))
	after.Nodes.Done++
	got := made[len(made)-1]
	if len(got.Message) > maxMessageBytes || strings.Contains(got.Message, "\x1b") {
		t.Errorf("the message has %d bytes: %q", len(got.Message), got.Message)
	}
	got.Message = ""
	want := v1alpha1.Notification{
		Type:       v1alpha1.NotificationStopped,
		Time:       metav1.NewTime(noon),
		Generation: 3,
		Revision:   "rev",
		Step:       "half",
		Reason:     v1alpha1.ReasonNodesFailed,
		Nodes:      &v1alpha1.NodeCounts{Total: 9, Done: 4},
		ChangedBy:  `jane\n`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the notification (-want +got):\n%s", diff)
	}
}
