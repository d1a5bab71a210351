// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plantest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/text"
)

const (
	lineWidth = 120
	// indent is the width of a time and the space after it.
	indent = "          "
)

// Text returns what has happened so far, what the manager did, and the states that resulted.
func (c *Cluster) Text() string { return string(c.text) }

// step writes events, what the manager does about them, and the states if they have changed. Without an event, the
// manager makes a plan because the last plan asked for it.
func (c *Cluster) step(events []string) {
	c.t.Helper()
	asked := len(events) == 0
	if asked {
		events = []string{"No event: the last plan asked for this time."}
	}
	var actions []string
	if !c.gone {
		actions = c.reconcile()
	}
	states, is := c.states(), conditions(&c.Job.Status)
	full := states + strings.Join(is, "\n")
	if asked && len(actions) == 0 && full == c.shown {
		return
	}
	c.note(events)
	for _, a := range actions {
		c.write(Wrap(indent+"-> ", a))
	}
	if full != c.shown && !c.gone {
		c.text = append(c.text, "\n"+states...)
		for _, line := range is {
			c.write(Wrap(indent, c.shortened(line)))
		}
	}
	c.shown, c.shownConditions = full, is
}

// shortened leaves out a long message that was shown before, so that the reader sees what has changed.
func (c *Cluster) shortened(condition string) string {
	if kind, _, _ := strings.Cut(condition, ":"); len(condition) > 2*lineWidth && slices.Contains(c.shownConditions, condition) {
		return kind + ": the same message as before"
	}
	return condition
}

// note writes events.
func (c *Cluster) note(events []string) {
	at := "\n" + clockTime(c.Now) + "  "
	for _, e := range events {
		lines := Wrap(indent, e)
		lines[0] = at + strings.TrimPrefix(lines[0], indent)
		c.write(lines)
		at = indent
	}
}

func (c *Cluster) write(lines []string) {
	for _, line := range lines {
		c.text = append(c.text, line+"\n"...)
	}
}

// states describes the nodes and the NodeJob, without its conditions.
func (c *Cluster) states() string {
	rows := [][]text.Line{text.Cells("NODE", "STATE", "REASON", "MESSAGE")}
	for _, n := range c.last.Nodes {
		rows = append(rows, text.Cells(n.Name, string(n.State), n.Reason, n.Message))
	}
	var lines []string
	if len(rows) > 1 {
		for _, line := range text.Render(text.Table(rows), text.Options{}) {
			lines = append(lines, indent+line)
		}
	}
	status := &c.Job.Status
	for i := range status.Drains {
		lines = append(lines, drainText(&status.Drains[i])...)
	}
	if r := status.Rollout; r != nil {
		lines = append(lines, indent+rolloutText(r))
	}
	if g := status.Gate; g != nil {
		lines = append(lines, fmt.Sprintf("%sGate: closed on %d of the matching nodes", indent, g.Closed))
	}
	return strings.Join(lines, "\n") + "\n"
}

func drainText(d *v1alpha1.NodeDrain) []string {
	lines := []string{fmt.Sprintf("%sDrain of %s until %s, remaining pods: %d", indent, d.Node, clockTime(d.Deadline.Time), d.Pods)}
	for _, b := range d.Blocked {
		lines = append(lines, Wrap(indent+"  ", b.Pod+": "+b.Message)...)
	}
	return lines
}

func rolloutText(r *v1alpha1.RolloutStatus) string {
	words := []string{"Rollout: step " + r.Step}
	if !r.SoakingSince.IsZero() {
		words = append(words, "soaking since "+clockTime(r.SoakingSince.Time))
	}
	if !r.StableAt.IsZero() {
		words = append(words, "stable since "+clockTime(r.StableAt.Time))
	}
	for _, f := range r.UnrecordedFailures {
		words = append(words, fmt.Sprintf("unrecorded failure of %s (%s)", f.Node, f.Reason))
	}
	return strings.Join(words, ", ")
}

// conditions describes the condition of the first three that is True, and others that need attention.
func conditions(status *v1alpha1.NodeJobStatus) []string {
	var lines []string
	for _, kind := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionRollbackFailed} {
		if is := meta.FindStatusCondition(status.Conditions, kind); is != nil && is.Status == "True" {
			lines = append(lines, fmt.Sprintf("%s (%s): %s", kind, is.Reason, is.Message))
		}
	}
	if is := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionComplete); is != nil && len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("No condition is True (%s): %s", is.Reason, is.Message))
	}
	return lines
}

func clockTime(at time.Time) string { return at.UTC().Format("15:04:05") }

// scriptNames are the names of the scripts of a NodeJob.
var scriptNames = map[task.Phase]string{
	task.Task: "task", task.Rollback: "rollback", task.Check: "check", task.CheckBefore: "check before the task", task.CheckDrift: "check",
	task.CheckExpires: "check of spec.expires",
}

// nameOf describes the purpose of a pod.
func nameOf(phase task.Phase, number int32, node string) string {
	switch phase {
	case task.Reboot:
		return "the reboot of " + node
	case task.Check:
		return "the check of " + node + " after the reboot"
	case task.CheckBefore:
		return "the check of " + node + " before the task"
	case task.CheckDrift:
		return "the check of " + node + " for drift"
	case task.CheckExpires:
		return fmt.Sprintf("check %d on %s of whether the task is still needed", number, node)
	case task.Task, task.Rollback:
	}
	return fmt.Sprintf("attempt %d of the %s on %s", number, phase, node)
}

// outcomeOf is what a record says about the end of a pod that ran a phase.
func outcomeOf(r *record.Record, phase task.Phase) string {
	switch {
	case phase == task.Rollback && r.Rollback != nil:
		return "rollback " + string(r.Rollback.Outcome) + because(r.Rollback.Reason, r.Rollback.ExitCode, r.Rollback.Message)
	case phase.AsksDone():
		is := r.Compliance()
		return strings.TrimSuffix("its check says "+string(is.Answer)+": "+is.Message, ": ")
	case phase == task.CheckExpires && r.Expiry != nil:
		return fmt.Sprintf("%s; no longer needed: %s", r.Outcome, r.Expiry.Answer)
	}
	return string(r.Outcome) + because(r.Reason, r.ExitCode, r.Message)
}

// because is a reason in brackets; "" if there is none.
func because(reason string, code *int32, message string) string {
	if reason == "" {
		return ""
	}
	if code != nil {
		reason += fmt.Sprintf(", exit code %d", *code)
	}
	return " (" + reason + ": " + message + ")"
}

// recorded is a record in words.
func recorded(a plan.Record) string {
	words := outcomeOf(a.Record, a.Pod.Runs)
	if a.Final {
		words += ", no retry"
	}
	switch {
	case a.Retain:
		words += "; retain the pod"
	case a.Pod.UID != "":
		words += "; delete the pod"
	}
	return "record on " + a.Node + ": " + words
}

// difference is what a write has changed on a node, apart from the content of the record.
func difference(before, after *corev1.Node, key string) string {
	var words []string
	if before.Spec.Unschedulable != after.Spec.Unschedulable {
		words = append(words, map[bool]string{true: "cordoned", false: "uncordoned"}[after.Spec.Unschedulable])
	}
	was, is := taintsOf(before), taintsOf(after)
	words = append(words, prefixed("taint ", missing(was, is), " removed")...)
	words = append(words, prefixed("taint ", missing(is, was), " added")...)
	was, is = labelsOf(before, key), labelsOf(after, key)
	words = append(words, prefixed("label ", missing(was, is), " removed")...)
	words = append(words, prefixed("label ", missing(is, was), "")...)
	if _, stays := after.Annotations[key]; !stays && before.Annotations[key] != "" {
		words = append(words, "record removed")
	}
	if len(words) == 0 {
		return ""
	}
	return " [" + strings.Join(words, ", ") + "]"
}

func taintsOf(node *corev1.Node) []string {
	var taints []string
	for i := range node.Spec.Taints {
		taints = append(taints, node.Spec.Taints[i].ToString())
	}
	return taints
}

// labelsOf returns the labels of a node, without the seal of its record.
func labelsOf(node *corev1.Node, key string) []string {
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(node.Labels)) {
		if name != record.SealKey(key) {
			labels = append(labels, name+"="+node.Labels[name])
		}
	}
	return labels
}

// missing returns those of the texts that others does not have.
func missing(texts, others []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return slices.Contains(others, s) })
}

func prefixed(before string, texts []string, after string) []string {
	for i := range texts {
		texts[i] = before + texts[i] + after
	}
	return texts
}

// Wrap breaks a text into lines. The first one begins with head, and the others are indented as far.
func Wrap(head, s string) []string {
	return text.Render(text.Wrap(text.Of(head), text.Plain, s, lineWidth), text.Options{})
}
