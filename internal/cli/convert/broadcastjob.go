// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// broadcastJob has the fields of a BroadcastJob, from apps.kruise.io/v1alpha1 and v1beta1.
type broadcastJob struct {
	Spec struct {
		Parallelism      *intstr.IntOrString    `json:"parallelism,omitempty"`
		Template         corev1.PodTemplateSpec `json:"template"`
		CompletionPolicy struct {
			Type                    string `json:"type,omitempty"`
			ActiveDeadlineSeconds   *int64 `json:"activeDeadlineSeconds,omitempty"`
			TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
		} `json:"completionPolicy,omitzero"`
		FailurePolicy struct {
			Type         string `json:"type,omitempty"`
			RestartLimit int32  `json:"restartLimit,omitempty"`
		} `json:"failurePolicy,omitzero"`
		Paused bool `json:"paused,omitempty"`
	} `json:"spec"`
}

// broadcastJob converts a BroadcastJob.
func (c *converter) broadcastJob(source *unstructured.Unstructured) ([]*draft, error) {
	job, unknown, err := into[broadcastJob](source)
	if err != nil {
		return nil, err
	}
	pod := &job.Spec.Template.Spec
	if err := matchesNoNode(pod); err != nil {
		return nil, err
	}
	d := c.newDraft(source)
	w := c.newWork(d, &job.Spec.Template)
	d.selectNodes(pod, nil)
	d.setTask(w)
	if job.Spec.Parallelism != nil {
		d.concurrent(job.Spec.Parallelism, "parallelism")
	} else {
		d.note("The BroadcastJob has no parallelism, so it runs on all nodes at once. A NodeJob runs on one node first, and then on 25%% at once. Set rollout.maxConcurrent for another limit.")
	}
	d.runsAgain()
	d.broadcastPolicies(job)
	d.nameFields(unknown)
	return []*draft{d}, nil
}

// broadcastPolicies converts when a BroadcastJob ends, and what it does after a failure.
func (d *draft) broadcastPolicies(job *broadcastJob) {
	policy := job.Spec.CompletionPolicy
	if !slices.Contains([]string{"", "Always", "Never"}, policy.Type) {
		d.todo("completionPolicy.type %s is unknown", policy.Type)
	} else if policy.Type != "Never" && d.job.Spec.Nodes.Names == nil {
		d.note("completionPolicy.type Always ends after the existing nodes. The NodeJob also runs on nodes that join later. To exclude them, list the nodes in nodes.names.")
	}
	d.timeouts(policy.ActiveDeadlineSeconds, job.Spec.Template.Spec.ActiveDeadlineSeconds, "completionPolicy.activeDeadlineSeconds")
	d.timeLimit()
	if deadline := policy.ActiveDeadlineSeconds; deadline != nil {
		d.note("task.timeoutSeconds is for each node. When you resume the NodeJob, startingDeadlineSeconds: %d is a limit for all of it, from its creation.", *deadline)
	}
	d.finish(policy.TTLSecondsAfterFinished)
	limit := job.Spec.FailurePolicy.RestartLimit
	limited(d, &d.job.Spec.Retry.Limit, &limit, 100, "failurePolicy.restartLimit", "retry.limit")
	switch job.Spec.FailurePolicy.Type {
	case "Continue":
		d.job.Spec.Rollout.MaxFailures = new(intstr.FromString("100%"))
	case "", "FailFast", "Pause":
		d.job.Spec.Rollout.MaxFailures = new(intstr.FromInt32(0))
		d.note("rollout.maxFailures: after the first failed node, the task starts on no other node.")
	default:
		d.todo("failurePolicy.type %s is unknown: set rollout.maxFailures", job.Spec.FailurePolicy.Type)
	}
	if job.Spec.Paused {
		d.note("The BroadcastJob is paused. Do not resume the NodeJob until you want the task to run.")
	}
}
