// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// stalled returns a NodeJob that has failed on node a.
func stalled(name string) *v1alpha1.NodeJob {
	job := clitest.NodeJob(name)
	job.Status.Nodes = v1alpha1.NodeCounts{Total: 3, Failed: 2}
	job.Status.Failures = []v1alpha1.NodeFailure{
		{Node: "a", Reason: "TaskFailed", Message: "no disk\x1b[2J", FinishedAt: metav1.NewTime(now)},
	}
	job.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse},
		{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNodesFailed, Message: "stopped"},
	}
	return job
}

func TestTheNeedsOfThePage(t *testing.T) {
	o := observed{flag: "prod eu"}
	o.Now = now.Add(time.Minute)
	drifted, run := clitest.NodeJob("a-drifted"), stalled("run-x")
	drifted.Status.Conditions = []metav1.Condition{
		{
			Type:    v1alpha1.ConditionComplete,
			Status:  metav1.ConditionTrue,
			Reason:  v1alpha1.ReasonAllNodesDone,
			Message: "4 of 4 nodes are done, 1 drifted (a)",
		},
	}
	drifted.Status.Nodes.NonCompliant = 1
	run.Labels = map[string]string{cmdutil.CreatedByLabel: cmdutil.CreatedByRun}
	o.Jobs = []*v1alpha1.NodeJob{drifted, stalled("j"), run}
	o.Budgets = []*v1alpha1.NodeDisruptionBudget{{}, {}}
	for i, b := range o.Budgets {
		b.Name, b.Generation, b.Status.ObservedGeneration = fmt.Sprint("budget-", i), 1, 1
		b.Status.Conditions = []metav1.Condition{
			{
				Type:    []string{v1alpha1.ConditionReady, v1alpha1.ConditionStalled}[i],
				Status:  metav1.ConditionTrue,
				Reason:  "SeatsNotReady",
				Message: "no seats",
			},
		}
	}
	got := o.needs()
	var list []string
	for _, n := range got.List {
		list = append(list, strings.Join([]string{n.Namespace, n.Name, n.Tone, n.Headline, n.Cause, n.Node, n.Remedies[0].Command}, "|"))
	}
	want := []string{
		`ns|j|bad|2 failed|TaskFailed: no disk\x1b[2J|a|kubectl everynode status j -n ns --context 'prod eu'`,
		`|budget-1|bad|Seats not ready|no seats||kubectl everynode budgets budget-1 --context 'prod eu'`,
		`ns|a-drifted|warn|1 drifted|4 of 4 nodes are done, 1 drifted (a)||kubectl everynode report a-drifted -n ns --context 'prod eu'`,
	}
	if diff := cmp.Diff(want, list); diff != "" || got.Jobs != 2 || got.Budgets != 1 {
		t.Errorf("%d NodeJobs, %d budgets: %s", got.Jobs, got.Budgets, diff)
	}
	if n := got.List[0]; n.More != 1 || n.Since != now.Unix() {
		t.Errorf("the first need: %+v", n)
	}
	for i := range 2 * maxNeeds {
		o.Jobs = append(o.Jobs, stalled(fmt.Sprint("more-", i)))
	}
	if got := o.needs(); len(got.List) != maxNeeds || got.Jobs != 2+2*maxNeeds {
		t.Errorf("%d in the list, %d NodeJobs", len(got.List), got.Jobs)
	}
}

// TestADriftedNodeJobIsNotGreen checks the tone and the counts of a NodeJob that is complete, with a node that has drifted and one on which
// the task has expired.
func TestADriftedNodeJobIsNotGreen(t *testing.T) {
	job := clitest.NodeJob("j")
	job.Status.Nodes = v1alpha1.NodeCounts{Total: 4, Done: 4, NonCompliant: 1, Expired: 1}
	job.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllNodesDone},
	}
	got := newJobState(job, now)
	if got.Tone != "warn" || got.Headline != "Done" || got.Done != 2 || got.Drifted != 1 || got.Expired != 1 {
		t.Errorf("the state of the NodeJob: %+v", got)
	}
	job.Status.Nodes = v1alpha1.NodeCounts{Total: 4, Done: 4}
	if got := newJobState(job, now); got.Tone != "good" || got.Done != 4 {
		t.Errorf("the state without these nodes: %+v", got)
	}
}

// TestWhyIsInTheState checks that failed nodes are always explained, and other nodes only in small clusters.
func TestWhyIsInTheState(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes                  int
		failed, waiting, other string
	}{
		"a small cluster": {maxExplained, "TaskFailed: no disk", "the node has not reported", "spec.nodes.names"},
		"a large cluster": {maxExplained + 1, "TaskFailed: no disk", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			job := clitest.NodeJob("j")
			job.Spec.Nodes.Names = []string{"node-0", "node-1"}
			o := observed{}
			o.Now, o.Jobs = now, []*v1alpha1.NodeJob{job}
			for i := range tt.nodes {
				o.Nodes = append(o.Nodes, plan.Node{Name: fmt.Sprint("node-", i), UID: "x", Labels: map[string]string{}})
			}
			meta := nodeA()
			record.SetOn(
				meta,
				jobKey,
				record.Record{
					Revision:   "new",
					Outcome:    record.Failed,
					Attempts:   9,
					Reason:     "TaskFailed",
					Message:    "no disk",
					FinishedAt: now,
					RecordedAt: now,
				},
			)
			o.Nodes[0].Labels, o.Nodes[0].Annotations = meta.Labels, meta.Annotations
			values := o.values()
			for i, want := range []string{tt.failed, tt.waiting, tt.other} {
				var node nodeState
				if err := json.Unmarshal(values[fmt.Sprint("node:node-", i)], &node); err != nil {
					t.Fatal(err)
				}
				about, exists := node.Jobs["ns/j"]
				if why := about[3]; !strings.Contains(why, want) || (why == "") != (want == "") || exists != (i < 2 || want != "") {
					t.Errorf("node-%d: %q", i, about)
				}
			}
		})
	}
}

// TestCommandsOfANodeCanBeCopied checks that commands are spans of their own, with the context of the user.
func TestCommandsOfANodeCanBeCopied(t *testing.T) {
	job := clitest.NodeJob("j")
	o := observed{flag: "prod"}
	o.Now, o.Jobs = now, []*v1alpha1.NodeJob{job}
	meta := nodeA()
	record.SetOn(meta, jobKey, record.Record{Revision: "new", Outcome: record.Failed, Attempts: 9, FinishedAt: now, RecordedAt: now})
	o.Nodes = []plan.Node{{Name: "a", UID: "1", Labels: meta.Labels, Annotations: meta.Annotations}}
	v := o.nodeJob(job, 0, func(in plan.Input, p plan.Plan) (plan.Input, plan.Plan) { return in, p })
	last := v.Rows[len(v.Rows)-1]
	want := row{Label: "Next", Spans: []span{
		{"retry it: ", "plain"}, {"kubectl everynode retry j a -n ns --context prod", "command"},
		{"or leave the node out: ", "plain"}, {"kubectl everynode skip j a -n ns --context prod", "command"},
	}}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Error(diff)
	}
	for i, offer := range v.Offers { // the page shows them once
		if offer.Command != want.Spans[2*i+1].Text {
			t.Errorf("the offer %q", offer.Command)
		}
	}
}
