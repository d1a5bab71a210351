// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
)

// A user removes the label that the manager has set, and then skips the node with the same value while an attempt runs.
func TestASkipWithTheValueOfAnEarlierLabelIsKept(t *testing.T) {
	tests := map[string]struct {
		before func(*Node)
		// pod is the revision of the attempt that runs.
		pod string
		// set is the label in the next pass; "" is not set again.
		set  string
		want bool
	}{
		"the user has requested a rerun, and skips the node": {
			before: recorded(record.Succeeded), pod: rev, set: rev, want: true,
		},
		"the revision is the earlier one again": {
			before: recorded(record.Succeeded), pod: "between", set: rev, want: true,
		},
		"the label was replaced in between": {
			before: func(n *Node) { recorded(record.Succeeded)(n); n.On.Label = "another" }, pod: rev, set: rev, want: true,
		},
		"a rerun that was disrupted": {
			before: recorded(record.Disrupted, func(r *record.Record) { r.Rerun = true }), pod: rev, set: rev, want: true,
		},
		"the label is not set again": {before: recorded(record.Succeeded), pod: rev},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", tt.before)
			if node.On.Label == rev {
				node.On.Label = ""
			}
			pod := newPod(node, func(p *Pod) { p.Revision = tt.pod })
			for _, a := range Next(see(newJob(), []Node{node}, pod)).Actions {
				mark, is := a.(PatchNode)
				if !is || mark.Record == nil || !mark.KeepLabel || mark.DropLabel {
					t.Fatalf("%+v, want that the record is updated, and no label", a)
				}
				node.On.Record = mark.Record
			}
			if left := Next(see(newJob(), []Node{node}, pod)).Actions; len(left) > 0 {
				t.Errorf("the next pass does %v", left)
			}
			node.On.Label = tt.set
			exited(3)(&pod)
			end := Next(see(newJob(), []Node{node}, pod)).Actions[0].(Record)
			if kept := node.On.Label != "" && !end.DropLabel; kept != tt.want {
				t.Errorf("the label is kept: %v, want %v", kept, tt.want)
			}
			node.On.Record = end.Record
			if p := Next(see(newJob(), []Node{node})); (p.Nodes[0].State == Done) != tt.want {
				t.Errorf("after that, the node is %s", p.Nodes[0].State)
			}
		})
	}
}

// No task starts before the removal of the label is on record: if the user set it again before the next pass, the node would not be skipped.
func TestTheRemovalOfALabelIsRecordedBeforeTheTaskStarts(t *testing.T) {
	for name, job := range map[string]func(*v1alpha1.NodeJob){"without preparation": func(*v1alpha1.NodeJob) {}, "cordoned": cordoning, "drained": draining} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", recorded(record.Succeeded))
			node.On.Label = ""
			in := see(newJob(job), []Node{node})
			if in.Job.Spec.Maintenance.Cordon || in.Job.Spec.Maintenance.Drain != nil {
				cordonedBy(jobKey)(&in.Nodes[0])
			}
			in.Drains = map[types.UID][]DrainPod{node.UID: {}}
			p := Next(in)
			mark, is := p.Actions[0].(PatchNode)
			if len(p.Actions) != 1 || !is || mark.Record == nil || !mark.Record.LabelRemoved || !mark.KeepLabel {
				t.Fatalf("the plan is %v, want only the record", told(p))
			}
			in.Nodes[0].On.Record = mark.Record
			if diff := cmp.Diff([]string{"start attempt 1 of rev on n"}, told(Next(in))); diff != "" {
				t.Errorf("then (-want +got):\n%s", diff)
			}
		})
	}
}

// A disrupted attempt does not turn a skip into the label of an earlier run.
func TestASkipWithTheValueOfAnEarlierLabelSurvivesADisruption(t *testing.T) {
	gone := func(r *record.Record) { r.LabelRemoved = true }
	for name, before := range map[string]func(*Node){
		"of a rerun":                   recorded(record.Succeeded, gone),
		"while a rerun is not running": recorded(record.Disrupted, gone, func(r *record.Record) { r.Rerun = true }),
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", before, labelled(rev))
			if node.On.Record.Outcome == record.Succeeded {
				pod := newPod(node, exited(143, reported(outcome.ReasonDisrupted)))
				end := Next(see(newJob(), []Node{node}, pod)).Actions[0].(Record)
				if node.On.Record = end.Record; end.DropLabel || end.Record.Outcome != record.Disrupted {
					t.Fatalf("%s, want a disruption that keeps the label", told(Plan{Actions: []Action{end}}))
				}
			}
			if p := Next(see(newJob(), []Node{node})); p.Nodes[0].State != Done || len(p.Actions) > 0 {
				t.Errorf("the node is %s, and the plan is %v", p.Nodes[0].State, told(p))
			}
		})
	}
}

// Without an attempt, a label that is missing is no reason for a write: the next attempt is one.
func TestARemovedLabelIsNotedOnlyForAnAttempt(t *testing.T) {
	done := newNode("n", recorded(record.Succeeded))
	done.On.Label = ""
	job := newJob()
	job.Spec.Suspend = true
	if p := Next(see(job, []Node{done})); len(p.Actions) > 0 {
		t.Errorf("the plan is %v", told(p))
	}
}

// A user removed the record of a success before its pod was released. The label is that of the success, and not a skip.
func TestTheLabelOfASuccessWithoutRecordIsNoSkip(t *testing.T) {
	node := newNode("n", func(n *Node) { n.On.Label = rev })
	pod := newPod(node, exited(0))
	end, is := Next(see(newJob(), []Node{node}, pod)).Actions[0].(Record)
	if !is || end.KeepLabel || end.Record.Label != rev {
		t.Fatalf("%+v, want a record whose label is that of the manager", end)
	}
}
