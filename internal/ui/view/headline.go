// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Headline describes the state of a NodeJob with this reason in a few words: what the reason means, with numbers.
func Headline(job *v1alpha1.NodeJob, reason string) string {
	n := &job.Status.Nodes
	switch reason {
	case v1alpha1.ReasonAllNodesDone:
		if n.Expired > 0 && n.Expired == n.Matched {
			return "No longer needed"
		}
		return "Done"
	case v1alpha1.ReasonInProgress:
		if n.Running == 0 {
			return "Waiting"
		}
		return "Running"
	case v1alpha1.ReasonMaxFailuresExceeded:
		return fmt.Sprintf("Stopped, %d failed", failures(job))
	case v1alpha1.ReasonNodesFailed:
		return fmt.Sprintf("%d failed", failures(job))
	case v1alpha1.ReasonNonCompliant:
		return fmt.Sprintf("%d not compliant", n.NonCompliant)
	case v1alpha1.ReasonDrifted:
		return fmt.Sprintf("%d drifted", n.NonCompliant)
	case v1alpha1.ReasonAwaitingPromotion:
		return "Waits for a promotion"
	case v1alpha1.ReasonBudgetClosed, v1alpha1.ReasonWaitingForBudget:
		return "Waits for a NodeDisruptionBudget"
	case v1alpha1.ReasonStepWithoutNodes:
		return "Stopped, a step has no nodes"
	case v1alpha1.ReasonDisrupted:
		return "Disrupted many times"
	case v1alpha1.ReasonCheckError:
		return "A check itself fails"
	case v1alpha1.ReasonPodNotStarting:
		return "A pod does not start"
	case reasonNotObserved:
		return "No manager has observed it"
	}
	return Spelled(reason)
}

// failures counts the nodes that have failed, also those without a record.
func failures(job *v1alpha1.NodeJob) int {
	n := int(job.Status.Nodes.Failed)
	if r := job.Status.Rollout; r != nil {
		n = max(n, len(r.UnrecordedFailures))
	}
	return n
}

// kinds are words with two capitals, as Spelled separates them.
var kinds = strings.NewReplacer("Config map", "ConfigMap", "Service account", "ServiceAccount")

// Spelled returns the words of a reason: "Secret not found" for SecretNotFound. It does not change a text of several words.
func Spelled(reason string) string {
	if strings.Contains(reason, " ") {
		return reason
	}
	var b strings.Builder
	for i, r := range reason {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte(' ')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return kinds.Replace(b.String())
}
