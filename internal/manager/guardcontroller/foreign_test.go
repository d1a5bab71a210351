// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/seal"
)

// A name counts as taken only if another owner has it, and only as long as that is so.
func TestANameIsTakenWhileAnotherOwnerHasIt(t *testing.T) {
	g := nodeGuard("disks", "disks")
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foreign", UID: "f"}, Spec: corev1.PodSpec{NodeName: "n2"}}
	template := guard.Template(g, nil, newReconciler(t, interceptor.Funcs{}).Options)
	own := guard.Companion(g, &template, "n1", "own")
	seal.Key{}.SealPod(own)
	r := newReconciler(t, interceptor.Funcs{}, g, foreign, own)
	now := noon
	r.Now = func() time.Time { return now }
	seen := observedBudget(t, r, g)
	seen.template = template
	did, err := r.apply(
		t.Context(),
		seen,
		[]guard.Action{guard.CreateCompanion{Node: "n1", Name: "foreign"}, guard.CreateCompanion{Node: "n1", Name: "own"}},
	)
	if err != nil || !did.taken || !did.another {
		t.Fatalf("got %+v, %v", did, err)
	}
	name := client.ObjectKeyFromObject(g)
	if takers := r.taken.takers(name); len(takers) != 1 || takers["foreign"] != (guard.NameHolder{Node: "n2", For: "n1"}) {
		t.Errorf("names are taken by %+v", takers)
	}
	look := func(after time.Duration, want int) {
		t.Helper()
		now = now.Add(after)
		if err := r.checkTakenNames(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if got := len(r.taken.takers(name)); got != want {
			t.Errorf("%d names are taken, want %d", got, want)
		}
	}
	look(takenFor, 1) // it is there still
	if err := r.Client.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	look(takenFor/2, 1)
	look(takenFor/2, 0)
}

// Only NodeGuards that hold something on the node are consulted, and none if the node has the break-glass annotation.
func TestOnlyNodeGuardsOfTheNodeAreConsulted(t *testing.T) {
	a, b, c := nodeGuard("a", "a"), nodeGuard("b", "b"), nodeGuard("c", "c")
	n1 := readyNode("n1", true)
	r := newReconciler(
		t,
		interceptor.Funcs{},
		a,
		b,
		c,
		daemonSet("a"),
		daemonSet("b"),
		daemonSet("c"),
		companionPod(b, "n1"),
		companionPod(c, "n2"),
		n1,
		targetPod("a", "n1", "True"),
		targetPod("b", "n1", "True"),
	)
	seen, err := r.observe(t.Context(), a, r.live())
	if err != nil {
		t.Fatal(err)
	}
	for _, peer := range seen.input.Peers {
		if asked, want := peer.Stances != nil, peer.Name == "ns/b"; asked != want {
			t.Errorf("%s is consulted: %v", peer.Name, asked)
		}
	}
	forged := companionPod(c, "n1")
	forged.Annotations[v1alpha1.SealAnnotation] = "forged"
	for _, o := range []client.Object{guard.NewBudget(c, guard.BudgetState{}), forged} {
		if err := r.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if seen, err = r.observe(t.Context(), a, r.live()); err != nil || seen.input.Peers[1].Stances != nil {
		t.Errorf("%s has only what its users can create, and is consulted: %v", seen.input.Peers[1].Name, err)
	}
	n1.Annotations = map[string]string{v1alpha1.BreakGlassAnnotation: "fire"}
	if err := r.Client.Update(t.Context(), n1); err != nil {
		t.Fatal(err)
	}
	seen, err = r.observe(t.Context(), a, r.live())
	if err != nil || !seen.input.PeersUnknown || seen.input.Peers[0].Stances != nil {
		t.Errorf("a node with the break-glass annotation waits for others: %+v, %v", seen.input.Peers, err)
	}
}

// A refusal is stored for its node only.
func TestRefusalsAreRememberedByNode(t *testing.T) {
	refuse := true
	g := nodeGuard("disks", "disks")
	g.Spec.Release.Check = &v1alpha1.ReleaseCheck{Script: "true"}
	r := newReconciler(
		t,
		interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if refuse && o.(*corev1.Pod).Spec.NodeName == "n1" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, o.GetName(), errors.New("not on n1"))
			}
			return nil
		}},
		g,
	)
	seen := observedBudget(t, r, g)
	nodes := []kube.Node{{Name: "n1"}, {Name: "n2"}}
	actions := []guard.Action{
		guard.CreateCompanion{Node: "n1", Name: "a"}, guard.CreateCompanion{Node: "n2", Name: "b"},
		guard.CreateCheck{Node: "n1", Name: "c"}, guard.CreateCheck{Node: "n2", Name: "d"},
	}
	if did, err := r.apply(t.Context(), seen, actions); err != nil || !did.refused {
		t.Fatalf("got %+v, %v", did, err)
	}
	companions, checks := r.refusedOn.of(g, nodes)
	if len(companions) != 1 || !companions["n1"].Equal(noon) || len(checks) != 1 || !strings.Contains(checks["n1"].Message, "not on n1") {
		t.Errorf("refused are companions on %v, checks on %v", companions, checks)
	}
	if companions, checks = r.refusedOn.of(g, nodes[1:]); len(companions)+len(checks) > 0 {
		t.Errorf("a deleted node is remembered: %v, %v", companions, checks)
	}
	if _, err := r.apply(t.Context(), seen, actions); err != nil {
		t.Fatal(err)
	}
	refuse = false
	if did, err := r.apply(t.Context(), seen, actions); err != nil || did.refused {
		t.Fatalf("got %+v, %v", did, err)
	}
	if companions, checks = r.refusedOn.of(g, nodes); len(companions)+len(checks) > 0 {
		t.Errorf("they are created, and still count as refused: %v, %v", companions, checks)
	}
}
