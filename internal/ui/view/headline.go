// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
)

// headlines are what reasons of NodeJobs mean, in words, some with a number. Other reasons are spelled out.
var headlines = map[string]string{
	v1alpha1.ReasonAllNodesDone:        "Done",
	v1alpha1.ReasonInProgress:          "Running",
	v1alpha1.ReasonMaxFailuresExceeded: "Stopped, %d failed",
	v1alpha1.ReasonNodesFailed:         "%d failed",
	v1alpha1.ReasonNonCompliant:        "%d not compliant",
	v1alpha1.ReasonDrifted:             "%d drifted",
	v1alpha1.ReasonAwaitingPromotion:   "Waits for a promotion",
	v1alpha1.ReasonBudgetClosed:        "Waits for a NodeDisruptionBudget",
	v1alpha1.ReasonWindowTooShort:      "A run is longer than each window",
	v1alpha1.ReasonWaitingForBudget:    "Waits for a NodeDisruptionBudget",
	v1alpha1.ReasonStepWithoutNodes:    "Stopped, a step has no nodes",
	v1alpha1.ReasonDisrupted:           "Disrupted many times",
	v1alpha1.ReasonCheckError:          "A check itself fails",
	v1alpha1.ReasonPodNotStarting:      "A pod does not start",
	reasonNotObserved:                  "No manager has observed it",
}

// Headline describes the state of a NodeJob with this reason in a few words: what the reason means, with numbers.
func Headline(job *v1alpha1.NodeJob, reason string) string {
	n := &job.Status.Nodes
	switch reason {
	case v1alpha1.ReasonAllNodesDone:
		if n.Expired > 0 && n.Expired == n.Total {
			return "No longer needed"
		}
	case v1alpha1.ReasonInProgress:
		if n.Running == 0 {
			return "Waiting"
		}
	case v1alpha1.ReasonMaxFailuresExceeded, v1alpha1.ReasonNodesFailed:
		return fmt.Sprintf(headlines[reason], failures(job))
	case v1alpha1.ReasonNonCompliant, v1alpha1.ReasonDrifted:
		return fmt.Sprintf(headlines[reason], n.NonCompliant)
	}
	return cmp.Or(headlines[reason], Spelled(reason))
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
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return kinds.Replace(b.String())
}
