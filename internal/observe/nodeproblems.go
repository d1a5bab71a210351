// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
)

// troubles are the reasons for which the manager does not continue with single nodes.
var troubles = []string{
	v1alpha1.ReasonPodNameTaken, v1alpha1.ReasonPodForceDeleted, v1alpha1.ReasonRecordRejected, v1alpha1.ReasonRecordRemoved,
}

const (
	// troubleFor is how long a problem in the status is assumed to last. The manager retries within that time.
	troubleFor = 15 * time.Second
	// afterDeadline is the end of the prefix of the message of a failure with reason ProgressDeadlineExceeded.
	afterDeadline = "(rollout.progressDeadlineSeconds): "
)

// ToldTroubles returns the manager's problems with single nodes, as far as the NodeJob's status names them, by the
// nodes' UIDs.
func ToldTroubles(job *v1alpha1.NodeJob, nodes []plan.Node, now time.Time) map[types.UID]plan.NodeProblem {
	if job.Status.ObservedGeneration != job.Generation {
		return nil
	}
	found := map[types.UID]plan.NodeProblem{}
	for _, c := range job.Status.Conditions {
		if c.Status != metav1.ConditionTrue || !slices.Contains(troubles, c.Reason) {
			continue
		}
		for i := range nodes {
			if message := toldOf(c.Message, &nodes[i], nodes); message != "" {
				found[nodes[i].UID] = plan.NodeProblem{Reason: c.Reason, Message: message, Since: now, RetryAt: now.Add(troubleFor)}
			}
		}
	}
	for i := range nodes {
		stuckOn(job, &nodes[i], now, found)
	}
	return found
}

// toldOf returns what a message says about a node, as one "node: message" among others; "" if it does not name the
// node.
func toldOf(message string, node *plan.Node, nodes []plan.Node) string {
	_, told, named := strings.Cut("; "+message, "; "+node.Name+": ")
	if !named {
		return ""
	}
	for i := range nodes {
		told, _, _ = strings.Cut(told, "; "+nodes[i].Name+": ")
	}
	return told
}

// stuckOn adds the problem of a node that counts as failed for lack of progress and has no recorded attempt. The plan
// finds the others itself.
func stuckOn(job *v1alpha1.NodeJob, node *plan.Node, now time.Time, found map[types.UID]plan.NodeProblem) {
	if rec := node.On.Record; rec != nil && rec.Revision == job.Status.Revision {
		return
	}
	for i := range job.Status.Failures {
		f := &job.Status.Failures[i]
		if f.Node != node.Name || f.Reason != v1alpha1.ReasonProgressDeadlineExceeded {
			continue
		}
		t, told := found[node.UID]
		if !told {
			t = plan.NodeProblem{Reason: v1alpha1.ReasonProgressDeadlineExceeded, Message: f.Message, RetryAt: now.Add(troubleFor)}
			if _, why, ok := strings.Cut(f.Message, afterDeadline); ok {
				t.Message = why
			}
		}
		t.Since = job.CreationTimestamp.Time // earlier than the actual time; the deadline has passed since
		found[node.UID] = t
	}
}
