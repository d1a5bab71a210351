// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/text"
)

func TestTheStateOfThePage(t *testing.T) {
	job := clitest.NodeJob("j")
	job.Status.Nodes = v1alpha1.NodeCounts{Total: 1, Waiting: 1}
	o := observed{context: "test", notes: []note{{"NodeGuards", "not allowed"}}, guards: []*v1alpha1.NodeGuard{{}}}
	o.guards[0].Namespace, o.guards[0].Name = "storage", "agent"
	o.guards[0].Status.Waiting = []v1alpha1.WaitingNode{{Node: "a"}, {Node: "gone"}}
	o.Jobs = []*v1alpha1.NodeJob{job, {}}
	o.Jobs[1].Namespace, o.Jobs[1].Name = "ns", "not-observed"
	o.Nodes = []plan.Node{
		{
			Name: "a",
			UID:  "1",
			Labels: map[string]string{
				"zone":                   "z",
				"kubernetes.io/hostname": "a",
				"ns.everynode.dev/j":     "old",
				"ns.everynode.dev.node-restriction.kubernetes.io/j": "x",
			},
			Ready: corev1.ConditionTrue,
		},
		{Name: "tainted", UID: "3", Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}},
		{Name: "b", UID: "2", Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}},
	}
	values := o.values()
	var node nodeState
	if err := json.Unmarshal(values["node:a"], &node); err != nil {
		t.Fatal(err)
	}
	want := nodeState{Labels: map[string]string{"zone": "z"}, Ready: "True", Held: []string{"storage/agent"}, Jobs: node.Jobs}
	if diff := cmp.Diff(want, node); diff != "" {
		t.Error(diff)
	}
	if got := node.Jobs["ns/j"]; got[0] == "" || got[1] == "" {
		t.Errorf("state under the NodeJob: %q", got)
	}
	for key, want := range map[string]string{
		"cluster":             `{"context":"test","notes":[{"what":"NodeGuards","why":"not allowed"}]}`,
		"job:ns/not-observed": `"reason":"NotObserved"`,
		"job:ns/j":            `"matched":1,"done":0,"running":0,"waiting":1,"failed":0`,
		"node:b":              `"ready":"Unknown","cordoned":true`,
		"node:tainted":        `"jobs":{"ns/j":["Excluded","UntoleratedTaint","","it has the taint k:NoSchedule"]}`,
	} {
		if !strings.Contains(string(values[key]), want) {
			t.Errorf("%s: %s, want %s", key, values[key], want)
		}
	}
}

// TestThePageOfANodeJobSaysWhichNodesAreExcluded checks the rows below the steps.
func TestThePageOfANodeJobSaysWhichNodesAreExcluded(t *testing.T) {
	job := clitest.NodeJob("j")
	job.Spec.Nodes.Names = []string{"a", "tainted"}
	job.Status.Nodes = v1alpha1.NodeCounts{Total: 1, Waiting: 1, Excluded: 1}
	job.Status.Excluded = []v1alpha1.ExcludedNodes{{Message: "it has the taint k:NoSchedule", Nodes: 1, Names: []string{"tainted"}}}
	o := observed{}
	o.Jobs, o.Nodes = []*v1alpha1.NodeJob{job}, []plan.Node{{Name: "a", UID: "1"}, {Name: "other", UID: "2"}}
	page := string(encode(o.job(job, "")))
	for _, want := range []string{"it has the taint k:NoSchedule", "tainted", "not selected by spec.nodes.selector or spec.nodes.names"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q: %s", want, page)
		}
	}
}

func TestLabelsOfANodeAreBounded(t *testing.T) {
	node := plan.Node{Name: "a", Labels: map[string]string{}}
	for i := range 2 * maxLabels {
		node.Labels[fmt.Sprintf("example.com/%03d", i)] = "x"
	}
	got := newNodeState(&node)
	if _, first := got.Labels["example.com/000"]; len(got.Labels) != maxLabels || !first {
		t.Errorf("%d labels, with the first: %t", len(got.Labels), first)
	}
}

func TestRowsAreWhatTheCommandLinePrints(t *testing.T) {
	label := func(name string) text.Line { return text.Toned(text.Dim, fmt.Sprintf("%-10s", name)) }
	got := rowsOf([]text.Line{
		label("State").Tone(text.Bad, "Failed"),
		label("").Tone(text.Dim, "| ").With("<b>\x1b[2J"),
		nil,
		text.Toned(text.Dim, "    | ").With("said"),
		text.Of("  ").Tone(text.Bad, "node-1").With("  Reason"),
	})
	want := []row{
		{Label: "State", Spans: []span{{"Failed", "bad"}}},
		{Output: true, Spans: []span{{`<b>\x1b[2J`, "plain"}}},
		{Spans: []span{}},
		{Output: true, Spans: []span{{"said", "plain"}}},
		{Spans: []span{{"  ", "plain"}, {"node-1", "bad"}, {"  Reason", "plain"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
