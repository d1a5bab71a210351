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
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/outcome"
)

// nodeProblems remembers failures on single nodes, by NodeJob. It need not survive a restart: a new leader encounters
// them again.
type nodeProblems struct {
	mu sync.Mutex
	of map[client.ObjectKey]*nodeTroubles
}

// nodeTroubles are the problems of one NodeJob, by the node's UID.
type nodeTroubles struct {
	met map[types.UID]*trouble
	// recorded is the run whose end was recorded last, and removals counts how often in a row the node's record was
	// missing right after that.
	recorded map[types.UID]run
	removals map[types.UID]int
	// fresh is true after something was recorded that no plan has seen.
	fresh bool
	// refusedSince is since when the API server rejects all pods; zero while it accepts them.
	refusedSince time.Time
	// retry is task.RetryToken of the NodeJob as last observed.
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
	// firstVanishedWait and longestVanishedWait equal the defaults of spec.retry.
	firstVanishedWait   = 10 * time.Second
	longestVanishedWait = 300 * time.Second
	// freeRemovals is how often in a row a record may be removed, to run the task again, before the next run is
	// delayed.
	freeRemovals = 3
	// removalMemory is how long after the end of a run a removal still counts as one in a row.
	removalMemory = time.Hour
	maxTrouble    = 512
	// longestIdle is how long after the time of its next try an operation is usually tried. If it takes longer, such as in a NodeJob that
	// is suspended, its problem counts from the next occurrence.
	longestIdle = 5 * time.Minute
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

// note remembers a problem. Each occurrence doubles the wait.
func (t *nodeProblems) note(job client.ObjectKey, node types.UID, reason, message string, now time.Time, first, longest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entry(job).note(node, reason, message, now, first, longest)
}

func (n *nodeTroubles) note(node types.UID, reason, message string, now time.Time, first, longest time.Duration) {
	met, ok := n.met[node]
	if !ok || now.After(met.Until.Add(longestIdle)) { // nothing was tried meanwhile
		met = &trouble{NodeProblem: plan.NodeProblem{Since: now}}
		n.met[node] = met
	}
	if met.Reason != reason {
		met.Reason, met.reasonSince = reason, now // nothing has succeeded since the previous problem
	}
	met.wait = max(first, min(2*met.wait, longest))
	met.TriedAt = now
	met.Message, met.Until = outcome.CleanHead(message, maxTrouble), now.Add(met.wait)
	n.fresh = true
}

// clear forgets problems with these reasons on a node, because the operation has succeeded.
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

// refusing records that the API server rejects pods of a NodeJob from now on.
func (t *nodeProblems) refusing(job client.ObjectKey, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.entry(job); known.refusedSince.IsZero() {
		known.refusedSince = now
	}
}

// accepting records that the API server accepts pods again. Rejections that happened before count from now.
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

// isGeneral reports whether a pod was rejected while other pods were rejected too.
func (n *nodeTroubles) isGeneral(met *trouble) bool {
	return slices.Contains(refusalReasons, met.Reason) && !n.refusedSince.IsZero() && !met.reasonSince.Before(n.refusedSince)
}

// ended records the end of an attempt after it is written to the node.
func (t *nodeProblems) ended(job client.ObjectKey, node types.UID, revision, retry string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.entry(job)
	known.recorded[node] = run{revision, retry, now}
	known.drop(node, []string{v1alpha1.ReasonRecordRejected, v1alpha1.ReasonPodForceDeleted})
}

// begins records a first attempt on a node that lacks the end of the previous run. If that was removed repeatedly right
// after it was written, the next run is delayed.
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

// on returns the problems of a NodeJob on the existing nodes. Those of other nodes are forgotten, and all if the user
// requests a retry.
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

// isFresh reports whether something was recorded since the last call of on.
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

// refusedWrite reports whether the API server rejects a write because of the content of the Node, before or after it.
// It would reject a repeated write too.
func refusedWrite(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}
