package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// survey joins nodes and pods, and gathers what a pass over the nodes finds.
type survey struct {
	in          Input
	key         string
	retry       string
	selector    labels.Selector
	named       names
	steps       []step
	tolerations []corev1.Toleration
	obstacle    *Obstacle
	gate        gate
	dependsOn   []peer
	sharers     []peer
	// self is the NodeJob as others see it.
	self peer
	// podsOn holds the pods by the name of the node that they are bound to.
	podsOn map[string][]*Pod
	// work has an entry for each of Plan.Nodes.
	work []work
	// rollout is how far the revision has come, as this pass finds it.
	rollout v1alpha1.RolloutStatus
	// stableAt is when the revision was proven, by the status that was seen: zero when it was not.
	stableAt time.Time
	// current and ceiling are indexes into steps.
	current, ceiling int
	// unwell is a node that must become Ready for the soak of the current step to begin.
	unwell string
	// passed is true when the current step is, and only the ceiling holds the rollout.
	passed bool
	// failed counts the nodes that count against maxFailures, of which at most mayFail may.
	failed, mayFail int
	// stopped is true when too many have failed.
	stopped bool
	// slots is what rollout.maxConcurrent allows at once.
	slots int
	// draining counts the nodes that are being drained, and toDrain those that this pass cordons to drain them next.
	draining, toDrain int
	// away counts the nodes that are not there for others, of which mayBeAway may be disrupted.
	away, mayBeAway int
	// unavailable names the first of them, once it is asked for.
	unavailable string
	// gated counts the unfinished nodes that have the gate's taint.
	gated int32
	// unpublished are nodes that are done and on which something cannot be published.
	unpublished []string
	// busy counts the nodes with an attempt that runs or starts.
	busy int32

	failures   []v1alpha1.NodeFailure
	drains     []v1alpha1.NodeDrain
	notStarted []string
	// disrupted are nodes that were disrupted many times in a row.
	disrupted []string
	// unrecovered are nodes on which the rollback failed as well.
	unrecovered []string
	// prepared counts the nodes that this pass makes ready.
	prepared int32
	// starts counts the attempts that this pass starts, and obstructed the nodes that only the obstacle
	// keeps from starting.
	starts, obstructed int32
	// runnerObstructed counts those that only Input.RunnerRefused does.
	runnerObstructed int32
	// taskStarts and runnerStarts count the starts of this pass by what the API server may refuse alike (startsLike).
	taskStarts, runnerStarts int32
	// troubled are nodes with which the manager cannot go on, and troubleReason why not.
	troubled      []string
	troubleReason string
}

// work is what a pass finds out about a node beside its state.
type work struct {
	node *Node
	// touched is true when this revision has run on the node or runs there, since when at the earliest.
	touched bool
	since   time.Time
	// proof is true when this revision has succeeded there.
	proof bool
	// stuck is true for a node that has kept others waiting for too long.
	stuck bool
	// repeats is true for a node that was done with this revision, and is to run it again or does.
	repeats bool
	// failed is true when the node counts against rollout.maxFailures.
	failed bool
	// exhausted is true when its record says so: no attempt is left.
	exhausted bool
	// settled is true when no rollback is to come any more.
	settled bool
	// slot is true while a pod of ours on it has an end that is not on record.
	slot bool
	// leaving is true while a pod of ours on it has not gone, though nothing is to come of it.
	leaving bool
	// leavingSince is when it should have ended; zero when that is not known.
	leavingSince time.Time
	// kept are pods of it whose end is on record, and that are there for their logs.
	kept []*Pod
	// written is true when this pass writes a record on it: a second write would not know of the first.
	written bool
	// step that takes it; noStep when none does.
	step int
	// away is true when the node is not there for others.
	away bool
	// start is the attempt that may start now; nil when none may.
	start *task.Attempt
}

const noStep = -1

func newSurvey(in Input) *survey {
	s := &survey{
		in:          in,
		key:         v1alpha1.RecordKey(in.Job.Namespace, in.Job.Name),
		retry:       task.RetryToken(in.Job),
		tolerations: task.Tolerations(in.Job.Spec.Tolerations),
		obstacle:    in.Obstacle,
		podsOn:      make(map[string][]*Pod, len(in.Pods)),
		work:        make([]work, 0, len(in.Nodes)),
	}
	for i := range in.Pods {
		pod := &in.Pods[i]
		s.podsOn[pod.NodeName] = append(s.podsOn[pod.NodeName], pod)
	}
	s.dependsOn, s.sharers = readPeers(in.DependsOn), readPeers(in.Sharers)
	s.self = s.itself()
	s.readGate()
	if !in.Job.DeletionTimestamp.IsZero() {
		return s // which nodes it was for does not matter any more
	}
	s.selector = s.selectorOf(in.Job.Spec.NodeSelector, "spec.nodeSelector")
	s.named = namesOf(in.Job.Spec.NodeNames)
	for _, drain := range []struct {
		field string
		spec  *v1alpha1.DrainSpec
	}{{"spec.onFailure.drain", in.Job.Spec.OnFailure.Drain}, {"spec.maintenance.drain", in.Job.Spec.Maintenance.Drain}} {
		if drain.spec != nil {
			s.selectorOf(drain.spec.PodSelector, drain.field+".podSelector")
		}
	}
	s.readSteps()
	s.carryOver()
	return s
}

// selectorOf reads a label selector; one that cannot be used selects nothing and is an obstacle.
func (s *survey) selectorOf(spec *metav1.LabelSelector, field string) labels.Selector {
	if spec == nil {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(spec)
	if err != nil {
		s.obstacle = &Obstacle{
			Reason:  v1alpha1.ReasonInvalidSelector,
			Message: field + " cannot be used: " + err.Error() + ". Correct it as for a Deployment's selector",
		}
		return labels.Nothing()
	}
	return selector
}

// settle gives the node its state and plans what its pods need.
func (s *survey) settle(node *Node, p *Plan) {
	st := NodeState{Name: node.Name}
	w := work{node: node, step: noStep}
	standing := s.standing(node)
	w.touched, w.since, w.proof = standing.touched, standing.since, standing.proof
	w.repeats = standing.touched && !standing.done && s.isAgain(node, s.in.Revision)
	w.proof = w.proof || w.repeats
	s.settlePods(&w, &st, p)
	leaving := w.leaving || s.in.Occupied[node.Name]
	switch {
	case w.stuck:
	case !w.slot && standing.rebooting:
		s.settleReboot(leaving, &w, &st, p)
	case !w.slot:
		s.settleIdle(leaving, standing, &w, &st)
	case standing.failures > s.retryLimit() && s.selects(node):
		w.failed = true // whatever it is that still runs there
	}
	s.judgeProgress(&w, standing, &st, p)
	s.makeRoom(&w, &st, p)
	p.wake(st.Until)
	p.Nodes = append(p.Nodes, st)
	s.work = append(s.work, w)
}

// exclude leaves a node out. It does not count as one that runs the task again.
func (w *work) exclude(st *NodeState, reason, message string) {
	w.repeats = false
	st.set(Excluded, reason, message)
}

// settlePods plans for each pod on the node. An attempt holds its node, and its slot, until its end
// is on record.
func (s *survey) settlePods(w *work, st *NodeState, p *Plan) {
	for _, pod := range s.podsOn[w.node.Name] {
		v := s.judge(pod, w.node)
		p.wake(v.until)
		switch v.fate {
		case fateLeaving:
			w.leaving, w.leavingSince = true, pod.DeleteRequested.Add(pod.DeleteGrace)
			continue
		case fateOrphan, fateRecorded:
			s.dismiss(pod, v.fate, w, p)
			continue
		case fateEnded:
			if s.writeEnd(w, pod, &v, st, p); w.stuck && pod.ended() {
				continue // nothing runs there
			}
		case fateOverdue:
			p.Actions = append(p.Actions, Stop{Pod: *pod, Reason: v1alpha1.ReasonDeadlineExceeded})
		case fateRuns:
		}
		w.slot = true
		s.notePod(w, pod, v, st)
	}
}

// notePod notes what is said of a node on which a pod holds a slot.
func (s *survey) notePod(w *work, pod *Pod, v verdict, st *NodeState) {
	if pod.Runs == task.Rollback {
		s.noteRollback(w, v, st)
		return
	}
	s.noteRunning(w, pod, v, st)
	switch pod.Runs {
	case task.Reboot:
		st.Reason, st.Message = v1alpha1.ReasonRebooting, firstOf(v.message, "the task has succeeded, and the node reboots")
	case task.Verify:
		st.Reason = v1alpha1.ReasonVerifying
	case task.Task, task.Rollback:
	}
}

// writeEnd records the end of an attempt. Where the API server does not let the manager do so, it is tried from time to time,
// and does not count as progress.
func (s *survey) writeEnd(w *work, pod *Pod, v *verdict, st *NodeState, p *Plan) {
	if t, ok := s.in.Troubles[w.node.UID]; ok && t.Reason == v1alpha1.ReasonRecordRejected {
		v.message = t.Message
		s.unrecorded(w, pod, &t, st, p)
		if s.in.Now.Before(t.RetryAt) {
			p.wake(t.RetryAt)
			return
		}
	}
	p.Actions = append(p.Actions, s.recordAction(w.node, pod, v.record))
	w.written = true
}

// unrecorded is for a pod whose end the API server does not let the manager record. It keeps its slot, but not for ever.
func (s *survey) unrecorded(w *work, pod *Pod, t *Trouble, st *NodeState, p *Plan) {
	s.noteTrouble(w.node, t)
	if s.overdue(s.deadline(pod), p) {
		w.leaving = true
		st.set(Waiting, t.Reason, t.Message)
		s.failProgress(w, t.Message, st)
	}
}

// noteRunning notes what is said of a node on which an attempt of the task runs.
func (s *survey) noteRunning(w *work, pod *Pod, v verdict, st *NodeState) {
	st.set(Running, v1alpha1.ReasonRunning, v.message)
	st.Until = v.until
	if pod.Revision == s.in.Revision && !w.touched {
		w.touched, w.since = true, pod.Created
	}
	if v.fate == fateRuns && v.message != "" && pod.Started.IsZero() {
		s.notStarted = append(s.notStarted, w.node.Name+": "+v.message)
	}
	if prev := w.node.On.Record; prev != nil && prev.Revision == pod.Revision && (prev.Outcome == record.Failed || prev.Outcome == record.Disrupted) {
		s.retrying(w.node)
	}
}

// retrying notes a node whose last attempt failed or was disrupted, and that goes on.
func (s *survey) retrying(node *Node) {
	s.failures = append(s.failures, s.failureOf(node, true))
	if rec := node.On.Record; rec.Disruptions >= manyDisruptions {
		s.disrupted = append(s.disrupted, node.Name+": "+lastLine(rec.Message))
	}
}

// settleIdle gives a state to a node on which no attempt runs. The order of the questions is part
// of the behaviour: what a node has on record counts before what keeps it from running.
func (s *survey) settleIdle(leaving bool, standing standing, w *work, st *NodeState) {
	node := w.node
	if !s.selects(node) {
		reason, message := s.unselected(node)
		w.exclude(st, reason, message)
		return
	}
	switch {
	case standing.done:
		st.set(Done, v1alpha1.ReasonDone, "")
		st.Until = standing.due
		return
	case standing.failures > s.retryLimit():
		s.settleFailed(leaving, w, st)
		return
	case standing.failures > 0 && node.lost():
		// The task may be what has taken the node away: until it is back it counts.
		w.failed = true
		st.set(Failed, v1alpha1.ReasonNodeUnreachable, "nothing is heard from the node since an attempt failed there (Ready=Unknown); it goes on when the node is back")
		s.failures = append(s.failures, s.failureOf(node, false))
		return
	}
	if taint := s.untolerated(node, s.tolerations); taint != nil {
		w.exclude(st, v1alpha1.ReasonUntoleratedTaint, "it has the taint "+taint.ToString())
		return
	}
	if !standing.notBefore.IsZero() {
		s.retrying(node)
	}
	if s.mustWait(task.Task, node, leaving, standing.notBefore, st) {
		return
	}
	if before := s.awaits(node); before != "" {
		st.set(Waiting, v1alpha1.ReasonWaitingForDependency, "NodeJob "+before+" (spec.dependsOn) must be done on it before")
		if s.joins(node) {
			st.Until = node.Created.Add(joiningFor) // it may not be for the node after all
		}
		return
	}
	st.set(Waiting, v1alpha1.ReasonWaitingForSlot, standing.again)
	w.start = s.attempt(node, task.Task, s.in.Revision, standing.failures+1)
}

func (s *survey) attempt(node *Node, phase task.Phase, revision string, number int32) *task.Attempt {
	return &task.Attempt{
		Phase:     phase,
		Revision:  revision,
		Number:    number,
		NodeName:  node.Name,
		NodeUID:   node.UID,
		MachineID: node.MachineID,
		BootID:    node.BootID,
		Retry:     s.retry,
	}
}

// mustWait says what keeps a node from starting an attempt now, if anything.
func (s *survey) mustWait(phase task.Phase, node *Node, leaving bool, notBefore time.Time, st *NodeState) bool {
	reason, message := absence(node)
	o := s.obstacleFor(phase)
	switch {
	case reason != "":
		st.set(Waiting, reason, message)
	case leaving:
		st.set(Waiting, v1alpha1.ReasonPodTerminating, "the pod of an earlier attempt has not left yet")
	case s.halted() != "" && s.in.Job.DeletionTimestamp.IsZero():
		st.set(Waiting, v1alpha1.ReasonSuspended, s.halted())
	case o != nil && (o.RetryAt.IsZero() || s.in.Now.Before(o.RetryAt)):
		s.obstructs(o)
		st.set(Waiting, o.Reason, o.Message)
		st.Until = o.RetryAt
	case s.hindrance(node) != nil:
		t := s.hindrance(node)
		s.noteTrouble(node, t)
		st.set(Waiting, t.Reason, t.Message)
		st.Until = t.RetryAt
	case s.in.Now.Before(notBefore):
		st.set(Waiting, v1alpha1.ReasonBackingOff, "the next attempt waits after one that failed or was disrupted")
		st.Until = notBefore
	default:
		return false
	}
	return true
}

// absence is why a node cannot run anything now; "" when it can.
func absence(node *Node) (reason, message string) {
	switch {
	case node.Deleting:
		return v1alpha1.ReasonNodeTerminating, "the node is being deleted"
	case node.Ready == "":
		return v1alpha1.ReasonNotReported, "the node has not reported its state yet"
	case node.lost():
		return v1alpha1.ReasonNodeUnreachable, "nothing is heard from the node (Ready=Unknown)"
	}
	return "", ""
}

// releaseOrphans lets pods go whose Node is no longer there: there is nothing to record on.
func (s *survey) releaseOrphans(p *Plan) {
	known := make(map[string]bool, len(s.in.Nodes))
	for i := range s.in.Nodes {
		known[s.in.Nodes[i].Name] = true
	}
	for i := range s.in.Pods {
		pod := &s.in.Pods[i]
		if !known[pod.NodeName] && releasable(pod) {
			p.Actions = append(p.Actions, Release{Pod: *pod})
		}
	}
}

// cordonedForUs is true when Everynode has cordoned the node, for this NodeJob among others.
func (s *survey) cordonedForUs(node *Node) bool { return slices.Contains(node.CordonedBy, s.key) }

func (st *NodeState) set(state State, reason, message string) {
	st.State, st.Reason, st.Message = state, reason, message
}
