// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// problemFor is how long a problem in the status is assumed to last. The manager retries within that time.
const problemFor = 15 * time.Second

// ToldNodeProblems returns the manager's problems with single nodes according to the NodeJob's status, by the UIDs of
// the nodes; nil if there are none, or if the status is older than the spec.
func ToldNodeProblems(job *v1alpha1.NodeJob, nodes []plan.Node, now time.Time) map[types.UID]plan.NodeProblem {
	if job.Status.ObservedGeneration != job.Generation || len(job.Status.NodeProblems) == 0 {
		return nil
	}
	told := make(map[string]*v1alpha1.NodeProblem, len(job.Status.NodeProblems))
	for i := range job.Status.NodeProblems {
		told[job.Status.NodeProblems[i].Node] = &job.Status.NodeProblems[i]
	}
	found := map[types.UID]plan.NodeProblem{}
	for i := range nodes {
		if t := told[nodes[i].Name]; t != nil {
			found[nodes[i].UID] = plan.NodeProblem{Why: hold.Why{Reason: t.Reason, Message: t.Message, Until: now.Add(problemFor)}, Since: t.Since.Time, TriedAt: now}
		}
	}
	return found
}
