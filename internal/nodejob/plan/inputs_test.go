// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

const bond = "example.com/bond"

// takes has the task take the annotation bond from the node.
func takes(changes ...func(*v1alpha1.NodeFieldSelector)) func(*v1alpha1.NodeJob) {
	ref := &v1alpha1.NodeFieldSelector{FieldPath: "metadata.annotations['" + bond + "']"}
	for _, change := range changes {
		change(ref)
	}
	return func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Env = []v1alpha1.EnvVar{{Name: "BOND", ValueFrom: &v1alpha1.EnvVarSource{NodeFieldRef: ref}}}
	}
}

func orDefault(value string) func(*v1alpha1.NodeFieldSelector) {
	return func(ref *v1alpha1.NodeFieldSelector) { ref.Default = &value }
}

func bonded(value string) func(*Node) {
	return func(n *Node) { n.Annotations = map[string]string{bond: value} }
}

// hadBond is the record of a run with a value of the annotation.
func hadBond(value string) func(*record.Record) {
	return func(r *record.Record) { r.Inputs = task.NodeValues{Values: map[string]string{"BOND": value}}.Hash() }
}

// TestNodeValues tests when a node waits for a value of its own, and with which values it starts.
func TestNodeValues(t *testing.T) {
	const missing = "spec.task.env: BOND takes metadata.annotations['example.com/bond'] from the Node, which does not have it: set it, or valueFrom.nodeFieldRef.default"
	tests := map[string]struct {
		job             func(*v1alpha1.NodeJob)
		node            []func(*Node)
		values          map[string]string
		reason, message string
	}{
		"a node with the value starts": {
			job:    takes(),
			node:   []func(*Node){bonded("lacp")},
			values: map[string]string{"BOND": "lacp"},
		},
		"an empty value is a value": {
			job:    takes(orDefault("x")),
			node:   []func(*Node){bonded("")},
			values: map[string]string{"BOND": ""},
		},
		"a node without the value waits":         {job: takes(), reason: v1alpha1.ReasonNodeFieldNotFound, message: missing},
		"a node without the value has a default": {job: takes(orDefault("none")), values: map[string]string{"BOND": "none"}},
		"a value of the greatest size starts": {
			job:    takes(),
			node:   []func(*Node){bonded(strings.Repeat("x", 4096))},
			values: map[string]string{"BOND": strings.Repeat("x", 4096)},
		},
		"a retry of a node without the value waits": {
			job: takes(), node: []func(*Node){recorded(record.Failed)}, reason: v1alpha1.ReasonNodeFieldNotFound, message: missing,
		},
		"a value that is too long is refused": {
			job:     takes(),
			node:    []func(*Node){bonded(strings.Repeat("x", 4097))},
			reason:  v1alpha1.ReasonNodeFieldInvalid,
			message: "spec.task.env: BOND takes metadata.annotations['example.com/bond'] from the Node, and it has 4097 bytes, of which 4096 are allowed: shorten it",
		},
		"a value with a zero byte is refused": {
			job:     takes(),
			node:    []func(*Node){bonded("a\x00b")},
			reason:  v1alpha1.ReasonNodeFieldInvalid,
			message: "spec.task.env: BOND takes metadata.annotations['example.com/bond'] from the Node, and it contains a zero byte, which an environment variable cannot contain: remove it",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(tt.job), []Node{newNode("n", tt.node...)}))
			st := p.Nodes[0]
			if tt.reason == "" {
				a := p.Actions[0].(Start).Attempt
				if !maps.Equal(a.NodeValues.Values, tt.values) {
					t.Errorf("it starts with %v, want %v", a.NodeValues, tt.values)
				}
				return
			}
			if len(p.Actions) > 0 || st.State != Waiting || st.Reason != tt.reason || st.Message != tt.message {
				t.Errorf("%v, %+v; want %s: %s", told(p), st, tt.reason, tt.message)
			}
			if c := p.Status.Conditions[1]; c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, tt.reason) {
				t.Errorf("the condition does not name the reason: %+v", c)
			}
		})
	}
}

// A node that removes its own value must not delay others.
func TestANodeWithoutItsValueDoesNotDelayOthers(t *testing.T) {
	job := newJob(takes(), inSteps(v1alpha1.RolloutStep{Name: "first", Nodes: new(intstr.FromInt32(1))}, v1alpha1.RolloutStep{Name: "all"}))
	without, with := newNode("a"), newNode("b", bonded("lacp"))
	if diff := cmp.Diff([]string{"start attempt 1 of rev on b"}, told(Next(see(job, []Node{without, with})))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestInputChange tests when a change of its values reruns the task on a node that is done.
func TestInputChange(t *testing.T) {
	onChange := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnNodeFieldChange = true }
	every := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds = 10 }
	ended := func(seconds int) func(*record.Record) {
		return func(r *record.Record) { r.FinishedAt = ago(seconds) }
	}
	starts := []string{"start attempt 1 of rev on n"}
	had := func(changes ...func(*record.Record)) func(*Node) { return recorded(record.Succeeded, changes...) }
	tests := map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		node []func(*Node)
		want []string
		// waits is for how long the node waits, in seconds.
		waits int
	}{
		"a change alone is no reason": {node: []func(*Node){had(hadBond("lacp")), bonded("active")}},
		"with rerun.onNodeFieldChange it is one": {
			job:  []func(*v1alpha1.NodeJob){onChange},
			node: []func(*Node){had(hadBond("lacp")), bonded("active")},
			want: starts,
		},
		"the same value is none": {
			job:  []func(*v1alpha1.NodeJob){onChange},
			node: []func(*Node){had(hadBond("lacp")), bonded("lacp")},
		},
		"a value that is gone is none": {job: []func(*v1alpha1.NodeJob){onChange}, node: []func(*Node){had(hadBond("lacp"))}},
		"a value that is invalid is none": {
			job:  []func(*v1alpha1.NodeJob){onChange},
			node: []func(*Node){had(hadBond("lacp")), bonded("\x00")},
		},
		"a record without values is none": {job: []func(*v1alpha1.NodeJob){onChange}, node: []func(*Node){had(), bonded("active")}},
		"a failed node does not rerun": {
			job:  []func(*v1alpha1.NodeJob){onChange},
			node: []func(*Node){recorded(record.Failed, attempts(2), hadBond("lacp")), bonded("active")},
		},
		"a skipped node does not rerun": {
			job:  []func(*v1alpha1.NodeJob){onChange},
			node: []func(*Node){labelled(rev), bonded("active")},
		},
		"a default that applies now is one": {
			job: []func(*v1alpha1.NodeJob){takes(orDefault("none")), onChange}, node: []func(*Node){had(hadBond("lacp"))}, want: starts,
		},
		"it waits for a minute after the last run": {
			job: []func(*v1alpha1.NodeJob){onChange}, node: []func(*Node){had(hadBond("lacp"), ended(59)), bonded("active")}, waits: 1,
		},
		"it does not wait longer than its schedule": {
			job: []func(*v1alpha1.NodeJob){
				onChange,
				every,
			},
			node:  []func(*Node){had(hadBond("lacp"), ended(0)), bonded("active")},
			waits: 10,
		},
		"a run of another revision is not compared": {
			job:  []func(*v1alpha1.NodeJob){onChange, func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnRevisionChange = new(false) }},
			node: []func(*Node){had(hadBond("lacp"), func(r *record.Record) { r.Revision = "old" }), labelled("old"), bonded("active")},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(append([]func(*v1alpha1.NodeJob){takes()}, tt.job...)...), []Node{newNode("n", tt.node...)}))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if st := p.Nodes[0]; tt.waits > 0 {
				left := st.Until.Sub(now)
				if st.State != Waiting || st.Reason != v1alpha1.ReasonRerunDelayed || st.Message != inputsReason || left <= 0 ||
					left > time.Duration(tt.waits)*time.Second ||
					!wakes(p, st.Until) {
					t.Errorf("%+v, want a wait of at most %d s", st, tt.waits)
				}
				if len(p.Status.Failures) > 0 {
					t.Errorf("the wait is reported as a failure: %+v", p.Status.Failures)
				}
			}
		})
	}
}

// The record has the values of the pod, whatever the node has when the pod ends. The check after a reboot does not change them.
func TestTheRecordHasTheValuesOfThePod(t *testing.T) {
	node := newNode("n", bonded("later"))
	p := Next(see(newJob(takes()), []Node{node}, newPod(node, exited(0), func(p *Pod) { p.Inputs = "hash" })))
	if got := p.Actions[0].(Record).Record.Inputs; got != "hash" {
		t.Errorf("the record has %q", got)
	}
	node = newNode("n", bonded("later"), recorded(record.Rebooting, func(r *record.Record) { r.Inputs = "hash" }))
	p = Next(
		see(
			newJob(takes(), rebootingAs(v1alpha1.RebootAlways)),
			[]Node{node},
			newPod(node, exited(0), func(p *Pod) { p.Runs, p.Inputs = task.Check, "other" }),
		),
	)
	if got := p.Actions[0].(Record).Record.Inputs; got != "hash" {
		t.Errorf("after the check, the record has %q", got)
	}
}

// A reboot is not delayed by a value that is missing; the rollback and the check need it.
func TestPhasesThatNeedTheValues(t *testing.T) {
	undo := func(j *v1alpha1.NodeJob) {
		j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
	}
	check := func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	}
	failed, rebooting := recorded(record.Failed, attempts(2)), recorded(record.Rebooting)
	back := recorded(record.Rebooting, func(r *record.Record) { r.Reboot.BackAt = ago(60) })
	inOldBoot := func(n *Node) { n.BootID = "n-boot-before" }
	for name, tt := range map[string]struct {
		job  *v1alpha1.NodeJob
		node Node
		want []string
	}{
		"a rollback":                   {newJob(takes(), undo), newNode("n", failed, bonded("x")), []string{"start rollback 1 of rev on n"}},
		"a rollback without the value": {newJob(takes(), undo), newNode("n", failed), nil},
		"a reboot without the value":   {newJob(takes(), rebootingAs(v1alpha1.RebootAlways)), newNode("n", rebooting, inOldBoot), []string{"start reboot 1 of rev on n"}},
		"a check":                      {newJob(takes(), rebootingAs(v1alpha1.RebootAlways), check), newNode("n", back, bonded("x")), []string{"start check 1 of rev on n"}},
		"a check without the value":    {newJob(takes(), rebootingAs(v1alpha1.RebootAlways), check), newNode("n", back), nil},
	} {
		if diff := cmp.Diff(tt.want, told(Next(see(tt.job, []Node{tt.node})))); diff != "" {
			t.Errorf("%s: actions (-want +got):\n%s", name, diff)
		}
	}
}
