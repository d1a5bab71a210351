// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

const userKey = "x.test/startup"

func gateOf(key, value string) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
}

// comes creates a node with more than its world's label, which reports its status like any other.
func (w *world) comes(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	w.T.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"world": w.Namespace}},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
	maps.Copy(node.Labels, labels)
	must(w.T, admin.Create(w.Ctx, node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: "machine-of-" + name, BootID: "boot-1"}
	node.ResourceVersion = "" // the manager may have tainted it already
	must(w.T, admin.Status().Update(w.Ctx, node))
	return node
}

// gatesOn returns the taints of a node, except the one that the API server puts on each new node.
func gatesOn(node *corev1.Node) []string {
	return slices.DeleteFunc(taintsOf(node), func(t string) bool { return t == notReady })
}

// has waits until a node has these taints, and no others.
func (w *world) has(node string, want ...string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("%s has the taints %q", node, want), func() error {
		if got := gatesOn(w.liveNode(node)); !slices.Equal(got, want) {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}

// gateIsSeen waits until the manager has seen the gate, and a node that is created is one that joins: ages are in
// whole seconds.
func (w *world) gateIsSeen(job string) {
	w.T.Helper()
	var since time.Time
	w.Eventually("the gate is seen", func() error {
		live := w.live(job)
		if live.Status.Gate == nil || live.Status.ObservedGeneration != live.Generation {
			return fmt.Errorf("the status is %+v", live.Status)
		}
		since = live.Status.Gate.Since.Time
		return nil
	})
	time.Sleep(time.Until(since.Add(time.Second)))
}

// versions watches a node, and returns what its versions were when it is called.
func (w *world) versions(name string) func() []*corev1.Node {
	w.T.Helper()
	ctx, cancel := context.WithCancel(w.Ctx)
	events, err := admin.Watch(ctx, &corev1.NodeList{}, client.MatchingFields{"metadata.name": name})
	must(w.T, err)
	var mu sync.Mutex
	var seen []*corev1.Node
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range events.ResultChan() {
			if node, ok := e.Object.(*corev1.Node); ok {
				mu.Lock()
				seen = append(seen, node)
				mu.Unlock()
			}
		}
	})
	w.T.Cleanup(func() { cancel(); events.Stop(); watching.Wait() })
	return func() []*corev1.Node {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// whole uses all features that add to the write that records a success.
func whole(s *v1alpha1.NodeJobSpec) {
	s.Gate = &v1alpha1.GateSpec{}
	s.Publish = []v1alpha1.PublishedResult{
		{Result: "kernel", Label: "x.test/kernel"},
		{Result: "note", Annotation: "x.test/note"},
		{Result: "unsaid", Label: "x.test/unsaid"},
	}
	s.RemoveLabels = []string{"x.test/wanted"}
}

const wholeResult = `{"exitCode":0,"results":{"kernel":"6.1","note":"two words"}}`

// shows is what a node shows of a run that asks for the whole.
func shows(node *corev1.Node, key string) string {
	on := record.Read(node.Labels, node.Annotations, key)
	var parts []string
	for part, there := range map[string]bool{
		"taint":  slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key }),
		"done":   on.Label != "",
		"record": on.Record != nil && on.Record.Outcome == record.Succeeded,
		"label":  node.Labels["x.test/kernel"] == "6.1",
		"note":   node.Annotations["x.test/note"] == "two words",
		"owner":  strings.Contains(node.Annotations[v1alpha1.PublishedAnnotation], key),
		"wanted": node.Labels["x.test/wanted"] != "",
	} {
		if there {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// reboots simulates that a node has rebooted.
func (w *world) reboots(name, bootID string) {
	w.T.Helper()
	node := w.liveNode(name)
	node.Status.NodeInfo.BootID = bootID
	must(w.T, admin.Status().Update(w.Ctx, node))
}
