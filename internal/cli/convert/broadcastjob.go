// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"maps"

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
func (c *converter) broadcastJob(source *unstructured.Unstructured) (*draft, error) {
	job, found, err := into[broadcastJob](source)
	if err != nil {
		return nil, err
	}
	if err := matchesNoNode(&job.Spec.Template.Spec); err != nil {
		return nil, err
	}
	d := newDraft(c.options, source)
	pod := &job.Spec.Template.Spec
	w := c.workload(&job.Spec.Template, source)
	for i := range pod.InitContainers {
		w.addStep(&pod.InitContainers[i], true)
	}
	for i := range pod.Containers {
		w.addStep(&pod.Containers[i], false)
	}
	d.selectNodes(pod, everyRequirement)
	d.setChanges(w.changes, d.mergeChanges(w))
	d.setTask(w)
	d.account = accountOf(pod)

	if parallelism := job.Spec.Parallelism; parallelism != nil {
		d.concurrent(*parallelism, "parallelism")
	} else {
		d.spec.note("rollout", `The BroadcastJob has no parallelism, so it runs on all nodes at once. A NodeJob runs on one node first, and then on 25% at once. Set rollout.maxConcurrent for another limit.`)
	}
	d.runsAgain()
	d.complete(job)
	limit := job.Spec.FailurePolicy.RestartLimit
	d.retries(&limit, "failurePolicy.restartLimit")
	switch job.Spec.FailurePolicy.Type {
	case "Continue":
		d.spec.in("rollout").set("maxFailures", "100%")
	case "", "FailFast", "Pause":
		d.spec.in("rollout").set("maxFailures", 0, "After the first failed node, the task starts on no other node.")
	default:
		d.spec.in("rollout").todo("maxFailures", "failurePolicy.type %s is unknown.", job.Spec.FailurePolicy.Type)
	}
	if job.Spec.Paused {
		d.note("The BroadcastJob is paused. Do not resume the NodeJob until you want the task to run.")
	}
	rules := broadcastJobRules()
	maps.Copy(rules, podRules(d.usesTemplate(), nil))
	d.nameFields(w, "", rules, found)
	return d, nil
}

// complete converts the completion policy.
func (d *draft) complete(job *broadcastJob) {
	policy := job.Spec.CompletionPolicy
	if policy.Type != "Never" && !d.spec.in("nodes").has("names") {
		d.spec.in("nodes").todo("names", "completionPolicy.type Always ends after the existing nodes. The NodeJob also runs on nodes that join later. To exclude them, list the nodes in nodes.names.")
	}
	d.deadlines(policy.ActiveDeadlineSeconds, job.Spec.Template.Spec.ActiveDeadlineSeconds, "completionPolicy.activeDeadlineSeconds")
	if deadline := policy.ActiveDeadlineSeconds; deadline != nil {
		d.spec.suggest("startingDeadlineSeconds", *deadline,
			"timeoutSeconds is for each node. This is the limit for the whole NodeJob, which counts from its creation. Set it when you resume the NodeJob:")
	}
	d.finish(policy.TTLSecondsAfterFinished)
}
