// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// measureChecks runs these NodeJobs one after the other, and deletes none, so that each finds the same nodes. An audit is the last one.
func (w *world) measureChecks(ctx context.Context) error {
	for _, c := range checks {
		err := w.counted(ctx, c.what, func() error { return w.complete(ctx, nodeJob(c.name, c.task, c.spec)) })
		if err != nil {
			return err
		}
		if err := w.answered(ctx, c.name, c.alreadyDone); err != nil {
			return err
		}
	}
	return w.audit(ctx)
}

// audit runs a check without a task on all nodes, and asks each node once more within a period. What a node costs in each period does not
// depend on how long it is.
func (w *world) audit(ctx context.Context) error {
	err := w.counted(ctx, "an audit", func() error { return w.complete(ctx, nodeJob("audit", `{check: {script: "true"}}`, allAtOnce)) })
	if err != nil {
		return err
	}
	period := max(time.Minute, time.Duration(w.Nodes)*300*time.Millisecond)
	return w.counted(ctx, "an audit that is asked again", func() error {
		audit := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "audit", Namespace: subject.Namespace}}
		err := w.objects.Patch(ctx, audit, mergePatch(`{"spec":{"task":{"check":{"periodSeconds":%d}}}}`, int(period.Seconds())))
		if err != nil {
			return fmt.Errorf("setting task.check.periodSeconds: %w", err)
		}
		return pause(ctx, period)
	})
}

// answered checks on one node that the simulated checks gave the answer that was measured.
func (w *world) answered(ctx context.Context, name string, alreadyDone bool) error {
	node := &corev1.Node{}
	if err := w.objects.Get(ctx, client.ObjectKey{Name: nodeName(0)}, node); err != nil {
		return fmt.Errorf("reading a node: %w", err)
	}
	encoded := node.Annotations[v1alpha1.RecordKey(subject.Namespace, name)]
	if strings.Contains(encoded, `"AlreadyDone"`) != alreadyDone {
		return fmt.Errorf("the record of NodeJob %s on %s does not have the answer of the check: %s", name, node.Name, encoded)
	}
	return nil
}
