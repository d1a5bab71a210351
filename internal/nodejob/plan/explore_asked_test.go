// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/testing/explore"
	"github.com/everynode/everynode/internal/testing/historytest"
	"github.com/everynode/everynode/internal/testing/plantest"
)

// TestExploreQuestions visits all states of small worlds of NodeJobs that ask nodes, with the rules of their random histories after each
// step: spec.expires, and audits. The manager may end after each of its writes.
func TestExploreQuestions(t *testing.T) {
	explore.Run(t, "expires", func(nodes int) (*askedWorld[expiryHistory], explore.Model[askedWorld[expiryHistory]]) {
		return (&askedModel[expiryHistory]{
			t: t,
			begin: func(t testing.TB, dice *rand.Rand) *expiryHistory {
				h := newExpiryHistory(dice)
				h.t, h.flaky, h.harmful = t, true, true
				h.Cluster = plantest.New(t, expirySpec, nodeNames(max(nodes, 2))...)
				h.fixed = map[string]bool{}
				return h
			},
			wire:   func(h *expiryHistory) *plantest.Cluster { h.Task = h.runs; return h.Cluster },
			events: (*expiryHistory).steps,
			check:  (*expiryHistory).check,
			rest:   (*expiryHistory).rest,
			truth: func(h *expiryHistory) []any {
				ends := map[string]time.Duration{}
				for name, at := range h.ends {
					ends[name] = at.Sub(h.Now)
				}
				return []any{h.fixed, h.denied, ends, h.answers, h.saidYes, h.saidNo, h.ended}
			},
		}).world()
	})
	explore.Run(t, "audit", func(nodes int) (*askedWorld[auditHistory], explore.Model[askedWorld[auditHistory]]) {
		return (&askedModel[auditHistory]{
			t: t,
			begin: func(t testing.TB, dice *rand.Rand) *auditHistory {
				h := newAuditHistory(dice)
				h.t, h.flaky = t, true
				h.Cluster = plantest.New(t, auditSpec, nodeNames(max(nodes, 2))...)
				return h
			},
			wire:   func(h *auditHistory) *plantest.Cluster { h.Task = h.runs; return h.Cluster },
			events: (*auditHistory).steps,
			check:  (*auditHistory).check,
			rest:   (*auditHistory).rest,
			truth:  func(h *auditHistory) []any { return []any{h.bad, h.said} },
		}).world()
	})
}

// mostWrites is how many writes a pass has at most after which the manager may end.
const mostWrites = 4

func nodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i+1)
	}
	return names
}

// askedWorld is a state of such a world.
type askedWorld[H any] struct {
	h      *H
	on     *plantest.Cluster
	throws *explore.Dice
	broken string
	told   int
}

// askedModel is how the states of a world follow each other.
type askedModel[H any] struct {
	t     testing.TB
	begin func(testing.TB, *rand.Rand) *H
	// wire has a copy of the history play in its own cluster.
	wire   func(*H) *plantest.Cluster
	events func(*H) []happening[H]
	check  func(*H)
	// rest ends the faults, and checks the end.
	rest  func(*H)
	truth func(*H) []any
}

// happening is what another actor than the manager and the scripts does. It uses up a fault.
type happening[H any] struct {
	name string
	do   func(*H)
}

var askedForms = explore.Canon{
	Skip: []string{
		"Message",
		"StatusMessage",
		"Generation",
		"ObservedGeneration",
		"ResourceVersion",
		"Labels",
		"Annotations",
		"Checks",
		"Pod.Attempt",
		"Seal",
		"Digest",
		"RevisionDigest",
	},
	IDs: []string{"00000000-0000-4000-8000-"},
	Old: 1300 * time.Second,
}

var askedCopies = explore.NewCloner(
	(*explore.Dice)(nil), (*rand.Rand)(nil), (*v1alpha1.NodeJob)(nil), corev1.PodSpec{}, plan.Plan{}, metav1.Time{}, metav1.FieldsV1{},
)

func (m *askedModel[H]) world() (*askedWorld[H], explore.Model[askedWorld[H]]) {
	throws, random := explore.NewDice()
	first := &askedWorld[H]{throws: throws}
	m.plays(first, func(t testing.TB) {
		first.h = m.begin(t, random)
		first.on = m.wire(first.h)
		first.on.Create()
	})
	return first, explore.Model[askedWorld[H]]{
		Steps:  m.steps,
		Clone:  m.clone,
		Canon:  m.canon,
		Broken: func(w *askedWorld[H]) string { return w.broken },
		Settle: func(w *askedWorld[H]) string {
			m.plays(w, func(testing.TB) { w.on.StartManager(); m.rest(w.h) })
			return w.broken
		},
		Told: func(w *askedWorld[H]) []string {
			text := w.on.Text()
			told := strings.Split(strings.Trim(text[w.told:], "\n"), "\n")
			w.told = len(text)
			return told
		},
	}
}

// plays notes what fails the test of the history.
func (m *askedModel[H]) plays(w *askedWorld[H], do func(testing.TB)) {
	w.broken = historytest.Simulate(m.t, do)
}

func (m *askedModel[H]) clone(w *askedWorld[H]) *askedWorld[H] {
	next := *w
	next.h = explore.Clone(askedCopies, w.h)
	next.on = m.wire(next.h)
	return &next
}

func (m *askedModel[H]) canon(w *askedWorld[H]) []byte {
	in := w.on.Input()
	view := explore.View{Now: w.on.Now, Alias: map[string]string{}, Live: map[string]bool{}}
	for i := range in.Nodes {
		view.Live[string(in.Nodes[i].UID)], view.Live[in.Nodes[i].BootID] = true, true
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		view.Live[string(p.UID)], view.Alias[p.Name] = true, p.NodeName+"."+string(p.Runs)+"/"+string(p.UID)
	}
	pending := w.on.Pending()
	for i, line := range pending {
		for name, alias := range view.Alias {
			pending[i] = strings.ReplaceAll(line, name, alias)
		}
	}
	return askedForms.Bytes(
		view,
		in.Nodes,
		in.Pods,
		in.Job.Spec,
		in.Job.Status,
		in.Job.Annotations,
		pending,
		w.on.ManagerEnds(),
		m.truth(w.h),
	)
}

// steps are time, with each way in which scripts end, and what others do.
func (m *askedModel[H]) steps(w *askedWorld[H], faults int) []explore.Step[askedWorld[H]] {
	var all []explore.Step[askedWorld[H]]
	add := func(cost int, name string, do func(*askedWorld[H])) {
		if cost > faults {
			return
		}
		all = append(all, explore.Step[askedWorld[H]]{Name: name, Faults: cost, Do: func(w *askedWorld[H]) {
			w.throws.Show()
			m.plays(w, func(testing.TB) {
				do(w)
				w.throws.Show()
				m.check(w.h)
			})
		}})
	}
	m.passes(w, add)
	for _, e := range m.events(w.h) {
		add(1, e.name, func(w *askedWorld[H]) { w.on.Happens(e.name, func() { e.do(w.h) }) })
	}
	for _, name := range w.on.Running() {
		add(1, "the pod "+name+" is interrupted", func(w *askedWorld[H]) {
			w.on.Happens("a pod is interrupted", func() { w.on.Interrupt(w.on.Pods[name]) })
		})
	}
	return all
}

// passes are those of the manager after the next event, and in which a script does not end as usual, or the manager ends.
func (m *askedModel[H]) passes(w *askedWorld[H], add func(int, string, func(*askedWorld[H]))) {
	advance := func(w *askedWorld[H]) { w.on.Advance() }
	if w.on.ManagerEnds() {
		add(0, "a manager starts", func(w *askedWorld[H]) { w.on.StartManager() })
		add(1, "time passes without a manager", advance)
		return
	}
	add(0, "time passes", advance)
	trial := m.clone(w)
	trial.throws.Show()
	m.plays(trial, func(testing.TB) { trial.on.Advance() })
	for i := range trial.throws.Count {
		add(1, fmt.Sprintf("time passes, and decision %d is a fault", i), func(w *askedWorld[H]) {
			w.throws.ShowOne(i, 0)
			w.on.Advance()
		})
	}
	for writes := range mostWrites {
		add(1, fmt.Sprintf("time passes, and the manager ends after %d writes", writes), func(w *askedWorld[H]) {
			w.on.EndManager(writes)
			w.on.Advance()
		})
	}
}

// onEachNode are the same for all nodes, in the order of their names.
func onEachNode[H any](c *plantest.Cluster, what string, do func(h *H, node string)) []happening[H] {
	var all []happening[H]
	for _, name := range c.NodeNames() {
		all = append(all, happening[H]{fmt.Sprintf(what, name), func(h *H) { do(h, name) }})
	}
	return all
}

func (h *expiryHistory) steps() []happening[expiryHistory] {
	return slices.Concat(
		onEachNode(h.Cluster, "%s reboots with a fixed kernel, or with the one before", func(h *expiryHistory, node string) {
			h.fixed[node] = !h.fixed[node]
			h.Reboot(node)
		}),
		onEachNode(
			h.Cluster,
			"a user removes the label of %s",
			func(h *expiryHistory, node string) { delete(h.Nodes[node].Labels, h.Key()) },
		),
		onEachNode(h.Cluster, "%s is reachable or not", func(h *expiryHistory, node string) { toggleReady(h.Cluster, node) }),
		[]happening[expiryHistory]{
			{"a user suspends or resumes the NodeJob", func(h *expiryHistory) { toggleSuspend(h.Cluster) }},
			{"a user changes the task", func(h *expiryHistory) {
				h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script = "deny, too" })
			}},
			{"spec.expires.at passes", func(h *expiryHistory) {
				h.ended = true
				h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) {
					s.Expires = s.Expires.DeepCopy()
					s.Expires.At = &metav1.Time{Time: h.Now}
				})
			}},
		},
	)
}

func (h *auditHistory) steps() []happening[auditHistory] {
	return slices.Concat(
		onEachNode(h.Cluster, "%s changes", func(h *auditHistory, node string) { h.bad[node] = !h.bad[node] }),
		onEachNode(h.Cluster, "%s reboots", func(h *auditHistory, node string) { h.Reboot(node) }),
		onEachNode(
			h.Cluster,
			"a user removes the label of %s",
			func(h *auditHistory, node string) { delete(h.Nodes[node].Labels, h.Key()) },
		),
		onEachNode(h.Cluster, "%s is reachable or not", func(h *auditHistory, node string) { toggleReady(h.Cluster, node) }),
		[]happening[auditHistory]{
			{"a user suspends or resumes the NodeJob", func(h *auditHistory) { toggleSuspend(h.Cluster) }},
			{"a user changes the check", func(h *auditHistory) {
				h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) {
					s.Task.Check = s.Task.Check.DeepCopy()
					s.Task.Check.Script = "also ok?"
				})
			}},
		},
	)
}

func toggleReady(c *plantest.Cluster, node string) {
	if c.Nodes[node].Status.Conditions[0].Status == corev1.ConditionTrue {
		c.SetReady(node, corev1.ConditionUnknown)
		return
	}
	c.SetReady(node, corev1.ConditionTrue)
}

func toggleSuspend(c *plantest.Cluster) {
	c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Suspend = !s.Suspend })
}
