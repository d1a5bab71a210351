// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/internal/nodejob/plan"
)

// budget is the response of the API server if a PodDisruptionBudget allows no disruption.
func budget(cause string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: cause}}
	return err
}

func TestBlockedBy(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		err  error
		want string
	}{
		"nothing":                   {nil, ""},
		"a pod that does not exist": {apierrors.NewNotFound(pods, "web"), ""},
		"a pod that was recreated": {
			apierrors.NewConflict(pods, "web", errors.New("the UID in the precondition does not match")),
			"",
		},
		"a PodDisruptionBudget": {
			budget("The disruption budget web needs 2 healthy pods and has 2 currently"),
			"The disruption budget web needs 2 healthy pods and has 2 currently",
		},
		"a PodDisruptionBudget without a message": {budget(""), "Cannot evict pod as it would violate the pod's disruption budget."},
		"an API server that is busy":              {apierrors.NewTooManyRequests("slow down", 1), "slow down"},
		"two PodDisruptionBudgets": {
			apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget")),
			"Internal error occurred: this pod has more than one PodDisruptionBudget",
		},
		"a webhook that denies": {
			apierrors.NewForbidden(pods, "web", errors.New("denied by policy \x1b[31mx")),
			`pods "web" is forbidden: denied by policy \x1b[31mx`,
		},
		"a response that asks to wait for long": {
			fmt.Errorf("posting: %w", context.DeadlineExceeded),
			"the API server asks to wait, or does not answer in time; it does so while a PodDisruptionBudget is not processed yet",
		},
		"a very long text": {errors.New(strings.Repeat("x", 1000)), strings.Repeat("x", maxBlockedBytes-3) + "..."},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, blockedBy(tt.err)); diff != "" {
				t.Errorf("blocked by (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvictions(t *testing.T) {
	var got []string
	var answer error
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{
			SubResourceCreate: func(_ context.Context, _ client.Client, kind string, o, sub client.Object, _ ...client.SubResourceCreateOption) error {
				e := sub.(*policyv1.Eviction)
				got = append(
					got,
					fmt.Sprintf(
						"%s of %s/%s (%s), UID %s, grace %d",
						kind,
						o.GetNamespace(),
						o.GetName(),
						e.Name,
						*e.DeleteOptions.Preconditions.UID,
						*e.DeleteOptions.GracePeriodSeconds,
					),
				)
				return answer
			},
		},
	)
	job := liveJob()
	seen := observation{job: job, input: plan.Input{Now: noon}}
	key := drainKey{client.ObjectKeyFromObject(job), "n"}
	grace := int64(5)
	pod := plan.DrainPod{Namespace: "shop", Name: "web", UID: "web-uid"}
	p := plan.Plan{Actions: []plan.Action{plan.Evict{Node: "n", Pods: []plan.DrainPod{pod}, GracePeriodSeconds: &grace}}}

	for what, want := range map[string]map[types.UID]eviction{
		"":        {"web-uid": {at: noon}},
		"no room": {"web-uid": {at: noon, blocked: "no room"}},
	} {
		got, answer = nil, nil
		if what != "" {
			answer = budget(what)
		}
		r.drains.looked(key, []plan.DrainPod{pod}, noon)
		if did, err := r.apply(t.Context(), seen, p); err != nil || !did.again || did.refused {
			t.Errorf("%+v (%v), want no error: the status shows it after another list", did, err)
		}
		if diff := cmp.Diff([]string{"eviction of shop/web (web), UID web-uid, grace 5"}, got); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, r.drains.seen[key].tries, cmp.AllowUnexported(eviction{})); diff != "" {
			t.Errorf("remembered evictions (-want +got):\n%s", diff)
		}
	}
	if got := testutil.ToFloat64(r.Metrics.writes.WithLabelValues("create", "pods/eviction")); got != 2 {
		t.Errorf("%v writes are counted, want 2", got)
	}
}

// If there was no time for an eviction, the pod is not blocked, and its wait does not start.
func TestASkippedEvictionIsNotCounted(t *testing.T) {
	r := newReconciler(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key := drainKey{client.ObjectKey{Namespace: "ns", Name: "job"}, "n"}
	r.drains.looked(key, []plan.DrainPod{{UID: "web-uid"}}, noon)
	r.evict(ctx, observation{job: liveJob(), input: plan.Input{Now: noon}}, plan.Evict{Node: "n"}, plan.DrainPod{UID: "web-uid"})
	if tries := r.drains.seen[key].tries; len(tries) > 0 {
		t.Errorf("%v is remembered, want nothing", tries)
	}
}

// An eviction that has begun ends, also if the time of the pass is over: the API server may have counted it already.
func TestAnEvictionThatHasBegunIsNotCutOff(t *testing.T) {
	for took, want := range map[time.Duration]error{4 * time.Second: nil, 6 * time.Second: context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			r := newFaultyReconciler(t, interceptor.Funcs{
				SubResourceCreate: func(ctx context.Context, _ client.Client, _ string, _, _ client.Object, _ ...client.SubResourceCreateOption) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(took):
						return nil
					}
				},
			})
			pass, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := r.requestEviction(pass, client.ObjectKey{Namespace: "ns", Name: "p"}, "uid", nil); !errors.Is(err, want) {
				t.Errorf("after %s: %v, want %v", took, err, want)
			}
		})
	}
}
