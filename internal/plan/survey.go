package plan

import (
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
	selector    labels.Selector
	tolerations []corev1.Toleration
	timeout     time.Duration
	obstacle    *Obstacle
	// podsOn holds the pods by the name of the node that they are bound to.
	podsOn map[string][]*Pod
	// candidates are indexes into Plan.Nodes of nodes that may start now.
	candidates []int
	attempts   map[int]task.Attempt
	failures   []v1alpha1.NodeFailure
	notStarted []string
	// disrupted are nodes that were disrupted many times in a row.
	disrupted []string
	// starts counts the attempts that this pass starts, and obstructed the nodes that only the obstacle
	// keeps from starting.
	starts, obstructed int32
}

func newSurvey(in Input) *survey {
	s := &survey{
		in:          in,
		tolerations: task.Tolerations(in.Job.Spec.Tolerations),
		timeout:     task.Timeout(in.Job),
		obstacle:    in.Obstacle,
		podsOn:      make(map[string][]*Pod, len(in.Pods)),
		attempts:    map[int]task.Attempt{},
	}
	for i := range in.Pods {
		pod := &in.Pods[i]
		s.podsOn[pod.NodeName] = append(s.podsOn[pod.NodeName], pod)
	}
	s.selector = labels.Everything()
	if ns := in.Job.Spec.NodeSelector; ns != nil {
		selector, err := metav1.LabelSelectorAsSelector(ns)
		if err != nil {
			s.selector = labels.Nothing()
			s.obstacle = &Obstacle{
				Reason:  v1alpha1.ReasonInvalidSelector,
				Message: "spec.nodeSelector cannot be used: " + err.Error() + ". Correct it as for a Deployment's selector",
			}
		} else {
			s.selector = selector
		}
	}
	return s
}

// settle gives the node its state and plans what its pods need.
func (s *survey) settle(node *Node, p *Plan) {
	st := NodeState{Name: node.Name}
	running, leaving := s.settlePods(node, &st, p)
	leaving = leaving || s.in.Occupied[node.Name]
	if !running {
		s.settleIdle(node, leaving, &st, len(p.Nodes))
	}
	p.wake(st.Until)
	p.Nodes = append(p.Nodes, st)
}

// settlePods plans for each pod on the node. An attempt holds its node, and its slot, until its end
// is on record: the state is Running until then.
func (s *survey) settlePods(node *Node, st *NodeState, p *Plan) (running, leaving bool) {
	for _, pod := range s.podsOn[node.Name] {
		v := s.judge(pod, node)
		p.wake(v.until)
		switch v.fate {
		case fateLeaving:
			leaving = true
			continue
		case fateOrphan, fateRecorded:
			leaving = true
			p.Actions = append(p.Actions, Release{Pod: *pod})
			continue
		case fateEnded:
			p.Actions = append(p.Actions, s.recordAction(node, pod, v.record))
		case fateOverdue:
			p.Actions = append(p.Actions, Stop{Pod: *pod, Reason: v1alpha1.ReasonDeadlineExceeded})
		case fateRuns:
		}
		running = true
		s.noteRunning(node, pod, v)
		*st = NodeState{Name: node.Name, State: Running, Reason: v1alpha1.ReasonRunning, Message: v.message, Until: v.until}
	}
	return running, leaving
}

// noteRunning notes what the status says of a node on which an attempt runs.
func (s *survey) noteRunning(node *Node, pod *Pod, v verdict) {
	if v.fate == fateRuns && v.message != "" && pod.Started.IsZero() {
		s.notStarted = append(s.notStarted, node.Name+": "+v.message)
	}
	if prev := node.On.Record; prev != nil && prev.Revision == pod.Revision && prev.Outcome != record.Succeeded {
		s.retrying(node)
	}
}

// retrying notes a node whose last attempt failed or was disrupted, and that goes on.
func (s *survey) retrying(node *Node) {
	s.failures = append(s.failures, failureOf(node, true))
	if rec := node.On.Record; rec.Disruptions >= manyDisruptions {
		s.disrupted = append(s.disrupted, node.Name+": "+lastLine(rec.Message))
	}
}

func (s *survey) recordAction(node *Node, pod *Pod, r record.Record) Record {
	failed := r.Outcome == record.Failed
	return Record{
		Node: node.Name, UID: node.UID, Record: r, Pod: *pod,
		// A disruption says nothing about the node, and leaves the label of an earlier revision. But one
		// that another machine has left behind would make this one look done.
		DropLabel: failed || (r.Outcome == record.Disrupted && s.replaced(node)),
		Final:     failed && r.Attempts > s.retryLimit(),
	}
}

// settleIdle gives a state to a node on which no attempt runs. The order of the questions is part
// of the behaviour: what a node has on record counts before what keeps it from running.
func (s *survey) settleIdle(node *Node, leaving bool, st *NodeState, index int) {
	if !s.selector.Matches(labels.Set(node.Labels)) {
		st.set(Excluded, v1alpha1.ReasonNotSelected, "spec.nodeSelector does not match its labels")
		return
	}
	standing := s.standing(node)
	switch {
	case standing.done:
		st.set(Done, v1alpha1.ReasonDone, "")
		return
	case standing.failures > s.retryLimit():
		st.set(Failed, v1alpha1.ReasonRetriesExhausted, node.On.Record.Message)
		s.failures = append(s.failures, failureOf(node, false))
		return
	}
	if taint := task.Untolerated(node.Taints, s.tolerations); taint != nil {
		st.set(Excluded, v1alpha1.ReasonUntoleratedTaint, "it has the taint "+taint.ToString())
		return
	}
	if !standing.notBefore.IsZero() {
		s.retrying(node)
	}
	if s.mustWait(node, leaving, standing, st) {
		return
	}
	st.set(Waiting, v1alpha1.ReasonWaitingForSlot, "")
	s.candidates = append(s.candidates, index)
	s.attempts[index] = task.Attempt{
		Revision:  s.in.Revision,
		Number:    standing.failures + 1,
		NodeName:  node.Name,
		NodeUID:   node.UID,
		MachineID: node.MachineID,
		BootID:    node.BootID,
	}
}

// mustWait says what keeps an unfinished node from starting now, if anything.
func (s *survey) mustWait(node *Node, leaving bool, was standing, st *NodeState) bool {
	switch {
	case node.Deleting:
		st.set(Waiting, v1alpha1.ReasonNodeDeleting, "the node is being deleted")
	case node.Ready == "":
		st.set(Waiting, v1alpha1.ReasonNotReported, "the node has not reported its state yet")
	case node.lost():
		st.set(Waiting, v1alpha1.ReasonNodeLost, "nothing is heard from the node (Ready=Unknown)")
	case leaving:
		st.set(Waiting, v1alpha1.ReasonPodLeaving, "the pod of an earlier attempt has not left yet")
	case s.in.Job.Spec.Suspend:
		st.set(Waiting, v1alpha1.ReasonSuspended, "spec.suspend is true")
	case s.obstacle != nil && (s.obstacle.RetryAt.IsZero() || s.in.Now.Before(s.obstacle.RetryAt)):
		s.obstructed++
		st.set(Waiting, s.obstacle.Reason, s.obstacle.Message)
		st.Until = s.obstacle.RetryAt
	case s.in.Now.Before(was.notBefore):
		st.set(Waiting, v1alpha1.ReasonBackingOff, "the next attempt waits after one that failed or was disrupted")
		st.Until = was.notBefore
	default:
		return false
	}
	return true
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

func (st *NodeState) set(state State, reason, message string) {
	st.State, st.Reason, st.Message = state, reason, message
}
