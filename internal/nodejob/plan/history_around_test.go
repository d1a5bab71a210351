// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// This file defines what a history knows about everything around a task: gates, published results, disruption, dependencies,
// reruns.

const (
	sharedGate = "example.com/starting"
	depKey     = "ns.everynode.dev/dep"
	sizeKey    = "example.com/size"
	kernelKey  = "example.com/kernel"
	needsKey   = "example.com/needs"
	badLabel   = "no label, this"
	ownNode    = "n1"
)

// around is the state of a history besides the task.
type around struct {
	// more is the random source for this file, so that plain histories do not change.
	more  *rand.Rand
	plain bool
	// policy is true while the API server taints nodes in the request that creates them, registers while the
	// kubelet does.
	policy, registers bool
	// gateSince is when a gate was first created, by its key: a manager that is not running does not see that it was a
	// different gate for a while.
	gateSince map[string]time.Time
	// other is the revision of a NodeJob that has the shared gate, dep that of the one that is depended on; "" without.
	other, dep string
	// needs is true if only nodes with a label are selected, and a success removes that label.
	needs bool
	// goingDown are nodes that were told to reboot and are not up again; forGood are those that do not come up automatically.
	goingDown map[types.UID]bool
	// rebooted counts the reboots by our pods, by node and boot.
	rebooted map[string]int
	// taskBoot is the boot in which the last task succeeded on a node that must be rebooted.
	taskBoot map[types.UID]string
	// lastBoot is the last observed boot when that was recorded.
	lastBoot map[types.UID]string
	// done is the boot and the time of the last success, by run.
	done map[string]success
	// adopt is the policy for labels that exist where a result is published.
	adopt v1alpha1.AdoptPolicy
	// ours are the values that were published and belong to the NodeJob, by node and key.
	ours map[types.UID]map[string]bool
	// seen are the nodes as the plan of this pass observed them.
	seen map[string]Node
}

type success struct {
	boot string
	at   time.Time
}

func newAround(seed int64) around {
	return around{
		adopt:     []v1alpha1.AdoptPolicy{v1alpha1.AdoptNever, v1alpha1.AdoptSameValue, v1alpha1.AdoptAlways}[max(seed, -seed)%3],
		more:      rand.New(rand.NewSource(seed + 1<<40)),
		plain:     seed < 0,
		goingDown: map[types.UID]bool{},
		rebooted:  map[string]int{},
		taskBoot:  map[types.UID]string{},
		lastBoot:  map[types.UID]string{},
		done:      map[string]success{},
		gateSince: map[string]time.Time{},
		ours:      map[types.UID]map[string]bool{},
	}
}

// chance returns true once in n times.
func (a *around) chance(n int) bool { return !a.plain && a.more.Intn(n) == 0 }

// someMore adds a random selection of settings around the task to the NodeJob.
func (h *history) someMore() {
	spec := &h.job.Spec
	if h.chance(2) {
		h.setGate()
	}
	h.policy, h.registers = h.chance(2), h.chance(4)
	if h.chance(3) {
		spec.Publish = []v1alpha1.PublishedResult{
			{Result: "size", Label: sizeKey, Adopt: h.adopt},
			{Result: "kernel", Annotation: kernelKey},
		}
	}
	if h.chance(4) {
		spec.RemoveLabels = []string{needsKey}
		if h.needs = h.chance(2); h.needs {
			spec.Nodes.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{
				{Key: needsKey, Operator: metav1.LabelSelectorOpExists},
			}
		}
	}
	if h.chance(3) {
		h.dep = "d1"
	}
	if h.chance(3) {
		h.rerunMore()
		for i := range spec.Rollout.Steps {
			spec.Rollout.Steps[i].SoakSeconds = 0 // the oracle of soaks does not know reruns
		}
	}
	if h.chance(2) {
		h.disruptMore()
	}
}

func (h *history) rerunMore() {
	h.job.Spec.Rerun.OnReboot = h.chance(2)
	h.job.Spec.Rerun.PeriodSeconds = []int32{0, 60, 200}[h.more.Intn(3)]
}

func (h *history) disruptMore() {
	d := &h.job.Spec.Maintenance
	d.Cordon = h.chance(3)
	if h.chance(3) {
		d.Drain = &v1alpha1.DrainSpec{TimeoutSeconds: new(30 + h.more.Int31n(60))}
	}
	d.Reboot.Policy = []v1alpha1.RebootPolicy{"", v1alpha1.RebootAlways, v1alpha1.RebootIfRequested}[h.more.Intn(3)]
	d.Reboot.TimeoutSeconds = new(int32(90))
	if h.chance(2) {
		d.Reboot.MinReadySeconds = new(h.more.Int31n(20))
	}
	if h.chance(2) {
		d.MaxUnavailable = new(intstr.FromInt32(1 + h.more.Int31n(2)))
	}
	h.job.Spec.Task.Check = nil
	if h.chance(2) {
		h.job.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	}
}

// setGate gives the NodeJob a gate, or another one, or none.
func (h *history) setGate() {
	h.job.Spec.Gate = nil
	if h.chance(5) {
		return
	}
	gate := &v1alpha1.GateSpec{Effect: []v1alpha1.GateEffect{"", v1alpha1.GateNoSchedule, v1alpha1.GateNoExecute}[h.more.Intn(3)]}
	if h.chance(2) {
		gate.Nodes = v1alpha1.GateAll
	}
	if h.chance(2) {
		gate.Key = sharedGate
		if h.other == "" && h.chance(2) {
			h.other = "o1"
		}
	}
	if gate.Nodes == "" && h.job.Spec.Rerun.OnReboot && h.chance(2) {
		gate.Nodes = v1alpha1.GateJoiningAndRebooted
	}
	h.job.Spec.Gate = gate
	if id := gate.Key; h.gateSince[id].IsZero() {
		h.gateSince[id] = h.now
	}
}

// tellMore returns the first line of a history.
func (h *history) tellMore() string {
	spec := &h.job.Spec
	parts := []string{
		fmt.Sprintf("policy %v, kubelets register %v, other %q, dep %q, needs %v", h.policy, h.registers, h.other, h.dep, h.needs),
	}
	if spec.Gate != nil {
		parts = append(parts, fmt.Sprintf("gate %+v", *spec.Gate))
	}
	d := &spec.Maintenance
	parts = append(
		parts,
		fmt.Sprintf(
			"publish %d, remove %v, cordon %v, drain %v, reboot %q, ready %s, maxUnavailable %v, check %v, onReboot %v, every %d",
			len(
				spec.Publish,
			),
			spec.RemoveLabels,
			d.Cordon,
			d.Drain != nil,
			d.Reboot.Policy,
			seconds32(d.Reboot.MinReadySeconds, 10),
			d.MaxUnavailable,
			spec.Task.Check != nil,
			spec.Rerun.OnReboot,
			spec.Rerun.PeriodSeconds,
		),
	)
	return strings.Join(parts, ", ")
}

// equip gives a joining node its initial taints and labels.
func (h *history) equip(node *Node) {
	if h.chance(2) {
		node.Labels[needsKey] = "setup"
	}
	if h.chance(10) {
		node.Taints = append(node.Taints, corev1.Taint{Key: cloudTaint, Effect: corev1.TaintEffectNoSchedule})
	}
	if h.chance(6) {
		node.Taints = append(node.Taints, corev1.Taint{Key: "somebody.example/prefers", Effect: corev1.TaintEffectPreferNoSchedule})
	}
	gate := h.job.Spec.Gate
	if gate == nil || h.gone {
		return
	}
	taint := corev1.Taint{Key: v1alpha1.GateKey(h.job), Value: v1alpha1.GateValue, Effect: gateEffectOf(gate)}
	switch {
	case h.registers && h.chance(2):
		taint.Value = "kubelet"
		node.Taints = append(node.Taints, taint)
	case h.policy && h.selected(node) && !h.chance(8):
		node.Taints = append(node.Taints, taint)
	}
}

func gateEffectOf(gate *v1alpha1.GateSpec) corev1.TaintEffect {
	if gate.Effect == v1alpha1.GateNoExecute {
		return corev1.TaintEffectNoExecute
	}
	return corev1.TaintEffectNoSchedule
}

// bars reports whether a taint prevents tasks from running on a node.
func bars(t *corev1.Taint) bool {
	return t.Key == "k" || t.Key == clusterAutoscalerTaint || t.Key == cloudTaint
}

func barred(node *Node) bool {
	return slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return bars(&t) })
}

// barredForGood reports whether a taint that is not removed automatically prevents tasks from running on a node.
func barredForGood(node *Node) bool {
	i := slices.IndexFunc(node.Taints, func(t corev1.Taint) bool { return bars(&t) })
	return i >= 0 && node.Taints[i].Key != cloudTaint
}

// needed reports whether a node has the label that requests a run, or had it until the success removed it.
func (h *history) needed(node *Node) bool {
	if !h.needs {
		return true
	}
	_, there := node.Labels[needsKey]
	rec := node.On.Record
	return there || rec != nil && rec.RemovedLabels[needsKey] != ""
}

// addPeers adds other NodeJobs to the input of the plan.
func (h *history) addPeers(in *Input) {
	in.OwnNode = ownNode
	if h.plain {
		in.OwnNode = ""
	}
	if gate := h.job.Spec.Gate; gate != nil {
		in.GateKeys = append(in.GateKeys, v1alpha1.GateKey(h.job))
		if !h.policy {
			in.GateWarning = "there is no policy"
		}
	}
	if h.other != "" {
		in.GateKeys = append(in.GateKeys, sharedGate)
		if h.shares() {
			in.GatePeers = []Peer{{Name: "other", Key: otherKey, Selector: stageSelector(), Revision: h.other}}
		}
	}
	if h.dep != "" {
		in.DependsOn = []Peer{{Name: "dep", Key: depKey, Selector: stageSelector(), Revision: h.dep}}
	}
	readOnPeers(in)
}

func stageSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "yes"}}
}

// shares reports whether another NodeJob has the same gate. Its effect is NoSchedule.
func (h *history) shares() bool {
	gate := h.job.Spec.Gate
	return h.other != "" && gate != nil && gate.Key == sharedGate && gate.Effect != v1alpha1.GateNoExecute
}

// otherPending reports whether the NodeJob with the shared gate matches the node and is not done there.
func (h *history) otherPending(node *Node) bool {
	return h.other != "" && node.Labels["stage"] == "yes" && node.Labels[otherKey] != h.other &&
		(!barredForGood(node) || h.now.Before(node.Created.Add(joinTime)))
}

// awaited reports whether a dependency is not done on the node.
func (h *history) awaited(node *Node) bool {
	return h.dep != "" && node.Labels["stage"] == "yes" && node.Labels[depKey] != h.dep
}

// setLabel sets a label of another tool.
func (h *history) setLabel(node *Node, key, value string) {
	node.Labels = maps.Clone(node.Labels)
	if value == "" {
		delete(node.Labels, key)
	} else {
		node.Labels[key] = value
	}
}
