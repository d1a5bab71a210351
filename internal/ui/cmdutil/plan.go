// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/ui/view"
)

// PlanDrains adds to the input of a plan the pods on the nodes that the plan drains, and plans again. If the user may not
// read these pods, it returns the plan without them: the status of the NodeJob says what holds a drain.
func PlanDrains(ctx context.Context, c client.Reader, in plan.Input, p plan.Plan) (plan.Input, plan.Plan, error) {
	if len(p.DrainPodRequests) == 0 {
		return in, p, nil
	}
	drains := map[types.UID][]plan.DrainPod{}
	for _, request := range p.DrainPodRequests {
		evicted, err := podsToEvict(ctx, c, request.Node, in.OwnNode, request.Drain)
		switch {
		case CodeOf(err) == ExitForbidden:
			return in, p, nil
		case err != nil:
			return in, p, err
		}
		noteBlocked(in.Job, request.Node, evicted)
		drains[request.UID] = evicted
	}
	in.Drains = drains
	return in, plan.Next(in), nil
}

// noteBlocked adds to pods why the manager could not evict them, as the status of the NodeJob says.
func noteBlocked(job *v1alpha1.NodeJob, node string, pods []plan.DrainPod) {
	blocked := map[string]string{}
	for i := range job.Status.Drains {
		if d := &job.Status.Drains[i]; d.Node == node {
			for _, b := range d.Blocked {
				blocked[b.Pod] = b.Message
			}
		}
	}
	for i := range pods {
		pods[i].Blocked = blocked[pods[i].Namespace+"/"+pods[i].Name]
	}
}

// podsToEvict reads the pods that a drain of a node would evict.
func podsToEvict(ctx context.Context, c client.Reader, node, managerNode string, spec *v1alpha1.DrainSpec) ([]plan.DrainPod, error) {
	var found []plan.DrainPod
	err := EachPodToEvict(ctx, c, node, managerNode, spec, func(_ *corev1.Pod, view plan.DrainPod) { found = append(found, view) })
	return found, err
}

// EachPodToEvict reads the pods that a drain of a node would evict. managerNode is the node of the manager; "" if it is not known.
func EachPodToEvict(ctx context.Context, c client.Reader, node, managerNode string, spec *v1alpha1.DrainSpec, do func(*corev1.Pod, plan.DrainPod)) error {
	selector, deleteEmptyDirData, err := observe.Drain(spec)
	if err != nil {
		return err
	}
	var page corev1.PodList
	return EachPage(ctx, c, &page, func() {
		for i := range page.Items {
			if pod := &page.Items[i]; observe.EvictedByDrain(pod) && !leadsManager(pod, managerNode) && selector.Matches(labels.Set(pod.Labels)) {
				do(pod, observe.DrainPod(pod, deleteEmptyDirData))
			}
		}
	}, client.MatchingFields{"spec.nodeName": node})
}

// ErrNotObserved is the error for a NodeJob that no manager has observed.
var ErrNotObserved = errors.New("the manager has not observed the NodeJob yet; check that it is running: " + view.CheckManager)

// NotObserved reports whether a NodeJob cannot be explained because no manager has observed it.
func NotObserved(job *v1alpha1.NodeJob) bool {
	return job.Status.Revision == "" && observe.ToldObstacle(job) == nil && job.DeletionTimestamp.IsZero()
}
