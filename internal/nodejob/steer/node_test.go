// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
)

const (
	jobKey    = "ns.everynode.dev/j"
	asksLabel = "example.com/setup"
)

var now = time.Date(2026, 7, 1, 12, 30, 0, 0, time.UTC)

// labelJob selects nodes by a label that a success removes.
func labelJob(change func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
	job := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", Generation: 2},
		Spec: v1alpha1.NodeJobSpec{
			Nodes:        v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{asksLabel: "wanted"}}},
			RemoveLabels: []string{asksLabel},
			Retry:        v1alpha1.RetrySpec{Limit: new(int32(0))},
		},
		Status: v1alpha1.NodeJobStatus{ObservedGeneration: 2, Revision: "new"},
	}
	if change != nil {
		change(job)
	}
	return job
}

// starts reports whether the manager starts the task on a node with these labels and annotations.
func starts(job *v1alpha1.NodeJob, labels, annotations map[string]string) bool {
	node := plan.Node{
		Name: "n", UID: "u", Ready: corev1.ConditionTrue, BootID: "b", MachineID: "m", Labels: labels, Annotations: annotations,
		On: record.Read(labels, annotations, jobKey),
	}
	return plan.Next(plan.Input{Job: job, Revision: job.Status.Revision, Nodes: []plan.Node{node}, Now: now}).Nodes[0].State == plan.Running
}

// patched returns the labels or annotations after a change.
func patched(before map[string]string, change map[string]*string) map[string]string {
	after := maps.Clone(before)
	for key, value := range change {
		if delete(after, key); value != nil {
			after[key] = *value
		}
	}
	return after
}

// TestRetryAndRerunLeadToARun plans the node before and after the command.
func TestRetryAndRerunLeadToARun(t *testing.T) {
	removed := map[string]string{asksLabel: "wanted"}
	failed := record.Record{Revision: "new", Outcome: record.Failed, Attempts: 1, FinishedAt: now, PodUID: "p", RemovedLabels: removed}
	of := func(r record.Record, change func(*record.Record)) *record.Record { change(&r); return &r }
	succeeded := of(failed, func(r *record.Record) { r.Outcome = record.Succeeded })
	disruptedAgain := of(failed, func(r *record.Record) { r.Outcome, r.Rerun, r.Attempts, r.Disruptions = record.Disrupted, true, 0, 9 })
	anyRevision := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnRevisionChange = new(false) }
	unobserved := func(j *v1alpha1.NodeJob) { j.Status.ObservedGeneration = 1 }
	const (
		off       = "annotation " + jobKey + " removed with its seal"
		labelOff  = "label " + jobKey + " removed"
		putBack   = "label " + asksLabel + "=wanted restored"
		retried   = "retry requested; other nodes wait until the run there has ended (--with-others: they do not wait)"
		runsAgain = "rerun requested: "
	)
	tests := map[string]struct {
		job   func(*v1alpha1.NodeJob)
		rec   *record.Record
		label string
		asks  bool // the node has the label that requests the task
		retry string
		rerun string
		idle  bool // nothing runs unless a user requests it
	}{
		"failed, and an earlier success removed the label": {
			rec:   &failed,
			idle:  true,
			retry: retried,
			rerun: "it has failed there; to run it again, use retry",
		},
		"failed, with the label that requests the task": {
			rec:   &failed,
			asks:  true,
			idle:  true,
			retry: retried,
			rerun: "it has failed there; to run it again, use retry",
		},
		"failed, with the label of an earlier revision": {
			rec:   &failed,
			label: "old",
			idle:  true,
			retry: retried,
			rerun: "it has failed there; to run it again, use retry",
		},
		"a rerun that is disrupted repeatedly": {
			rec:   disruptedAgain,
			label: "new",
			idle:  true,
			retry: retried,
			rerun: "it is not done there, and runs automatically",
		},
		"failed, then skipped": {
			rec:   &failed,
			label: "new",
			idle:  true,
			retry: "it is done there; to run it again, use rerun",
			rerun: runsAgain + off + ", " + labelOff + ", " + putBack,
		},
		"done": {
			rec:   succeeded,
			label: "new",
			idle:  true,
			retry: "it is done there; to run it again, use rerun",
			rerun: runsAgain + labelOff,
		},
		"skipped without a run": {
			label: "new",
			asks:  true,
			idle:  true,
			retry: "it is done there; to run it again, use rerun",
			rerun: runsAgain + labelOff,
		},
		"done with an earlier revision that counts": {
			job:   anyRevision,
			rec:   of(*succeeded, func(r *record.Record) { r.Revision = "old" }),
			label: "old",
			idle:  true,
			retry: "it is done there; to run it again, use rerun",
			rerun: runsAgain + labelOff,
		},
		"done with an earlier revision": {
			label: "old",
			asks:  true,
			retry: "it has not run there with revision new yet, and does so automatically",
			rerun: "it is not done there, and runs automatically",
		},
		"failed with an earlier revision": {
			rec:   of(failed, func(r *record.Record) { r.Revision = "old" }),
			retry: "it has not run there with revision new yet, and does so automatically",
			rerun: "it is not done there, and runs automatically",
		},
		"done, although the label skips another revision": {
			rec:   of(*succeeded, func(r *record.Record) { r.Label = "old" }),
			label: "old",
			idle:  true,
			retry: "it is done there; to run it again, use rerun",
			rerun: runsAgain + labelOff,
		},
		"a rerun that is disrupted, then skipped": {
			rec:   of(*disruptedAgain, func(r *record.Record) { r.LabelRemoved = true }),
			label: "new",
			idle:  true,
			retry: "it is done there; to run it again, use rerun",
			rerun: runsAgain + off + ", " + labelOff + ", " + putBack,
		},
		"no run yet": {asks: true, retry: "no attempt has ended there", rerun: "it is not done there, and runs automatically"},
		"failed, and the spec is not observed yet": {
			job:   unobserved,
			rec:   &failed,
			idle:  true,
			retry: retried,
			rerun: "it has failed there; to run it again, use retry",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := labelJob(tt.job)
			labels, annotations := map[string]string{"other": "stays"}, map[string]string{"other": "stays"}
			on := record.NodeRecord{Label: tt.label, Record: tt.rec, Present: tt.label != "" || tt.rec != nil}
			if tt.label != "" {
				labels[jobKey] = tt.label
			}
			if tt.asks {
				labels[asksLabel] = "wanted"
			}
			if tt.rec != nil {
				encoded := record.Encode(*tt.rec)
				annotations[jobKey], labels[record.SealKey(jobKey)] = encoded, record.Seal(encoded)
			}
			if got := starts(job, labels, annotations); got == tt.idle {
				t.Errorf("started before the command: %v", got)
			}
			for command, decided := range map[string]struct {
				d    NodeDecision
				want string
			}{"retry": {Retry(job, Node{on, labels}, true), tt.retry}, "rerun": {Rerun(job, Node{on, labels}), tt.rerun}} {
				if diff := cmp.Diff(decided.want, decided.d.Did+decided.d.Nothing); diff != "" {
					t.Errorf("%s (-want +got):\n%s", command, diff)
				}
				if decided.d.Nothing != "" {
					continue
				}
				after := patched(labels, decided.d.Labels)
				if !starts(job, after, patched(annotations, decided.d.Annotations)) || after["other"] != "stays" {
					t.Errorf("%s does not lead to a run, with labels %v", command, after)
				}
			}
		})
	}
}

// TestAForgedRecordSetsNoOtherLabel covers removed labels in a record that a kubelet wrote.
func TestAForgedRecordSetsNoOtherLabel(t *testing.T) {
	rec := &record.Record{
		Revision:      "new",
		Outcome:       record.Failed,
		RemovedLabels: map[string]string{"example.com/forged": "x", asksLabel: "wanted"},
	}
	d := Rerun(labelJob(nil), Node{record.NodeRecord{Label: "new", Record: rec, Present: true}, map[string]string{asksLabel: "now"}})
	seal, sealed := d.Labels[record.SealKey(jobKey)]
	if len(d.Labels) != 2 || !sealed || seal != nil || d.Annotations[jobKey] != nil || len(d.Annotations) != 1 {
		t.Errorf("the change is %+v", d)
	}
}

// TestAnAlteredRecordIsNotRetried covers a record that is ignored, so that the node runs the task automatically.
func TestAnAlteredRecordIsNotRetried(t *testing.T) {
	const want = "its record was changed by something other than the manager and is ignored: the task runs there automatically"
	d := Retry(labelJob(nil), Node{record.NodeRecord{Altered: true, Present: true}, nil}, true)
	if diff := cmp.Diff(want, d.Nothing); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestRecordsOfATerminatingNodeJobAreNotRemoved covers records that show on which nodes to roll back.
func TestRecordsOfATerminatingNodeJobAreNotRemoved(t *testing.T) {
	job := labelJob(func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = new(metav1.NewTime(now)) })
	var refusal *Refusal
	if err := MayChangeNodes(job); !errors.As(err, &refusal) || refusal.Cause != Unsuitable {
		t.Errorf("error: %v", err)
	}
	if err := MayChangeNodes(labelJob(nil)); err != nil {
		t.Error(err)
	}
}

func TestSkipNeedsTheCurrentRevision(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   string
	}{
		"the spec is not observed": {
			func(j *v1alpha1.NodeJob) { j.Generation = 3 },
			"the current revision is not known yet, because the manager has not observed the current spec: wait, or check with: kubectl everynode status j -n ns",
		},
		"its script is missing": {
			func(j *v1alpha1.NodeJob) {
				j.Status.Revision = ""
				j.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse},
					{
						Type:    v1alpha1.ConditionStalled,
						Status:  metav1.ConditionTrue,
						Reason:  v1alpha1.ReasonConfigMapNotFound,
						Message: "ConfigMap ns/a does not exist",
					},
				}
			},
			"the current revision is not known (ConfigMapNotFound): ConfigMap ns/a does not exist",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := labelJob(nil)
			tt.change(job)
			if err := MaySkip(job); err == nil || err.Error() != tt.want {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func TestAPatchContainsOnlyTheChange(t *testing.T) {
	node := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7"}}
	for want, change := range map[string]NodeDecision{
		`{"metadata":{"labels":{"k":null},"resourceVersion":"7","uid":"u"}}`:      {Labels: map[string]*string{"k": nil}},
		`{"metadata":{"labels":{"k":"v"},"resourceVersion":"7","uid":"u"}}`:       {Labels: map[string]*string{"k": new("v")}},
		`{"metadata":{"annotations":{"k":null},"resourceVersion":"7","uid":"u"}}`: {Annotations: map[string]*string{"k": nil}},
	} {
		got, err := change.Patch(node)
		if err != nil || string(got) != want {
			t.Errorf("%s (%v), want %s", got, err, want)
		}
	}
}
