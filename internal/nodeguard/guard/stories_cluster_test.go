// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/testing/plantest"
	"github.com/everynode/everynode/internal/text"
)

// cluster is the API server, the kubelets and the manager of a story, without faults, delays and randomness.
type cluster struct {
	t          *testing.T
	now        time.Time
	guard      *v1alpha1.NodeGuard
	nodes      map[string]*kube.Node
	companions map[string]*guard.Pod
	// placeholder and budget are nil until they exist.
	placeholder *guard.Pod
	budget      *guard.Budget
	serial      int
	last        guard.Plan
	text        strings.Builder
	shown       string
}

func newCluster(t *testing.T, spec string) *cluster {
	t.Helper()
	c := &cluster{t: t, now: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), guard: &v1alpha1.NodeGuard{},
		nodes: map[string]*kube.Node{}, companions: map[string]*guard.Pod{}}
	if err := yaml.UnmarshalStrict([]byte(spec), c.guard); err != nil {
		t.Fatal(err)
	}
	c.guard.UID, c.guard.Generation, c.guard.CreationTimestamp = "guard", 1, metav1.NewTime(c.now)
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		c.nodes[name] = &kube.Node{Name: name, UID: types.UID(name), ResourceVersion: c.version(), Ready: true}
	}
	return c
}

func (c *cluster) version() string {
	c.serial++
	return strconv.Itoa(c.serial)
}

// change returns a node with a new resource version.
func (c *cluster) change(name string) *kube.Node {
	c.nodes[name].ResourceVersion = c.version()
	return c.nodes[name]
}

func (c *cluster) cordon(name string, unschedulable bool) {
	c.change(name).Unschedulable = unschedulable
}

func (c *cluster) setReady(name string, ready bool) { c.change(name).Ready = ready }

// startCompanions makes companions ready that were created.
func (c *cluster) startCompanions() {
	for _, pod := range c.companions {
		pod.Phase, pod.Ready = corev1.PodRunning, true
	}
}

// evict tries to evict the companion of a node, as the drain of the node does every 5 seconds.
func (c *cluster) evict(node string) {
	c.t.Helper()
	if c.companions[node] == nil {
		c.later(5*time.Second, "kubectl drain "+node+" finds that the companion is gone, and continues.", func() {})
		return
	}
	c.later(5*time.Second, "kubectl drain "+node+" tries to evict the companion: the PodDisruptionBudget denies that.", func() {})
}

// later is an event after some time.
func (c *cluster) later(after time.Duration, event string, do func()) {
	c.t.Helper()
	for end := c.now.Add(after); ; {
		if wake := c.last.WakeAt; !wake.IsZero() && wake.Before(end) && wake.After(c.now) {
			c.now = wake
			c.step("No event: the last plan asked for this time.", true)
			continue
		}
		c.now = end
		c.happens(event, do)
		return
	}
}

func (c *cluster) happens(event string, do func()) {
	c.t.Helper()
	do()
	c.step(event, false)
}

func (c *cluster) input() guard.Input {
	in := guard.Input{Guard: c.guard, Revision: "revision", Labels: labels.Set{"app": "companion"}, NameKey: "key", Live: true, Now: c.now,
		Target: guard.Target{Name: "DaemonSet " + c.guard.Spec.Target.DaemonSet, Template: &corev1.PodSpec{}}}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		in.Nodes = append(in.Nodes, *c.nodes[name])
		in.Target.Pods = append(in.Target.Pods, guard.TargetPod{Node: name, Ready: c.nodes[name].Ready, OwnerKind: "DaemonSet"})
		if pod := c.companions[name]; pod != nil {
			in.Companions = append(in.Companions, *pod)
		}
	}
	if c.placeholder != nil {
		in.Placeholders = append(in.Placeholders, *c.placeholder)
	}
	if c.budget != nil {
		c.budget.Processed, c.budget.Healthy = true, 0
		for _, pod := range in.Companions {
			if pod.Ready {
				c.budget.Healthy++
			}
		}
		in.Budgets = append(in.Budgets, *c.budget)
	}
	return in
}

// reconcile makes and applies plans until nothing changes any more, and returns what was done.
func (c *cluster) reconcile() []string {
	c.t.Helper()
	var words []string
	for range 20 {
		c.last = guard.Next(c.input())
		changed := !reflect.DeepEqual(c.guard.Status, c.last.Status)
		c.guard = c.guard.DeepCopy()
		c.guard.Status = *c.last.Status.DeepCopy()
		for _, move := range c.last.Moves {
			words = append(words, fmt.Sprintf("%s %s (%s)", move.Node, moveTexts[move.Kind], move.Reason))
		}
		for _, action := range c.last.Actions {
			words = append(words, c.apply(action))
		}
		if len(c.last.Actions) == 0 && len(c.last.Moves) == 0 && !changed {
			return words
		}
	}
	c.t.Fatalf("at %s, plans without end: %q", c.now, words)
	return nil
}

// apply executes an action as the manager does, and returns it in words.
func (c *cluster) apply(action guard.Action) string {
	c.t.Helper()
	switch a := action.(type) {
	case guard.CreateCompanion:
		c.companions[a.Node] = &guard.Pod{Name: a.Name, UID: types.UID(c.version()), Node: a.Node, Owner: c.guard.UID,
			Revision: "revision", Created: c.now, Phase: corev1.PodPending}
		return "create the companion on " + a.Node
	case guard.CreatePlaceholder:
		c.placeholder = &guard.Pod{Name: a.Name, UID: types.UID(c.version()), Owner: c.guard.UID, Phase: corev1.PodPending}
		return "create the placeholder"
	case guard.CreateBudget:
		c.budget = &guard.Budget{
			Name: guard.BudgetName(c.guard.Name), UID: types.UID(c.version()), ResourceVersion: c.version(), Owner: c.guard.UID,
			BudgetState: a.BudgetState,
		}
		return "create the PodDisruptionBudget: " + budgetText(&a.BudgetState)
	case guard.SetBudget:
		if c.budget.ResourceVersion != a.Budget.ResourceVersion {
			c.t.Fatal("conflict: the budget is not what the plan has seen")
		}
		c.budget.BudgetState, c.budget.ResourceVersion = a.BudgetState, c.version()
		return "change the PodDisruptionBudget: " + budgetText(&a.BudgetState)
	case guard.DeletePod:
		delete(c.companions, a.Pod.Node)
		return "delete the companion on " + a.Pod.Node
	case guard.RemoveApproval:
		node := c.change(a.Node)
		node.Approved = a.Approved
		if a.BreakGlass {
			node.BreakGlass = ""
		}
		return "remove the annotations of the release from " + a.Node
	}
	c.t.Fatalf("%T is not supported yet: add it here", action)
	return ""
}

// moveTexts are the changes of status.released, and stateTexts the states of nodes, in words.
var (
	moveTexts = map[guard.MoveKind]string{
		guard.MoveReleased:  "is added to status.released",
		guard.MoveReturning: "is marked as returning in status.released",
		guard.MoveAvailable: "is removed from status.released",
	}
	stateTexts = map[guard.State]string{guard.Guarded: "Guarded", guard.Held: "Held", guard.Released: "Released"}
)

func budgetText(b *guard.BudgetState) string {
	requires := fmt.Sprintf("it requires %d companions", b.MinAvailable)
	if b.MinAvailable == guard.Locked {
		requires = "it is locked"
	}
	if n := len(b.RequestedAt); n > 0 {
		requires += fmt.Sprintf("; stored release requests: %d", n)
	}
	return requires
}

// step writes an event, what the manager does about it, and the states if they have changed.
func (c *cluster) step(event string, asked bool) {
	c.t.Helper()
	actions, states := c.reconcile(), c.states()
	if asked && len(actions) == 0 && states == c.shown {
		return
	}
	indent := strings.Repeat(" ", 10)
	lines := append([]string{""}, plantest.Wrap(c.now.Format("15:04:05")+"  ", event)...)
	for _, a := range actions {
		lines = append(lines, plantest.Wrap(indent+"-> ", a)...)
	}
	if states != c.shown {
		lines = append(lines, "")
		for line := range strings.Lines(states) {
			lines = append(lines, indent+strings.TrimRight(line, "\n"))
		}
	}
	c.text.WriteString(strings.Join(lines, "\n") + "\n")
	c.shown = states
}

func (c *cluster) states() string {
	rows := [][]text.Line{text.Cells("NODE", "STATE", "UNAVAILABLE", "REASON", "MESSAGE")}
	for _, n := range c.last.Nodes {
		rows = append(rows, text.Cells(n.Name, stateTexts[n.State], map[bool]string{true: "yes"}[n.Unavailable], n.Reason, n.Message))
	}
	lines := text.Render(text.Table(rows), text.Options{})
	for _, is := range c.guard.Status.Conditions {
		if is.Status == metav1.ConditionTrue {
			lines = append(lines, plantest.Wrap("", fmt.Sprintf("%s (%s): %s", is.Type, is.Reason, is.Message))...)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
