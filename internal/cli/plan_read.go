// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
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

// missingAccount returns an obstacle if the ServiceAccount that the template of a NodeJob names is neither in the file nor in the
// cluster. A user who may not read it gets none.
func (o *planOptions) missingAccount(ctx context.Context, file *planFile, job *v1alpha1.NodeJob) (*hold.Why, error) {
	template := job.Spec.Task.Template
	if template == nil {
		return nil, nil
	}
	name := cmp.Or(template.Spec.ServiceAccountName, template.Spec.DeprecatedServiceAccount)
	key := client.ObjectKey{Namespace: job.Namespace, Name: name}
	if name == "" || file.accounts[key] {
		return nil, nil
	}
	err := o.client.Get(ctx, key, &corev1.ServiceAccount{})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case !apierrors.IsNotFound(err):
		return nil, cmdutil.Explain(err)
	}
	return &hold.Why{Reason: v1alpha1.ReasonServiceAccountNotFound, Message: fmt.Sprintf("ServiceAccount %s does not exist. %s", key,
		hold.CreateServiceAccount(key.Namespace, name, "spec.task.template.spec.serviceAccountName"))}, nil
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
	for _, name := range toRun(v) {
		if len(v.Drained) == maxDrainLooks && !v.All {
			v.NotLooked++
			continue
		}
		node, err := o.drained(ctx, name, spec, budgets)
		if cmdutil.CodeOf(err) == cmdutil.ExitForbidden {
			v.Notes = append(v.Notes, "evicted pods are not in this plan: "+err.Error())
			return nil
		}
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
	case onFailure.Action != v1alpha1.FailureActionDrain:
		return nil
	case onFailure.Drain != nil:
		return onFailure.Drain
	}
	return &v1alpha1.DrainSpec{}
}

// drained returns what a drain of a node would evict now.
func (o *planOptions) drained(ctx context.Context, name string, spec *v1alpha1.DrainSpec, budgets []policyv1.PodDisruptionBudget) (view.DrainData, error) {
	node := view.DrainData{Node: name}
	err := cmdutil.EachPodToEvict(ctx, o.client, name, o.managerNode, spec, func(pod *corev1.Pod, drain plan.DrainPod) {
		full := pod.Namespace + "/" + pod.Name
		if why := blockedPod(pod, drain, budgets); why != "" {
			node.Blocked = append(node.Blocked, view.BlockedData{Pod: full, Message: why})
		} else {
			node.PodsToEvict = append(node.PodsToEvict, full)
		}
	})
	return node, err
}

// conflicts returns what could not be published on nodes on which the task would run, in the order of the steps.
func conflicts(v *view.Plan, nodes []plan.Node) []view.ConflictData {
	byName := make(map[string]*plan.Node, len(nodes))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	var found []view.ConflictData
	for _, name := range toRun(v) {
		for _, c := range plan.PublishConflicts(v.Job, byName[name]) {
			found = append(found, view.ConflictData{Node: name, Kind: c.Kind, Key: c.Key, Value: c.Value, PublishedBy: c.Owner})
		}
	}
	return found
}

// afterAssuming returns the nodes with the records that the manager writes first, on those that are assumed to be done.
// Without them, the plan would show such a node as a canary, which it never is. While the NodeJob is suspended, the manager
// does not write these records, so they are those of the resumed NodeJob.
func afterAssuming(in plan.Input) []plan.Node {
	if in.Job.Spec.Nodes.AssumeDone == nil {
		return in.Nodes
	}
	nodes := slices.Clone(in.Nodes)
	in.Job = in.Job.DeepCopy()
	in.Job.Spec.Suspend = false
	records := map[string]*record.Record{}
	for _, action := range plan.Next(in).Actions {
		if patch, ok := action.(plan.PatchNode); ok && patch.Record != nil && patch.Record.IsAssumed() {
			records[patch.Node] = patch.Record
		}
	}
	for i := range nodes {
		if rec := records[nodes[i].Name]; rec != nil {
			nodes[i].On = record.NodeRecord{Label: rec.Label, Record: rec, Sealed: true, Present: true}
		}
	}
	return nodes
}

// assumed returns the names of the nodes that were assumed to be done.
func assumed(nodes []plan.Node) map[string]bool {
	names := map[string]bool{}
	for i := range nodes {
		if rec := nodes[i].On.Record; rec != nil && rec.IsAssumed() && !rec.IsAlreadyDone() && !rec.IsExpired() {
			names[nodes[i].Name] = true
		}
	}
	return names
}

// toRun returns the nodes on which the task would run, in the order of the steps.
func toRun(v *view.Plan) []string {
	var names []string
	for _, step := range v.Plan.Steps {
		for _, i := range step.Nodes {
			if s := &v.Plan.Nodes[i]; s.State == plan.Running || (s.State == plan.Waiting && s.Reason != v1alpha1.ReasonAssumedDone) {
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
