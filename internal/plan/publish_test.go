// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/record"
)

const jobKey = "ns.everynode.dev/job"

// publishing publishes the result size as a label and the result kernel as an annotation.
func publishing(j *v1alpha1.NodeJob) {
	j.Spec.Publish = []v1alpha1.Fact{{Result: "size", Label: "example.com/size"}, {Result: "kernel", Annotation: "example.com/kernel"}}
}

func results(of map[string]string) func(*Exit) { return func(exit *Exit) { exit.Results = of } }

func withResults(of map[string]string) func(*record.Record) {
	return func(r *record.Record) { r.Results = of }
}

// has gives a node a label, and says who has published it; "" if that is not known.
func has(key, value, owner string) func(*Node) {
	return func(n *Node) {
		n.Labels = map[string]string{"pool": "a", key: value}
		if owner != "" {
			n.Published = record.Published{Labels: map[string]string{key: owner}}
		}
	}
}

// TestFactsOfASuccess tests what becomes of the results of a run that succeeds.
func TestFactsOfASuccess(t *testing.T) {
	const succeeded, failed = "record Succeeded on n: attempts 1, disruptions 0", "record Failed on n: attempts 1, disruptions 0, "
	tests := map[string]struct {
		node    func(*Node)
		results map[string]string
		exit    func(*Exit)
		want    string
		guarded bool
	}{
		"both are put on the node with the success": {
			results: map[string]string{"size": "8", "kernel": "6.8 (a b)"}, guarded: true,
			want: succeeded + ", label example.com/size=8, annotation example.com/kernel=6.8 (a b)",
		},
		"what is not reported is not published":                  {results: map[string]string{"size": "8", "other": "x"}, want: succeeded + ", label example.com/size=8", guarded: true},
		"what was reported before, and is not now, is taken off": {node: has("example.com/size", "4", jobKey), want: succeeded + ", no label example.com/size", guarded: true},
		"what is there already is not written again":             {node: has("example.com/size", "8", jobKey), results: map[string]string{"size": "8"}, want: succeeded},
		"an empty value is one":                                  {results: map[string]string{"size": ""}, want: succeeded + ", label example.com/size=", guarded: true},
		"what is no label value fails the attempt": {
			results: map[string]string{"size": "8 GB"},
			want:    failed + `InvalidResult: the result size cannot be published as label example.com/size, since "8 GB" is no valid label value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends`,
		},
		"a label of somebody fails it": {
			node: has("example.com/size", "mine", ""), results: map[string]string{"size": "8"},
			want: failed + "PublishConflict: the node has the label example.com/size already, which this NodeJob has not put there: publish under another key, or take it off the node",
		},
		"even if it says the same": {
			node: has("example.com/size", "8", ""), results: map[string]string{"size": "8"},
			want: failed + "PublishConflict: the node has the label example.com/size already, which this NodeJob has not put there: publish under another key, or take it off the node",
		},
		"a label of another NodeJob fails it": {
			node: has("example.com/size", "4", "ns.everynode.dev/other"), results: map[string]string{"size": "8"},
			want: failed + "PublishConflict: label example.com/size of the node is published by another NodeJob (ns.everynode.dev/other): publish under another key",
		},
		"somebody's label is in nobody's way when nothing is reported": {node: has("example.com/size", "mine", ""), want: succeeded},
		"a result that was left out fails it": {
			exit: func(exit *Exit) { exit.Truncated = true },
			want: failed + "InvalidResult: the result size cannot be published, since results were left out or cut: one may have 256 bytes, and all together 2048",
		},
		"a result that was cut fails it": {
			results: map[string]string{"size": "8", "kernel": strings.Repeat("k", outcome.MaxValueBytes-3) + "…"}, exit: func(exit *Exit) { exit.Truncated = true },
			want: failed + "InvalidResult: the result kernel cannot be published, since results were left out or cut: one may have 256 bytes, and all together 2048",
		},
		"another one that was left out does not": {
			results: map[string]string{"size": "8", "kernel": "6"}, exit: func(exit *Exit) { exit.Truncated = true }, guarded: true,
			want: succeeded + ", label example.com/size=8, annotation example.com/kernel=6",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.node == nil {
				tt.node = func(*Node) {}
			}
			if tt.exit == nil {
				tt.exit = func(*Exit) {}
			}
			node := newNode("n", tt.node)
			node.ResourceVersion = "7"
			pod := newPod(node, exited(0, results(tt.results), tt.exit))
			pod.Exit.Message = ""
			p := Next(see(newJob(publishing), []Node{node}, pod))
			if diff := cmp.Diff([]string{tt.want}, told(p)); diff != "" {
				t.Fatalf("actions (-want +got):\n%s", diff)
			}
			if got := p.Actions[0].(Record).Guarded(); got != tt.guarded {
				t.Errorf("written under a precondition: %v, want %v", got, tt.guarded)
			}
		})
	}
}

// TestFactsWithoutARun tests what is brought up to date on a node that is done.
func TestFactsWithoutARun(t *testing.T) {
	done := recorded(record.Succeeded, withResults(map[string]string{"size": "8"}))
	removing := func(j *v1alpha1.NodeJob) { j.Spec.RemoveLabels = []string{"example.com/needs"} }
	tests := map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node Node
		want []string
		// stalled is the beginning of what the status says.
		stalled string
	}{
		"what is published since":             {job: publishing, node: newNode("n", done), want: []string{"Published n, label example.com/size=8"}},
		"what somebody has changed":           {job: publishing, node: newNode("n", done, has("example.com/size", "9", jobKey)), want: []string{"Published n, label example.com/size=8"}},
		"what somebody has taken off":         {job: publishing, node: newNode("n", done, func(n *Node) { n.Published.Labels = map[string]string{"example.com/size": jobKey} }), want: []string{"Published n, label example.com/size=8"}},
		"what is published no more":           {job: func(*v1alpha1.NodeJob) {}, node: newNode("n", done, has("example.com/size", "8", jobKey)), want: []string{"Published n, no label example.com/size"}},
		"what is as it should be":             {job: publishing, node: newNode("n", done, has("example.com/size", "8", jobKey))},
		"what is another NodeJob's stays":     {job: func(*v1alpha1.NodeJob) {}, node: newNode("n", done, has("example.com/size", "8", "ns.everynode.dev/other"))},
		"a node that is skipped says nothing": {job: publishing, node: newNode("n", labelled(rev))},
		"a node that failed has what it had":  {job: publishing, node: newNode("n", recorded(record.Failed, attempts(2)), has("example.com/size", "8", jobKey)), stalled: "1 node failed"},
		"but not what is listed no more":      {job: func(*v1alpha1.NodeJob) {}, node: newNode("n", recorded(record.Failed, attempts(2)), has("example.com/size", "8", jobKey)), want: []string{"Published n, no label example.com/size"}, stalled: "1 node failed"},
		"a conflict is in the status": {
			job: publishing, node: newNode("n", done, has("example.com/size", "mine", "")),
			stalled: "every node is done, and on 1 node not all of spec.publish can be published: n: the node has the label example.com/size already",
		},
		"what a NodeJob may not publish is not taken away in its name": {
			job: func(*v1alpha1.NodeJob) {}, node: newNode("n", done, has("kubernetes.io/hostname", "n", jobKey)),
		},
		"a label that is to be removed since":  {job: removing, node: newNode("n", done, has("example.com/needs", "setup", "")), want: []string{"Published n, recorded, without example.com/needs"}},
		"on a node without it nothing is done": {job: removing, node: newNode("n", done)},
		"a deletion takes all of it off":       {job: func(j *v1alpha1.NodeJob) { publishing(j); deleted("")(j) }, node: newNode("n", done, has("example.com/size", "8", jobKey)), want: []string{"forget n, no label example.com/size"}},
		"also without a record":                {job: deleted(""), node: newNode("n", has("example.com/size", "8", jobKey)), want: []string{"forget n, no label example.com/size"}},
		"unless all is to be retained":         {job: deleted(v1alpha1.DeletionRetain), node: newNode("n", done, has("example.com/size", "8", jobKey)), want: []string{"finish"}},
		"and leaves what is somebody's":        {job: deleted(""), node: newNode("n", has("example.com/size", "8", "")), want: []string{"finish"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(tt.job), []Node{tt.node}))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			for _, c := range p.Status.Conditions {
				if c.Type == v1alpha1.ConditionStalled && (c.Status == "True") != (tt.stalled != "") || c.Type == v1alpha1.ConditionStalled && !strings.HasPrefix(c.Message, tt.stalled) {
					t.Errorf("condition %+v, want a message that begins with %q", c, tt.stalled)
				}
			}
		})
	}
}

// TestLabelsThatASuccessTakesOff asks for what they were, and who is selected by them.
func TestLabelsThatASuccessTakesOff(t *testing.T) {
	const needs = "example.com/needs"
	job := func(j *v1alpha1.NodeJob) {
		j.Spec.RemoveLabels = []string{needs}
		j.Spec.NodeSelector = stageSelector()
		j.Spec.NodeSelector.MatchLabels = map[string]string{needs: "setup"}
	}
	removed := func(r *record.Record) { r.RemovedLabels = map[string]string{needs: "setup"} }
	t.Run("they go with the success, and are remembered", func(t *testing.T) {
		node := newNode("n", has(needs, "setup", ""))
		p := Next(see(newJob(job), []Node{node}, newPod(node, exited(0))))
		if diff := cmp.Diff([]string{"record Succeeded on n: attempts 1, disruptions 0, without " + needs}, told(p)); diff != "" {
			t.Fatalf("actions (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{needs: "setup"}, p.Actions[0].(Record).Record.RemovedLabels); diff != "" {
			t.Errorf("removed (-want +got):\n%s", diff)
		}
	})
	tests := map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node Node
		want NodeState
	}{
		"a node that had it is one of the NodeJob's still": {job, newNode("n", recorded(record.Succeeded, removed)), NodeState{State: Done, Reason: v1alpha1.ReasonDone}},
		"one that never had it is not":                     {job, newNode("n"), NodeState{State: Excluded, Reason: v1alpha1.ReasonNotSelected}},
		"nor is one that had another value":                {job, newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.RemovedLabels = map[string]string{needs: "no"} })), NodeState{State: Excluded, Reason: v1alpha1.ReasonNotSelected}},
		"nor when it is not to be removed any more":        {func(j *v1alpha1.NodeJob) { job(j); j.Spec.RemoveLabels = nil }, newNode("n", recorded(record.Succeeded, removed)), NodeState{State: Excluded, Reason: v1alpha1.ReasonNotSelected}},
		"a failure keeps that in mind":                     {job, newNode("n", recorded(record.Failed, attempts(2), removed)), NodeState{State: Failed, Reason: v1alpha1.ReasonRetriesExhausted}},
		"setting it again asks for another run":            {job, newNode("n", recorded(record.Succeeded, removed), has(needs, "setup", "")), NodeState{State: Running, Reason: v1alpha1.ReasonStarting}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Next(see(newJob(tt.job), []Node{tt.node})).Nodes[0]
			if got.State != tt.want.State || got.Reason != tt.want.Reason {
				t.Errorf("%s (%s), want %s (%s)", got.State, got.Reason, tt.want.State, tt.want.Reason)
			}
		})
	}
}
