package plan

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/task"
)

// checkPlan holds the plan against the rules.
func (h *history) checkPlan(in Input, p Plan) {
	busy := map[string]bool{}
	for i := range in.Pods {
		pod := &in.Pods[i]
		node := h.nodes[pod.NodeName]
		if node != nil && releasable(pod) && sameMachine(h.job, pod, node) && (node.On.Record == nil || node.On.Record.PodUID != pod.UID) {
			busy[pod.NodeName] = true
		}
	}
	n := p.Status.Nodes
	if n.Matched != n.Done+n.Running+n.Waiting+n.Failed {
		h.break_("status", "the counts do not add up: %+v", n)
	}
	limit := maxConcurrent(in.Job.Spec.Rollout, int(n.Matched))
	for _, action := range p.Actions {
		start, ok := action.(Start)
		if !ok {
			continue
		}
		node := h.nodes[start.Attempt.NodeName]
		for i := range in.Pods {
			if in.Pods[i].NodeName == node.Name {
				h.break_("rule 1", "%s starts beside pod %s", node.Name, in.Pods[i].Name)
			}
		}
		busy[node.Name] = true
		switch {
		case node.lost() || node.Deleting || node.Ready == "":
			h.break_("rule 7", "%s is started and is not there", node.Name)
		case len(node.Taints) > 0:
			h.break_("eligible", "%s is started in spite of its taint", node.Name)
		case node.Labels["pool"] != "a":
			h.break_("eligible", "%s is started and not selected", node.Name)
		case in.Job.Spec.Suspend:
			h.break_("suspend", "%s is started", node.Name)
		case in.Obstacle != nil:
			h.break_("rule 10", "%s is started in spite of an obstacle", node.Name)
		case len(busy) > limit:
			h.break_("rule 3", "%d nodes run, %d may", len(busy), limit)
		}
	}
	h.checkStates(in, p)
	if in.Obstacle != nil && !isTrue(p.Status, v1alpha1.ConditionStalled) {
		h.break_("rule 10", "the obstacle is not in the status")
	}
	if len(p.Status.Failures) > maxFailures {
		h.break_("status", "%d failures are listed", len(p.Status.Failures))
	}
}

// checkStates holds what is said of each node against what really happened there.
func (h *history) checkStates(in Input, p Plan) {
	recorded := map[string]bool{}
	for _, action := range p.Actions {
		if a, ok := action.(Record); ok {
			recorded[a.Pod.Name] = true
		}
	}
	for i := range p.Nodes {
		node := h.nodes[p.Nodes[i].Name]
		rec := node.On.Record
		if p.Nodes[i].State == Done && rec != nil && rec.Revision == in.Revision &&
			!h.succeeded[run(node, in.Revision)] && !h.claimed[string(node.UID)+"/"+in.Revision] {
			h.break_("truth", "%s is called done and did not succeed with %s on this machine", node.Name, in.Revision)
		}
		if p.Nodes[i].State == Done && node.On.Label != in.Revision {
			h.break_("truth", "%s is called done with %s by the label %q", node.Name, in.Revision, node.On.Label)
		}
	}
	for i := range in.Pods {
		pod := &in.Pods[i]
		node := h.nodes[pod.NodeName]
		open := node != nil && releasable(pod) && sameMachine(h.job, pod, node) && !pod.ended() && (node.On.Record == nil || node.On.Record.PodUID != pod.UID)
		if late := in.Now.After(pod.Created.Add(task.Timeout(in.Job, pod.Runs) + DeadlineSlack)); open && late && node.lost() && !recorded[pod.Name] {
			h.break_("rule 7", "%s is lost with pod %s past its deadline, and holds its slot", node.Name, pod.Name)
		}
	}
}

func isTrue(status v1alpha1.NodeJobStatus, kind string) bool {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}
