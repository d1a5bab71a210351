// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// checkPlan checks the plan against the rules.
func (h *history) checkPlan(in Input, p Plan) {
	busy := h.busyNodes(in.Pods)
	n := p.Status.Nodes
	if n.Total != n.Done+n.Running+n.Waiting+n.Failed {
		h.break_("status", "the counts do not add up: %+v", n)
	}
	limit := h.mayRunAtOnce(in, p)
	deleting := !in.Job.DeletionTimestamp.IsZero()
	for _, action := range p.Actions {
		start, ok := action.(Start)
		if !ok {
			continue
		}
		node := h.cache.nodes[start.Attempt.NodeName]
		for i := range in.Pods {
			retained := start.Attempt.Phase == task.CheckDrift && over(&in.Pods[i]) // it has another name
			if in.Pods[i].NodeName == node.Name && !retained {
				h.break_("rule 1", "%s starts beside pod %s", node.Name, in.Pods[i].Name)
			}
		}
		h.checkEarlier(node.Name)
		if start.Attempt.Phase == task.CheckBefore { // it needs no slot
			h.checkEligible(in, &node, start.Attempt.Phase)
			h.checkRollout(in, &node, h.mayFailAtMost(in))
			continue
		}
		if start.Attempt.Phase == task.CheckDrift {
			h.checkEligible(in, &node, start.Attempt.Phase)
			continue
		}
		if !h.exempt(&node) {
			busy[node.Name] = true
		}
		h.checkBegun(start.Attempt)
		h.checkEligible(in, &node, start.Attempt.Phase)
		if goesOn := start.Attempt.Phase == task.Reboot || start.Attempt.Phase == task.Check; goesOn {
			if h.left[node.UID] == start.Attempt.Revision && len(busy) > limit {
				h.break_(
					"rule 3",
					"%d nodes run, %d may, and %s continues a run that was left for another revision",
					len(busy),
					limit,
					node.Name,
				)
			}
			continue // it has its slot
		}
		if len(busy) > limit && !h.exempt(&node) {
			h.break_("rule 3", "%d nodes run, %d may", len(busy), limit)
		}
		if start.Attempt.Phase == task.Task {
			h.checkRollout(in, &node, h.mayFailAtMost(in))
		}
	}
	h.checkIdle(in, p)
	h.checkWrites(p)
	h.checkAwaited(p)
	h.checkControlPlane(in, p)
	h.checkPrepared(in, p, busy, limit)
	if !p.WakeAt.IsZero() && !p.WakeAt.After(in.Now) {
		h.break_("cost", "it wakes at %v, which is not to come", p.WakeAt)
	}
	h.checkStates(in, p)
	if h.obstacle != nil && !deleting && !isTrue(p.Status, v1alpha1.ConditionStalled) {
		h.break_("rule 10", "the obstacle is not in the status")
	}
}

// checkEligible checks a start against what prevents pods from running on a node.
func (h *history) checkEligible(in Input, node *Node, phase task.Phase) {
	deleting := !in.Job.DeletionTimestamp.IsZero()
	switch {
	case silent(node) || node.Deleting || node.Ready == "":
		h.break_("rule 7", "%s is started and is not there", node.Name)
	case in.Obstacle != nil && h.obstacle != nil && phase != task.Reboot: // a reboot does not need the missing object
		h.break_("rule 10", "%s is started although there is an obstacle", node.Name)
	case deleting && phase != task.Rollback:
		h.break_("deletion", "%s is started", node.Name)
	case phase == task.Reboot, phase == task.Check:
		// Runs that have started are completed.
	case barred(node) && (phase == task.Task || phase.Asks()):
		h.break_("eligible", "%s is started although it has a taint", node.Name)
	case !h.selected(node) && !deleting:
		h.break_("eligible", "%s is started and not selected", node.Name)
	case in.Job.Spec.Suspend && !deleting:
		h.break_("suspend", "%s is started", node.Name)
	}
}

// checkRollout checks the start of a task against the order of the steps and the failure budget, which it derives only
// from what is on the nodes.
func (h *history) checkRollout(in Input, node *Node, mayFail int) {
	h.checkAlone(in, node)
	if h.isBad(node) {
		return // the node itself reports how often it ran there
	}
	bad, successes, others := len(h.harmed), 0, 0
	if !h.stableAt().IsZero() {
		bad = 0
	}
	for i := range in.Nodes {
		other := &in.Nodes[i]
		rec := other.On.Record
		done := other.On.Label == h.rev || other.On.Label != "" && rec != nil && h.succeededBeside(other, rec)
		soaks := in.Job.Spec.Rollout.Steps != nil && in.Job.Spec.Rollout.Steps[0].SoakSeconds > 0
		failsItsSoak := soaks && done && other.Ready != corev1.ConditionTrue && !h.soakIsOver() &&
			!h.works(in, other) && !h.reboots(other)
		switch {
		case !h.selected(other):
			if done && h.works(in, other) { // it takes part until its pod has ended
				successes++
			}
		case h.isBad(other): // it can lose its place to another node in many ways, for example in an earlier pass of its soak
			if done && rec != nil && rec.Revision == h.rev && rec.Outcome == record.Succeeded && !rec.IsAssumed() {
				successes++
				if !soaks && !barred(other) && rec.MachineID == other.MachineID {
					others++
				}
			}
		case h.exhausted(other), h.down(in, other):
			bad++
		case other.UID == node.UID, barred(other) && (!h.isDone(other) || in.Job.Spec.Rerun.PeriodSeconds > 0 || h.repairs()):
			// It is excluded, now or when it is due; until then it is done.
			if h.isDone(other) {
				successes++
			}
		case h.soaked[other.UID] && other.On.Label == h.rev:
			bad++
		case failsItsSoak: // in this pass, and another takes its place
		case h.replacedAsCanary(other.UID),
			h.mayBeStuck(other),
			h.awaited(other) && !h.now.Before(h.stepBegan.Add(h.progressDeadline()-clockStep)):
			if done {
				successes++
			}
		case h.ran(other, in.Pods) && (!done || rec != nil && (rec.Outcome == record.Succeeded || rec.Rerun && rec.Outcome != record.Failed)):
			others++
			if done {
				successes++
			}
		}
	}
	if bad > mayFail {
		h.break_(
			"rule 5",
			"%s is started although %d have failed and %d may (gone: %v, soaked: %v)",
			node.Name,
			bad,
			mayFail,
			h.harmed,
			h.soaked,
		)
	}
	if !h.stableAt().IsZero() || h.ran(node, in.Pods) {
		return // a retry does not affect more nodes
	}
	specs := h.stepsOf()
	if specs[0].Nodes == nil {
		return
	}
	quota := h.atMost(specs[0].Nodes, in)
	if others < quota {
		return // it is a canary itself
	}
	promoteTo := in.Job.Spec.Rollout.PromoteTo
	switch {
	case successes == 0 && !h.everPassed():
		h.break_("rule 4", "%s is started before the canaries have succeeded", node.Name)
	case !h.everPassed() && h.now.Before(h.firstSuccess.Add(time.Duration(specs[0].SoakSeconds)*time.Second)):
		h.break_("rule 4", "%s is started in the soak", node.Name)
	case promoteTo == "canary":
		h.break_("rule 4", "%s is started past promoteTo", node.Name)
	case len(specs) < 3 || node.Labels["stage"] == "yes":
	case promoteTo == "staging":
		h.break_("rule 4", "%s is started past promoteTo", node.Name)
	case !h.staged && !h.reached("all") && !slices.ContainsFunc(in.Nodes, func(n Node) bool { return n.Labels["stage"] == "yes" && n.On.Label == h.rev }):
		h.break_("rule 4", "%s is started before a staging node has succeeded", node.Name)
	}
}

// checkStart checks a start against what was requested and what has happened.
func (h *history) checkStart(a task.Attempt) {
	node := h.cache.nodes[a.NodeName]
	key := run(&node, a.Revision)
	h.checkValues(&node, a)
	switch a.Phase {
	case task.Task:
		h.checkAsked(&node, a.Revision, "started")
		h.beginsRun(key)
		h.checkRun(&node, a, key)
	case task.CheckExpires:
		h.break_("expires", "%s is asked whether the task is still needed, and the NodeJob has no spec.expires", node.Name)
	case task.CheckBefore:
		if h.succeeded[key] && !h.mayRunAgain(&node, key) {
			h.break_("exactly once", "%s is checked before %s after a success", node.Name, a.Revision)
		}
	case task.CheckDrift:
		h.checkQuestion(&node, a.Revision)
	case task.Reboot, task.Check:
		h.checkGoesOn(&node, a)
	case task.Rollback:
		switch rec := node.On.Record; {
		case rec == nil || rec.Revision != a.Revision:
			h.break_("rollback", "%s is rolled back and has nothing on record", node.Name)
		case rec.Outcome != record.Failed && h.job.DeletionTimestamp.IsZero():
			h.break_("rollback", "%s is rolled back after %s", node.Name, rec.Outcome)
		case h.undoFailures[key] > *h.job.Spec.Retry.Limit:
			h.break_("rule 6", "%s is rolled back again after %d failures", node.Name, h.undoFailures[key])
		case h.undone[node.UID]:
			h.break_("rollback", "%s is rolled back a second time", node.Name)
		case rec.Outcome == record.Failed && h.mayHaveBegun[h.mayHaveBegun.of(node.Name, a.Revision)] == 0 && h.job.DeletionTimestamp.IsZero() && !rec.HasExpired():
			h.break_("rollback", "%s is rolled back, and no attempt of the run has started the task", node.Name)
		}
	}
}

// checkRun checks the start of a task against what it must wait for.
func (h *history) checkRun(node *Node, a task.Attempt, key string) {
	if h.succeeded[key] && !h.mayRunAgain(node, key) {
		h.break_("exactly once", "%s runs %s again after a success", node.Name, a.Revision)
	}
	delete(h.succeeded, key)
	delete(h.no, key)
	if h.failures[key] > *h.job.Spec.Retry.Limit {
		h.break_("rule 6", "%s is retried after %d failures", node.Name, h.failures[key])
	}
	h.checkBackoff(node, a, key)
	if h.awaited(node) {
		h.break_("dependsOn", "%s is started before the NodeJob that it depends on is done there", node.Name)
	}
	if h.reboots(node) {
		h.break_("reboot", "%s is started while it reboots", node.Name)
	}
}

// checkRecord checks what is recorded against what has happened.
func (h *history) checkRecord(node *Node, a Record) {
	pod := h.pods[a.Pod.Name]
	h.checkPrevious(node, a.Record)
	if phaseOf(pod) == task.CheckDrift {
		h.checkDriftAnswer(node, a, pod)
		return
	}
	if a.Record.CheckBefore != "" && (pod == nil || pod.Runs != task.Rollback) || phaseOf(pod) == task.CheckBefore {
		h.checkAnswer(node, a, pod)
		return
	}
	if pod == nil || pod.Runs == task.Reboot || pod.Runs == task.Check || a.Record.Outcome == record.Rebooting {
		h.checkReboot(node, a, pod)
		return
	}
	if task.MachineID(pod.Machine) != node.MachineID && h.cache.nodes[node.Name].MachineID == node.MachineID {
		h.break_("truth", "%s is recorded on %s, which is another machine", pod.Name, node.Name)
	}
	key := run(&Node{UID: node.UID, MachineID: a.Record.MachineID}, a.Record.Revision)
	ended := a.Record.Outcome
	if pod.Runs == task.Rollback {
		ended = a.Record.Rollback.Outcome
	} else {
		// A node remembers its last revision only: going back to an earlier one is new work.
		h.forgetRuns(func(k string) bool { return strings.HasPrefix(k, string(node.UID)+"/") && k != key })
	}
	overdue := !h.now.Before(pod.Created.Add(task.Timeout(h.job, pod.Runs)))
	seen := h.seen[node.Name]
	if pod.Runs == task.Task && pod.ran && pod.willSucceed {
		h.checkResults(&seen, a.Record, pod.results)
	}
	switch {
	case ended == record.Failed && pod.ran && pod.willSucceed && (a.Record.Reason == v1alpha1.ReasonInvalidResult || a.Record.Reason == v1alpha1.ReasonPublishConflict):
		// checkResults knows.
	case ended == record.Succeeded && (!pod.ran || !pod.willSucceed):
		h.break_("truth", "a success is recorded for %s, which had none", pod.Name)
	case ended == record.Failed && !(pod.ran && !pod.willSucceed) && !overdue:
		h.break_("rule 6", "a failure is recorded for %s, which neither failed nor took too long", pod.Name)
	case pod.recorded: // by another manager, and then a user has removed the record
	case ended == record.Disrupted && pod.ran && pod.DeleteRequested.IsZero() && pod.Disrupted.IsZero():
		h.break_("truth", "a disruption is recorded for %s, which ran to its end", pod.Name)
	}
	h.checkNotStarted(node, a.Record, pod, ended)
	h.count(node, pod, ended, key)
	if pod.Runs == task.Task {
		h.checkTimes(node, a.Record, pod)
		h.countRun(node, a.Record, key, pod)
	}
}

// checkMark checks the quarantine of a failed node against the policy.
func (h *history) checkMark(node *Node, a PatchNode) {
	rec := h.cache.nodes[node.Name].On.Record
	policy := h.job.Spec.OnFailure.Action
	seen := h.cache.nodes[node.Name]
	switch a.Reason {
	case v1alpha1.ReasonCordoned:
		if (policy != v1alpha1.FailureActionCordon && policy != v1alpha1.FailureActionDrain) || !h.exhausted(&seen) {
			h.break_("onFailure", "%s is cordoned", node.Name)
		}
	case v1alpha1.ReasonDraining:
		// An attempt before may have started the task if its pod was removed by others: the manager does not know.
		notStarted := rec.NotStarted && h.recordedBegin[node.Name] != rec.Revision
		undone := h.job.Spec.Rollback == nil || rec.NeverStarted || notStarted ||
			h.mayHaveBegun[h.mayHaveBegun.of(node.Name, rec.Revision)] == 0 ||
			silent(&seen) ||
			seen.Deleting ||
			rec.Rollback != nil && (rec.Rollback.Outcome == record.Succeeded || rec.Rollback.Attempts > *h.job.Spec.Retry.Limit)
		if policy != v1alpha1.FailureActionDrain || !h.exhausted(&seen) || !undone {
			h.break_("onFailure", "the drain of %s begins", node.Name)
		}
	case v1alpha1.ReasonGateClosed:
		h.checkClosed(&seen)
	case v1alpha1.ReasonPreparing:
		if !h.cordons(&seen) || !h.selected(&seen) {
			h.break_("disruption", "%s is cordoned before the task", node.Name)
		}
		h.checkAsked(&seen, h.rev, "cordoned")
	case v1alpha1.ReasonDrained:
		if len(h.workloads[node.UID]) > 0 {
			h.break_("truth", "%s is called drained and is not", node.Name)
		}
	case v1alpha1.ReasonDrainTimedOut:
		timeout := 10 * time.Minute
		if d := h.job.Spec.OnFailure.Drain; d != nil {
			timeout = seconds32(d.TimeoutSeconds, 600)
		}
		if h.now.Before(rec.Drain.StartedAt.Add(timeout)) {
			h.break_("onFailure", "the drain of %s is given up early", node.Name)
		}
	}
}

// checkCordon checks a change of a cordon against its owner.
func (h *history) checkCordon(node *Node, c *record.Cordon) {
	others := slices.Contains(node.CordonedBy, otherKey)
	switch {
	case h.isBad(node): // it can report anything
	case h.byHand[node.UID]:
		h.break_("rule 8", "the cordon of %s is changed, which has another owner", node.Name)
	case node.Unschedulable && others && !slices.Contains(c.By, otherKey):
		h.break_("rule 8", "%s is cordoned for another NodeJob, which is forgotten", node.Name)
	}
}

func (h *history) checkEvict(a Evict) {
	node := h.cache.nodes[a.Node]
	rec := node.On.Record
	before := h.job.Spec.Maintenance.Drain != nil && !h.exhausted(&node) && !h.job.Spec.Suspend && h.selected(&node) &&
		(node.Unschedulable || slices.Contains(node.CordonedBy, ownKey))
	switch {
	case before:
		h.checkAsked(&node, h.rev, "drained")
	case h.job.Spec.OnFailure.Action != v1alpha1.FailureActionDrain, h.job.Spec.Suspend, !h.exhausted(&node), !node.Unschedulable,
		rec == nil || rec.Drain == nil || !rec.Drain.FinishedAt.IsZero():
		h.break_("onFailure", "pods are evicted from %s", a.Node)
	}
	for _, pod := range a.Pods {
		if pod.EvictionRefused != "" || pod.Terminating || h.now.Before(pod.TriedAt.Add(evictEvery)) {
			h.break_("onFailure", "pod %s is evicted", pod.Name)
		}
	}
}

// checkForget checks the deletion of a NodeJob: if the task must be rolled back, the record is removed after the rollback.
func (h *history) checkForget(node *Node) {
	rec := node.On.Record
	if h.job.DeletionTimestamp.IsZero() {
		h.break_("closed set of actions", "%s is forgotten", node.Name)
	}
	if h.job.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
		h.break_("deletion", "the record of %s is to be retained", node.Name)
	}
	if h.job.Spec.DeletionPolicy == v1alpha1.DeletionRollback && rec != nil && rec.Outcome == record.Succeeded && !rec.IsAssumed() &&
		!isUndone(rec) &&
		rec.MachineID == node.MachineID &&
		h.hasBegun[node.Name] &&
		h.cache.nodes[node.Name].On.Record != nil &&
		!h.undone[node.UID] {
		h.break_("deletion", "%s is forgotten and not rolled back", node.Name)
	}
}

// finish is the end of the NodeJob: nothing may remain.
func (h *history) finish() {
	h.gone = true
	h.say("the NodeJob is removed")
	for name := range h.cache.pods {
		if pod := h.pods[name]; pod != nil && !h.isBad(h.nodes[pod.NodeName]) && (pod.Finalized || pod.DeleteRequested.IsZero()) &&
			h.made[pod.UID] != nil {
			h.break_("deletion", "pod %s is left", name)
		}
	}
	for _, name := range h.podNames() {
		node := h.nodes[h.pods[name].NodeName]
		if h.rolls != nil && node != nil && node.UID == h.pods[name].NodeUID && !h.isBad(node) && h.uses(h.pods[name]) {
			h.break_("rule 22", "the NodeJob is removed while pod %s runs on %s", name, node.Name)
		}
	}
	// What a kubelet may write itself blocks a deletion for a minute at most. The next sweep removes it.
	waited := !h.now.Before(h.job.DeletionTimestamp.Add(time.Minute))
	for _, name := range sortedKeys(h.cache.nodes) {
		node := h.cache.nodes[name]
		if waited && !node.On.Sealed {
			node.CordonedBy = nil // unlike taints
		}
		if !h.isBad(&node) {
			h.checkGone(&node, false)
		}
	}
	if h.job.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
		return
	}
	for name := range h.cache.nodes {
		node := h.cache.nodes[name]
		left := !h.isBad(&node) && node.On.Present || slices.Contains(node.CordonedBy, ownKey)
		if left && (node.On.Sealed || !waited) {
			h.break_("deletion", "something is left on %s", name)
		}
	}
}

func (h *history) checkRelease(pod Pod) {
	node, there := h.cache.nodes[pod.NodeName]
	terminating := !h.job.DeletionTimestamp.IsZero() && h.job.Spec.DeletionPolicy != v1alpha1.DeletionRollback
	matters := pod.Runs == task.Task || pod.Runs == task.CheckBefore && !h.deleting() || undoesRecord(&pod, &node) ||
		pod.Runs == task.Check && onItsWay(&node, pod.Revision)
	if there && h.onThisMachine(&pod, &node) && h.owed(&pod) && !terminating && matters {
		h.break_("rule 2", "pod %s is released before it is recorded", pod.Name)
	}
}
