// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// Step is a step of a rollout, and what it does or waits for.
type Step struct {
	v1alpha1.StepStatus
	// Running is the number of its nodes on which an attempt runs. Waiting are those that are not done, running or failed.
	Running, Waiting int32
	// Counts and State describe it in words.
	Counts, State string
	Tone          text.Tone
}

// Steps returns the steps of the rollout: those that have passed, the current one, and later ones.
func (s Status) Steps() []Step {
	rollout := s.Job.Status.Rollout
	if rollout == nil || !s.Job.DeletionTimestamp.IsZero() { // a deletion has no steps
		return nil
	}
	steps := make([]Step, 0, len(rollout.Steps))
	current := max(s.stepIndex(rollout.Step), 0)
	for i, status := range rollout.Steps {
		step := Step{StepStatus: status, Counts: s.stepCounts(status)}
		step.Tone, step.State = s.stepState(i, current)
		if n, _ := Judged(s.Job); task.IsAudit(s.Job) {
			step.Done, step.Failed = n.Done, n.Failed
		}
		if left := status.Nodes - status.Done - status.Failed; i == current && left > 0 {
			step.Running = min(s.Job.Status.Nodes.Running, left)
		}
		step.Waiting = max(status.Nodes-status.Done-status.Failed-step.Running, 0)
		steps = append(steps, step)
	}
	return steps
}

// stepCounts counts the nodes of a step. A step for a number of nodes takes another node for each that has failed: those
// that have failed are not among the nodes that must be done.
func (s Status) stepCounts(step v1alpha1.StepStatus) string {
	if s.hasNumber(step.Name) && step.Nodes > step.Failed && step.Failed > 0 {
		return fmt.Sprintf("%d of %d done, %s failed", step.Done, step.Nodes-step.Failed, plural.Count(step.Failed, "other"))
	}
	if task.IsAudit(s.Job) { // it has one step
		return judgment(s.Job)
	}
	if step.Nodes == 0 {
		return "no nodes"
	}
	line := fmt.Sprintf("%d of %d done", step.Done, step.Nodes)
	if step.Failed > 0 {
		line += fmt.Sprintf(", %d failed", step.Failed)
	}
	return line
}

// hasNumber reports whether a step is for a number or a percentage of nodes.
func (s Status) hasNumber(step string) bool {
	return slices.ContainsFunc(s.Job.Spec.Rollout.Steps, func(spec v1alpha1.RolloutStep) bool { return spec.Name == step && spec.Nodes != nil })
}

// stepState describes what a step does or waits for, and until when.
func (s Status) stepState(i, current int) (text.Tone, string) {
	rollout := s.Job.Status.Rollout
	tone, reason, _, _ := situationAt(s.Job, s.Now)
	switch {
	case reason == v1alpha1.ReasonNonCompliant, reason == v1alpha1.ReasonAllNodesDone && i > current:
		return tone, reason
	case i < current, !rollout.StableAt.IsZero() && i < len(rollout.Steps):
		return s.passed(i)
	case i > current:
		return text.Dim, s.later(i)
	}
	switch {
	case !rollout.SoakingSince.IsZero() && rollout.SoakedAt.IsZero():
		soak := time.Duration(s.soakSeconds(i)) * time.Second
		return text.Active, "soaks " + until(s.Now, rollout.SoakingSince.Add(soak))
	case reason == v1alpha1.ReasonInProgress && !rollout.StepStartedAt.IsZero():
		return text.Active, "for " + ago(s.Now, rollout.StepStartedAt.Time)
	}
	return tone, reason
}

// passed describes, for a step that has passed, whether nodes failed in it, and since when the revision is stable, if this is known.
func (s Status) passed(i int) (text.Tone, string) {
	rollout := s.Job.Status.Rollout
	tone, said := text.Good, "passed"
	if failed := rollout.Steps[i].Failed; failed > 0 {
		tone, said = text.Warn, "ended with "+plural.Count(failed, "failure")
	}
	if i == len(rollout.Steps)-1 && !rollout.StableAt.IsZero() {
		said += " " + clock(s.Now, rollout.StableAt.Time)
	}
	return tone, said
}

// later describes what a later step waits for.
func (s Status) later(i int) string {
	spec := s.Job.Spec.Rollout
	words := []string{"waits for " + s.Job.Status.Rollout.Steps[i-1].Name}
	if ceiling := s.stepIndex(spec.PromoteTo); spec.PromoteTo != "" && ceiling >= 0 && i > ceiling {
		words = []string{"waits for promotion (promoteTo: " + spec.PromoteTo + ")"}
	}
	if soak := s.soakSeconds(i); soak > 0 {
		words = append(words, "then soaks "+duration.HumanDuration(time.Duration(soak)*time.Second))
	}
	return strings.Join(words, ", ")
}

func (s Status) stepIndex(name string) int {
	return slices.IndexFunc(s.Job.Status.Rollout.Steps, func(step v1alpha1.StepStatus) bool { return step.Name == name })
}

// soakSeconds returns the soak of a step according to the current spec.
func (s Status) soakSeconds(i int) int32 {
	for _, step := range s.Job.Spec.Rollout.Steps {
		if step.Name == s.Job.Status.Rollout.Steps[i].Name {
			return step.SoakSeconds
		}
	}
	return 0
}
