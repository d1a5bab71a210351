// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// NotServed returns the status of a NodeJob for which nothing was ever done: only why. It does not read its spec.
func NotServed(job *v1alpha1.NodeJob, why *hold.Why, now time.Time) v1alpha1.NodeJobStatus {
	status := *job.Status.DeepCopy()
	status.ObservedGeneration = job.Generation
	for _, kind := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		is := metav1.ConditionFalse
		if kind == v1alpha1.ConditionStalled {
			is = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: is, Reason: why.Reason, Message: why.Message, ObservedGeneration: job.Generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	return status
}
