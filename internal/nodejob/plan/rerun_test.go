// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// TestStateFromRecord tests what the record and the label of a node mean for the revision.
func TestStateFromRecord(t *testing.T) {
	var (
		keepOld     = func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnRevisionChange = new(false) }
		keepMachine = func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnMachineChange = new(false) }
		unlabelled  = func(n *Node) { n.On.Label = "" }
		ofRevision  = func(revision string) func(*record.Record) {
			return func(r *record.Record) { r.Revision = revision }
		}
		ofMachine = func(machine string) func(*record.Record) {
			return func(r *record.Record) { r.MachineID = machine }
		}
		done  = recordState{done: true}
		fresh = recordState{}
		// ran also says that this revision has run there before.
		ran = func(was recordState) recordState {
			was.ranRevision, was.since = true, ago(61)
			return was
		}
		proof = ran(recordState{done: true, succeeded: true})
	)
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		node Node
		want recordState
	}{
		"a success with a label that a user set to another revision": {
			node: newNode("n", recorded(record.Succeeded, ofRevision("old")), labelled(rev)), want: done,
		},
		"a failure before the user requested a retry": {
			job: newJob(askAgain), node: newNode("n", recorded(record.Failed, attempts(9))), want: ran(fresh),
		},
		"a failure after the user requested a retry": {
			job:  newJob(askAgain),
			node: newNode("n", recorded(record.Failed, func(r *record.Record) { r.Retry = task.RetryToken(newJob(askAgain)) })),
			want: ran(recordState{failures: 1, notBefore: ago(50)}),
		},
		"a failure of a requested retry, without the annotation": {
			node: newNode("n", recorded(record.Failed, func(r *record.Record) { r.Retry = task.RetryToken(newJob(askAgain)) })),
			want: ran(recordState{failures: 1, notBefore: ago(50)}),
		},
		"a success before the user requested a retry": {
			job: newJob(askAgain), node: newNode("n", recorded(record.Succeeded)), want: proof,
		},
		"no label and no record":                      {node: newNode("n"), want: fresh},
		"a success of this revision":                  {node: newNode("n", recorded(record.Succeeded)), want: proof},
		"a label set by a user skips the node":        {node: newNode("n", labelled(rev)), want: done},
		"a label that a user set to another revision": {node: newNode("n", labelled("other")), want: fresh},
		"a success beside a label that skips another revision": {
			node: newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.Label = "other" }), labelled("other")), want: proof,
		},
		"a success beside a label that a user has removed since": {
			node: newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.Label = "other" }), unlabelled), want: ran(fresh),
		},
		"a run of another revision that reboots": {
			node: newNode("n", recorded(record.Rebooting, ofRevision("old"))), want: recordState{rebooting: true},
		},
		"a failure of a rerun that a user has skipped": {
			node: newNode("n", recorded(record.Failed, func(r *record.Record) { r.Rerun = true }), labelled(rev)), want: ran(done),
		},
		"a disruption of a rerun": {
			node: newNode(
				"n",
				recorded(record.Disrupted, func(r *record.Record) { r.Rerun = true }),
				labelled(rev),
			),
			want: ran(recordState{notBefore: ago(50)}),
		},
		"a success of another revision than the label, with rerun.periodSeconds": {
			job: newJob(periodSeconds(1)), node: newNode("n", recorded(record.Succeeded, ofRevision("old")), labelled(rev)), want: done,
		},
		"removing the label requests another run": {
			node: newNode("n", recorded(record.Succeeded), unlabelled),
			want: ran(fresh),
		},
		"an empty label requests another run": {
			node: newNode("n", recorded(record.Succeeded), labelled("")),
			want: ran(fresh),
		},
		"a label with another revision than the record": {
			node: newNode("n", recorded(record.Succeeded), labelled("other")),
			want: ran(fresh),
		},
		"a success of an earlier revision": {
			node: newNode("n", recorded(record.Succeeded, ofRevision("old")), labelled("old")),
			want: fresh,
		},
		"an earlier revision with rerun.onRevisionChange: false": {
			job:  newJob(keepOld),
			node: newNode("n", recorded(record.Succeeded, ofRevision("old")), labelled("old")),
			want: done,
		},
		"an earlier revision with rerun.onRevisionChange: false, without a label": {
			job:  newJob(keepOld),
			node: newNode("n", recorded(record.Succeeded, ofRevision("old")), unlabelled),
			want: fresh,
		},
		"a failure of an earlier revision": {
			node: newNode("n", recorded(record.Failed, ofRevision("old"))),
			want: fresh,
		},
		"a failure of this revision counts": {
			node: newNode("n", recorded(record.Failed)),
			want: ran(recordState{failures: 1, notBefore: ago(50)}),
		},
		"two failures back off twice as long": {
			node: newNode("n", recorded(record.Failed, attempts(2))),
			want: ran(recordState{failures: 2, notBefore: ago(40)}),
		},
		"a failure of a skipped node": {
			node: newNode("n", recorded(record.Failed), labelled(rev)),
			want: ran(done),
		},
		"a disruption does not count as a failure and backs off": {
			node: newNode("n", recorded(record.Disrupted)),
			want: ran(recordState{notBefore: ago(50)}),
		},
		"the third disruption in a row backs off longer": {
			node: newNode("n", recorded(record.Disrupted, func(r *record.Record) { r.Attempts, r.Disruptions = 1, 3 })),
			want: ran(recordState{failures: 1, notBefore: ago(20)}),
		},
		"a disruption of an earlier revision with rerun.onRevisionChange: false": {
			job: newJob(keepOld), node: newNode("n", recorded(record.Disrupted), labelled("old")), want: ran(done),
		},

		"a success of another machine": {
			node: newNode("n", recorded(record.Succeeded, ofMachine("gone"))),
			want: fresh,
		},
		"a failure of another machine": {
			node: newNode("n", recorded(record.Failed, ofMachine("gone"))),
			want: fresh,
		},
		"an earlier revision on another machine with rerun.onRevisionChange: false": {
			job:  newJob(keepOld),
			node: newNode("n", recorded(record.Succeeded, ofRevision("old"), ofMachine("gone")), labelled("old")),
			want: fresh,
		},
		"a success of another machine with rerun.onMachineChange: false": {
			job:  newJob(keepMachine),
			node: newNode("n", recorded(record.Succeeded, ofMachine("gone"))),
			want: proof,
		},
		"a record without a machine ID": {
			node: newNode("n", recorded(record.Succeeded, ofMachine(""))),
			want: proof,
		},
		"a node without a machine ID": {
			node: newNode("n", recorded(record.Succeeded), func(n *Node) { n.MachineID = "" }),
			want: proof,
		},
		"the same machine after a reboot": {
			node: newNode("n", recorded(record.Succeeded), func(n *Node) { n.BootID = "next" }),
			want: proof,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.job == nil {
				tt.job = newJob()
			}
			got := newPlanner(see(tt.job, nil)).records.readRecord(&tt.node)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(recordState{})); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	seconds := func(backoff, longest int32) v1alpha1.RetrySpec {
		return v1alpha1.RetrySpec{BackoffSeconds: &backoff, MaxBackoffSeconds: &longest}
	}
	tests := map[string]struct {
		retry v1alpha1.RetrySpec
		n     int32
		want  time.Duration
	}{
		"the first backoff is the given one":            {seconds(5, 60), 1, 5 * time.Second},
		"the second backoff is twice as long":           {seconds(5, 60), 2, 10 * time.Second},
		"the fourth backoff is eight times as long":     {seconds(5, 60), 4, 40 * time.Second},
		"the backoff is limited to the maximum":         {seconds(5, 60), 5, 60 * time.Second},
		"the largest number of failures":                {seconds(5, 60), 2147483647, 60 * time.Second},
		"a negative number of failures":                 {seconds(5, 60), -1, 5 * time.Second},
		"the maximum is shorter than the first backoff": {seconds(60, 5), 1, 5 * time.Second},
		"the backoff is limited to one day":             {seconds(86400, 86400), 100, 24 * time.Hour},
		"defaults":                                      {v1alpha1.RetrySpec{}, 1, 10 * time.Second},
		"defaults after ten failures":                   {v1alpha1.RetrySpec{}, 10, 300 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newPlanner(see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Retry = tt.retry }), nil))
			if got := s.backoff(tt.n); got != tt.want {
				t.Errorf("wait %v, want %v", got, tt.want)
			}
		})
	}
}

// TestRetry tests the attempts on one node.
func TestRetry(t *testing.T) {
	limit := func(n int32) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) { j.Spec.Retry.Limit = &n }
	}
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		node Node
		want []string
	}{
		"the first retry is the second attempt": {
			job:  newJob(),
			node: newNode("n", recorded(record.Failed)),
			want: []string{"start attempt 2 of rev on n"},
		},
		"the limit is reached": {job: newJob(), node: newNode("n", recorded(record.Failed, attempts(2)))},
		"the limit was raised since": {
			job:  newJob(limit(2)),
			node: newNode("n", recorded(record.Failed, attempts(2))),
			want: []string{"start attempt 3 of rev on n"},
		},
		"no retry at all": {job: newJob(limit(0)), node: newNode("n", recorded(record.Failed))},
		"the default is three retries": {
			job:  newJob(func(j *v1alpha1.NodeJob) { j.Spec.Retry = v1alpha1.RetrySpec{} }),
			node: newNode("n", recorded(record.Failed, attempts(3))),
			want: []string{"start attempt 4 of rev on n"},
		},
		"a disrupted attempt is repeated with the same number": {
			job:  newJob(limit(0)),
			node: newNode("n", recorded(record.Disrupted)),
			want: []string{"start attempt 1 of rev on n"},
		},
		"a retry that was disrupted": {
			job: newJob(), node: newNode("n", recorded(record.Disrupted, attempts(1))), want: []string{"start attempt 2 of rev on n"},
		},
		"removing the record restarts the attempts": {
			job:  newJob(limit(0)),
			node: newNode("n", func(n *Node) { n.On.Present = false }),
			want: []string{"start attempt 1 of rev on n"},
		},
		"a huge attempt count starts no further attempt": {
			job: newJob(limit(100)), node: newNode("n", recorded(record.Disrupted, attempts(2147483647))),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(tt.job, []Node{tt.node})
			in.Now = now.Add(time.Hour)
			if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodesRerun tests when a done node reruns the same task.
func TestNodesRerun(t *testing.T) {
	onReboot := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnReboot = true }
	every := func(seconds int32) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds = seconds }
	}
	keepOld := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnRevisionChange = new(false) }
	ended := func(ago time.Duration) func(*record.Record) {
		return func(r *record.Record) { r.FinishedAt = now.Add(-ago) }
	}
	rebooted := func(r *record.Record) { r.BootID = "before" }
	again := func(r *record.Record) { r.Rerun = true }
	tests := map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		node Node
		want []string
	}{
		"a reboot alone is no reason": {
			node: newNode("n", recorded(record.Succeeded, rebooted)),
		},
		"a reboot with rerun.onReboot is a reason": {
			job:  []func(*v1alpha1.NodeJob){onReboot},
			node: newNode("n", recorded(record.Succeeded, rebooted)),
			want: []string{"start attempt 1 of rev on n"},
		},
		"a node without a boot ID does not rerun": {
			job:  []func(*v1alpha1.NodeJob){onReboot},
			node: newNode("n", recorded(record.Succeeded, rebooted), func(n *Node) { n.BootID = "" }),
		},
		"a skipped node does not rerun": {
			job:  []func(*v1alpha1.NodeJob){onReboot, every(10)},
			node: newNode("n", labelled(rev)),
		},
		"a failed node does not rerun": {
			job:  []func(*v1alpha1.NodeJob){onReboot, every(10)},
			node: newNode("n", recorded(record.Failed, rebooted, attempts(2))),
		},
		"a failed node that was skipped does not rerun": {
			job:  []func(*v1alpha1.NodeJob){onReboot, every(10)},
			node: newNode("n", recorded(record.Failed, rebooted, attempts(2), again), labelled(rev)),
		},
		"a success of an earlier revision with rerun.onRevisionChange: false reruns": {
			job:  []func(*v1alpha1.NodeJob){onReboot, keepOld},
			node: newNode("n", recorded(record.Succeeded, rebooted, func(r *record.Record) { r.Revision = "old" }), labelled("old")),
			want: []string{"start attempt 1 of rev on n"},
		},
		"an hourly schedule reruns after a day": {
			job:  []func(*v1alpha1.NodeJob){every(3600)},
			node: newNode("n", recorded(record.Succeeded, ended(24*time.Hour))),
			want: []string{"start attempt 1 of rev on n"},
		},
		"a schedule does not rerun within half an interval": {
			job:  []func(*v1alpha1.NodeJob){every(3600)},
			node: newNode("n", recorded(record.Succeeded, ended(1799*time.Second))),
		},
		"a disrupted rerun continues": {
			node: newNode("n", recorded(record.Disrupted, again), labelled(rev)),
			want: []string{"start attempt 1 of rev on n"},
		},
		"a disrupted rerun continues with rerun.onRevisionChange: false": {
			job:  []func(*v1alpha1.NodeJob){keepOld},
			node: newNode("n", recorded(record.Disrupted, again, func(r *record.Record) { r.Label = "old" }), labelled("old")),
			want: []string{"start attempt 1 of rev on n"},
		},
		"a failed rerun without a label is retried": {
			node: newNode("n", recorded(record.Failed)),
			want: []string{"start attempt 2 of rev on n"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, told(Next(see(newJob(tt.job...), []Node{tt.node})))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// The record of a rerun says so while it runs, and its failure removes the label.
// TestReruns tests whether a run is on a node that was done before.
func TestReruns(t *testing.T) {
	on := func(label string, r record.Record) Node {
		return newNode("n", func(n *Node) { n.On.Label, n.On.Record = label, &r })
	}
	for name, tt := range map[string]struct {
		node Node
		want bool
	}{
		"after a success":                     {on(rev, record.Record{Revision: rev, Outcome: record.Succeeded}), true},
		"after a disruption of a rerun":       {on(rev, record.Record{Revision: rev, Outcome: record.Disrupted, Rerun: true}), true},
		"after a disruption of the first run": {on(rev, record.Record{Revision: rev, Outcome: record.Disrupted}), false},
		"after a success of another revision": {on(rev, record.Record{Revision: "old", Outcome: record.Succeeded}), false},
		"after a success on another machine":  {on(rev, record.Record{Revision: rev, Outcome: record.Succeeded, MachineID: "gone"}), false},
		"without the label":                   {on("", record.Record{Revision: rev, Outcome: record.Succeeded, Rerun: true}), false},
		"with the label of another revision":  {on("old", record.Record{Revision: "old", Outcome: record.Succeeded}), false},
		"after a user has removed the label":  {on(rev, record.Record{Revision: rev, Outcome: record.Succeeded, LabelRemoved: true}), false},
		"without a record":                    {newNode("n", labelled(rev)), false},
	} {
		if got := readJob(see(newJob(), nil)).isRerun(&tt.node, rev); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestFurtherRunIsRecordedAsRerun(t *testing.T) {
	node := newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.BootID = "before" }))
	tests := map[string]struct {
		pod       func(*Pod)
		again     bool
		dropLabel bool
	}{
		"a disruption": {pod: func(p *Pod) { p.Phase = corev1.PodFailed }, again: true},
		"a failure":    {pod: exited(3), dropLabel: true},
		"a success":    {pod: exited(0)},
		"a reboot":     {pod: func(p *Pod) { exited(0)(p); p.Reboot = v1alpha1.RebootAlways }, again: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Reboot.Policy = v1alpha1.RebootIfRequested })
			a := Next(see(job, []Node{node}, newPod(node, tt.pod))).Actions[0].(Record)
			if a.Record.Rerun != tt.again || a.DropLabel != tt.dropLabel {
				t.Errorf("again %v, the label is dropped %v; want %v and %v", a.Record.Rerun, a.DropLabel, tt.again, tt.dropLabel)
			}
		})
	}
}

// TestNextDue checks the times of a thousand nodes against the specification: each node has its own fixed time in the
// interval, never before half an interval has passed, and no later than one and a half intervals.
func TestNextDue(t *testing.T) {
	const every = 600 * time.Second
	s := newPlanner(see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds = int32(every / time.Second) }), nil))
	var perMinute [10]int
	for i := range 1000 {
		node := newNode(fmt.Sprintf("n%d", i))
		offset := time.Duration(-1)
		for k := range 50 {
			finished := now.Add(-time.Duration(k*37) * time.Second)
			due := s.records.nextDue(&node, finished)
			if wait := due.Sub(finished); wait < every/2 || wait > every*3/2 {
				t.Fatalf("%s finished at %v and is due at %v", node.Name, finished, due)
			}
			at := time.Duration(due.Unix()) * time.Second % every
			if offset >= 0 && at != offset {
				t.Fatalf("%s is due %v and %v after the beginning of an interval", node.Name, offset, at)
			}
			offset = at
		}
		perMinute[offset/time.Minute]++
	}
	for minute, n := range perMinute {
		if n < 60 || n > 140 {
			t.Errorf("%d of 1000 nodes are due in minute %d of 10", n, minute)
		}
	}
}

func TestNextDueBounds(t *testing.T) {
	every := func(seconds int32) *planner {
		return newPlanner(see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds = seconds }), nil))
	}
	node := newNode("n")
	if due := every(0).records.nextDue(&node, now); !due.IsZero() {
		t.Errorf("due at %v, want never", due)
	}
	boundary := every(600).records.nextDue(&node, ago(600))
	for name, tt := range map[string]struct {
		finished time.Time
		want     time.Time
	}{
		"half an interval before the due time":  {boundary.Add(-300 * time.Second), boundary},
		"one second less than half an interval": {boundary.Add(-299 * time.Second), boundary.Add(600 * time.Second)},
		"at the due time":                       {boundary, boundary.Add(600 * time.Second)},
		"a zero time":                           {time.Time{}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := every(600)
			s.in.Now = boundary.Add(time.Hour)
			got := s.records.nextDue(&node, tt.finished)
			if !tt.want.IsZero() && !got.Equal(tt.want) || tt.want.IsZero() && got.After(s.in.Now) {
				t.Errorf("due at %v, want %v", got, tt.want)
			}
		})
	}
	// A plan at the due time starts the rerun, and an earlier plan wakes at the due time.
	done := newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = boundary.Add(-400 * time.Second) }))
	in := see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds = 600 }), []Node{done})
	in.Now = boundary.Add(-time.Millisecond)
	if p := Next(in); len(p.Actions) > 0 || !p.WakeAt.Equal(boundary) || p.Nodes[0].State != Done {
		t.Errorf("before it: %v, wakes at %v, %+v; want to wake at %v", told(p), p.WakeAt, p.Nodes[0], boundary)
	}
	in.Now = boundary
	if p := Next(in); len(p.Actions) != 1 {
		t.Errorf("at the boundary: %v, want a start", told(p))
	}
}
