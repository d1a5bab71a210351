// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/api/v1alpha1"
)

// resources are those of a script's pod. The reboot, which runs no script of the NodeJob, has the installation's alone.
//
// What has a limit and no request is requested as 0. Otherwise the API server requests as much as the limit, and a
// kubelet that has not so much left evicts other pods for one of the priority system-node-critical.
func resources(job *v1alpha1.NodeJob, phase Phase, memoryLimit resource.Quantity) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	if own := job.Spec.Task.Resources; own != nil && phase != Reboot {
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
