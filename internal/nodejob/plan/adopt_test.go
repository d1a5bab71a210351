// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

func adopting(policy v1alpha1.AdoptPolicy) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		publishing(j)
		for i := range j.Spec.Publish {
			j.Spec.Publish[i].Adopt = policy
		}
	}
}

// TestAdopt tests which existing labels and annotations become managed by a success.
func TestAdopt(t *testing.T) {
	const succeeded, failed = "record Succeeded on n: attempts 1, disruptions 0", "record Failed on n: attempts 1, disruptions 0, PublishConflict: "
	annotated := func(n *Node) { n.Annotations = map[string]string{"example.com/kernel": "5"} }
	tests := map[string]struct {
		policy  v1alpha1.AdoptPolicy
		node    func(*Node)
		results map[string]string
		want    string
	}{
		"SameValue adopts a label with the value of the result": {
			v1alpha1.AdoptSameValue,
			has("example.com/size", "8", ""),
			map[string]string{"size": "8"},
			succeeded + ", label example.com/size=8",
		},
		"SameValue does not adopt a label with another value": {
			v1alpha1.AdoptSameValue,
			has("example.com/size", "mine", ""),
			map[string]string{"size": "8"},
			failed + `label example.com/size already exists on the node with the value "mine", and the result is "8": remove it, or set adopt: Always in spec.publish`,
		},
		"SameValue does not adopt an annotation with another value": {
			v1alpha1.AdoptSameValue,
			annotated,
			map[string]string{"kernel": "6"},
			failed + `annotation example.com/kernel already exists on the node with the value "5", and the result is "6": remove it, or set adopt: Always in spec.publish`,
		},
		"Always adopts a label with another value": {
			v1alpha1.AdoptAlways,
			has("example.com/size", "mine", ""),
			map[string]string{"size": "8"},
			succeeded + ", label example.com/size=8",
		},
		"Always adopts an annotation with another value": {
			v1alpha1.AdoptAlways,
			annotated,
			map[string]string{"kernel": "6"},
			succeeded + ", annotation example.com/kernel=6",
		},
		"Always adopts nothing for which there is no result": {v1alpha1.AdoptAlways, has("example.com/size", "mine", ""), nil, succeeded},
		"a label that does not exist is published": {
			v1alpha1.AdoptSameValue,
			func(*Node) {},
			map[string]string{"size": "8"},
			succeeded + ", label example.com/size=8",
		},
		"SameValue does not prevent a change of the own label": {
			v1alpha1.AdoptSameValue,
			has("example.com/size", "4", jobKey),
			map[string]string{"size": "8"},
			succeeded + ", label example.com/size=8",
		},
		"Always adopts nothing that another NodeJob publishes": {
			v1alpha1.AdoptAlways,
			has("example.com/size", "8", "ns.everynode.dev/other"),
			map[string]string{"size": "8"},
			failed + "label example.com/size of the node is published by another NodeJob (ns.everynode.dev/other): publish under another key",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", tt.node)
			pod := newPod(node, exited(0, results(tt.results)))
			pod.Exit.Message = ""
			p := Next(see(newJob(adopting(tt.policy)), []Node{node}, pod))
			if diff := cmp.Diff([]string{tt.want}, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// An adopted label is managed as any other: it is restored, and removed with the NodeJob.
func TestAdoptOnNodeThatIsDone(t *testing.T) {
	node := newNode("n", recorded(record.Succeeded, withResults(map[string]string{"size": "8"})), has("example.com/size", "mine", ""))
	p := Next(see(newJob(adopting(v1alpha1.AdoptAlways)), []Node{node}))
	if diff := cmp.Diff([]string{"Published n, label example.com/size=8"}, told(p)); diff != "" {
		t.Fatalf("actions (-want +got):\n%s", diff)
	}
	if owners := p.Actions[0].(PatchNode).Publish.Published.Labels; owners["example.com/size"] != jobKey {
		t.Errorf("the label belongs to %q, want %q", owners["example.com/size"], jobKey)
	}
}

func TestPublishConflicts(t *testing.T) {
	mine := PublishConflict{Kind: "label", Key: "example.com/size", Value: "mine"}
	tests := map[string]struct {
		policy v1alpha1.AdoptPolicy
		node   func(*Node)
		want   []PublishConflict
	}{
		"nothing exists": {v1alpha1.AdoptNever, func(*Node) {}, nil},
		"a label exists": {v1alpha1.AdoptNever, has("example.com/size", "mine", ""), []PublishConflict{mine}},
		"a label exists, and the default applies": {"", has("example.com/size", "mine", ""), []PublishConflict{mine}},
		"a label exists that is adopted if the result is the same": {
			v1alpha1.AdoptSameValue,
			has("example.com/size", "mine", ""),
			[]PublishConflict{mine},
		},
		"a label exists that is adopted": {v1alpha1.AdoptAlways, has("example.com/size", "mine", ""), nil},
		"an annotation exists": {v1alpha1.AdoptNever, func(n *Node) { n.Annotations = map[string]string{"example.com/kernel": ""} },
			[]PublishConflict{{Kind: "annotation", Key: "example.com/kernel"}}},
		"this NodeJob has published it": {v1alpha1.AdoptNever, has("example.com/size", "8", jobKey), nil},
		"another NodeJob has published it": {v1alpha1.AdoptAlways, has("example.com/size", "8", "ns.everynode.dev/other"),
			[]PublishConflict{{Kind: "label", Key: "example.com/size", Value: "8", Owner: "ns.everynode.dev/other"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", tt.node)
			if diff := cmp.Diff(tt.want, PublishConflicts(newJob(adopting(tt.policy)), &node)); diff != "" {
				t.Errorf("conflicts (-want +got):\n%s", diff)
			}
		})
	}
}
