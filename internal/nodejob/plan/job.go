// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// policy is what the spec of the NodeJob means at the time of the pass. Its methods read no nodes, pods or other NodeJobs of the
// input, and have no side effects.
type policy struct {
	in  Input
	key string
}

func newPolicy(in Input) policy {
	return policy{in: in, key: v1alpha1.RecordKey(in.Job.Namespace, in.Job.Name)}
}

// job is what a pass reads of the NodeJob and of the cluster. Nothing changes it during the pass, and its methods, and
// those of the types that only embed it, have no side effects.
type job struct {
	policy
	// retry is task.RetryToken of the NodeJob.
	retry    string
	selector labels.Selector
	// assumedDone is the selector of spec.nodes.assumeDone; nil if there is none.
	assumedDone labels.Selector
	named       names
	tolerations []corev1.Toleration
	// obstacle is Input.Obstacle, or what is wrong in the spec.
	obstacle  *hold.Why
	dependsOn []peer
	sharers   []peer
	// self is the NodeJob as a Peer of other NodeJobs.
	self peer
	// podsOn holds the pods by the name of the node that they are bound to.
	podsOn map[string][]*Pod
}

func readJob(in Input) *job {
	s := &job{
		policy:      newPolicy(in),
		retry:       task.RetryToken(in.Job),
		tolerations: task.Tolerations(in.Job.Spec.Nodes.Tolerations),
		obstacle:    in.Obstacle,
		podsOn:      make(map[string][]*Pod, len(in.Pods)),
		dependsOn:   readDependencies(in),
		sharers:     readPeers(in.GatePeers, len(in.DependsOn)),
		named:       namesOf(in.Job.Spec.Nodes.Names),
	}
	s.self = s.selfPeer()
	for i := range in.Pods {
		pod := &in.Pods[i]
		s.podsOn[pod.NodeName] = append(s.podsOn[pod.NodeName], pod)
	}
	s.selector = s.readSelector(in.Job.Spec.Nodes.Selector, "spec.nodes.selector")
	s.assumedDone = s.readAssumeDone()
	s.rejectPublishedSelector()
	for _, drain := range []struct {
		field string
		spec  *v1alpha1.DrainSpec
	}{{"spec.onFailure.drain", in.Job.Spec.OnFailure.Drain}, {"spec.maintenance.drain", in.Job.Spec.Maintenance.Drain}} {
		if drain.spec != nil {
			s.readSelector(drain.spec.PodSelector, drain.field+".podSelector")
		}
	}
	if s.notAllowed() {
		s.obstacle, s.assumedDone = in.NotAllowed, nil
	}
	return s
}

// notAllowed reports whether the manager does not serve the namespace. A namespace that is being deleted needs no label: no
// pod can be created in it.
func (p *policy) notAllowed() bool {
	terminating := p.in.Obstacle != nil && p.in.Obstacle.Reason == v1alpha1.ReasonNamespaceTerminating
	return p.in.NotAllowed != nil && !terminating
}

// allowsNode reports whether the namespace of the NodeJob is not limited to other nodes. What starts on a node, and what changes it
// other than to record what ends there or to remove what the NodeJob has put there, needs that.
func (p *policy) allowsNode(node *Node) bool { return hold.AllowsNode(p.in.AllowedNodes, node.Labels) }

// serves reports whether the manager serves the namespace, on this node.
func (p *policy) serves(node *Node) bool { return !p.notAllowed() && p.allowsNode(node) }

// rejectPublishedSelector notes as an obstacle that spec.nodes.selector reads a label that spec.publish sets: each node would
// be selected, or not, by its own result, and would not be counted after its success.
func (j *job) rejectPublishedSelector() {
	requirements, _ := j.selector.Requirements()
	for _, entry := range j.in.Job.Spec.Publish {
		reads := func(r labels.Requirement) bool { return r.Key() == entry.Label }
		if slices.ContainsFunc(requirements, reads) && j.in.Job.DeletionTimestamp.IsZero() {
			j.obstacle = &hold.Why{
				Reason: v1alpha1.ReasonInvalidSelector,
				Message: "spec.nodes.selector reads the label " + entry.Label + ", which spec.publish sets: a node would no longer be selected because of its own result. " +
					"Remove the label from spec.nodes.selector; the task runs once on a node without it",
			}
		}
	}
}

// readSelector parses a label selector. An invalid one selects nothing and is an obstacle, except for a NodeJob that is
// being deleted: which nodes it selects does not matter any more.
func (j *job) readSelector(spec *metav1.LabelSelector, field string) labels.Selector {
	if spec == nil {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(spec)
	if err == nil {
		return selector
	}
	if j.in.Job.DeletionTimestamp.IsZero() {
		j.obstacle = &hold.Why{
			Reason:  v1alpha1.ReasonInvalidSelector,
			Message: field + " cannot be used: " + err.Error() + ". Correct it as for a Deployment's selector",
		}
	}
	return labels.Nothing()
}
