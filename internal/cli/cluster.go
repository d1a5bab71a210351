// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// clusterView is the part of a cluster that a user may read.
type clusterView struct {
	observe.Cluster
	// namespaced is the reason why the view contains the NodeJobs of one namespace only. It is nil if it contains all.
	namespaced error
	// managerUnknown is true if the manager runs in the cluster, and the user may not read on which node.
	managerUnknown bool
	// limits say what is not known about the nodes that namespaces are limited to, by namespace.
	limits map[string]string
}

// readAllowedNodes reads the nodes that the namespaces of NodeJobs are limited to.
func (v *clusterView) readAllowedNodes(ctx context.Context, c client.Reader, jobs []*v1alpha1.NodeJob) {
	if v.limits == nil {
		v.limits, v.AllowedNodes = map[string]string{}, map[string]labels.Selector{}
	}
	for _, job := range jobs {
		if _, known := v.limits[job.Namespace]; known {
			continue
		}
		v.limits[job.Namespace] = ""
		var namespace corev1.Namespace
		if err := c.Get(ctx, client.ObjectKey{Name: job.Namespace}, &namespace); err != nil {
			v.limits[job.Namespace] = fmt.Sprintf("whether namespace %s is limited to nodes (annotation %s) is not known: %v", job.Namespace, v1alpha1.NodesAnnotation, err)
			continue
		}
		nodes, obstacle := hold.AllowedNodes(job.Namespace, namespace.Annotations)
		if obstacle != nil {
			v.limits[job.Namespace] = obstacle.Message
			continue
		}
		v.AllowedNodes[job.Namespace] = nodes
	}
}

// readManagerNode reads on which node the manager runs if that matters for any of the NodeJobs.
func (v *clusterView) readManagerNode(ctx context.Context, c client.Reader, jobs []*v1alpha1.NodeJob) {
	if v.ManagerNode == "" && slices.ContainsFunc(jobs, readsManagerNode) {
		node, known := cmdutil.ManagerNode(ctx, c)
		v.ManagerNode, v.managerUnknown = node, !known
	}
}

// readsManagerNode reports whether the node of the manager comes last for a NodeJob, or its drains leave the manager there.
func readsManagerNode(job *v1alpha1.NodeJob) bool {
	return plan.Disrupts(job) || job.Spec.Confirm != nil || drainOf(job) != nil
}

// readCluster reads what the plan of any NodeJob needs: all nodes, with a few of their fields, and all NodeJobs. A user
// who may list NodeJobs in one namespace only gets a plan without the gates of other namespaces.
func readCluster(ctx context.Context, f *console.Factory, c client.Reader, namespace string) (clusterView, error) {
	var seen clusterView
	var page corev1.NodeList
	err := cmdutil.EachPage(ctx, c, &page, func() {
		for i := range page.Items {
			seen.Nodes = append(seen.Nodes, observe.Node(&page.Items[i]))
		}
		page = corev1.NodeList{}
	})
	seen.Now = f.Now() // the responses contain the time of the API server
	if err != nil {
		return seen, err
	}
	jobs, err := cmdutil.ListJobs(ctx, c, "")
	if cmdutil.CodeOf(err) == cmdutil.ExitForbidden {
		seen.namespaced = err
		jobs, err = cmdutil.ListJobs(ctx, c, namespace)
	}
	for i := range jobs {
		seen.Jobs = append(seen.Jobs, &jobs[i])
	}
	if err != nil {
		return seen, err
	}
	seen.readManagerNode(ctx, c, seen.Jobs)
	seen.readAllowedNodes(ctx, c, seen.Jobs)
	seen.Budgets, err = cmdutil.BudgetsFor(ctx, c)
	return seen, err
}

// planOf returns the plan that the manager computes for a NodeJob, as far as the command can compute it.
func planOf(ctx context.Context, c client.Reader, seen observe.Cluster, job *v1alpha1.NodeJob) (plan.Input, plan.Plan, error) {
	pods, err := cmdutil.PodsNamed(ctx, c, job)
	if err != nil {
		return plan.Input{}, plan.Plan{}, err
	}
	in := seen.Input(job, pods)
	return cmdutil.PlanDrains(ctx, c, in, plan.Next(in))
}

// nodeIndex returns the index of the node with this name. If there is none, the error suggests similar names.
func nodeIndex(nodes []plan.Node, name string) (int, error) {
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		if nodes[i].Name == name {
			return i, nil
		}
		names = append(names, nodes[i].Name)
	}
	if len(names) == 0 {
		return 0, cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s: the cluster has none", name)
	}
	return 0, cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s; there are %s", name, cmdutil.JoinNames(cmdutil.Nearest(name, names)))
}
