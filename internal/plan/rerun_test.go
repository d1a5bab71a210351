package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// TestStanding asks what the marks on a node still mean for the revision.
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
		done = standing{done: true}
		anew = standing{}
		// ran says besides that this revision has run there before.
		ran = func(was standing) standing {
			was.touched, was.since = true, ago(61)
			return was
		}
		proof = ran(standing{done: true, proof: true})
	)
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		node Node
		want standing
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
			want: ran(standing{failures: 1, notBefore: ago(50)}),
		},
		"a failure from a try that was asked for, where the annotation is gone": {
			node: newNode("n", recorded(record.Failed, func(r *record.Record) { r.Retry = task.RetryToken(newJob(askAgain)) })),
			want: ran(standing{failures: 1, notBefore: ago(50)}),
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
		"a failure of this one counts":              {node: newNode("n", recorded(record.Failed)), want: ran(standing{failures: 1, notBefore: ago(50)})},
		"two failures back off twice as long":       {node: newNode("n", recorded(record.Failed, attempts(2))), want: ran(standing{failures: 2, notBefore: ago(40)})},
		"a failure of the run that a label outruns": {node: newNode("n", recorded(record.Failed), labelled(rev)), want: ran(done)},
		"a disruption counts as nothing and waits":  {node: newNode("n", recorded(record.Disrupted)), want: ran(standing{notBefore: ago(50)})},
		"the third in a row waits longer": {
			node: newNode("n", recorded(record.Disrupted, func(r *record.Record) { r.Attempts, r.Disruptions = 1, 3 })),
			want: ran(standing{failures: 1, notBefore: ago(20)}),
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
			got := newSurvey(see(tt.job, nil)).standing(&tt.node)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(standing{})); diff != "" {
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
			s := newSurvey(see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Retry = tt.retry }), nil))
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
