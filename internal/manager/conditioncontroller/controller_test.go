// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package conditioncontroller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodecondition"
)

const kept = "MaintenanceInProgress ns/a"

// TestReconcile tests a node that an earlier manager has left in maintenance for NodeJob ns/a.
func TestReconcile(t *testing.T) {
	working := map[types.UID]nodecondition.Disruption{"uid": {NodeJob: "ns/a", Stage: nodecondition.Stage{InProgress: true}}}
	ends := map[types.UID]nodecondition.Disruption{}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no"))
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", errors.New("changed"))
	for name, tt := range map[string]struct {
		disabled, deleted bool
		report            map[types.UID]nodecondition.Disruption
		refusals          []error
		want              string
		requeue           bool
		writes            int
		says              string
	}{
		"it has not reported":          {want: kept, requeue: true},
		"it works":                     {report: working, want: kept},
		"it has ended":                 {report: ends, writes: 1},
		"it is deleted":                {deleted: true, writes: 1},
		"the flag is off":              {disabled: true, report: working, writes: 1},
		"other writes":                 {report: ends, refusals: []error{conflict, conflict}, writes: 3},
		"too many other writes":        {report: ends, refusals: []error{conflict, conflict, conflict, conflict, conflict}, want: kept, writes: 5, says: "node n: "},
		"not permitted":                {report: ends, refusals: []error{forbidden}, want: kept, writes: 1, says: "install config/node-conditions"},
		"not permitted without a flag": {disabled: true, refusals: []error{forbidden}, want: kept, writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			r := reconciler(t, tt.deleted, func() error {
				writes++
				if writes <= len(tt.refusals) {
					return tt.refusals[writes-1]
				}
				return nil
			})
			r.Enabled = !tt.disabled
			if tt.report != nil {
				r.Claims.Report("job-uid", claims.Report{Name: "NodeJob ns/a", Disruptions: tt.report})
			}
			for range 2 { // the second pass has nothing to do
				writes = 0
				r.Writes.Reset()
				result, err := r.Reconcile(t.Context(), ctrl.Request{})
				if (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
					t.Fatalf("the error is %v", err)
				}
				if counted := testutil.ToFloat64(r.Writes.WithLabelValues("patch", "nodes/status")); counted != float64(writes) {
					t.Errorf("%v writes are counted, and %d were made", counted, writes)
				}
				if (result.RequeueAfter > 0) != tt.requeue || writes != tt.writes {
					t.Errorf("%d writes, and again after %v", writes, result.RequeueAfter)
				}
				if tt.want == kept {
					break
				}
				tt.writes = 0
			}
			if diff := cmp.Diff(tt.want, conditionOf(t, r)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func reconciler(t *testing.T, deleted bool, write func() error) *Reconciler {
	t.Helper()
	scheme := fake.NewClientBuilder().Build().Scheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid"}}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionTrue, Reason: nodecondition.Reason, Message: "ns/a"},
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node).WithStatusSubresource(node)
	if !deleted {
		b.WithObjects(&v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "job-uid"}})
	}
	c := b.WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	}).Build()
	return &Reconciler{
		Client: c, Reader: c, Claims: claims.New(), Now: func() time.Time { return time.Unix(0, 0) },
		Writes: loop.NewWrites("everynode_api_writes_total", ""),
	}
}

// conditionOf returns the type and the message of the condition of Everynode; "" if there is none.
func conditionOf(t *testing.T, r *Reconciler) string {
	t.Helper()
	var node corev1.Node
	if err := r.Reader.Get(t.Context(), client.ObjectKey{Name: "n"}, &node); err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Reason == nodecondition.Reason {
			return string(c.Type) + " " + c.Message
		}
	}
	return ""
}
