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
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// TestStanding tests what the marks on a node still mean for the revision.
func TestStanding(t *testing.T) {
	var (
		keepOld     = func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnChange = new(false) }
		keepMachine = func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnReplace = new(false) }
		unlabelled  = func(n *Node) { n.On.Label = "" }
		ofRevision  = func(revision string) func(*record.Record) {
			return func(r *record.Record) { r.Revision = revision }
		}
		ofMachine = func(machine string) func(*record.Record) {
			return func(r *record.Record) { r.MachineID = machine }
		}
		done = recordState{done: true}
		anew = recordState{}
		// ran says besides that this revision has run there before.
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
		"a success with a label by hand of another": {
			node: newNode("n", recorded(record.Succeeded, ofRevision("old")), labelled(rev)), want: done,
		},
		"a failure from before the user asked for another try": {
			job: newJob(askAgain), node: newNode("n", recorded(record.Failed, attempts(9))), want: ran(anew),
		},
		"a failure since the user asked for another try": {
			job:  newJob(askAgain),
			node: newNode("n", recorded(record.Failed, func(r *record.Record) { r.Retry = task.RetryToken(newJob(askAgain)) })),
			want: ran(recordState{failures: 1, notBefore: ago(50)}),
		},
		"a failure from a try that was asked for, where the annotation is gone": {
			node: newNode("n", recorded(record.Failed, func(r *record.Record) { r.Retry = task.RetryToken(newJob(askAgain)) })),
			want: ran(recordState{failures: 1, notBefore: ago(50)}),
		},
		"a success from before the user asked for another try": {
			job: newJob(askAgain), node: newNode("n", recorded(record.Succeeded)), want: proof,
		},
		"nothing on the node":                       {node: newNode("n"), want: anew},
		"a success of this revision":                {node: newNode("n", recorded(record.Succeeded)), want: proof},
		"a label set by hand skips the node":        {node: newNode("n", labelled(rev)), want: done},
		"a label of another revision set by hand":   {node: newNode("n", labelled("other")), want: anew},
		"a label taken off asks for another run":    {node: newNode("n", recorded(record.Succeeded), unlabelled), want: ran(anew)},
		"a label emptied by hand asks for one too":  {node: newNode("n", recorded(record.Succeeded), labelled("")), want: ran(anew)},
		"a label that is not the record's":          {node: newNode("n", recorded(record.Succeeded), labelled("other")), want: ran(anew)},
		"a success of an earlier revision":          {node: newNode("n", recorded(record.Succeeded, ofRevision("old")), labelled("old")), want: anew},
		"one that is to be kept":                    {job: newJob(keepOld), node: newNode("n", recorded(record.Succeeded, ofRevision("old")), labelled("old")), want: done},
		"one that was to be kept, without label":    {job: newJob(keepOld), node: newNode("n", recorded(record.Succeeded, ofRevision("old")), unlabelled), want: anew},
		"a failure of an earlier revision":          {node: newNode("n", recorded(record.Failed, ofRevision("old"))), want: anew},
		"a failure of this one counts":              {node: newNode("n", recorded(record.Failed)), want: ran(recordState{failures: 1, notBefore: ago(50)})},
		"two failures back off twice as long":       {node: newNode("n", recorded(record.Failed, attempts(2))), want: ran(recordState{failures: 2, notBefore: ago(40)})},
		"a failure of the run that a label outruns": {node: newNode("n", recorded(record.Failed), labelled(rev)), want: ran(done)},
		"a disruption counts as nothing and waits":  {node: newNode("n", recorded(record.Disrupted)), want: ran(recordState{notBefore: ago(50)})},
		"the third in a row waits longer": {
			node: newNode("n", recorded(record.Disrupted, func(r *record.Record) { r.Attempts, r.Disruptions = 1, 3 })),
			want: ran(recordState{failures: 1, notBefore: ago(20)}),
		},
		"a disruption of a revision that is kept": {
			job: newJob(keepOld), node: newNode("n", recorded(record.Disrupted), labelled("old")), want: ran(done),
		},

		"a success of another machine":           {node: newNode("n", recorded(record.Succeeded, ofMachine("gone"))), want: anew},
		"a failure of another machine":           {node: newNode("n", recorded(record.Failed, ofMachine("gone"))), want: anew},
		"an earlier revision of another machine": {job: newJob(keepOld), node: newNode("n", recorded(record.Succeeded, ofRevision("old"), ofMachine("gone")), labelled("old")), want: anew},
		"another machine that does not matter":   {job: newJob(keepMachine), node: newNode("n", recorded(record.Succeeded, ofMachine("gone"))), want: proof},
		"a record that names no machine":         {node: newNode("n", recorded(record.Succeeded, ofMachine(""))), want: proof},
		"a node that names no machine":           {node: newNode("n", recorded(record.Succeeded), func(n *Node) { n.MachineID = "" }), want: proof},
		"the same machine after a reboot":        {node: newNode("n", recorded(record.Succeeded), func(n *Node) { n.BootID = "next" }), want: proof},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.job == nil {
				tt.job = newJob()
			}
			got := newPlanner(see(tt.job, nil)).records.readRecord(&tt.node)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(recordState{})); diff != "" {
				t.Errorf("standing (-want +got):\n%s", diff)
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
		"the first wait is the one that was asked for":  {seconds(5, 60), 1, 5 * time.Second},
		"the second is twice as long":                   {seconds(5, 60), 2, 10 * time.Second},
		"the fourth is eight times as long":             {seconds(5, 60), 4, 40 * time.Second},
		"no wait is longer than the longest":            {seconds(5, 60), 5, 60 * time.Second},
		"a number that no history reaches":              {seconds(5, 60), 2147483647, 60 * time.Second},
		"a number that a stranger wrote on the node":    {seconds(5, 60), -1, 5 * time.Second},
		"the longest is shorter than the first":         {seconds(60, 5), 1, 5 * time.Second},
		"a day at most, doubled no further":             {seconds(86400, 86400), 100, 24 * time.Hour},
		"nothing was asked for":                         {v1alpha1.RetrySpec{}, 1, 10 * time.Second},
		"nothing was asked for, and it goes on failing": {v1alpha1.RetrySpec{}, 10, 300 * time.Second},
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

// TestRetry follows one node from attempt to attempt.
func TestRetry(t *testing.T) {
	limit := func(n int32) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) { j.Spec.Retry.Limit = &n }
	}
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		node Node
		want []string
	}{
		"the first retry is the second attempt":    {job: newJob(), node: newNode("n", recorded(record.Failed)), want: []string{"start attempt 2 of rev on n"}},
		"the limit is reached":                     {job: newJob(), node: newNode("n", recorded(record.Failed, attempts(2)))},
		"the limit was raised since":               {job: newJob(limit(2)), node: newNode("n", recorded(record.Failed, attempts(2))), want: []string{"start attempt 3 of rev on n"}},
		"no retry at all":                          {job: newJob(limit(0)), node: newNode("n", recorded(record.Failed))},
		"three when nothing was asked for":         {job: newJob(func(j *v1alpha1.NodeJob) { j.Spec.Retry = v1alpha1.RetrySpec{} }), node: newNode("n", recorded(record.Failed, attempts(3))), want: []string{"start attempt 4 of rev on n"}},
		"a disrupted attempt has its number again": {job: newJob(limit(0)), node: newNode("n", recorded(record.Disrupted)), want: []string{"start attempt 1 of rev on n"}},
		"one that was disrupted after a failure": {
			job: newJob(), node: newNode("n", recorded(record.Disrupted, attempts(1))), want: []string{"start attempt 2 of rev on n"},
		},
		"the annotation taken off begins anew": {job: newJob(limit(0)), node: newNode("n", func(n *Node) { n.On.Present = false }), want: []string{"start attempt 1 of rev on n"}},
		"an attempt count that a stranger wrote is no reason to go on": {
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

// TestRunsAgain tests why and when a node that is done runs the task again without a change of it.
func TestRunsAgain(t *testing.T) {
	onReboot := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnReboot = true }
	every := func(seconds int32) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) { j.Spec.Rerun.EverySeconds = seconds }
	}
	keepOld := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnChange = new(false) }
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
		"a reboot is no reason by itself":                 {node: newNode("n", recorded(record.Succeeded, rebooted))},
		"it is one where that is asked for":               {job: []func(*v1alpha1.NodeJob){onReboot}, node: newNode("n", recorded(record.Succeeded, rebooted)), want: []string{"start attempt 1 of rev on n"}},
		"not for a node that does not say its boot":       {job: []func(*v1alpha1.NodeJob){onReboot}, node: newNode("n", recorded(record.Succeeded, rebooted), func(n *Node) { n.BootID = "" })},
		"not for one that is skipped":                     {job: []func(*v1alpha1.NodeJob){onReboot, every(10)}, node: newNode("n", labelled(rev))},
		"not for one that has failed":                     {job: []func(*v1alpha1.NodeJob){onReboot, every(10)}, node: newNode("n", recorded(record.Failed, rebooted, attempts(2)))},
		"not for one that failed and is skipped":          {job: []func(*v1alpha1.NodeJob){onReboot, every(10)}, node: newNode("n", recorded(record.Failed, rebooted, attempts(2), again), labelled(rev))},
		"a success of an earlier revision that is kept":   {job: []func(*v1alpha1.NodeJob){onReboot, keepOld}, node: newNode("n", recorded(record.Succeeded, rebooted, func(r *record.Record) { r.Revision = "old" }), labelled("old")), want: []string{"start attempt 1 of rev on n"}},
		"a day after, when it is due each hour":           {job: []func(*v1alpha1.NodeJob){every(3600)}, node: newNode("n", recorded(record.Succeeded, ended(24*time.Hour))), want: []string{"start attempt 1 of rev on n"}},
		"not within half an interval":                     {job: []func(*v1alpha1.NodeJob){every(3600)}, node: newNode("n", recorded(record.Succeeded, ended(1799*time.Second)))},
		"a further run that was disrupted is taken up":    {node: newNode("n", recorded(record.Disrupted, again), labelled(rev)), want: []string{"start attempt 1 of rev on n"}},
		"also where an earlier revision is kept":          {job: []func(*v1alpha1.NodeJob){keepOld}, node: newNode("n", recorded(record.Disrupted, again), labelled("old")), want: []string{"start attempt 1 of rev on n"}},
		"one that failed is tried again, without a label": {node: newNode("n", recorded(record.Failed)), want: []string{"start attempt 2 of rev on n"}},
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
func TestAFurtherRunIsOnRecordAsOne(t *testing.T) {
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
			a := Next(see(newJob(), []Node{node}, newPod(node, tt.pod))).Actions[0].(Record)
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
	s := newPlanner(see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rerun.EverySeconds = int32(every / time.Second) }), nil))
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

func TestNextDueAtTheBounds(t *testing.T) {
	every := func(seconds int32) *planner {
		return newPlanner(see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rerun.EverySeconds = seconds }), nil))
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
		"half an interval before it":            {boundary.Add(-300 * time.Second), boundary},
		"a second less":                         {boundary.Add(-299 * time.Second), boundary.Add(600 * time.Second)},
		"right then":                            {boundary, boundary.Add(600 * time.Second)},
		"a time that somebody wrote is not now": {time.Time{}, time.Time{}},
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
	// A plan at the boundary itself runs it, and one before wakes then.
	done := newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = boundary.Add(-400 * time.Second) }))
	in := see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rerun.EverySeconds = 600 }), []Node{done})
	in.Now = boundary.Add(-time.Millisecond)
	if p := Next(in); len(p.Actions) > 0 || !p.WakeAt.Equal(boundary) || p.Nodes[0].State != Done {
		t.Errorf("before it: %v, wakes at %v, %+v; want to wake at %v", told(p), p.WakeAt, p.Nodes[0], boundary)
	}
	in.Now = boundary
	if p := Next(in); len(p.Actions) != 1 {
		t.Errorf("at the boundary: %v, want a start", told(p))
	}
}
