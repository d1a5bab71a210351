// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// job returns the NodeJob of a run. It runs once, only on these nodes, without retries, and is then deleted.
func (o *options) job(nodes []string) *v1alpha1.NodeJob {
	no := false
	seconds := func(d time.Duration) *int32 { return new(int32(d / time.Second)) }
	steps := []v1alpha1.RolloutStep{{Name: "all"}}
	if o.canary {
		steps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}
	}
	job := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.namespace, Name: o.name,
			Labels: map[string]string{cmdutil.CreatedByLabel: cmdutil.CreatedByRun},
		},
		Spec: v1alpha1.NodeJobSpec{
			// The user chose the nodes explicitly, so their taints do not exclude them.
			Nodes:   v1alpha1.NodesSpec{Names: nodes, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
			Task:    v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: o.script}, Command: o.command, TimeoutSeconds: seconds(o.timeout)},
			Retry:   v1alpha1.RetrySpec{Limit: new(int32(0))},
			Rollout: v1alpha1.RolloutSpec{MaxConcurrent: new(o.concurrency(len(nodes))), MaxFailures: &o.failures, Steps: steps},
			// A machine that is recreated in the meantime is a different machine.
			Rerun:                   v1alpha1.RerunSpec{OnMachineChange: &no},
			StartingDeadlineSeconds: seconds(o.startingDeadline),
			TTLSecondsAfterFinished: seconds(o.ttl),
			RetainPodsSeconds:       *seconds(retainPods),
			DeletionPolicy:          v1alpha1.DeletionForget,
		},
	}
	if o.name == "" {
		job.GenerateName = "run-"
	}
	return job
}

// minConcurrent is how many nodes run at the same time at least, without --max-concurrent.
const minConcurrent = 5

// concurrency returns how many of the nodes run at the same time: --max-concurrent, or a tenth and at least minConcurrent.
func (o *options) concurrency(nodes int) intstr.IntOrString {
	if o.maxConcurrent != "" {
		return o.concurrent
	}
	return intstr.FromInt32(int32(max(nodes/10, minConcurrent)))
}
