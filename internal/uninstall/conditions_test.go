// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestConditionsAreRemoved tests nodes on which a manager has left conditions, also if they may not be removed.
func TestConditionsAreRemoved(t *testing.T) {
	for name, tt := range map[string]struct {
		refusal error
		changed int
		left    int
		fails   bool
	}{
		"removed":       {changed: 1, left: 1},
		"not permitted": {refusal: apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no")), left: 3},
		"another error": {refusal: errors.New("no"), left: 3, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid"}}
			node.Status.Conditions = []corev1.NodeCondition{
				{Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: "NodeJob", Message: "ns/a"},
				{Type: "example.com/Kernel", Status: corev1.ConditionTrue, Reason: "NodeJob", Message: "ns/a"},
				{Type: corev1.NodeMaintenancePlanned, Status: corev1.ConditionTrue, Reason: "AdminRequested"},
			}
			c := fake.NewClientBuilder().WithObjects(node).WithStatusSubresource(node).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if tt.refusal != nil {
						return tt.refusal
					}
					return c.SubResource(sub).Patch(ctx, o, patch, opts...)
				},
			}).Build()
			changed, err := CleanNodes(t.Context(), c, Scope{})
			if changed != tt.changed || (err != nil) != tt.fails {
				t.Errorf("%d nodes changed, %v", changed, err)
			}
			var live corev1.Node
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), &live); err != nil {
				t.Fatal(err)
			}
			if n := len(live.Status.Conditions); n != tt.left {
				t.Errorf("%d conditions are left: %v", n, live.Status.Conditions)
			}
		})
	}
}
