// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
)

func watchedNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "node-uid", ResourceVersion: "1",
			Labels:      map[string]string{"pool": "a", "ns.everynode.dev/job": "rev", "ns.everynode.dev/other": "rev"},
			Annotations: map[string]string{"ns.everynode.dev/job": "{}", "ns.everynode.dev/other": "{}", "unrelated": "x"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: "boot", MachineID: "machine"},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(time.Unix(1, 0))},
			},
		},
	}
}

func TestAConfigMapWakesTheNodeJobsThatReferenceIt(t *testing.T) {
	job := liveJob(rerunsOnChange(v1alpha1.ContentConfigMap, "mine"), rerunsOnChange(v1alpha1.ContentSecret, "secret"))
	job.Spec.Task.ScriptFrom = &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "script", Key: "sh"}}
	if got := strings.Join(observe.ConfigMapNames(job), " "); got != "script mine" {
		t.Errorf("it reruns on changes of %q", got)
	}
}

// Our own status writes must not trigger a pass, and the annotations of a user must.
func TestNodeJobChanges(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   bool
	}{
		"its status":              {func(j *v1alpha1.NodeJob) { j.ResourceVersion, j.Status.Revision = "2", "x" }, false},
		"an unrelated annotation": {func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{"x": "y"} }, false},
		"its spec":                {func(j *v1alpha1.NodeJob) { j.Generation++ }, true},
		"the manager's finalizer": {
			func(j *v1alpha1.NodeJob) { j.Finalizers = append(j.Finalizers, v1alpha1.NodeJobFinalizer) },
			true,
		},
		"a retry is requested": {
			func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{v1alpha1.RetryAnnotation: "1"} },
			true,
		},
		"the retry request is removed": {func(j *v1alpha1.NodeJob) { j.Annotations = nil }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := liveJob()
			after := before.DeepCopy()
			tt.change(after)
			if got := jobChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tt.want {
				t.Errorf("it wakes: %v, want %v", got, tt.want)
			}
		})
	}
}

// woken is a queue that remembers which NodeJobs get a pass.
type woken struct {
	queue
	names []string
}

func (q *woken) AddAfter(r reconcile.Request, _ time.Duration) { q.names = append(q.names, r.Name) }

// A watch that was interrupted shows a node as it was before, although passes have recorded a task on it and removed the record.
func TestVersionsThatAWatchOmitsWake(t *testing.T) {
	at := func(version string, changes ...func(*corev1.Node)) *corev1.Node {
		node := watchedNode()
		delete(node.Annotations, "ns.everynode.dev/job")
		node.ResourceVersion = version
		for _, change := range changes {
			change(node)
		}
		return node
	}
	recorded := func(n *corev1.Node) { n.Annotations["ns.everynode.dev/job"] = "{}" }
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	tests := map[string]struct {
		seen []*corev1.Node
		want []string
	}{
		"a heartbeat":                         {nil, nil},
		"a write that the watch shows":        {[]*corev1.Node{at("19")}, nil},
		"a record that was removed meanwhile": {[]*corev1.Node{at("11", recorded), at("12")}, []string{"job"}},
		"a cordon that another client ended":  {[]*corev1.Node{at("11", cordoned)}, []string{"job"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newFaultyReconciler(t, interceptor.Funcs{}, liveJob())
			r.written.showNode(at("10"))
			for _, node := range tt.seen {
				r.written.rememberNode(node)
			}
			var q woken
			r.nodeChanged(t.Context(), at("10"), at("19"), &q)
			if diff := cmp.Diff(tt.want, q.names); diff != "" {
				t.Errorf("passes (-want +got):\n%s", diff)
			}
		})
	}
}

// The cache does not show a NodeJob that has changed while its watch is interrupted.
func TestANodeJobThatHasChangedIsReadAgain(t *testing.T) {
	r := newFaultyReconciler(t, interceptor.Funcs{}, liveJob())
	var stale v1alpha1.NodeJob
	if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(liveJob()), &stale); err != nil {
		t.Fatal(err)
	}
	changed := stale.DeepCopy()
	changed.Spec.Suspend = true
	if err := r.Client.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	wait, err := r.report(t.Context(), observation{job: &stale}, plan.Plan{Status: v1alpha1.NodeJobStatus{Revision: "rev"}})
	if err != nil || wait != loop.Soon {
		t.Errorf("the next pass is after %v (%v), want %v", wait, err, loop.Soon)
	}
	if got := r.written.job(&stale); !got.Spec.Suspend {
		t.Error("the next pass does not see the change")
	}
}

// The cache does not show the end of a pod while the watch of pods is interrupted. A task that has succeeded must not run again.
func TestAPodThatHasEndedIsNotStopped(t *testing.T) {
	cached := livePod(func(p *corev1.Pod) { p.Status.Phase, p.Finalizers = corev1.PodRunning, []string{v1alpha1.PodFinalizer} })
	lost := record.Record{Outcome: record.Failed, Reason: v1alpha1.ReasonNodeUnreachable}
	actions := map[string]plan.Action{
		"too long": plan.Stop{Pod: observe.Pod(cached), Reason: v1alpha1.ReasonDeadlineExceeded},
		"unreachable": plan.Record{
			Node:   "n",
			Change: record.Change{Key: "ns.everynode.dev/job", UID: "node-uid", Record: &lost},
			Pod:    observe.Pod(cached),
			Ending: true,
		},
	}
	for name, action := range actions {
		for phase, ended := range map[corev1.PodPhase]bool{corev1.PodRunning: false, corev1.PodSucceeded: true, corev1.PodFailed: true} {
			t.Run(name+", and it is "+string(phase), func(t *testing.T) {
				live, node := cached.DeepCopy(), watchedNode()
				live.Status.Phase = phase
				r := newFaultyReconciler(t, interceptor.Funcs{}, live, node)
				did, err := r.apply(t.Context(), observation{job: liveJob()}, plan.Plan{Actions: []plan.Action{action}})
				if err != nil || did.again != ended {
					t.Errorf("another pass: %v (%v), want %v", did.again, err, ended)
				}
				if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(live), live); err != nil {
					t.Fatal(err)
				}
				acted := !live.DeletionTimestamp.IsZero() || r.node("n").ResourceVersion != node.ResourceVersion
				if acted == ended {
					t.Errorf("the pod is stopped or lost: %v, want %v", acted, !ended)
				}
			})
		}
	}
}

// The API server may have stored a status although it did not say so.
func TestAStatusWhoseWriteHasFailedIsWrittenAgain(t *testing.T) {
	for name, lost := range map[string]bool{"the response is lost": true, "nothing is stored": false} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			r := newFaultyReconciler(t, interceptor.Funcs{SubResourceUpdate: func(
				ctx context.Context, c client.Client, part string, o client.Object, opts ...client.SubResourceUpdateOption,
			) error {
				if writes++; writes > 1 {
					return c.SubResource(part).Update(ctx, o, opts...)
				}
				if lost {
					if err := c.SubResource(part).Update(ctx, o.DeepCopyObject().(client.Object), opts...); err != nil {
						return err
					}
				}
				return apierrors.NewTimeoutError("no response", 0)
			}}, liveJob())
			var cached v1alpha1.NodeJob
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(liveJob()), &cached); err != nil {
				t.Fatal(err)
			}
			if _, err := r.report(
				t.Context(),
				observation{job: &cached},
				plan.Plan{Status: v1alpha1.NodeJobStatus{Revision: "rev"}},
			); err == nil {
				t.Error("a write that fails is no error")
			}
			// Meanwhile, the status should be as the cache shows it.
			for range 2 {
				seen := r.written.job(&cached)
				if _, err := r.report(t.Context(), observation{job: seen}, plan.Plan{Status: cached.Status}); err != nil {
					t.Fatal(err)
				}
			}
			var live v1alpha1.NodeJob
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(liveJob()), &live); err != nil {
				t.Fatal(err)
			}
			if live.Status.Revision != cached.Status.Revision {
				t.Errorf("the status has revision %q, want %q", live.Status.Revision, cached.Status.Revision)
			}
		})
	}
}

// Each of 15,000 nodes sends a heartbeat every few seconds: it must cost almost nothing.
func BenchmarkHeartbeat(b *testing.B) {
	r, before, after := New(nil, nil, nil, NewMetrics(prometheus.NewRegistry()), task.Options{}), watchedNode(), watchedNode()
	for b.Loop() {
		r.nodeChanged(b.Context(), before, after, nil) // it would panic if a heartbeat mattered
	}
}
