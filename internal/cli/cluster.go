// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/plan"
)

// clusterView is what a user may see of a cluster.
type clusterView struct {
	observe.Cluster
	// namespaced is why only the NodeJobs of one namespace are in it; nil when all are.
	namespaced error
}

// readCluster reads what the plan of any NodeJob needs: all nodes, of which only a little is kept, and all NodeJobs. A
// user who may list NodeJobs in one namespace only gets a plan without the gates of other namespaces.
func readCluster(ctx context.Context, f *Factory, c client.Reader, namespace string) (clusterView, error) {
	var seen clusterView
	var page corev1.NodeList
	err := eachPage(ctx, c, &page, func() {
		for i := range page.Items {
			seen.Nodes = append(seen.Nodes, observe.Node(&page.Items[i]))
		}
		page = corev1.NodeList{}
	})
	seen.Now = f.Now() // the answers have told what time it is at the API server
	if err != nil {
		return seen, err
	}
	jobs, err := listJobs(ctx, c, "")
	if CodeOf(err) == ExitForbidden {
		seen.namespaced = err
		jobs, err = listJobs(ctx, c, namespace)
	}
	for i := range jobs {
		seen.Jobs = append(seen.Jobs, &jobs[i])
	}
	return seen, err
}

// planOf is what the manager comes to for a NodeJob, as far as it can be told from outside.
func planOf(ctx context.Context, c client.Reader, seen observe.Cluster, job *v1alpha1.NodeJob) (plan.Input, plan.Plan, error) {
	pods, err := podsNamed(ctx, c, job)
	if err != nil {
		return plan.Input{}, plan.Plan{}, err
	}
	in := seen.Input(job, pods)
	p := plan.Next(in)
	if len(p.DrainPodRequests) == 0 {
		return in, p, nil
	}
	in.Drains = map[types.UID][]plan.DrainPod{}
	for _, look := range p.DrainPodRequests {
		leaving, err := podsToEvict(ctx, c, look.Node, look.Drain)
		if err != nil {
			return in, p, err
		}
		in.Drains[look.UID] = leaving
	}
	return in, plan.Next(in), nil
}

// podsNamed reads the pods with the NodeJob's name, those of an earlier one of that name included.
func podsNamed(ctx context.Context, c client.Reader, job *v1alpha1.NodeJob) ([]corev1.Pod, error) {
	var all []corev1.Pod
	var page corev1.PodList
	err := eachPage(ctx, c, &page, func() { all = append(all, page.Items...) },
		client.InNamespace(job.Namespace), client.MatchingLabels{v1alpha1.NodeJobLabel: job.Name})
	return all, err
}

// podsToEvict reads the pods that a drain of a node would wait for.
func podsToEvict(ctx context.Context, c client.Reader, node string, spec *v1alpha1.DrainSpec) ([]plan.DrainPod, error) {
	var found []plan.DrainPod
	err := eachPodToEvict(ctx, c, node, spec, func(_ *corev1.Pod, view plan.DrainPod) { found = append(found, view) })
	return found, err
}

func eachPodToEvict(ctx context.Context, c client.Reader, node string, spec *v1alpha1.DrainSpec, do func(*corev1.Pod, plan.DrainPod)) error {
	selector, deleteEmptyDirData, err := observe.Drain(spec)
	if err != nil {
		return err
	}
	var page corev1.PodList
	return eachPage(ctx, c, &page, func() {
		for i := range page.Items {
			if pod := &page.Items[i]; observe.EvictedByDrain(pod) && selector.Matches(labels.Set(pod.Labels)) {
				do(pod, observe.DrainPod(pod, deleteEmptyDirData))
			}
		}
	}, client.MatchingFields{"spec.nodeName": node})
}

// nodeIndex finds a node by its name; one that is not there comes back as an error that names those that look like it.
func nodeIndex(nodes []plan.Node, name string) (int, error) {
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		if nodes[i].Name == name {
			return i, nil
		}
		names = append(names, nodes[i].Name)
	}
	if len(names) == 0 {
		return 0, Failf(ExitNotFound, "there is no node %s: the cluster has none", name)
	}
	return 0, Failf(ExitNotFound, "there is no node %s; there are %s", name, list(nearest(name, names)))
}

// errUnseen is for a NodeJob that no manager has looked at.
var errUnseen = errors.New("no manager has looked at it yet, so nothing of it runs anywhere: kubectl -n everynode-system get deployment everynode-manager")

// notObserved is true for a NodeJob that cannot be explained, since no manager has looked at it.
func notObserved(job *v1alpha1.NodeJob) bool {
	return job.Status.Revision == "" && observe.ToldObstacle(job) == nil && job.DeletionTimestamp.IsZero()
}
