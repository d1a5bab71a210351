// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/outcome"
)

const (
	// evictionsTimeout is how long a pass may begin evictions, and evictionTimeout limits each of them. The client obeys a response that
	// asks it to wait: 10 s for a PodDisruptionBudget that is not processed yet, up to ten times. The rest of the NodeJob must not wait
	// for that.
	//
	// An eviction that has begun is not cut off by the time of the pass: the API server may have counted it already in the status of the
	// PodDisruptionBudget, where it stays for two minutes although the pod is not deleted. Source: k8s.io/kubernetes
	// pkg/registry/core/pod/storage/eviction.go, and DeletionTimeout in pkg/controller/disruption/disruption.go.
	evictionsTimeout = 3 * time.Second
	evictionTimeout  = 5 * time.Second

	// maxBlockedBytes limits the message of the API server about a denied eviction.
	maxBlockedBytes = 256
)

// evict requests the eviction of a pod. A denied eviction is not an error of the pass: the status shows
// it, and it is retried.
func (r writer) evict(ctx context.Context, seen observation, a plan.Evict, pod plan.DrainPod) {
	if ctx.Err() != nil {
		return // earlier evictions have used all the time: this one is for the next pass
	}
	err := r.requestEviction(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}, pod.UID, a.GracePeriodSeconds)
	// The time of the pass is used, because the plan computes the wait from one pass to the next.
	r.drains.tried(drainKey{client.ObjectKeyFromObject(seen.job), a.Node}, pod.UID, eviction{seen.input.Now, blockedBy(err)})
}

// requestEviction requests the eviction of the pod with that name and UID, within evictionTimeout. graceSeconds is nil for the grace
// period of the pod.
func (r writer) requestEviction(ctx context.Context, pod client.ObjectKey, uid types.UID, graceSeconds *int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), evictionTimeout)
	defer cancel()
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	request := &policyv1.Eviction{
		ObjectMeta: target.ObjectMeta,
		DeleteOptions: &metav1.DeleteOptions{
			GracePeriodSeconds: graceSeconds,
			Preconditions:      &metav1.Preconditions{UID: &uid},
		},
	}
	return r.Metrics.writes.Do(verbCreate, resourceEvictions, func() error {
		return r.Client.SubResource("eviction").Create(ctx, target, request)
	})
}

// blockedBy says why an eviction was denied; "" if it was granted, or if the pod no longer exists. The API server's
// message does not name the PodDisruptionBudget, but its cause does. Source: k8s.io/kubernetes
// pkg/registry/core/pod/storage/eviction.go.
func blockedBy(err error) string {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "the API server asks to wait, or does not answer in time; it does so while a PodDisruptionBudget is not processed yet"
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		var causes []string
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause && cause.Message != "" {
				causes = append(causes, cause.Message)
			}
		}
		if len(causes) > 0 {
			return outcome.CleanHead(strings.Join(causes, "; "), maxBlockedBytes)
		}
	}
	return outcome.CleanHead(err.Error(), maxBlockedBytes)
}
