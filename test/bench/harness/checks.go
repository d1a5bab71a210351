// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/bench/subject"
)

const (
	checking   = `{script: "true", check: {script: "true", before: true}}`
	cordoning  = "maintenance: {cordon: true, maxUnavailable: 100%}\n  "
	allAtOnce  = "rollout: {maxConcurrent: 100%, steps: [{name: all}]}"
	plainTask  = `{script: "true"}`
	answersYes = "answers-yes" // in the pod of the task
	answersNo  = "answers-no"  // in a pod of its own
)

// checks are NodeJobs for all nodes, which are compared with each other. stages.yaml has the answers of the checks: yes in a pod of
// their own, and no in the pod of the task, unless the name of the NodeJob says otherwise.
var checks = []struct {
	what, name, task, spec string
	// alreadyDone reports whether the nodes are done without the task.
	alreadyDone bool
}{
	{"plain", "plain", plainTask, allAtOnce, false},
	{"a check that says yes", answersYes, checking, allAtOnce, true},
	{"a check that says no", "in-the-pod", checking, allAtOnce, false},
	{"a cordon", "cordons", plainTask, cordoning + allAtOnce, false},
	{"a cordon and a check that says yes", "first", checking, cordoning + allAtOnce, true},
	{"a cordon and a check that says no", answersNo, checking, cordoning + allAtOnce, false},
}

// checksRun measures checks before the task, and an audit.
type checksRun struct {
	*world
}

// measure runs these NodeJobs one after the other, and deletes none, so that each finds the same nodes.
func (r *checksRun) measure(ctx context.Context) error {
	for i, c := range checks {
		err := r.counted(ctx, c.what, func(ctx context.Context) error {
			if _, err := r.create(ctx, nodeJobs, nodeJobOf(c.name, c.task, c.spec)); err != nil {
				return err
			}
			return r.untilJobsComplete(ctx, i+1)
		})
		if err != nil {
			return err
		}
		if err := r.answered(ctx, c.name, c.alreadyDone); err != nil {
			return err
		}
	}
	return r.audit(ctx, len(checks)+1)
}

// audit runs a check without a task on all nodes, and asks each node once more within a period. What a node costs in each period does not
// depend on how long it is. It is the nth NodeJob.
func (r *checksRun) audit(ctx context.Context, n int) error {
	err := r.counted(ctx, "an audit", func(ctx context.Context) error {
		if _, err := r.create(ctx, nodeJobs, nodeJobOf("audit", `{check: {script: "true"}}`, allAtOnce)); err != nil {
			return err
		}
		return r.untilJobsComplete(ctx, n)
	})
	if err != nil {
		return err
	}
	period := max(time.Minute, time.Duration(r.Nodes)*300*time.Millisecond)
	return r.counted(ctx, "an audit that is asked again", func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"spec":{"task":{"check":{"periodSeconds":%d}}}}`, int(period.Seconds()))
		_, err := r.dynamic.Resource(nodeJobs).Namespace(subject.Namespace).Patch(ctx, "audit", types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("setting task.check.periodSeconds: %w", err)
		}
		return pause(ctx, period)
	})
}

// answered checks on one node that the simulated checks gave the answer that was measured.
func (r *checksRun) answered(ctx context.Context, name string, alreadyDone bool) error {
	node, err := r.client.CoreV1().Nodes().Get(ctx, nodeName(0), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading a node: %w", err)
	}
	encoded := node.Annotations[v1alpha1.RecordKey(subject.Namespace, name)]
	if strings.Contains(encoded, `"AlreadyDone"`) != alreadyDone {
		return fmt.Errorf("the record of NodeJob %s on %s does not have the answer of the check: %s", name, node.Name, encoded)
	}
	return nil
}
