// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/view"
	"github.com/everynode/everynode/internal/plan"
)

// configMap returns the future ConfigMap: the one in the file, otherwise the one in the cluster.
func (o *planOptions) configMap(ctx context.Context, file *planFile, key client.ObjectKey) (*corev1.ConfigMap, error) {
	if configMap, ok := file.configMaps[key]; ok {
		return configMap, nil
	}
	var configMap corev1.ConfigMap
	err := o.client.Get(ctx, key, &configMap)
	return &configMap, err
}

// secret does the same for a Secret. guessed reports whether the Secret does not exist yet, since its UID is part of
// the hash.
func (o *planOptions) secret(ctx context.Context, file *planFile, key client.ObjectKey) (secret *corev1.Secret, guessed bool, err error) {
	secret = &corev1.Secret{}
	err = o.client.Get(ctx, key, secret)
	if would, ok := file.secrets[key]; ok && client.IgnoreNotFound(err) == nil {
		secret.Data = would.Data
		return secret, err != nil, nil
	}
	return secret, false, err
}

// maxDrainLooks limits the number of nodes whose pods are read unless all are requested. Each node costs a request.
const maxDrainLooks = 20

// drains reads what would be evicted from nodes that would be drained, before the task or after a failure.
func (o *planOptions) drains(ctx context.Context, v *view.Plan) error {
	spec := drainOf(v.Job)
	if spec == nil {
		return nil
	}
	var budgets []policyv1.PodDisruptionBudget
	var page policyv1.PodDisruptionBudgetList
	if err := cmdutil.EachPage(ctx, o.client, &page, func() { budgets = append(budgets, page.Items...) }); err != nil {
		if cmdutil.CodeOf(err) != cmdutil.ExitForbidden {
			return err
		}
		v.Notes = append(v.Notes, "PodDisruptionBudgets are not in this plan: "+err.Error())
	}
	for _, name := range toDrain(v) {
		if len(v.Drained) == maxDrainLooks && !v.All {
			v.NotLooked++
			continue
		}
		node, err := o.drained(ctx, name, spec, budgets)
		if err != nil {
			return err
		}
		v.Drained = append(v.Drained, node)
	}
	return nil
}

// drainOf returns how nodes would be drained; nil if no node would be.
func drainOf(job *v1alpha1.NodeJob) *v1alpha1.DrainSpec {
	onFailure := job.Spec.OnFailure
	switch {
	case job.Spec.Maintenance.Drain != nil:
		return job.Spec.Maintenance.Drain
	case onFailure.Node != v1alpha1.FailedNodeDrain:
		return nil
	case onFailure.Drain != nil:
		return onFailure.Drain
	}
	return &v1alpha1.DrainSpec{}
}

// drained returns what a drain of a node would evict now.
func (o *planOptions) drained(ctx context.Context, name string, spec *v1alpha1.DrainSpec, budgets []policyv1.PodDisruptionBudget) (view.DrainedNode, error) {
	node := view.DrainedNode{Node: name}
	err := eachPodToEvict(ctx, o.client, name, spec, func(pod *corev1.Pod, drain plan.DrainPod) {
		full := pod.Namespace + "/" + pod.Name
		if why := blockedPod(pod, drain, budgets); why != "" {
			node.Blocked = append(node.Blocked, view.BlockedPod{Pod: full, Why: why})
		} else {
			node.Evicted = append(node.Evicted, full)
		}
	})
	return node, err
}

// toDrain returns the nodes on which the task would run, in the order of the steps.
func toDrain(v *view.Plan) []string {
	var names []string
	for _, step := range v.Plan.Steps {
		for _, i := range step.Nodes {
			if s := &v.Plan.Nodes[i]; s.State == plan.Waiting || s.State == plan.Running {
				names = append(names, s.Name)
			}
		}
	}
	return names
}

// blockedPod returns the reason why a pod could not be evicted now; "" if it could be.
func blockedPod(pod *corev1.Pod, drain plan.DrainPod, budgets []policyv1.PodDisruptionBudget) string {
	if drain.EvictionRefused != "" {
		return drain.EvictionRefused
	}
	var covers []*policyv1.PodDisruptionBudget
	for i := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector)
		if err == nil && budgets[i].Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			covers = append(covers, &budgets[i])
		}
	}
	switch {
	case len(covers) > 1:
		return fmt.Sprintf("PodDisruptionBudgets %s and %s both cover it, and the API server evicts no such pod", covers[0].Name, covers[1].Name)
	case len(covers) == 0 || covers[0].Status.DisruptionsAllowed > 0:
		return ""
	}
	budget := covers[0]
	return fmt.Sprintf("PodDisruptionBudget %s allows no disruption now: %d pods are healthy, and %d must be", budget.Name, budget.Status.CurrentHealthy, budget.Status.DesiredHealthy)
}
