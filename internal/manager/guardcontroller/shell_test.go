// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newReconciler works on objects in memory, as if the API server answered each read.
func newReconciler(t *testing.T, faults interceptor.Funcs, objects ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().
		WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.NodeGuard{}).
		WithObjects(objects...).
		WithInterceptorFuncs(faults).
		Build()
	return &Reconciler{
		Client: c, Own: c, Reader: c, announcer: announcer{events.NewFakeRecorder(100), NewMetrics(prometheus.NewRegistry())},
		Options: task.Options{RunnerImage: "runner:1"}, Now: func() time.Time { return noon }, memory: newMemory(),
	}
}

// observedBudget returns an observation of a NodeGuard with its budget, which allows the creation of companions.
func observedBudget(t *testing.T, r *Reconciler, g *v1alpha1.NodeGuard) *observation {
	t.Helper()
	name, b := guard.BudgetName(g.Name), guard.NewBudget(g, guard.BudgetState{})
	r.Reader = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			switch key.Name {
			case g.Name:
				o.SetResourceVersion(g.ResourceVersion)
			case name:
			default:
				return c.Get(ctx, key, o, opts...)
			}
			return nil
		},
	})
	return &observation{guard: g, input: guard.Input{Now: noon}, budgets: map[string]*policyv1.PodDisruptionBudget{name: b}}
}

func nodeGuard(name, daemonSet string) *v1alpha1.NodeGuard {
	g := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	g.Spec.Target.DaemonSet = daemonSet
	return g
}

func daemonSet(name string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-ds-" + name)}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	return ds
}

func targetPod(daemonSet, node string, ready corev1.ConditionStatus) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns",
			Name:      daemonSet + "-" + node,
			Labels:    map[string]string{"app": daemonSet},
			OwnerReferences: []metav1.OwnerReference{
				{Kind: "DaemonSet", Name: daemonSet, UID: types.UID("uid-ds-" + daemonSet), Controller: &yes},
			},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

// companionPod is the companion of a NodeGuard on a node, as the manager creates it.
func companionPod(g *v1alpha1.NodeGuard, node string) *corev1.Pod {
	template := guard.Template(g, nil, task.Options{RunnerImage: "runner:1"})
	pod := guard.Companion(g, &template, node, g.Name+"-companion-"+node)
	pod.Status = targetPod("x", node, "True").Status
	seal.Key{}.SealPod(pod)
	return pod
}

func readyNode(name string, cordoned bool) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.NodeSpec{Unschedulable: cordoned},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// A budget of another owner is detected regardless of which labels of the companions it selects.
func TestABudgetThatSelectsAnyLabelOfACompanionIsDetected(t *testing.T) {
	g := nodeGuard("disks", "disks")
	r := newReconciler(t, interceptor.Funcs{}, g, daemonSet("disks"), readyNode("n1", false))
	seen, err := r.observe(t.Context(), g, r.live())
	if err != nil {
		t.Fatal(err)
	}
	companion := guard.Companion(g, &seen.template, "n1", "c-n1")
	for key, value := range companion.Labels {
		if key == v1alpha1.GuardedNodeLabel {
			continue // of one node
		}
		if !labels.SelectorFromSet(labels.Set{key: value}).Matches(seen.input.Labels) {
			t.Errorf("a budget that selects %s=%s is not detected: %v", key, value, seen.input.Labels)
		}
	}
}

// The other NodeGuards are evaluated with their own observations: another target, on the same nodes.
func TestOtherNodeGuardsAreConsulted(t *testing.T) {
	a, b := nodeGuard("a", "a"), nodeGuard("b", "b")
	objects := []client.Object{
		b, a, daemonSet("a"), daemonSet("b"), readyNode("n1", true), readyNode("n2", false),
		targetPod("a", "n1", "True"), targetPod("a", "n2", "True"), targetPod("b", "n1", "True"), targetPod("b", "n2", "False"),
		companionPod(a, "n1"), companionPod(b, "n1"),
	}
	r := newReconciler(t, interceptor.Funcs{}, objects...)
	for _, tt := range []struct {
		asks        *v1alpha1.NodeGuard
		other, says string
	}{{a, "ns/b", v1alpha1.ReasonMaxUnavailableReached}, {b, "ns/a", ""}} {
		seen, err := r.observe(t.Context(), tt.asks, r.live())
		if err != nil {
			t.Fatal(err)
		}
		if peers := seen.input.Peers; len(peers) != 1 || peers[0].Name != tt.other {
			t.Fatalf("%s consults %+v", tt.asks.Name, peers)
		}
		if stance, asked := seen.input.Peers[0].Stances["n1"]; !asked || stance.Reason != tt.says {
			t.Errorf("%s says %+v, want %q", tt.other, seen.input.Peers[0].Stances, tt.says)
		}
	}
	r = newReconciler(t, interceptor.Funcs{}, append(objects[:4:4], readyNode("n1", false))...)
	if seen, err := r.observe(t.Context(), a, r.live()); err != nil || seen.input.Peers[0].Stances != nil {
		t.Errorf("others are consulted although no node requests release: %+v, %v", seen, err)
	}
}

// Without a budget no node is held: the reason is stored until the budget exists.
func TestARefusedBudgetIsReported(t *testing.T) {
	resource := schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}
	answer := error(apierrors.NewForbidden(resource, "disks", errors.New("exceeded quota")))
	g := nodeGuard("disks", "disks")
	r := newReconciler(
		t,
		interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return answer }},
		g,
	)
	seen := &observation{guard: g, input: guard.Input{Now: noon}}
	budget := []guard.Action{guard.CreateBudget{}}
	for name, tt := range map[string]struct {
		answer error
		says   string
	}{
		"forbidden":      {answer, "without which nothing holds a node, in namespace ns: exceeded quota. Allow"},
		"a short outage": {errors.New("timeout"), ""},
	} {
		r.budgets.Clear(client.ObjectKeyFromObject(g))
		answer = tt.answer
		if _, err := r.apply(t.Context(), seen, budget); err == nil {
			t.Errorf("%s: the budget is not retried", name)
		}
		told := ""
		if refused := r.budgets.Of(g); refused != nil {
			told = refused.Message
		}
		if !strings.Contains(told, tt.says) || (told == "") != (tt.says == "") {
			t.Errorf("%s: the reported reason is %q", name, told)
		}
	}
	answer = apierrors.NewForbidden(resource, "disks", errors.New("exceeded quota"))
	if _, err := r.apply(t.Context(), seen, budget); err == nil || r.budgets.Of(g) == nil {
		t.Errorf("it is refused, and the refusal is not stored: %v", err)
	}
	answer = nil
	if _, err := r.apply(t.Context(), seen, budget); err != nil || r.budgets.Of(g) != nil {
		t.Errorf("it is created, and still counts as refused: %v", err)
	}
}

// A refused pod is not an error: the next pass reports it in the status, and another pod is created later.
func TestARefusedPodIsReported(t *testing.T) {
	answer := error(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "disks-n1", errors.New("exceeded quota")))
	g := nodeGuard("disks", "disks")
	r := newReconciler(
		t,
		interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return answer }},
		g,
	)
	seen := observedBudget(t, r, g)
	companions := []guard.Action{guard.CreateCompanion{Node: "n1"}, guard.CreateCompanion{Node: "n2"}}
	did, err := r.apply(t.Context(), seen, companions)
	if err != nil || !did.refused {
		t.Fatalf("got %+v, %v", did, err)
	}
	refused := r.refusals.Of(g)
	if refused == nil || refused.Reason != v1alpha1.ReasonPodForbidden ||
		!strings.HasPrefix(refused.Message, "the API server refuses its companion in namespace ns: exceeded quota. Allow it") {
		t.Errorf("it is reported as %+v", refused)
	}
	answer = errors.New("timeout")
	if did, err = r.apply(t.Context(), seen, companions); err == nil || did.refused || r.refusals.Of(g) == nil {
		t.Errorf("for another error got %+v, %v", did, err)
	}
	answer = nil
	if did, err = r.apply(t.Context(), seen, companions); err != nil || did.refused || r.refusals.Of(g) != nil {
		t.Errorf("it is created, and still counts as refused: %+v, %v", did, err)
	}
}

// TestACompanionIsCreatedOnlyIfTheBudgetCountsIt : the cache may show an earlier state of the budget. Everything else is done.
func TestACompanionIsCreatedOnlyIfTheBudgetCountsIt(t *testing.T) {
	g := nodeGuard("disks", "disks")
	r := newReconciler(t, interceptor.Funcs{}, g)
	seen := observedBudget(t, r, g)
	seen.budgets[guard.BudgetName(g.Name)].Generation = 1
	actions := []guard.Action{guard.CreateCompanion{Node: "n1", Name: "a"}, guard.CreateCheck{Node: "n1", Name: "b"}}
	g.Spec.Release.Check = &v1alpha1.ReleaseCheck{Script: "true"}
	did, err := r.apply(t.Context(), seen, actions)
	if err != nil || !did.another {
		t.Errorf("got %+v, %v", did, err)
	}
	var pods corev1.PodList
	if err := r.Client.List(t.Context(), &pods); err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "b" {
		t.Errorf("the pods are %+v, %v", pods.Items, err)
	}
	seen.input.Now = noon.Add(-decisionTimeout)
	if _, err := r.apply(t.Context(), seen, actions[1:]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the timeout: %v", err)
	}
}

// TestABudgetRequiresAllCompanionsThatExist : the cache may not show all.
func TestABudgetRequiresAllCompanionsThatExist(t *testing.T) {
	g := nodeGuard("disks", "disks")
	b := guard.NewBudget(g, guard.BudgetState{MinAvailable: 3})
	r := newReconciler(t, interceptor.Funcs{}, g, b, companionPod(g, "n1"), companionPod(g, "n2"))
	for want, refused := range map[int32]bool{1: true, 2: false} {
		seen, err := r.observeMade(t.Context(), g, r.live())
		if err != nil {
			t.Fatal(err)
		}
		set := guard.SetBudget{Budget: seen.input.Budgets[0], BudgetState: guard.BudgetState{MinAvailable: want}}
		if err := r.setBudget(t.Context(), seen, set); apierrors.IsConflict(err) != refused || err != nil && !refused {
			t.Errorf("the budget of two companions is to require %d: %v", want, err)
		}
	}
}

// A thousand failed writes must not result in a message of a megabyte.
func TestErrorsOfManyWritesAreBounded(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, maxErrors: maxErrors, 1000: maxErrors + 1} {
		errs := []error{nil}
		for i := range n {
			errs = append(errs, fmt.Errorf("write %d", i), nil)
		}
		lines := 0
		if err := some(errs); err != nil {
			lines = strings.Count(err.Error(), "\n") + 1
		}
		if lines != want {
			t.Errorf("%d errors have %d lines, want %d", n, lines, want)
		}
	}
}

// A passed deadline is reported once, regardless of the message.
func TestAPassedDeadlineIsReportedOnce(t *testing.T) {
	held := func(passed bool, message string) v1alpha1.NodeGuardStatus {
		w := v1alpha1.WaitingNode{Node: "n1", Reason: v1alpha1.ReasonMaxUnavailableReached, Message: message}
		if !passed {
			w.Until = metav1.Now()
		}
		return v1alpha1.NodeGuardStatus{Waiting: []v1alpha1.WaitingNode{w}}
	}
	for name, tt := range map[string]struct {
		before, after v1alpha1.NodeGuardStatus
		want          string
	}{
		"the node is held":               {v1alpha1.NodeGuardStatus{}, held(false, "a"), v1alpha1.ReasonNodeHeld},
		"the deadline passes":            {held(false, "a"), held(true, "b"), v1alpha1.ReasonHoldDeadlinePassed},
		"the deadline has passed before": {held(true, "a"), held(true, "b"), ""},
		"the text of a check says so":    {held(false, "a"), held(false, "2 volumes; its deadline has passed"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, interceptor.Funcs{})
			g := nodeGuard("disks", "disks")
			g.Spec.Release.DeadlineSeconds = new(int32(60))
			r.announceHolds(&observation{guard: g}, &tt.before, &tt.after)
			told := r.Recorder.(*events.FakeRecorder).Events
			if tt.want == "" && len(told) > 0 || tt.want != "" && len(told) != 2 {
				t.Fatalf("%d events are sent", len(told))
			}
			if tt.want != "" {
				if got := <-told; !strings.Contains(got, tt.want) {
					t.Errorf("%s, want %s", got, tt.want)
				}
			}
		})
	}
}
