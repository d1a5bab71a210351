package plan

import "github.com/everynode/everynode/api/v1alpha1"

// leave plans for a NodeJob that is being deleted: its pods go, and its records too unless they are
// to be retained. It waits for nothing that may never come, so a deletion cannot hang: a pod is let
// go whether or not its kubelet answers.
func leave(in Input) Plan {
	p := Plan{Status: *in.Job.Status.DeepCopy()}
	for i := range in.Pods {
		if releasable(&in.Pods[i]) {
			p.Actions = append(p.Actions, Release{Pod: in.Pods[i]})
		}
	}
	if in.Job.Spec.DeletionPolicy != v1alpha1.DeletionRetain {
		for i := range in.Nodes {
			if node := &in.Nodes[i]; node.On.Present {
				p.Actions = append(p.Actions, Forget{Node: node.Name, UID: node.UID})
			}
		}
	}
	if len(p.Actions) == 0 {
		p.Actions = append(p.Actions, Finish{})
	}
	return p
}
