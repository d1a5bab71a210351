// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

// planner plans all budgets: see Next.
type planner struct {
	in    *Input
	rules []*rule
	// nodes are the nodes with the labels with which they count, and labelKeys the keys of those that a kubelet may write.
	nodes     []Node
	labelKeys []string
	// members are the nodes that an enforced budget limits, in the order of their names.
	members []*member
	groups  []*group
	byKey   map[string]*group
	limits  []*limit
	floors  map[string]*Floor
	seats   map[types.UID][]*Seat
	// old is true if any floor or seat is old, so that a node without a seat may have had one. kept has the results of isKept.
	old  bool
	kept map[*rule]bool
	// apart are the budgets that are never open at the same time as another one of their nodes.
	apart map[*rule]*apart
	plan  Plan
}

// member is a node that at least one enforced budget limits.
type member struct {
	*Node
	rules []*rule
	seat  *Seat
	group *group
	// unavailable is true for a node that uses its budgets: it has no ready seat, or is not Ready.
	unavailable bool
	// fresh is true for a node that has joined and uses no budget yet: see Fresh.
	fresh bool
	// announced is true if something announces on the node itself that it will be taken away, such as a cordon.
	announced bool
	// requestedBy is who or what asks for the node, including NodeJobs; "" if nothing does. since is since when.
	requestedBy string
	since       time.Time
	// ignoresWindows is true if a NodeJob that waits for the node ignores windows there.
	ignoresWindows bool
}

func newPlanner(in *Input) *planner {
	p := &planner{in: in, byKey: map[string]*group{}, floors: map[string]*Floor{}, seats: map[types.UID][]*Seat{}, kept: map[*rule]bool{}, apart: map[*rule]*apart{}}
	p.plan.Stances, p.plan.Paced = map[types.UID]hold.Stance{}, map[PaceKey]Paced{}
	for _, b := range in.Budgets {
		r := readRule(b, in.Answers[b.Name], in.Now)
		p.rules = append(p.rules, r)
		p.wake(r.window.ChangesAt)
		p.wake(r.window.DateChangesAt)
		for _, a := range r.answers {
			p.wake(a.changesAt(in.Now))
		}
		if b.Spec.ExpiresAt != nil {
			p.wake(b.Spec.ExpiresAt.Time)
		}
	}
	for i := range in.Floors {
		p.floors[in.Floors[i].Group] = &in.Floors[i]
		p.old = p.old || p.isOld(in.Floors[i].Created)
	}
	for i := range in.Seats {
		p.seats[in.Seats[i].Node] = append(p.seats[in.Seats[i].Node], &in.Seats[i])
		p.old = p.old || p.isOld(in.Seats[i].Created)
	}
	return p
}

func (p *planner) joiningFor() time.Duration { return valueOr(p.in.JoiningFor, JoiningFor) }
func (p *planner) settleFor() time.Duration  { return valueOr(p.in.SettleFor, SettleFor) }

// minute is how long a node that behaves needs to return or to be relabeled: see Paced and Counted. It is shorter in tests.
func (p *planner) minute() time.Duration { return 2 * p.settleFor() }

func valueOr(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return d
}

// readMembers finds the nodes that enforced budgets limit.
func (p *planner) readMembers() {
	p.countLabels()
	p.readFresh()
	for i := range p.nodes {
		node := &p.nodes[i]
		m := &member{Node: node, rules: p.limiting(node)}
		if len(m.rules) > 0 {
			p.readMember(m)
			p.readFirstSeat(m)
			p.members = append(p.members, m)
		}
	}
	slices.SortFunc(p.members, func(a, b *member) int { return strings.Compare(a.Name, b.Name) })
	p.rememberLabels()
}

// limiting are the enforced budgets that limit a node.
func (p *planner) limiting(node *Node) []*rule {
	var rules []*rule
	for _, r := range p.rules {
		if !r.enforced() || !r.selects(node) || !canHaveSeat(node) {
			continue
		}
		if r.exempts(node, p.joiningFor(), p.in.Now) {
			p.wake(node.Created.Add(p.joiningFor()))
			continue
		}
		rules = append(rules, r)
	}
	return rules
}

// canHaveSeat reports whether a seat can run on a node. The image of the runner is for Linux.
func canHaveSeat(node *Node) bool {
	os := node.Labels[corev1.LabelOSStable]
	return os == "" || os == string(corev1.Linux)
}

func (p *planner) readMember(m *member) {
	if by, since := kube.ReleaseRequest(&m.Node.Node, p.in.Now); by != "" {
		m.announced, m.requestedBy, m.since = true, by, since
	}
	for _, seat := range p.seats[m.UID] {
		if !seat.Terminating {
			m.seat = seat
		}
	}
	m.unavailable = !m.Ready || m.seat == nil || !m.seat.Ready || m.seat.Group == PendingGroup || p.isEvicted(m.seat)
	if w, waits := p.in.Waits[m.UID]; waits {
		m.requestedBy, m.since, m.ignoresWindows = w.By, w.Since, w.IgnoresWindows
	}
}

// Seated returns the nodes that a drain cannot empty before it has evicted their seat, by UID. A new seat that has not joined a group
// does not count, because no PodDisruptionBudget selects it.
func Seated(seats []Seat) map[types.UID]bool {
	nodes := map[types.UID]bool{}
	for i := range seats {
		if s := &seats[i]; !s.Terminating && !s.Ended && s.Group != PendingGroup {
			nodes[s.Node] = true
		}
	}
	return nodes
}

// waits reports whether something asks for a node that is still available.
func (m *member) waits() bool { return m.requestedBy != "" && !m.unavailable }

// closed returns why no disruption of the node may begin; nil if one may.
func (m *member) closed() *hold.Why { return m.closedFor(m.ignoresWindows) }

// isOutside reports whether a disruption may begin only because a NodeJob ignores windows.
func (m *member) isOutside() bool { return m.closed() == nil && m.closedFor(false) != nil }

func (m *member) closedFor(ignoresWindows bool) *hold.Why {
	for _, r := range m.rules {
		if c := r.closedFor(ignoresWindows); c != nil {
			return c
		}
	}
	return nil
}

// waitsForSeat reports whether a node is available and nothing takes it away, so that it gets a seat when it has settled.
func (p *planner) waitsForSeat(m *member) bool {
	_, held := p.in.Holds[m.UID]
	return !held && m.Ready && !m.announced
}

// isBack reports whether a node is available for long enough to have a seat that counts.
func (p *planner) isBack(m *member) bool {
	if !p.waitsForSeat(m) || !p.in.HoldsKnown {
		return false
	}
	settled := m.ReadyChanged.Add(p.settleFor())
	if m.Created.Add(p.settleFor()).After(settled) {
		settled = m.Created.Add(p.settleFor())
	}
	p.wake(settled)
	return !p.in.Now.Before(settled)
}

// mayHaveSeat reports whether a node without a seat gets one now.
func (p *planner) mayHaveSeat(m *member) bool {
	return len(p.seats[m.UID]) == 0 && p.isBack(m)
}

// hadSeat reports whether a member without a seat may have had one before: it is not new, and neither are all seats and groups. If in
// doubt, it had one: then the pace only delays the next disruption.
func (p *planner) hadSeat(m *member) bool {
	if m.fresh {
		return false
	}
	first := m.Created.Add(p.joiningFor())
	for _, r := range m.rules {
		if r.Spec.JoiningNodes == v1alpha1.JoiningNodesIncluded {
			first = m.Created
		}
	}
	return p.isOld(first) && p.old
}

// isOld reports whether what has existed since a time may have had time for a first seat.
func (p *planner) isOld(since time.Time) bool { return !p.in.Now.Before(since.Add(p.minute())) }

// endedWait is the minimum age of a seat that the kubelet has ended before it is replaced. Without it, a seat that the kubelet rejects
// would be created again in an endless loop.
const endedWait = 30 * time.Second

// IsUnreachable reports whether the kubelet of a node does not report any more. The node lifecycle controller sets the taint, and a
// kubelet cannot change the taints of its Node.
func IsUnreachable(n *Node) bool {
	return !n.Ready && slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
}

// mustLoseSeat reports whether the seat of a node is deleted: it has ended, or it is new and a drain of the node may have missed it.
func (p *planner) mustLoseSeat(m *member) bool {
	switch {
	case m.seat == nil:
		return false
	case m.seat.Group == PendingGroup && !p.waitsForSeat(m):
		return true
	case m.seat.Ended:
		at := m.seat.Created.Add(endedWait)
		p.wake(at)
		return !p.in.Now.Before(at)
	}
	return false
}

// isBroken reports whether a node is not Ready for so long that its seat is deleted. While a budget is closed, no node is released.
func (p *planner) isBroken(m *member) bool {
	if m.seat == nil || m.seat.Ended || m.Ready || m.group.closed {
		return false
	}
	at := m.ReadyChanged.Add(RepairAfter)
	p.wake(at)
	return !p.in.Now.Before(at)
}
