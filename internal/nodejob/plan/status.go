// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

const (
	// maxFailures bounds status.failures.
	maxFailures = 10
	// maxNodeProblems bounds status.nodeProblems.
	maxNodeProblems = 10
	// maxNamed bounds the nodes that a condition's message names.
	maxNamed = 3
	// maxFailureMessage bounds the message of one failure, in bytes.
	maxFailureMessage = 512
)

// statusBuilder folds the nodes of a pass into the status of the NodeJob.
type statusBuilder struct {
	*job
	gate     *gate
	rollout  *rollout
	capacity *capacity
	nodes    []nodePlan
	counts   v1alpha1.NodeCounts
	// progress describes the progress, and what the remaining nodes wait for.
	progress string
	// failures are status.failures, and drains status.drains, before they are bounded.
	failures []v1alpha1.NodeFailure
	drains   []v1alpha1.NodeDrain
	// troubled are nodes with which the manager cannot continue, and troubleReason is why not.
	troubled      []string
	troubleReason string
	// notStarted are nodes whose pods do not start, disrupted those that were disrupted many times in a row, unrecovered
	// those on which the rollback failed as well, and unpublished those on which something cannot be published.
	notStarted, disrupted, unrecovered, unpublished []string
	// checkErrors are nodes whose check before the task itself fails, and checksStalled counts those of them where it has failed for
	// checkErrorPatience.
	checkErrors   []string
	checksStalled int32
	// driftErrors and driftStalled are the same for the check of nodes that are done, and nonCompliant are those on which it answers no.
	driftErrors  []string
	driftStalled int
	nonCompliant []*nodePlan
	// expiryErrors are nodes on which spec.expires.check itself fails. expiryStalled and expiryBlocked count those of them where it has
	// failed for checkErrorPatience, and that are done, or wait for its answer.
	expiryErrors                 []string
	expiryStalled, expiryBlocked int32
	// withoutEffect counts the nodes that need a task with spec.expires, and on which it is not in effect.
	withoutEffect int32
	// unasked counts the nodes on which spec.expires.check has not answered yet.
	unasked int32
	// rollbackRetried are nodes on which the rollback is retried while the NodeJob is deleted.
	rollbackRetried []string
	// drainsBlocked are nodes whose drain before the task is blocked.
	drainsBlocked []string
	// silent are the names of the nodes in notStarted whose kubelets are silent.
	silent []string
	// obstructed counts the nodes that only the obstacle prevents from starting, and runnerObstructed those that only
	// Input.RunnerRefused does.
	obstructed, runnerObstructed int32
	// pullsRefused counts those whose images cannot be pulled before the maintenance, for no other reason.
	pullsRefused int32
}

// newStatus folds the nodes.
func (p *planner) newStatus() *statusBuilder {
	b := &statusBuilder{job: p.job, gate: p.gate, rollout: p.rollout, capacity: p.capacity, nodes: p.nodes, counts: count(p.nodes)}
	for i := range p.nodes {
		b.add(&p.nodes[i])
	}
	return b
}

// add adds what was found out about a node.
func (sb *statusBuilder) add(w *nodePlan) {
	sb.countEffect(w)
	if w.nonCompliant {
		sb.nonCompliant = append(sb.nonCompliant, w)
	}
	if w.found != nil {
		sb.addFindings(w, w.found)
	}
	switch {
	case w.obstructedBy == nil && !sb.triesToPull(w):
	case w.obstructedBy == nil, w.obstructedBy == sb.in.RunnerRefused:
		sb.runnerObstructed++
		if task.OnlyPulls(sb.in.Job) && (w.found == nil || !w.found.checkErrorStalls) {
			sb.pullsRefused++
		}
	default:
		sb.obstructed++
	}
}

func (sb *statusBuilder) addFindings(w *nodePlan, found *findings) {
	node := w.node
	sb.failures = append(sb.failures, found.failures...)
	if found.drain != nil {
		sb.drains = append(sb.drains, *found.drain)
		if blocked := blockedText(found.drain); blocked != "" && w.State == Running {
			sb.drainsBlocked = append(sb.drainsBlocked, fmt.Sprintf("%s: %s; until %s", node.Name, blocked, found.drain.Deadline.UTC().Format(time.RFC3339)))
		}
	}
	if found.problem != nil {
		sb.troubled, sb.troubleReason = append(sb.troubled, node.Name+": "+found.problem.Message), found.problem.Reason
	}
	if found.notStarted != "" {
		sb.notStarted = append(sb.notStarted, node.Name+": "+found.notStarted)
		if found.silent {
			sb.silent = append(sb.silent, node.Name)
		}
	}
	if found.disrupted {
		sb.disrupted = append(sb.disrupted, node.Name+": "+lastLine(node.On.Record.Message))
	}
	sb.addCheckError(w, found)
	if found.unrecovered != "" {
		sb.unrecovered = append(sb.unrecovered, found.unrecovered)
	}
	if found.rollbackRetried != "" {
		sb.rollbackRetried = append(sb.rollbackRetried, found.rollbackRetried)
	}
	if found.unpublished != "" {
		sb.unpublished = append(sb.unpublished, node.Name+": "+found.unpublished)
	}
}

// addCheckError adds that a check itself failed on a node, if it did: that before the task, of a node that is done, or of spec.expires.
func (sb *statusBuilder) addCheckError(w *nodePlan, found *findings) {
	node := w.node
	if found.askError != "" {
		sb.driftErrors = append(sb.driftErrors, node.Name+": "+found.askError)
		if found.askErrorStalls {
			sb.driftStalled++
		}
	}
	if found.expiryError != "" {
		sb.expiryErrors = append(sb.expiryErrors, node.Name+": "+found.expiryError)
	}
	switch {
	case found.expiryErrorStalls && w.State == Done:
		sb.expiryStalled++
	case found.expiryErrorStalls && w.State == Waiting:
		sb.expiryBlocked++
	}
	if found.checkError == "" {
		return
	}
	sb.checkErrors = append(sb.checkErrors, node.Name+": "+found.checkError)
	if found.checkErrorStalls {
		sb.checksStalled++
	}
}

// status is bounded, regardless of the size of the cluster, and stable: the same state gives the same text, so that it
// is only written when something changed.
func (sb *statusBuilder) status() v1alpha1.NodeJobStatus {
	status := v1alpha1.NodeJobStatus{
		ObservedGeneration: sb.in.Job.Generation,
		Revision:           sb.in.Revision,
		RevisionDigest:     sb.in.Digest,

		UnattributedGeneration: sb.in.unattributed(),
		Nodes:                  sb.counts,
		Excluded:               sb.excludedNodes(),
		Failures:               sb.boundedFailures(),
		Drains:                 sb.boundedDrains(),
		NodeProblems:           sb.nodeProblems(),
		Gate:                   sb.gateStatus(),
	}
	for _, c := range sb.in.Job.Status.Conditions {
		status.Conditions = append(status.Conditions, *c.DeepCopy())
	}
	sb.progress = sb.progressOf(status.Nodes, sb.nodes) + sb.expiryMessage() + sb.unheardMessage()
	sb.setConditions(&status, (&summarizer{sb}).summarize(status.Nodes), sb.progress)
	if sb.in.Revision != "" {
		sb.rollout.noteRisks()
		sb.rollout.status.Steps = sb.rollout.stepCounts()
		sb.rollout.status.write(&status)
	}
	return status
}

// stepCounts is the progress of each step.
func (ro *rollout) stepCounts() []v1alpha1.StepStatus {
	counts := make([]v1alpha1.StepStatus, 0, len(ro.steps))
	for i := range ro.steps {
		c := v1alpha1.StepStatus{Name: ro.steps[i].name, Nodes: int32(len(ro.steps[i].nodes))}
		for _, n := range ro.steps[i].nodes {
			switch ro.nodes[n].State {
			case Done:
				c.Done++
			case Failed:
				c.Failed++
			case Excluded, Waiting, Running:
			}
		}
		counts = append(counts, c)
	}
	return counts
}

func count(nodes []nodePlan) v1alpha1.NodeCounts {
	var c v1alpha1.NodeCounts
	for i := range nodes {
		countChecks(&c, &nodes[i])
		switch nodes[i].State {
		case Excluded:
			if nodes[i].isExcludedThoughSelected() {
				c.Excluded++
			}
			continue
		case Done:
			c.Done++
			nodes[i].addExpiry(&c)
		case Running:
			c.Running++
		case Waiting:
			c.Waiting++
		case Failed:
			c.Failed++
			if nodes[i].rollbackPending {
				c.RollbackPending++
			}
			switch nodes[i].Reason {
			case v1alpha1.ReasonRolledBack:
				c.RolledBack++
			case v1alpha1.ReasonRollbackFailed:
				c.RollbackFailed++
			}
		}
		c.Total++
	}
	return c
}

// boundedFailures are the nodes that need a user first, then the nodes that are retried, by name.
func (sb *statusBuilder) boundedFailures() []v1alpha1.NodeFailure {
	slices.SortStableFunc(sb.failures, func(a, b v1alpha1.NodeFailure) int {
		if a.Retrying != b.Retrying {
			if b.Retrying {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Node, b.Node)
	})
	return sb.failures[:min(len(sb.failures), maxFailures)]
}

// boundedDrains are the drains, the oldest first.
func (sb *statusBuilder) boundedDrains() []v1alpha1.NodeDrain {
	slices.SortFunc(sb.drains, func(a, b v1alpha1.NodeDrain) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	return sb.drains[:min(len(sb.drains), maxDrains)]
}

func (co *cordons) failureOf(node *Node, retrying bool) v1alpha1.NodeFailure {
	r := node.On.Record
	return v1alpha1.NodeFailure{
		Node:       node.Name,
		Retrying:   retrying,
		Attempts:   r.Attempts,
		ExitCode:   r.ExitCode,
		Reason:     outcome.Clean(r.Reason, 128),
		Message:    failureMessage(r),
		FinishedAt: metav1.NewTime(r.FinishedAt),
		Quarantine: co.quarantineState(node),
	}
}

// failureMessage is the end of the output, in which errors usually are, or the beginning of a sentence of the manager.
func failureMessage(r *record.Record) string {
	if r.Reason == v1alpha1.ReasonDrainTimedOut {
		return outcome.CleanHead(r.Message, maxFailureMessage)
	}
	return outcome.Clean(r.Message, maxFailureMessage)
}

// lastLine is the beginning of the last line.
func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return outcome.CleanHead(s[strings.LastIndexByte(s, '\n')+1:], 160)
}
