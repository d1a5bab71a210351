// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
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
func (c *converter) broadcastJob(source *unstructured.Unstructured) error {
	job, unknown, err := into[broadcastJob](source)
	if err != nil {
		return err
	}
	if err := matchesNoNode(&job.Spec.Template.Spec); err != nil {
		return err
	}
	d := c.newDraft(c.newWork(source, &job.Spec.Template), source.GetName(), source)
	d.selectNodes("")
	d.setTask()
	if job.Spec.Parallelism != nil {
		d.concurrent(job.Spec.Parallelism, "parallelism")
	} else {
		d.note("The BroadcastJob has no parallelism, so it runs on all nodes at once. A NodeJob runs on one node first, and then on 25%% at once. Set rollout.maxConcurrent for another limit.")
	}
	d.runsAgain()
	d.broadcastPolicies(job)
	d.nameFields(unknown)
	return nil
}

// broadcastPolicies converts when a BroadcastJob ends, and what it does after a failure.
func (d *draft) broadcastPolicies(job *broadcastJob) {
	completion, failure := job.Spec.CompletionPolicy, job.Spec.FailurePolicy
	switch completion.Type {
	case "", "Always":
		if d.job.Spec.Nodes.Names == nil {
			d.note("completionPolicy.type Always ends after the existing nodes. The NodeJob also runs on nodes that join later. To exclude them, list the nodes in nodes.names.")
		}
	case "Never":
	default:
		d.todo("completionPolicy.type %s is unknown", completion.Type)
	}
	d.timeouts(completion.ActiveDeadlineSeconds, "completionPolicy.activeDeadlineSeconds")
	if deadline := completion.ActiveDeadlineSeconds; deadline != nil {
		d.note("task.timeoutSeconds is for each node. When you resume the NodeJob, startingDeadlineSeconds: %d is a limit for all of it, from its creation.", *deadline)
	}
	d.finish(completion.TTLSecondsAfterFinished)
	limited(d, &d.job.Spec.Retry.Limit, &failure.RestartLimit, 100, "failurePolicy.restartLimit", "retry.limit")
	switch failure.Type {
	case "Continue":
		d.job.Spec.Rollout.MaxFailures = new(intstr.FromString("100%"))
	case "", "FailFast", "Pause":
		d.job.Spec.Rollout.MaxFailures = new(intstr.FromInt32(0))
		d.note("rollout.maxFailures: after the first failed node, the task starts on no other node.")
	default:
		d.todo("failurePolicy.type %s is unknown: set rollout.maxFailures", failure.Type)
	}
	if job.Spec.Paused {
		d.note("The BroadcastJob is paused. Do not resume the NodeJob until you want the task to run.")
	}
}
