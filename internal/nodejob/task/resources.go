// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/api/v1alpha1"
)

// resources returns the resources of a pod of the runner. All pods of a run have the same, so that a ResourceQuota or a LimitRange
// of the namespace that accepts the first of them accepts the others.
//
// If there is a limit and no request, the request is 0. Otherwise the API server sets the request to the limit, and a
// kubelet without enough resources evicts other pods for a pod with the priority system-node-critical.
func resources(own *v1alpha1.TaskResources, memoryLimit resource.Quantity) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	if own != nil {
		maps.Copy(r.Requests, own.Requests)
		maps.Copy(r.Limits, own.Limits)
	}
	if _, limited := r.Limits[corev1.ResourceMemory]; !limited && !memoryLimit.IsZero() {
		limit := memoryLimit
		if request := r.Requests[corev1.ResourceMemory]; request.Cmp(limit) > 0 {
			limit = request // a larger request needs a larger limit
		}
		r.Limits[corev1.ResourceMemory] = limit
	}
	for name := range r.Limits {
		if _, requested := r.Requests[name]; !requested {
			r.Requests[name] = resource.MustParse("0")
		}
	}
	if len(r.Requests) == 0 {
		r.Requests = nil
	}
	if len(r.Limits) == 0 {
		r.Limits = nil
	}
	return r
}
