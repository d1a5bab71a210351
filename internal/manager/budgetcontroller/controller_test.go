// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/seal"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a cluster with a budget, and one node, which is available and has no seat.
type world struct {
	*testing.T
	client client.Client
	*Reconciler
	now time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	one := intstr.FromInt32(1)
	limit := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "production", UID: "budget"}}
	limit.Spec.Limits = []v1alpha1.BudgetLimit{{MaxUnavailable: &one}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(limit).WithObjects(limit, availableNode()).Build()
	w := &world{T: t, client: c, now: start}
	w.Reconciler = &Reconciler{
		Client:    c,
		Own:       c,
		Reader:    c,
		Recorder:  events.NewFakeRecorder(100),
		Metrics:   NewMetrics(prometheus.NewRegistry()),
		Claims:    claims.New(),
		Place:     budget.Place{Namespace: "everynode-system"},
		Now:       func() time.Time { return w.now },
		newest:    loop.WrittenObjects[*v1alpha1.NodeDisruptionBudget]{},
		ungranted: budget.Ungranted{},
		deleted:   map[types.UID]bool{},
		fixed:     map[types.UID]bool{},
		refusals:  loop.NewRefusals(loop.Words{Kind: "NodeDisruptionBudget"}),
	}
	return w
}

func availableNode() *corev1.Node {
	hourAgo := metav1.NewTime(start.Add(-time.Hour))
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "node", CreationTimestamp: hourAgo},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: hourAgo}},
		},
	}
}

// apiServer has a version of a node that the cache does not show yet.
type apiServer struct {
	client.Reader

	node *corev1.Node
}

func (a apiServer) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	*o.(*corev1.Node) = *a.node
	return nil
}

// seated runs some passes, and reports whether the node has a seat then.
func (w *world) seated() bool {
	w.Helper()
	for range 5 {
		if _, err := w.Reconcile(w.Context(), ctrl.Request{}); err != nil {
			w.Fatal(err)
		}
	}
	var seats corev1.PodList
	if err := w.client.List(w.Context(), &seats, client.InNamespace(w.Place.Namespace)); err != nil {
		w.Fatal(err)
	}
	return slices.ContainsFunc(seats.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" })
}

// TestANewManagerWaitsForAllReports : the task of a NodeJob that has not reported yet may disrupt a node that looks available.
func TestANewManagerWaitsForAllReports(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "node-setup", Name: name, UID: types.UID(name)}}
		if err := w.client.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if w.seated() {
		t.Error("the node has a seat before a NodeJob has reported")
	}
	w.Claims.Report("a", claims.Report{Name: "NodeJob node-setup/a"})
	if w.seated() {
		t.Error("the node has a seat before all NodeJobs have reported")
	}
	w.Claims.Report("b", claims.Report{Name: "NodeJob node-setup/b", Holds: map[types.UID]bool{"node": true}})
	if w.seated() {
		t.Error("the node has a seat while a NodeJob disrupts it")
	}
	w.Claims.Report("b", claims.Report{Name: "NodeJob node-setup/b"})
	if !w.seated() {
		t.Error("the node has no seat after all NodeJobs have reported")
	}
}

// TestANewManagerDoesNotWaitLong : a NodeJob that cannot be planned must not hold all seats back.
func TestANewManagerDoesNotWaitLong(t *testing.T) {
	w := newWorld(t)
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "node-setup", Name: "a", UID: "a"}}
	if err := w.client.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if w.seated() {
		t.Error("the node has a seat before the NodeJob has reported")
	}
	if w.now = start.Add(reportsWithin); !w.seated() {
		t.Error("the node has no seat a minute after the start")
	}
}

// TestANodeIsReadAgainBeforeItsSeatReturns : the cache may not show yet that the node has become unavailable.
func TestANodeIsReadAgainBeforeItsSeatReturns(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"is cordoned":    func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"is not Ready":   func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse },
		"is another one": func(n *corev1.Node) { n.UID = "another" },
		"is going to be taken": func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			live := availableNode()
			change(live)
			w.Reader = apiServer{w.client, live}
			if w.seated() {
				t.Error("the node has a seat, although the API server says that it is not available")
			}
			if w.Reader = w.client; !w.seated() {
				t.Error("the node has no seat, although the API server says that it is available")
			}
		})
	}
}

// TestASeatFollowsTheTaintsOfItsNode : tolerations are added after those that something else has added.
func TestASeatFollowsTheTaintsOfItsNode(t *testing.T) {
	w := newWorld(t)
	seat := w.Place.Seat(budget.CreateSeat{Node: "node-1", NodeUID: "node", Group: "group"})
	seat.UID = "seat"
	theirs := corev1.Toleration{Key: "theirs", Operator: corev1.TolerationOpEqual, Value: "a"}
	seat.Spec.Tolerations = append(seat.Spec.Tolerations, theirs)
	if err := w.client.Create(t.Context(), seat); err != nil {
		t.Fatal(err)
	}
	want := append(slices.Clone(seat.Spec.Tolerations), budget.Taints("dedicated:NoSchedule").Tolerations()...)
	for _, uid := range []types.UID{"another", "seat"} {
		action := budget.TolerateTaints{Seat: budget.Seat{Name: seat.Name, UID: uid, Node: "node"}, Taints: "dedicated:NoSchedule"}
		if err := w.do(t.Context(), &observation{}, action); err != nil {
			t.Fatal(err)
		}
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(seat), seat); err != nil {
			t.Fatal(err)
		}
		if changed := len(seat.Spec.Tolerations) == len(want); changed != (uid == "seat") {
			t.Errorf("the seat was changed for the UID %s: %v", uid, changed)
		}
	}
	if diff := cmp.Diff(want, seat.Spec.Tolerations); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestASeatThatMustNotChangeHoldsNothing : it is tried once, and the pass goes on.
func TestASeatThatMustNotChangeHoldsNothing(t *testing.T) {
	w := newWorld(t)
	if !w.seated() {
		t.Fatal("the node has no seat")
	}
	patches := 0
	w.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			patches++
			return apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), errors.New("a webhook says no"))
		},
	})
	var seats corev1.PodList
	if err := w.client.List(t.Context(), &seats); err != nil {
		t.Fatal(err)
	}
	seat := &seats.Items[0]
	seat.UID = "seat"
	if err := w.client.Update(t.Context(), seat); err != nil {
		t.Fatal(err)
	}
	action := budget.TolerateTaints{Seat: budget.Seat{Name: seat.Name, UID: seat.UID, Node: "node"}, Taints: "dedicated:NoSchedule"}
	if err := w.do(t.Context(), &observation{}, action); err != nil || patches != 1 {
		t.Errorf("%d patches: %v", patches, err)
	}
	if !w.observeFixed()["seat"] {
		t.Error("it is tried again")
	}
	if w.seatEnded(seat, true); w.observeFixed()["seat"] {
		t.Error("a seat that does not exist is remembered")
	}
}

// TestOnlyASeatOfAnUnreachableNodeEndsAtOnce : the API server decides, because the node may report again since it was observed.
func TestOnlyASeatOfAnUnreachableNodeEndsAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		atOnce bool
		want   string
	}{
		"it is unreachable":             {func(*corev1.Node) {}, true, "deleted at once"},
		"it is Ready":                   {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, true, ""},
		"it reports that it is broken":  {func(n *corev1.Node) { n.Spec.Taints = nil }, true, ""},
		"a seat that nothing has ended": {func(*corev1.Node) {}, false, "deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			got := ""
			w.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
					var all client.DeleteOptions
					all.ApplyOptions(options)
					if got = "deleted"; all.GracePeriodSeconds != nil && *all.GracePeriodSeconds == 0 {
						got = "deleted at once"
					}
					return nil
				},
			})
			live := availableNode()
			live.Status.Conditions[0].Status = corev1.ConditionUnknown
			live.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
			tt.change(live)
			w.Reader = apiServer{w.client, live}
			action := budget.DeleteSeat{Seat: budget.Seat{Name: "seat", UID: "seat", Node: "node"}, Broken: "node-1", AtOnce: tt.atOnce}
			if err := w.do(t.Context(), &observation{}, action); err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestADeletedSeatIsReportedOnce : while a budget is closed, with an event and in the metrics.
func TestADeletedSeatIsReportedOnce(t *testing.T) {
	evicted := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}
	for name, tt := range map[string]struct {
		open   bool
		change func(*corev1.Pod)
		want   float64
	}{
		"it was deleted":                  {false, func(*corev1.Pod) {}, 1},
		"the budget is open":              {true, func(*corev1.Pod) {}, 0},
		"it was evicted":                  {false, func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{evicted} }, 0},
		"it has failed":                   {false, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, 0},
		"it had not joined its group yet": {false, func(p *corev1.Pod) { p.Labels[v1alpha1.BudgetGroupLabel] = budget.PendingGroup }, 0},
		"it is no seat":                   {false, func(p *corev1.Pod) { p.Annotations[v1alpha1.SealAnnotation] = "forged" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if !tt.open {
				var b v1alpha1.NodeDisruptionBudget
				if err := w.client.Get(t.Context(), client.ObjectKey{Name: "production"}, &b); err != nil {
					t.Fatal(err)
				}
				*b.Spec.Limits[0].MaxUnavailable = intstr.FromInt32(0)
				if err := w.client.Update(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
			}
			pod := w.Place.Seat(budget.CreateSeat{Node: "node-1", NodeUID: "node", Group: "group"})
			tt.change(pod)
			w.seatDeleted(pod)
			w.seated() // some passes
			if got := testutil.ToFloat64(w.Metrics.bypassed.WithLabelValues("production")); got != tt.want {
				t.Errorf("it is counted %v times, want %v", got, tt.want)
			}
			told := 0.0
			recorded := w.Recorder.(*events.FakeRecorder).Events
			for len(recorded) > 0 {
				if event := <-recorded; strings.HasPrefix(
					event,
					"Warning "+v1alpha1.ReasonBudgetBypassed+" the seat of node node-1 was deleted",
				) {
					told++
				}
			}
			if told != tt.want {
				t.Errorf("there are %v events, want %v", told, tt.want)
			}
		})
	}
}

// TestHowSeatsEnd : what the watch shows of the end of a seat says whether its node was taken away, or has done that itself.
func TestHowSeatsEnd(t *testing.T) {
	evicted := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}
	ended := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet}
	tests := map[string]struct {
		change func(*corev1.Pod)
		known  bool
		want   bool
	}{
		"it was deleted": {func(*corev1.Pod) {}, true, true},
		"it was evicted": {
			func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, evicted) },
			true,
			false,
		},
		"its kubelet has ended it":        {func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, ended) }, true, true},
		"the watch was interrupted":       {func(*corev1.Pod) {}, false, false},
		"it had not joined its group yet": {func(p *corev1.Pod) { p.Labels[v1alpha1.BudgetGroupLabel] = budget.PendingGroup }, true, false},
		"it is no seat":                   {func(p *corev1.Pod) { p.Annotations[v1alpha1.SealAnnotation] = "forged" }, true, false},
		"its node does not exist any more": {func(p *corev1.Pod) {
			p.Annotations[v1alpha1.SeatNodeAnnotation] = "before"
			seal.Key{}.SealSeat(p)
		}, true, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pod := w.Place.Seat(budget.CreateSeat{Node: "node-1", NodeUID: "node", Group: "group"})
			tt.change(pod)
			w.seatEnded(pod, tt.known)
			in := budget.Input{Nodes: []budget.Node{{Node: kube.Node{UID: "node"}}}}
			if got := w.observeAbsences(&in); len(got) > 0 != tt.want {
				t.Errorf("absences that were not granted: %v", got)
			}
			if w.seatJoins("node"); len(w.observeAbsences(&in)) > 0 {
				t.Error("the absence does not end")
			}
		})
	}
}
