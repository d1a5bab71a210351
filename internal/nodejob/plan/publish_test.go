// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
)

const jobKey = "ns.everynode.dev/job"

// publishing publishes the result size as a label and the result kernel as an annotation.
func publishing(j *v1alpha1.NodeJob) {
	j.Spec.Publish = []v1alpha1.PublishedResult{
		{Result: "size", Label: "example.com/size"},
		{Result: "kernel", Annotation: "example.com/kernel"},
	}
}

func results(of map[string]string) func(*Exit) { return func(exit *Exit) { exit.Results = of } }

func withResults(of map[string]string) func(*record.Record) {
	return func(r *record.Record) { r.Results = of }
}

// has gives a node a label that the given NodeJob has published; "" if the publisher is unknown.
func has(key, value, owner string) func(*Node) {
	return func(n *Node) {
		n.Labels = map[string]string{"pool": "a", key: value}
		if owner != "" {
			n.Published = record.Published{Labels: map[string]string{key: owner}}
		}
	}
}

// annotatedBy is has for an annotation.
func annotatedBy(key, value, owner string) func(*Node) {
	return func(n *Node) {
		n.Annotations = map[string]string{key: value}
		if owner != "" {
			n.Published.Annotations = map[string]string{key: owner}
		}
	}
}

// TestFactsOfSuccess tests how the results of a successful run are published.
func TestFactsOfSuccess(t *testing.T) {
	const notManaged = "PublishConflict: label example.com/size already exists on the node and is not managed by this NodeJob: remove it, set adopt in spec.publish, or publish under another key"
	const succeeded, failed = "record Succeeded on n: attempts 1, disruptions 0", "record Failed on n: attempts 1, disruptions 0, "
	tests := map[string]struct {
		node    func(*Node)
		results map[string]string
		exit    func(*Exit)
		want    string
		guarded bool
	}{
		"both are published with the success": {
			results: map[string]string{"size": "8", "kernel": "6.8 (a b)"}, guarded: true,
			want: succeeded + ", label example.com/size=8, annotation example.com/kernel=6.8 (a b)",
		},
		"a result that is not reported is not published": {
			results: map[string]string{"size": "8", "other": "x"},
			want:    succeeded + ", label example.com/size=8",
			guarded: true,
		},
		"a published result that is no longer reported is removed": {
			node:    has("example.com/size", "4", jobKey),
			want:    succeeded + ", no label example.com/size",
			guarded: true,
		},
		"an unchanged published result is not written again": {
			node:    has("example.com/size", "8", jobKey),
			results: map[string]string{"size": "8"},
			want:    succeeded,
		},
		"an empty published result that is no longer reported is removed": {
			node:    has("example.com/size", "", jobKey),
			want:    succeeded + ", no label example.com/size",
			guarded: true,
		},
		"an annotation of a user fails the attempt, also beside a label that can be published": {
			node: annotatedBy(
				"example.com/kernel",
				"5",
				"",
			),
			results: map[string]string{"size": "8", "kernel": "6"},
			want:    failed + strings.Replace(notManaged, "label example.com/size", "annotation example.com/kernel", 1),
		},
		"a node without room fails the attempt": {
			node: func(n *Node) {
				n.Published.Labels = map[string]string{"example.com/other": strings.Repeat("x", 33<<10)}
			}, results: map[string]string{"size": "8"},
			want: failed + "PublishConflict: the node has no room for more published results: publish fewer",
		},
		"an empty published result that a user has removed is published": {
			node:    func(n *Node) { n.Published.Labels = map[string]string{"example.com/size": jobKey} },
			results: map[string]string{"size": ""},
			want:    succeeded + ", label example.com/size=",
			guarded: true,
		},
		"a label of another NodeJob that a user has removed fails the attempt": {
			node:    func(n *Node) { n.Published.Labels = map[string]string{"example.com/size": "ns.everynode.dev/other"} },
			results: map[string]string{"size": "8"},
			want:    failed + "PublishConflict: label example.com/size of the node is published by another NodeJob (ns.everynode.dev/other): publish under another key",
		},
		"a label of another NodeJob stays": {
			node: has(
				"example.com/other",
				"1",
				"ns.everynode.dev/other",
			),
			results: map[string]string{"size": "8"},
			want:    succeeded + ", label example.com/size=8",
			guarded: true,
		},
		"a result of the greatest length is published although others were left out": {
			results: map[string]string{
				"size":   "8",
				"kernel": strings.Repeat("k", outcome.MaxValueBytes-4),
			},
			exit:    func(exit *Exit) { exit.Truncated = true },
			guarded: true,
			want: succeeded + ", label example.com/size=8, annotation example.com/kernel=" + strings.Repeat(
				"k",
				outcome.MaxValueBytes-4,
			),
		},
		"an empty value is published": {
			results: map[string]string{"size": ""},
			want:    succeeded + ", label example.com/size=",
			guarded: true,
		},
		"an invalid label value fails the attempt": {
			results: map[string]string{"size": "8 GB"},
			want:    failed + `InvalidResult: the result size cannot be published as label example.com/size, since "8 GB" is no valid label value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends`,
		},
		"a label of a user fails the attempt": {
			node: has("example.com/size", "mine", ""), results: map[string]string{"size": "8"},
			want: failed + notManaged,
		},
		"a label of a user with the same value fails the attempt": {
			node: has("example.com/size", "8", ""), results: map[string]string{"size": "8"},
			want: failed + notManaged,
		},
		"a label of another NodeJob fails the attempt": {
			node:    has("example.com/size", "4", "ns.everynode.dev/other"),
			results: map[string]string{"size": "8"},
			want:    failed + "PublishConflict: label example.com/size of the node is published by another NodeJob (ns.everynode.dev/other): publish under another key",
		},
		"a label of a user does not matter if the result is not reported": {node: has("example.com/size", "mine", ""), want: succeeded},
		"an omitted result fails the attempt": {
			exit: func(exit *Exit) { exit.Truncated = true },
			want: failed + "InvalidResult: the result size cannot be published, because results were omitted or cut: one may have 256 bytes, and all together 2048",
		},
		"a truncated result fails the attempt": {
			results: map[string]string{
				"size":   "8",
				"kernel": strings.Repeat("k", outcome.MaxValueBytes-3) + "…",
			},
			exit: func(exit *Exit) { exit.Truncated = true },
			want: failed + "InvalidResult: the result kernel cannot be published, because results were omitted or cut: one may have 256 bytes, and all together 2048",
		},
		"an omitted result that is not published does not matter": {
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
				t.Errorf("written with a precondition: %v, want %v", got, tt.guarded)
			}
		})
	}
}

// TestFactsWithoutRun tests which published results are updated on a node that is done.
func TestFactsWithoutRun(t *testing.T) {
	done := recorded(record.Succeeded, withResults(map[string]string{"size": "8"}))
	removing := func(j *v1alpha1.NodeJob) { j.Spec.RemoveLabels = []string{"example.com/needs"} }
	tests := map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node Node
		want []string
		// stalled is the beginning of the message of the Stalled condition.
		stalled string
	}{
		"a published result that was added to spec.publish": {
			job:  publishing,
			node: newNode("n", done),
			want: []string{"Published n, label example.com/size=8"},
		},
		"a published result that a user has changed": {
			job:  publishing,
			node: newNode("n", done, has("example.com/size", "9", jobKey)),
			want: []string{"Published n, label example.com/size=8"},
		},
		"a published result that a user has removed": {
			job:  publishing,
			node: newNode("n", done, func(n *Node) { n.Published.Labels = map[string]string{"example.com/size": jobKey} }),
			want: []string{"Published n, label example.com/size=8"},
		},
		"a published result that was removed from spec.publish": {
			job:  func(*v1alpha1.NodeJob) {},
			node: newNode("n", done, has("example.com/size", "8", jobKey)),
			want: []string{"Published n, no label example.com/size"},
		},
		"an unchanged published result": {
			job:  publishing,
			node: newNode("n", done, has("example.com/size", "8", jobKey)),
		},
		"a published result of another NodeJob stays": {
			job:  func(*v1alpha1.NodeJob) {},
			node: newNode("n", done, has("example.com/size", "8", "ns.everynode.dev/other")),
		},
		"a skipped node has no results": {job: publishing, node: newNode("n", labelled(rev))},
		"a failed node keeps its published results": {
			job:     publishing,
			node:    newNode("n", recorded(record.Failed, attempts(2)), has("example.com/size", "8", jobKey)),
			stalled: "1 node failed",
		},
		"a failed node loses a published result that was removed from spec.publish": {
			job:     func(*v1alpha1.NodeJob) {},
			node:    newNode("n", recorded(record.Failed, attempts(2)), has("example.com/size", "8", jobKey)),
			want:    []string{"Published n, no label example.com/size"},
			stalled: "1 node failed",
		},
		"a label that a user has set does not prevent that a failed node loses a published result": {
			job: func(j *v1alpha1.NodeJob) {
				j.Spec.Publish = []v1alpha1.PublishedResult{{Result: "size", Label: "example.com/size"}}
			},
			stalled: "1 node failed",
			node: newNode(
				"n",
				recorded(record.Failed, attempts(2)),
				has("example.com/size", "mine", ""),
				annotatedBy("example.com/kernel", "6", jobKey),
			),
			want: []string{"Published n, no annotation example.com/kernel"},
		},
		"an annotation that a user has set does not prevent that a failed node loses a published result": {
			job: func(j *v1alpha1.NodeJob) {
				j.Spec.Publish = []v1alpha1.PublishedResult{{Result: "kernel", Annotation: "example.com/kernel"}}
			},
			stalled: "1 node failed",
			node: newNode(
				"n",
				recorded(record.Failed, attempts(2)),
				has("example.com/size", "8", jobKey),
				annotatedBy("example.com/kernel", "6", ""),
			),
			want: []string{"Published n, no label example.com/size"},
		},
		"a failed node keeps its annotations": {
			job:     publishing,
			node:    newNode("n", recorded(record.Failed, attempts(2)), annotatedBy("example.com/kernel", "6", jobKey)),
			stalled: "1 node failed",
		},
		"a user has removed published results from a failed node": {
			job:     publishing,
			stalled: "1 node failed",
			want:    []string{"Published n, no label example.com/size, no annotation example.com/kernel"},
			node: newNode("n", recorded(record.Failed, attempts(2)), func(n *Node) {
				n.Published = record.Published{
					Labels:      map[string]string{"example.com/size": jobKey},
					Annotations: map[string]string{"example.com/kernel": jobKey},
				}
			}),
		},
		"a node that was skipped after a failure publishes nothing": {
			job:  publishing,
			node: newNode("n", recorded(record.Failed, attempts(2), withResults(map[string]string{"size": "8"})), labelled(rev)),
		},
		"a node that was skipped after an earlier revision publishes nothing": {
			job: publishing,
			node: newNode(
				"n",
				recorded(record.Succeeded, withResults(map[string]string{"size": "8"}), func(r *record.Record) { r.Revision = "old" }),
				labelled(rev),
			),
		},
		"a published result that was left out of the record is no conflict": {
			job: publishing, node: newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.Truncated = true })),
		},
		"an empty published result that is not on record": {
			job: func(j *v1alpha1.NodeJob) {
				j.Spec.Publish = []v1alpha1.PublishedResult{{Result: "size", Label: "example.com/size"}}
			},
			node: newNode(
				"n",
				recorded(record.Succeeded),
				has("example.com/size", "", jobKey),
			),
			want: []string{"Published n, no label example.com/size"},
		},
		"a conflict is in the status": {
			job:     publishing,
			node:    newNode("n", done, has("example.com/size", "mine", "")),
			stalled: "every node is done, and on 1 node not all of spec.publish can be published: n: label example.com/size already exists on the node",
		},
		"a label that a NodeJob may not publish is not removed in its name": {
			job: func(*v1alpha1.NodeJob) {}, node: newNode("n", done, has("kubernetes.io/hostname", "n", jobKey)),
		},
		"a label that was added to spec.removeLabels": {
			job:  removing,
			node: newNode("n", done, has("example.com/needs", "setup", "")),
			want: []string{"Published n, recorded, without example.com/needs"},
		},
		"a node without the label is not changed": {job: removing, node: newNode("n", done)},
		"a deletion removes all published results": {
			job:  func(j *v1alpha1.NodeJob) { publishing(j); deleted("")(j) },
			node: newNode("n", done, has("example.com/size", "8", jobKey)),
			want: []string{"forget n, no label example.com/size"},
		},
		"a deletion removes all published results without a record": {
			job:  deleted(""),
			node: newNode("n", has("example.com/size", "8", jobKey)),
			want: []string{"forget n, no label example.com/size"},
		},
		"a deletion with deletionPolicy Retain keeps all published results": {
			job:  deleted(v1alpha1.DeletionRetain),
			node: newNode("n", done, has("example.com/size", "8", jobKey)),
			want: []string{"finish"},
		},
		"a deletion keeps the label of a user": {
			job:  deleted(""),
			node: newNode("n", has("example.com/size", "8", "")),
			want: []string{"finish"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(tt.job), []Node{tt.node}))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			for _, c := range p.Status.Conditions {
				if c.Type == v1alpha1.ConditionStalled && (c.Status == "True") != (tt.stalled != "") ||
					c.Type == v1alpha1.ConditionStalled && !strings.HasPrefix(c.Message, tt.stalled) {
					t.Errorf("condition %+v, want a message that begins with %q", c, tt.stalled)
				}
			}
		})
	}
}

// TestLabelsAreRemovedOnSuccess tests that removed labels are recorded and still select the node.
func TestLabelsAreRemovedOnSuccess(t *testing.T) {
	const needs = "example.com/needs"
	job := func(j *v1alpha1.NodeJob) {
		j.Spec.RemoveLabels = []string{needs}
		j.Spec.Nodes.Selector = stageSelector()
		j.Spec.Nodes.Selector.MatchLabels = map[string]string{needs: "setup"}
	}
	removed := func(r *record.Record) { r.RemovedLabels = map[string]string{needs: "setup"} }
	t.Run("they are removed with the success and recorded", func(t *testing.T) {
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
		"a node that had the label still matches": {
			job,
			newNode("n", recorded(record.Succeeded, removed)),
			NodeState{State: Done, Reason: v1alpha1.ReasonDone},
		},
		"a node that never had the label does not match": {
			job,
			newNode("n"),
			NodeState{State: Excluded, Reason: v1alpha1.ReasonNotSelected},
		},
		"a node that had another value does not match": {
			job,
			newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.RemovedLabels = map[string]string{needs: "no"} })),
			NodeState{State: Excluded, Reason: v1alpha1.ReasonNotSelected},
		},
		"a node does not match after spec.removeLabels was removed": {
			func(j *v1alpha1.NodeJob) { job(j); j.Spec.RemoveLabels = nil },
			newNode("n", recorded(record.Succeeded, removed)),
			NodeState{State: Excluded, Reason: v1alpha1.ReasonNotSelected},
		},
		"a failed node that had the label still matches": {
			job,
			newNode("n", recorded(record.Failed, attempts(2), removed)),
			NodeState{State: Failed, Reason: v1alpha1.ReasonRetriesExhausted},
		},
		"setting the label again requests another run": {
			job,
			newNode("n", recorded(record.Succeeded, removed), has(needs, "setup", "")),
			NodeState{State: Running, Reason: v1alpha1.ReasonStarting},
		},
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
