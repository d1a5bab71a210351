// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// The knowledge of the oracle of a history.

// oracle knows what really happened, independently of the plan.
type oracle struct {
	// succeeded says on which (node UID, machine, revision) a task has run to its end without a later request for another
	// run.
	succeeded map[string]bool
	// relabelled are the runs during whose success a user has set a label that it removes, which requests another run.
	relabelled map[string]bool
	// claimed are (node UID, revision) of labels that an actor left on a node without the record.
	claimed map[string]bool
	// failures counts real failures of (node UID, machine, revision) since the last request by a user, and undoFailures
	// those of the rollback.
	failures, undoFailures map[string]int32
	// undone are nodes on which the rollback has succeeded since the task last ran there.
	undone map[types.UID]bool
	// mayHaveBegun are the runs that may have started their task.
	mayHaveBegun mayHaveBegun
	// recordedBegin are the revisions of runs of which an attempt that may have started the task is recorded, by the name of the node.
	recordedBegin map[string]string
	// hasBegun are the nodes on whose machine any such attempt is recorded. On others, there is nothing to roll back.
	hasBegun map[string]bool

	// Of the revision that rolls out: whether it has succeeded on a staging node, when it first succeeded,
	// which nodes it has run on were observed failed or not Ready, and which of those were deleted since.
	staged       bool
	firstSuccess time.Time
	notReady     map[types.UID]string // the machine
	harmed       map[types.UID]bool
	// suspect are nodes that were seen failed, without progress, or not Ready after a run had begun there.
	suspect map[types.UID]bool
	// before are the nodes that are not Ready for another reason than the revision: since before it started there, or since
	// they were being removed.
	before map[types.UID]bool
	// again are those of them of which a manager may or may not know so: the status was not written, or the node had run it before.
	again map[types.UID]bool
	// turned are the nodes that left notReady without being Ready, and have not been Ready since.
	turned map[types.UID]bool
	// beginsUnready are those on which the revision starts in this pass.
	beginsUnready []types.UID
	// soaked are the nodes that had succeeded and were seen not Ready while the first step soaked.
	soaked       map[types.UID]bool
	seenRevision string
	// stepBegan is when the step of the status began.
	stepBegan time.Time
}

func newOracle() oracle {
	return oracle{
		succeeded:     map[string]bool{},
		relabelled:    map[string]bool{},
		claimed:       map[string]bool{},
		failures:      map[string]int32{},
		undoFailures:  map[string]int32{},
		undone:        map[types.UID]bool{},
		notReady:      map[types.UID]string{},
		harmed:        map[types.UID]bool{},
		soaked:        map[types.UID]bool{},
		mayHaveBegun:  mayHaveBegun{},
		recordedBegin: map[string]string{}, hasBegun: map[string]bool{},
		before:  map[types.UID]bool{},
		again:   map[types.UID]bool{},
		suspect: map[types.UID]bool{},
		turned:  map[types.UID]bool{},
	}
}

// run is the key by which successes and failures are counted.
func run(node *Node, rev string) string {
	return string(node.UID) + "/" + node.MachineID + "/" + rev
}

// ask forgets what a node did: a user requests another run.
func (h *history) ask(node *Node) {
	h.forgetRuns(func(k string) bool { return strings.HasPrefix(k, string(node.UID)+"/") })
}

func (h *history) forgetRuns(which func(key string) bool) {
	maps.DeleteFunc(h.succeeded, func(k string, _ bool) bool { return which(k) })
	maps.DeleteFunc(h.failures, func(k string, _ int32) bool { return which(k) })
	maps.DeleteFunc(h.undoFailures, func(k string, _ int32) bool { return which(k) })
	maps.DeleteFunc(h.ends, func(k string, _ setback) bool { return which(k) })
}

// beginRevision starts to observe a revision. Nodes may have run it before.
func (h *history) beginRevision() {
	h.staged, h.firstSuccess = false, time.Time{}
	for uid := range h.before {
		h.again[uid] = true
	}
	suspect := h.suspect // the stored status may still be of an earlier time of this revision, until it is written for another one
	for _, node := range h.nodes {
		if node.On.Label == h.rev || h.succeeded[run(node, h.rev)] { // a label may still be of a skip
			h.firstSuccess = time.Unix(0, 0)
			h.staged = h.staged || node.Labels["stage"] == "yes"
		}
	}
	h.forgiven()
	h.suspect = suspect
}

func (h *history) forgiven() {
	h.notReady, h.harmed, h.soaked, h.suspect = map[types.UID]string{}, map[types.UID]bool{}, map[types.UID]bool{}, map[types.UID]bool{}
	h.turned = map[types.UID]bool{}
}

// exhausted reports whether every attempt has failed on a node, according to its record.
func (h *history) exhausted(node *Node) bool {
	rec := node.On.Record
	return rec != nil && rec.Revision == h.rev && rec.Outcome == record.Failed && rec.Attempts > *h.job.Spec.Retry.Limit &&
		(node.On.Label != h.rev || rec.Rerun) && rec.MachineID == node.MachineID && rec.Retry == task.RetryToken(h.job) && !rec.RetryRequested
}

// down reports whether the node has been unreachable since an attempt failed there, and none runs there now.
func (h *history) down(in Input, node *Node) bool {
	if h.works(in, node) {
		return false
	}
	rec := node.On.Record
	return rec != nil && silent(node) && rec.Revision == h.rev && rec.Outcome != record.Succeeded && rec.Outcome != record.Rebooting &&
		rec.Attempts > 0 &&
		node.On.Label != h.rev &&
		rec.MachineID == node.MachineID &&
		rec.Retry == task.RetryToken(h.job) &&
		!rec.RetryRequested
}

// ran reports whether the revision has run or runs on the node.
func (h *history) ran(node *Node, pods []Pod) bool {
	if rec := node.On.Record; rec != nil && rec.Revision == h.rev && !rec.IsAssumed() && !onlyAnswered(rec) &&
		rec.MachineID == node.MachineID {
		return true
	}
	return slices.ContainsFunc(pods, func(p Pod) bool {
		return p.NodeName == node.Name && p.Runs == task.Task && p.Revision == h.rev && h.owed(&p) && h.onThisMachine(&p, node)
	})
}

// saw notes what a manager has observed, when its status was written.
func (h *history) saw(in Input, before v1alpha1.NodeJobStatus) {
	if h.seenRevision != in.Revision || h.stableAt() != (time.Time{}) {
		h.seenRevision = in.Revision
		h.forgiven()
	}
	machines := map[types.UID]string{}
	for i := range in.Nodes {
		machines[in.Nodes[i].UID] = in.Nodes[i].MachineID
	}
	for uid, machine := range h.notReady {
		if machines[uid] != machine {
			h.harmed[uid] = true
			delete(h.notReady, uid)
		}
	}
	soaks := before.Rollout != nil && before.Revision == in.Revision && before.Rollout.Step == "canary" &&
		!before.Rollout.SoakingSince.IsZero() && before.Rollout.StableAt.IsZero() && before.ControllerState.Rollout.Retry == h.job.Status.ControllerState.Rollout.Retry &&
		!h.job.Status.Rollout.SoakingSince.IsZero() && h.onlyCanaries(in)
	for i := range in.Nodes {
		node := &in.Nodes[i]
		if h.isBad(node) {
			continue
		}
		unwell := h.isUnwell(node)
		// A user who cordons a node and has it run again knows its failure, and then it counts as it is.
		known := goingAway(node) && (h.notReady[node.UID] == "" || node.On.Label != h.rev)
		noted := h.selected(node) && h.ran(node, in.Pods) && (h.exhausted(node) || unwell && !known)
		if h.notReady[node.UID] != "" && !noted && (node.Ready != corev1.ConditionTrue || !h.selected(node)) {
			h.turned[node.UID] = true
		}
		waits := h.awaited(node) && h.ran(node, in.Pods) // and may count as failed after the deadline
		if h.exhausted(node) || h.mayBeStuck(node) || waits ||
			(h.began[node.UID] || h.ran(node, in.Pods)) && node.Ready != corev1.ConditionTrue {
			h.suspect[node.UID] = true
		}
		if succeeded := node.On.Label == h.rev && h.ran(node, nil) && node.On.Record.Outcome == record.Succeeded; !succeeded {
			delete(h.soaked, node.UID)
		} else if soaks && !h.everPassed() && unwell && h.selected(node) && !barred(node) && !h.hadPod(in, node) {
			if !h.soaked[node.UID] {
				h.say("%s is not Ready in the soak and counts as failed", node.Name)
			}
			h.soaked[node.UID] = true
		}
		if noted {
			h.notReady[node.UID] = node.MachineID
		} else {
			delete(h.notReady, node.UID)
		}
	}
	h.checkCasualties(before)
	for _, uid := range h.beginsUnready {
		h.before[uid] = true
	}
}

// noteStarts notes the nodes that are not Ready when the revision starts there for the first time, as far as records and pods
// say so. A suspect has run it before.
func (h *history) noteStarts(in Input, p Plan) {
	h.beginsUnready = nil
	for _, action := range p.Actions {
		start, ok := action.(Start)
		node := h.seen[start.Attempt.NodeName]
		if ok && start.Attempt.Phase == task.Task && node.Ready != corev1.ConditionTrue && !h.ran(&node, in.Pods) {
			h.beginsUnready = append(h.beginsUnready, node.UID)
			h.again[node.UID] = h.suspect[node.UID]
		}
	}
}

// checkCasualties checks that a node counts as failed in its soak only if the task may be the cause.
func (h *history) checkCasualties(before v1alpha1.NodeJobStatus) {
	if h.job.Status.Rollout == nil {
		return
	}
	for _, c := range h.job.Status.Rollout.UnrecordedFailures {
		known := before.Rollout != nil && before.Revision == h.job.Status.Revision &&
			slices.ContainsFunc(before.Rollout.UnrecordedFailures, func(b v1alpha1.UnrecordedFailure) bool { return b.UID == c.UID })
		switch {
		case known, h.bad != "" && c.UID == h.bad:
		case c.Reason == v1alpha1.ReasonNotReadyInSoak && h.before[c.UID] && !h.again[c.UID]:
			h.break_(
				"rule 5",
				"%s counts as failed in its soak, and was not Ready before the revision started, or since its removal began",
				c.Node,
			)
		}
	}
}

// isUnwell reports whether a node that a manager has seen turned NotReady when the revision had started there, and was not
// being removed.
func (h *history) isUnwell(node *Node) bool {
	switch {
	case node.Ready == corev1.ConditionTrue:
		delete(h.before, node.UID)
		delete(h.again, node.UID)
		delete(h.turned, node.UID)
		return false
	case h.notReady[node.UID] == "" && !h.turned[node.UID] && goingAway(node):
		h.before[node.UID] = true
	}
	return !h.before[node.UID]
}

// hadPod reports whether a pod whose outcome was not on record was seen on a node.
func (h *history) hadPod(in Input, node *Node) bool {
	return slices.ContainsFunc(in.Pods, func(p Pod) bool { return p.NodeName == node.Name && p.Finalized && h.made[p.UID] != nil })
}

// onlyCanaries reports whether no more nodes are done than the first step has. A revision that is used a second time
// finds more.
func (h *history) onlyCanaries(in Input) bool {
	done := 0
	for i := range in.Nodes {
		if in.Nodes[i].On.Label == h.rev {
			done++
		}
	}
	first := in.Job.Spec.Rollout.Steps[0]
	return first.Nodes != nil && done <= h.atLeast(first.Nodes, in)
}

func (h *history) selected(node *Node) bool {
	return node.Labels["pool"] == "a" && h.needed(node) && runsScripts(node) && isAllowed(h.nodesOf, node)
}

// stableAt is when the revision became stable, according to the status.
func (h *history) stableAt() time.Time {
	if r := h.job.Status.Rollout; r != nil && h.job.Status.Revision == h.rev {
		return r.StableAt.Time
	}
	return time.Time{}
}

// exempt reports whether a node takes no slot: it was created after the revision became stable, was never done, and
// cannot run workloads. Its gate has been closed since its creation, or it is not Ready and joins.
func (h *history) exempt(node *Node) bool {
	doneBefore := node.On.Label != "" || node.On.Record != nil && (node.On.Record.Outcome == record.Succeeded || node.On.Record.Rerun)
	empty := !h.ungated[node.UID] || node.Ready != corev1.ConditionTrue && h.now.Before(node.Created.Add(joinTime))
	return !h.deleting() && !h.stableAt().IsZero() && node.Created.After(h.stableAt()) && !doneBefore && empty
}

// noteNodes notes which nodes can run workloads: those without a gate, and which wait for the reboot of another revision. The manager has
// seen them in this state.
func (h *history) noteNodes(in Input) {
	for i := range in.Nodes {
		node := &in.Nodes[i]
		if !slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return t.Key == sharedGate || t.Key == ownKey }) {
			h.ungated[node.UID] = true
		}
		switch rec := node.On.Record; {
		case rec == nil || rec.Outcome != record.Rebooting:
			delete(h.left, node.UID)
		case rec.Revision != in.Revision:
			h.left[node.UID] = rec.Revision
		}
	}
}

// busyNodes are the nodes with a pod of the NodeJob whose outcome is not on record.
func (h *history) busyNodes(pods []Pod) map[string]bool {
	busy := map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		node, there := h.cache.nodes[pod.NodeName]
		if there && h.owed(pod) && h.onThisMachine(pod, &node) && !h.exempt(&node) && !(h.isBad(&node) && over(pod)) &&
			(pod.Runs == task.Task || undoesRecord(pod, &node) || pod.Runs == task.Rollback && !over(pod) && !pod.Concluded && h.now.Before(pod.Created.Add(task.Timeout(h.job, pod.Runs)+graceAfterDeadline))) {
			busy[pod.NodeName] = true
		}
	}
	for name := range h.cache.nodes {
		if node := h.cache.nodes[name]; h.reboots(&node) && !h.exempt(&node) {
			busy[name] = true
		}
	}
	return busy
}

// soakIsOver reports whether the soak of the current step is over, according to the status.
func (h *history) soakIsOver() bool {
	r := h.job.Status.Rollout
	return r != nil && h.job.Status.Revision == h.rev && !r.SoakedAt.IsZero()
}

// replacedAsCanary reports whether the node is an unrecorded failure, according to the status.
func (h *history) replacedAsCanary(uid types.UID) bool {
	r := h.job.Status.Rollout
	return r != nil && h.job.Status.Revision == h.rev &&
		slices.ContainsFunc(r.UnrecordedFailures, func(c v1alpha1.UnrecordedFailure) bool { return c.UID == uid })
}

// everPassed reports whether the rollout is past its first step, according to the status.
func (h *history) everPassed() bool { return h.reached("staging") || h.reached("all") }

func (h *history) reached(step string) bool {
	r := h.job.Status.Rollout
	return r != nil && h.job.Status.Revision == h.rev && r.Step == step
}

func (h *history) started(a task.Attempt) {
	h.mayHaveBegun.starts(a)
	if a.Phase == task.Task {
		delete(h.skip, a.NodeUID) // the user who skipped the node did so before
		delete(h.undone, a.NodeUID)
		delete(h.undoFailures, run(&Node{UID: a.NodeUID, MachineID: a.MachineID}, a.Revision))
	}
}

// count notes an outcome.
func (h *history) count(node *Node, pod *simPod, ended record.Outcome, key string) {
	since := pod.Retry == task.RetryToken(h.job)
	switch {
	case pod.Runs == task.Rollback && ended == record.Succeeded:
		h.undone[node.UID] = true
	case pod.Runs == task.Rollback && ended == record.Failed && since:
		h.undoFailures[key]++
	case pod.Runs == task.Rollback:
	}
}
