// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plan"
)

// nodeProblems remembers what did not work on single nodes, by NodeJob. Nothing of it has to outlive the process: a new leader
// meets it again.
type nodeProblems struct {
	mu sync.Mutex
	of map[client.ObjectKey]*nodeTroubles
}

// nodeTroubles are those of one NodeJob, by the node's UID.
type nodeTroubles struct {
	met map[types.UID]*trouble
	// recorded is the run whose end was recorded last, and removals counts how often in a row the node's record was gone
	// right after that.
	recorded map[types.UID]run
	removals map[types.UID]int
	// fresh is true once something was noted that no plan has seen.
	fresh bool
	// refusedSince is since when the API server refuses pods and has taken none; zero while it takes them.
	refusedSince time.Time
	// retry is task.RetryToken of the NodeJob as it was last seen.
	retry string
}

type trouble struct {
	plan.NodeProblem
	wait time.Duration
	// reasonSince is since when it has this reason.
	reasonSince time.Time
}

// run is the end of an attempt that was recorded.
type run struct {
	revision, retry string
	at              time.Time
}

const (
	firstTroubleWait   = time.Second
	longestTroubleWait = 15 * time.Second
	// firstVanishedWait and longestVanishedWait are as the defaults of spec.retry.
	firstVanishedWait   = 10 * time.Second
	longestVanishedWait = 300 * time.Second
	// freeRemovals is how often in a row a record may be removed, to run the task again, before the next run waits.
	freeRemovals = 3
	// removalMemory is how long after an end a removal still counts as one in a row.
	removalMemory = time.Hour
	maxTrouble    = 512
)

func newNodeProblems() nodeProblems { return nodeProblems{of: map[client.ObjectKey]*nodeTroubles{}} }

func (t *nodeProblems) entry(job client.ObjectKey) *nodeTroubles {
	known, ok := t.of[job]
	if !ok {
		known = &nodeTroubles{met: map[types.UID]*trouble{}, recorded: map[types.UID]run{}, removals: map[types.UID]int{}}
		t.of[job] = known
	}
	return known
}

// note remembers a trouble, of which each time makes the wait twice as long.
func (t *nodeProblems) note(job client.ObjectKey, node types.UID, reason, message string, now time.Time, first, longest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entry(job).note(node, reason, message, now, first, longest)
}

func (n *nodeTroubles) note(node types.UID, reason, message string, now time.Time, first, longest time.Duration) {
	met, ok := n.met[node]
	if !ok {
		met = &trouble{NodeProblem: plan.NodeProblem{Since: now}}
		n.met[node] = met
	}
	if met.Reason != reason {
		met.Reason, met.reasonSince = reason, now // nothing has worked since the trouble before
	}
	met.wait = max(first, min(2*met.wait, longest))
	met.Message, met.RetryAt = outcome.CleanHead(message, maxTrouble), now.Add(met.wait)
	n.fresh = true
}

// clear forgets troubles with these reasons on a node, since what failed has worked.
func (t *nodeProblems) clear(job client.ObjectKey, node types.UID, reasons ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.of[job]; ok {
		known.drop(node, reasons)
	}
}

func (n *nodeTroubles) drop(node types.UID, reasons []string) {
	if met, ok := n.met[node]; ok && slices.Contains(reasons, met.Reason) {
		delete(n.met, node)
	}
}

// refusing notes that the API server refuses pods of a NodeJob from now on.
func (t *nodeProblems) refusing(job client.ObjectKey, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.entry(job); known.refusedSince.IsZero() {
		known.refusedSince = now
	}
}

// accepting notes that the API server takes pods again. What it has refused while it took none counts from now.
func (t *nodeProblems) accepting(job client.ObjectKey, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.of[job]
	if !ok {
		return
	}
	for _, met := range known.met {
		if known.isGeneral(met) {
			met.Since, met.reasonSince = now, now
		}
	}
	known.refusedSince = time.Time{}
}

// isGeneral reports whether a pod was refused when no others were taken either.
func (n *nodeTroubles) isGeneral(met *trouble) bool {
	return slices.Contains(refusalReasons, met.Reason) && !n.refusedSince.IsZero() && !met.reasonSince.Before(n.refusedSince)
}

// ended notes the end of an attempt that is on record now.
func (t *nodeProblems) ended(job client.ObjectKey, node types.UID, revision, retry string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.entry(job)
	known.recorded[node] = run{revision, retry, now}
	known.drop(node, []string{v1alpha1.ReasonRecordRejected, v1alpha1.ReasonPodForceDeleted})
}

// begins notes a first attempt on a node that lacks the end of the run before. When that was removed again and again right after
// it was written, the next run waits.
func (t *nodeProblems) begins(job client.ObjectKey, node types.UID, revision, retry string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.entry(job)
	last, ok := known.recorded[node]
	if !ok || last.revision != revision || last.retry != retry || now.Sub(last.at) > removalMemory {
		delete(known.removals, node)
		known.drop(node, []string{v1alpha1.ReasonRecordRemoved})
		return
	}
	if known.removals[node]++; known.removals[node] < freeRemovals {
		return
	}
	message := fmt.Sprintf("its record was removed %d times right after it was written, so the task runs there again and again: find out who removes it", known.removals[node])
	known.note(node, v1alpha1.ReasonRecordRemoved, message, now, firstVanishedWait, longestVanishedWait)
}

// on are the troubles of a NodeJob on the nodes that are there. Those of others are forgotten, and all when the user asks
// for another try.
func (t *nodeProblems) on(job client.ObjectKey, retry string, nodes []plan.Node) map[types.UID]plan.NodeProblem {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.of[job]
	if !ok {
		return nil
	}
	known.fresh = false
	if known.retry != retry {
		known.retry = retry
		clear(known.met)
	}
	there := make(map[types.UID]bool, len(nodes))
	for i := range nodes {
		there[nodes[i].UID] = true
	}
	for uid := range known.recorded {
		if !there[uid] {
			delete(known.recorded, uid)
			delete(known.removals, uid)
		}
	}
	found := make(map[types.UID]plan.NodeProblem, len(known.met))
	for uid, met := range known.met {
		if there[uid] {
			met.General = known.isGeneral(met)
			found[uid] = met.NodeProblem
		} else {
			delete(known.met, uid)
		}
	}
	return found
}

// isFresh reports whether something was noted since the last call of on.
func (t *nodeProblems) isFresh(job client.ObjectKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.of[job]
	return ok && known.fresh
}

func (t *nodeProblems) forget(job client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, job)
}

// refusedWrite reports whether the API server refuses a write to a Node for what the Node is, or is to be: it would refuse
// it again.
func refusedWrite(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}
