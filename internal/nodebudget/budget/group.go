// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
)

// group is a set of nodes that are subject to the same limits. They share a PodDisruptionBudget.
type group struct {
	key     string
	members []*member
	limits  []*limit
	// closed is true if no member may be taken away.
	closed bool
	// down counts the unavailable members: without those that have no seat, so that they become available only through the manager, and
	// joining those whose ready seat does not have the label of the group yet.
	down, without, joining int
	// grant is how many members may be unavailable, granted is how many the observed floor allows, and opened how many the next one does.
	grant, granted, opened int
	// reach is how many members are unavailable if the API server grants all evictions that the observed status allows. It is more than
	// granted while the disruption controller has not observed that a seat was deleted without an eviction, such as that of a deleted node.
	reach int
	// evictable is how many seats the API server lets go now.
	evictable int
	// others counts the pods with its label that are no seats of members.
	others int
	// overlapping is the name of a PodDisruptionBudget of another owner that also selects its seats; "" if none does.
	overlapping string
	// floor is what its PodDisruptionBudget should be now.
	floor FloorState
}

// limit is a limit of a budget for one value of its topology key.
type limit struct {
	rule    *rule
	spec    *v1alpha1.BudgetLimit
	members int
	// most is how many of the members may be unavailable, and rest is what is not granted to a group.
	most, rest int
	groups     []*group
	// unavailable is what down has collected.
	unavailable []*member
	collected   bool
}

// formGroups divides the members into groups.
func (p *planner) formGroups() {
	for _, r := range p.rules {
		if r.enforced() && r.permanent() {
			p.checkTopology(r)
			p.keepPace(r)
		}
	}
	limits := map[string]*limit{}
	for _, m := range p.members {
		var keys []string
		for _, r := range m.rules {
			if r.permanent() {
				keys = append(keys, limitKeys(r, m.Node)...)
			}
		}
		p.join(m, strings.Join(keys, "\n"), limits)
	}
	p.split("/outside", (*member).isOutside)
	p.split("/closed", func(m *member) bool { return m.closed() != nil }) // a freeze of some nodes
	slices.SortFunc(p.groups, func(a, b *group) int { return strings.Compare(a.key, b.key) })
	for _, g := range p.groups {
		for _, l := range g.limits {
			l.groups = append(l.groups, g)
		}
	}
	p.closeForMoves()
	p.countOthers()
	for _, g := range p.groups {
		g.overlapping = p.in.overlapping(g.key)
		p.count(g)
	}
}

// limitKeys identify the limits of a budget for a node; the budget itself if it has no limits.
func limitKeys(r *rule, node *Node) []string {
	keys := make([]string, 0, len(r.Spec.Limits)+1)
	for i := range r.Spec.Limits {
		l := &r.Spec.Limits[i]
		key := r.Name + "/" + strconv.Itoa(i)
		if l.TopologyKey != "" {
			key += "/" + l.TopologyKey + "=" + node.Labels[l.TopologyKey]
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		keys = append(keys, r.Name)
	}
	return keys
}

// join adds a member to the group with these limits.
func (p *planner) join(m *member, name string, limits map[string]*limit) {
	key := kube.ShortHash(name)
	g := p.byKey[key]
	if g == nil {
		g = &group{key: key}
		p.byKey[key] = g
		p.groups = append(p.groups, g)
	}
	m.group = g
	if m.fresh {
		return
	}
	g.members = append(g.members, m)
	for _, r := range m.rules {
		if !r.permanent() || len(r.Spec.Limits) == 0 {
			continue
		}
		for i, key := range limitKeys(r, m.Node) {
			l := limits[key]
			if l == nil {
				l = &limit{rule: r, spec: &r.Spec.Limits[i]}
				limits[key] = l
				p.limits = append(p.limits, l)
			}
			l.members++
			if !slices.Contains(g.limits, l) {
				g.limits = append(g.limits, l)
			}
		}
	}
}

// split gives the members that are chosen a group of their own where others of their group are not.
func (p *planner) split(suffix string, chosen func(*member) bool) {
	for _, g := range slices.Clone(p.groups) {
		var apart, rest []*member
		for _, m := range g.members {
			if chosen(m) {
				apart = append(apart, m)
			} else {
				rest = append(rest, m)
			}
		}
		if len(apart) == 0 || len(rest) == 0 {
			continue
		}
		other := &group{key: kube.ShortHash(g.key + suffix), members: apart, limits: g.limits}
		g.members = rest
		p.byKey[other.key] = other
		p.groups = append(p.groups, other)
		for _, m := range apart {
			m.group = other
		}
	}
}

// checkTopology closes a budget that would need too many groups.
func (p *planner) checkTopology(r *rule) {
	for i := range r.Spec.Limits {
		key := r.Spec.Limits[i].TopologyKey
		if key == "" {
			continue
		}
		values := map[string]bool{}
		for _, m := range p.members {
			if slices.Contains(m.rules, r) {
				values[m.Labels[key]] = true
			}
		}
		if len(values) > maxTopologyValues {
			r.keepClosed(tooManyGroups(r, key, len(values)))
		}
	}
}

// countOthers counts the pods with the label of a group that are not seats of its available members. A node that is not Ready may still
// have a ready seat. Terminating pods do not count for a PodDisruptionBudget.
func (p *planner) countOthers() {
	own, labelled := p.seatsThatCount(), map[string]int{}
	for i := range p.in.Seats {
		if s := &p.in.Seats[i]; !s.Terminating && own[s.UID] != s.Group {
			labelled[s.Group]++
		}
	}
	for _, s := range p.in.Strangers {
		labelled[s.Group]++
	}
	for _, h := range p.in.Placeholders {
		if h.Bound {
			labelled[PlaceholderGroup]++
		}
	}
	for _, g := range p.groups {
		g.others = labelled[g.key] + labelled[PlaceholderGroup]
	}
}

// seatsThatCount are the groups of the seats of available members, by the UID of the seat.
func (p *planner) seatsThatCount() map[types.UID]string {
	own := map[types.UID]string{}
	for _, m := range p.members {
		if m.seat != nil && (m.Ready || !m.seat.Ready) {
			own[m.seat.UID] = m.group.key
		}
	}
	return own
}

// overlapping returns the name of a PodDisruptionBudget of another owner that selects the seats of a group; "" if none does.
func (in *Input) overlapping(group string) string {
	for _, f := range in.Foreign {
		if f.Selector.Matches(labels.Set(seatLabels(group))) {
			return f.Name
		}
	}
	return ""
}

// count counts the members that are unavailable, and reads the floor.
func (p *planner) count(g *group) {
	for _, m := range g.members {
		if m.unavailable || m.seat.Group != g.key {
			g.down++
		}
		switch {
		case m.seat == nil:
			g.without++
		case m.seat.Group != g.key && m.seat.Ready && m.Ready && p.isUsable(m):
			g.joining++
		}
		g.closed = g.closed || m.closed() != nil
	}
	if f := p.floors[g.key]; f != nil {
		g.readFloor(f)
	}
}

// readFloor reads what the observed floor grants.
func (g *group) readFloor(f *Floor) {
	g.granted = max(0, len(g.members)+g.others-int(f.MinAvailable))
	if f.Processed {
		g.reach = g.down + int(f.Allowed)
	}
}

// closeForMoves closes groups, also those without members, while seats of members of other groups still have their label. The API server
// counts an eviction, and deletes the pod afterwards, whatever its labels are then. So a seat moves only when the PodDisruptionBudget that
// selects it grants nothing more, and has granted nothing for it: see mayLeave.
// Source: k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go.
func (p *planner) closeForMoves() {
	for _, m := range p.members {
		if m.seat == nil || m.seat.Group == m.group.key || m.seat.Group == PendingGroup || p.floors[m.seat.Group] == nil {
			continue
		}
		g := p.byKey[m.seat.Group]
		if g == nil {
			g = &group{key: m.seat.Group}
			p.byKey[g.key] = g
			p.groups = append(p.groups, g)
		}
		g.closed = true
	}
}

// mayLeave reports whether a seat can get another label: no eviction of it is under way, and the observed PodDisruptionBudget of its label,
// whose group is closed, grants none.
func (p *planner) mayLeave(s *Seat) bool {
	return p.floors[s.Group] == nil || p.isObserved(p.byKey[s.Group]) && !p.isEvicted(s)
}

// isEvicted reports whether the API server has granted the eviction of a seat, and may delete it at any moment. The disruption controller
// does not count such a pod either, until it terminates, or for two minutes if it does not: a request for an eviction is shorter.
// Source: k8s.io/kubernetes pkg/controller/disruption (DeletionTimeout).
func (p *planner) isEvicted(s *Seat) bool {
	f := p.floors[s.Group]
	return f != nil && slices.ContainsFunc(f.Evicted, func(name string) bool { return name == s.Name || name == kube.AnyPod })
}
