// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// pause is what a history knows while no pass is needed.
type pause struct {
	// rest is what the last pass left, and wakeAt is when the next one follows by itself; nil if another pass follows at once.
	rest   *Input
	wakeAt time.Time
	// raced is true if a write of the last pass was refused, so that another pass follows at once.
	raced bool
	// ignored counts the changes of nodes that did not affect the NodeJob.
	ignored int
}

// rests notes what a pass has left.
func (h *history) rests(in Input, p Plan) {
	in.Job, in.Nodes, in.Pods = h.job.DeepCopy(), nil, nil
	if h.dep != "" {
		in.Job.Spec.DependsOn = []string{"dep"} // a history only adds it to the input
	}
	for _, name := range slices.Sorted(maps.Keys(h.cache.nodes)) {
		in.Nodes = append(in.Nodes, h.cache.nodes[name])
	}
	for _, name := range h.podNames() {
		if pod, there := h.cache.pods[name]; there {
			pod.RecordedOn = h.recordedOn[pod.UID]
			in.Pods = append(in.Pods, pod)
		}
	}
	readOnPeers(&in)
	h.rest, h.wakeAt = &in, p.WakeAt
}

// checkAffects checks that the changes of nodes since the last pass that do not affect the NodeJob do not change its plan: the
// manager makes no pass because of them.
func (h *history) checkAffects(in Input) {
	if h.rest == nil {
		return
	}
	was, is := *h.rest, *h.rest
	if now := in.Now; h.wakeAt.IsZero() || now.Before(h.wakeAt) {
		was.Now, is.Now = now, now
	}
	var ignored []string
	is.Nodes, ignored = onlyIgnored(&was, in.Nodes)
	if len(ignored) == 0 {
		return
	}
	h.ignored += len(ignored)
	readOnPeers(&is)
	before, after := Next(was), Next(is)
	before.Holds, after.Holds = held(&before, before.Holds, was.Nodes, ignored), held(&after, after.Holds, is.Nodes, ignored)
	before.Claims, after.Claims = held(&before, before.Claims, was.Nodes, ignored), held(&after, after.Claims, is.Nodes, ignored)
	before.Stages, after.Stages = held(&before, before.Stages, was.Nodes, ignored), held(&after, after.Stages, is.Nodes, ignored)
	before.Nodes, after.Nodes = statesOf(before.Nodes, ignored), statesOf(after.Nodes, ignored)
	if diff := cmp.Diff(before, after, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(record.Change{}, "ResourceVersion"),
		cmpopts.IgnoreFields(StepNodes{}, "Nodes"), cmpopts.IgnoreFields(NodeState{}, "Unavailable")); diff != "" {
		h.break_("affects", "changes of %v do not affect the NodeJob, and the plan is another (-before +after):\n%s", ignored, diff)
	}
}

// onlyIgnored returns the nodes of an input after those of their changes that do not affect the NodeJob.
func onlyIgnored(was *Input, now []Node) (nodes []Node, ignored []string) {
	there := map[string]bool{}
	affects := func(before, after *Node) bool {
		return changeOf(before, after).Affects(was.Job, was.Now, func() bool {
			return slices.ContainsFunc(was.Pods, func(p Pod) bool { return p.NodeName == after.Name })
		})
	}
	for i := range was.Nodes {
		before := &was.Nodes[i]
		there[before.Name] = true
		j := slices.IndexFunc(now, func(n Node) bool { return n.Name == before.Name })
		switch {
		case j < 0 && !affects(nil, before):
			ignored = append(ignored, before.Name)
		case j >= 0 && now[j].UID == before.UID && now[j].ResourceVersion == before.ResourceVersion:
			nodes = append(nodes, *before)
		case j < 0 || changeOf(before, &now[j]).IsEmpty() || affects(before, &now[j]):
			nodes = append(nodes, *before)
		default:
			nodes, ignored = append(nodes, now[j]), append(ignored, before.Name)
		}
	}
	for i := range now {
		if !there[now[i].Name] && !affects(nil, &now[i]) {
			nodes, ignored = append(nodes, now[i]), append(ignored, now[i].Name)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, ignored
}

// statesOf returns the states of nodes without those of ignored nodes that are excluded, which have no effect.
func statesOf(states []NodeState, ignored []string) []NodeState {
	return slices.DeleteFunc(
		slices.Clone(states),
		func(st NodeState) bool { return st.State == Excluded && slices.Contains(ignored, st.Name) },
	)
}

// held returns what a plan says about held nodes, without ignored nodes that are excluded: one that is gone, or that has just joined under the name of
// another one.
func held[V any](p *Plan, of map[types.UID]V, nodes []Node, ignored []string) map[types.UID]V {
	holds := maps.Clone(of)
	for i := range p.Nodes {
		if p.Nodes[i].State == Excluded && slices.Contains(ignored, nodes[i].Name) {
			delete(holds, nodes[i].UID)
		}
	}
	return holds
}

// changeOf compares two versions of a node as the API server shows them: what it stores for the NodeJob, and who has published
// results, is in its labels and annotations.
func changeOf(before, after *Node) NodeChange {
	is := asStored(after)
	if before == nil {
		return CompareNodes(nil, &is)
	}
	was := asStored(before)
	return CompareNodes(&was, &is)
}

func asStored(node *Node) Node {
	shown := *node
	shown.Labels, shown.Annotations = maps.Clone(node.Labels), maps.Clone(node.Annotations)
	if shown.Labels == nil {
		shown.Labels = map[string]string{}
	}
	if shown.Annotations == nil {
		shown.Annotations = map[string]string{}
	}
	if on := &node.On; on.Label != "" {
		shown.Labels[ownKey] = on.Label
	}
	if node.On.Sealed {
		shown.Labels[record.SealKey(ownKey)] = "of another record"
	}
	switch on := &node.On; {
	case on.Record != nil:
		encoded := record.Encode(*on.Record)
		shown.Annotations[ownKey], shown.Labels[record.SealKey(ownKey)] = encoded, record.Seal(encoded)
	case on.Altered:
		shown.Annotations[ownKey] = "altered"
	}
	if published := fmt.Sprint(node.Published); published != fmt.Sprint(record.Published{}) {
		shown.Annotations[v1alpha1.PublishedAnnotation] = published
	}
	return shown
}
