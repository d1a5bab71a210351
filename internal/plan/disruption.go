package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// prepares is true when a node is cordoned or drained before the task.
func (s *survey) prepares() bool {
	d := &s.in.Job.Spec.Disruption
	return d.Cordon || d.Drain != nil
}

// disrupts is true when what runs on a node feels the task.
func (s *survey) disrupts() bool {
	return s.prepares() || task.RebootPolicy(s.in.Job) != v1alpha1.RebootNever
}

// inPreparation is true for a node that was given its slot in an earlier pass, and is being made ready.
func (s *survey) inPreparation(w *work) bool {
	if w.start == nil || w.start.Phase != task.Task || !s.prepares() {
		return false
	}
	_, drains := s.drainingSince(w.node)
	return s.cordonedForUs(w.node) || (drains && w.node.Unschedulable)
}

// drainingSince is when the drain of the node before the task began, by the status. One of an earlier node of its
// name is another, and so is one for a failure, which is on record.
func (s *survey) drainingSince(node *Node) (time.Time, bool) {
	drains, rec := s.in.Job.Status.Drains, node.On.Record
	for i := range drains {
		since := drains[i].Since.Time
		switch {
		case drains[i].Node != node.Name:
		case since.Before(node.Created), rec != nil && rec.Drain != nil && !since.After(rec.Drain.StartedAt):
			return time.Time{}, false
		default:
			return since, true
		}
	}
	return time.Time{}, false
}

// prepare makes a node ready for the task, one pass after the other, and is true when it is. The node has its
// slot from the beginning: whatever else the pass does with it knows that by w.slot.
func (s *survey) prepare(i int, p *Plan) bool {
	w, st := &s.work[i], &p.Nodes[i]
	if w.start.Phase != task.Task || !s.prepares() {
		return true
	}
	if !s.cordonedForUs(w.node) {
		if c := s.cordon(w.node); c != nil {
			mark := s.markOf(w.node, v1alpha1.ReasonPreparing, "it is cordoned before the task")
			mark.Cordon = c
			s.mark(w, mark, p)
			s.preparing(w, st, "it is cordoned before the task")
			return false
		}
	}
	if s.in.Job.Spec.Disruption.Drain == nil {
		return true
	}
	return s.drainBefore(w, st, p)
}

func (s *survey) preparing(w *work, st *NodeState, message string) {
	w.slot = true
	s.busy++
	s.prepared++
	st.set(Running, v1alpha1.ReasonPreparing, message)
}

// drainBefore is true when the pods have left the node.
func (s *survey) drainBefore(w *work, st *NodeState, p *Plan) bool {
	node, spec := w.node, s.in.Job.Spec.Disruption.Drain
	since, known := s.drainingSince(node)
	if !known {
		if s.draining >= maxDrains {
			s.preparing(w, st, fmt.Sprintf("it waits until fewer than %d nodes are being drained", maxDrains))
			return false
		}
		since = s.now().Time
		s.draining++
	}
	look := s.look(node, since, spec, p)
	switch {
	case look.empty:
		return true
	case look.late:
		s.preparing(w, st, look.message())
		s.conclude(w, s.notDrained(w, since, look.message()), p)
	default:
		s.preparing(w, st, fmt.Sprintf("it is drained before the task; pods that are still to leave: %d", look.status.Pods))
		s.goOnDraining(node, look, spec, p)
	}
	return false
}

// notDrained is the record of an attempt that never began, since the node could not be drained.
func (s *survey) notDrained(w *work, since time.Time, message string) record.Record {
	prev := w.node.On.Record
	r := record.Record{
		Revision: s.in.Revision, Outcome: record.Failed, Attempts: w.start.Number, StartedAt: since, FinishedAt: s.in.Now,
		Reason: v1alpha1.ReasonDrainTimedOut, Message: message, BootID: w.node.BootID, MachineID: w.node.MachineID, Retry: s.retry,
		Untried: true,
	}
	if prev == nil {
		return r
	}
	r.Removed, r.Again = prev.Removed, s.isAgain(w.node, s.in.Revision)
	if s.replaced(w.node) || prev.Outcome == record.Succeeded {
		return r
	}
	if prev.Revision == s.in.Revision {
		r.Untried = prev.Untried // what was disrupted may have done something as well
		r.Rollback = prev.Rollback
	} else if prev.Rollback != nil && prev.Rollback.Outcome == record.Succeeded {
		r.Rollback = prev.Rollback // it has not run since
	}
	return r
}

// keepsCordon is true for a node that stays cordoned although it has not failed for good: an attempt is being
// prepared or runs there, or will again.
func (s *survey) keepsCordon(w *work, st *NodeState) bool {
	switch {
	case !s.prepares():
		return false
	case w.exhausted:
		return !w.settled // what was done there is still to be undone
	case w.slot:
		return true
	case st.State != Waiting:
		return false
	case s.obstacle != nil && !s.obstacle.RetryAt.IsZero() && s.wasPrepared(w.node):
		return true // nobody is driven off it a second time when it can go on
	}
	return w.touched && s.waitsForRetry(w.node, st)
}

// waitsForRetry is true for a node on which an attempt has run, and another will.
func (s *survey) waitsForRetry(node *Node, st *NodeState) bool {
	rec := node.On.Record
	if rec == nil || rec.Reason == v1alpha1.ReasonDrainTimedOut {
		return false
	}
	return st.Reason == v1alpha1.ReasonBackingOff || st.Reason == v1alpha1.ReasonPodLeaving || away(st.Reason)
}

// countAway counts the nodes that are not there for others: those that are not Ready, that are cordoned by
// whomever, and those on which this NodeJob is at work. One that joins was not there before.
func (s *survey) countAway(nodes []NodeState) {
	if !s.disrupts() {
		return
	}
	matched := 0
	for i := range nodes {
		w := &s.work[i]
		if nodes[i].State == Excluded && !w.slot {
			continue
		}
		matched++
		if s.joined(w.node) && !w.slot {
			continue
		}
		w.away = w.slot || w.node.Unschedulable || w.node.Ready != corev1.ConditionTrue
		if w.away {
			s.away++
		}
	}
	s.mayBeAway = s.maxUnavailable(matched)
}

// maxUnavailable is how many of the matched nodes may be away at once.
func (s *survey) maxUnavailable(matched int) int {
	value := s.in.Job.Spec.Disruption.MaxUnavailable
	if value == nil {
		return maxConcurrent(s.in.Job.Spec.Rollout, matched)
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, matched, false)
	if err != nil {
		// The CRD's rule lets no such value in.
		return 1
	}
	return max(n, 1)
}

// mustNotDisrupt says why a node must not be disrupted now although there is a slot; "" when it may be. A node
// that is away already is not taken away by the task.
func (s *survey) mustNotDisrupt(w *work, others int) (reason, message string) {
	switch {
	case !s.disrupts() || w.start.Phase != task.Task || s.inPreparation(w):
	case s.in.OwnNode == w.node.Name && s.provenAt.IsZero() && (s.busy > 0 || others > 0):
		return v1alpha1.ReasonManagerNodeLast, "the manager itself runs on it, so it comes after all others"
	case !w.away && s.away >= s.mayBeAway && !s.joined(w.node):
		return v1alpha1.ReasonWaitingForBudget, fmt.Sprintf("%d nodes are not Ready, cordoned or at work, and disruption.maxUnavailable allows %d", s.away, s.mayBeAway)
	}
	return "", ""
}

// look is what is seen of a drain.
type look struct {
	pods    []DrainPod
	empty   bool
	late    bool
	timeout time.Duration
	status  v1alpha1.NodeDrain
}

func (l *look) message() string { return drainTimeout(l.timeout, l.status) }

// look asks for the pods of a node that is being drained, and says what is known of them.
func (s *survey) look(node *Node, since time.Time, spec *v1alpha1.DrainSpec, p *Plan) look {
	p.Looks = append(p.Looks, Look{Node: node.Name, UID: node.UID, Drain: spec})
	timeout := time.Duration(valueOr(spec.TimeoutSeconds, defaultDrainTimeoutSeconds)) * time.Second
	deadline := since.Add(timeout)
	pods, looked := s.in.Drains[node.UID]
	return look{
		pods: pods, empty: looked && len(pods) == 0, late: !s.in.Now.Before(deadline), timeout: timeout,
		status: v1alpha1.NodeDrain{
			Node: node.Name, Since: metav1.NewTime(since), Deadline: metav1.NewTime(deadline),
			Pods: int32(len(pods)), Blocked: s.blockedPods(node.Name, pods),
		},
	}
}

// goOnDraining evicts what may be evicted, and looks again.
func (s *survey) goOnDraining(node *Node, l look, spec *v1alpha1.DrainSpec, p *Plan) {
	p.wake(l.status.Deadline.Time)
	p.wake(s.in.Now.Add(EvictionInterval))
	s.evict(node, l.pods, spec, p)
	s.drains = append(s.drains, l.status)
}
