// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// breakAndFix rolls out a script that fails, shows that the rollout stops, and corrects the script.
func (d *demo) breakAndFix(ctx context.Context) error {
	var job v1alpha1.NodeJob
	name := client.ObjectKey{Namespace: jobsNamespace, Name: "max-map-count"}
	if err := d.client.Get(ctx, name, &job); err != nil {
		return err
	}
	d.say("a broken script is rolled out, with a rollback: it fails on the first node, and the rollout stops there")
	broken := job.DeepCopy()
	broken.Spec.Task.Script = "echo changing things\nrm /etc/everynode-demo-missing\n"
	broken.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: `echo "putting it right after exit code $EVERYNODE_FAILED_EXIT_CODE"`}}
	broken.Spec.OnFailure.Action = v1alpha1.FailureActionCordon
	broken.Spec.Retry.Limit = new(int32(0))
	if err := d.client.Patch(ctx, broken, client.MergeFrom(&job)); err != nil {
		return err
	}
	if err := d.watch(ctx, name.Name, stopped); err != nil {
		return err
	}
	fmt.Println("\nThe status says what happened, and what to do. The failed node is rolled back and cordoned; the task did not run on the others:")
	if err := d.everynode(ctx, "status", name.Name, "-n", jobsNamespace, "-o", "wide"); err != nil {
		return err
	}
	if err := d.client.Get(ctx, name, &job); err != nil {
		return err
	}
	d.say("the script is corrected")
	fixed := job.DeepCopy()
	fixed.Spec.Task.Script = strings.Replace(broken.Spec.Task.Script, "rm ", "rm -f ", 1)
	if err := d.client.Patch(ctx, fixed, client.MergeFrom(&job)); err != nil {
		return err
	}
	return d.watch(ctx, name.Name, done(4))
}

// stopped reports whether a rollout is Stalled and its failed node is rolled back.
func stopped(jobs []v1alpha1.NodeJob) bool {
	for i := range jobs {
		if meta.IsStatusConditionTrue(jobs[i].Status.Conditions, v1alpha1.ConditionStalled) && jobs[i].Status.Nodes.RolledBack > 0 {
			return true
		}
	}
	return false
}

// done reports whether all NodeJobs are done, with their current revision, on this number of nodes.
func done(nodes int32) func([]v1alpha1.NodeJob) bool {
	return func(jobs []v1alpha1.NodeJob) bool {
		for i := range jobs {
			n := jobs[i].Status.Nodes
			if jobs[i].Status.ObservedGeneration != jobs[i].Generation || n.Total != nodes || n.Done != nodes {
				return false
			}
		}
		return len(jobs) > 0
	}
}
