// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/uninstall"
)

// installation is what exists of Everynode in a cluster.
type installation struct {
	jobs   []v1alpha1.NodeJob
	guards []v1alpha1.NodeGuard
	// nodeBudgets are the names of the NodeDisruptionBudgets.
	nodeBudgets []string
	// nodes have something to remove. cordoned, gated and marked are subsets of nodes.
	nodes, cordoned, gated, marked []string
	// rollbacks are the NodeJobs that have run on a node, and whose rollback will never run there.
	rollbacks map[string]bool
	// grants are roles and bindings of users, as "Kind name", which stay.
	grants []string
	// budgets is the number of PodDisruptionBudgets of NodeGuards. The garbage collector deletes those of NodeDisruptionBudgets.
	pods, budgets int
	// objects are the existing objects of config/default, as "Kind name".
	objects []string
	// managers is the number of ready managers.
	managers int32
	// namespace is set if it was created by config/default. foreign are the other pods in it, without the manager's.
	namespace bool
	foreign   []string
}

func (i *installation) empty() bool {
	return len(i.jobs)+len(i.guards)+len(i.nodeBudgets)+len(i.nodes)+i.pods+i.budgets+len(i.objects) == 0 && (!i.namespace || len(i.foreign) > 0)
}

// inspect reads what exists.
func (u *uninstalling) inspect(ctx context.Context) (*installation, error) {
	found := &installation{}
	for _, read := range []func(context.Context, *installation) error{u.findJobsAndGuards, u.findNodeBudgets, u.findNodes, u.findPods, u.findObjects, u.findNamespace, u.findGrants} {
		if err := read(ctx, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (u *uninstalling) findJobsAndGuards(ctx context.Context, found *installation) error {
	err := uninstall.Each(ctx, u.client, &v1alpha1.NodeJobList{}, func(o client.Object) error {
		found.jobs = append(found.jobs, *o.(*v1alpha1.NodeJob))
		return nil
	})
	if err != nil {
		return err
	}
	return uninstall.Each(ctx, u.client, &v1alpha1.NodeGuardList{}, func(o client.Object) error {
		found.guards = append(found.guards, *o.(*v1alpha1.NodeGuard))
		return nil
	})
}

func (u *uninstalling) findNodeBudgets(ctx context.Context, found *installation) error {
	return uninstall.Each(ctx, u.client, &v1alpha1.NodeDisruptionBudgetList{}, func(o client.Object) error {
		found.nodeBudgets = append(found.nodeBudgets, o.GetName())
		return nil
	})
}

// jobsAndGuards returns the NodeGuards, and after them the NodeJobs.
func (i *installation) jobsAndGuards() []client.Object {
	all := make([]client.Object, 0, len(i.guards)+len(i.jobs))
	for k := range i.guards {
		all = append(all, &i.guards[k])
	}
	for k := range i.jobs {
		all = append(all, &i.jobs[k])
	}
	return all
}

// scope returns what is removed from nodes for these NodeJobs.
func (u *uninstalling) scope(jobs []v1alpha1.NodeJob) uninstall.Scope {
	return uninstall.Scope{Jobs: jobs, Records: u.records}
}

func (u *uninstalling) findNodes(ctx context.Context, found *installation) error {
	scope, never := u.scope(found.jobs), u.neverRolledBack(found.jobs)
	found.rollbacks = map[string]bool{}
	return uninstall.Each(ctx, u.client, &corev1.NodeList{}, func(o client.Object) error {
		node := o.(*corev1.Node)
		for key := range node.Annotations {
			if name := never[key]; name != "" {
				found.rollbacks[name] = true
			}
		}
		change := uninstall.NodeChange(node, scope)
		if change == nil && !uninstall.HasConditions(node) {
			return nil
		}
		found.nodes = append(found.nodes, node.Name)
		if change == nil || change.Publish != nil {
			found.marked = append(found.marked, node.Name)
		}
		if change == nil {
			return nil
		}
		if change.Taints != nil {
			found.gated = append(found.gated, node.Name)
		}
		if change.Cordon != nil && node.Spec.Unschedulable {
			found.cordoned = append(found.cordoned, node.Name)
		}
		return nil
	})
}

func (u *uninstalling) findPods(ctx context.Context, found *installation) error {
	var err error
	if found.pods, err = uninstall.Pods(ctx, u.client); err != nil {
		return err
	}
	return uninstall.Budgets(ctx, u.client, func(*policyv1.PodDisruptionBudget) error { found.budgets++; return nil })
}

// findObjects reads which objects of config/default exist.
func (u *uninstalling) findObjects(ctx context.Context, found *installation) error {
	deployment := uninstall.Deployment()
	all := slices.Concat([]client.Object{deployment}, uninstall.Policies(), uninstall.Confinement(), uninstall.CRDs(), uninstall.Namespaced(), uninstall.ClusterRBAC())
	for _, o := range all {
		switch err := u.client.Get(ctx, client.ObjectKeyFromObject(o), o); {
		case uninstall.Absent(err):
		case err != nil:
			return fmt.Errorf("getting %s: %w", u.describe(o), err)
		default:
			found.objects = append(found.objects, u.describe(o))
		}
	}
	found.managers = deployment.Status.AvailableReplicas
	return u.eachBinding(ctx, func(binding client.Object) error {
		found.objects = append(found.objects, u.describe(binding))
		return nil
	})
}

// eachBinding calls do for the bindings of the admission policies, including those that users created for other
// namespaces.
func (u *uninstalling) eachBinding(ctx context.Context, do func(client.Object) error) error {
	if err := uninstall.Each(ctx, u.client, &admissionv1.MutatingAdmissionPolicyBindingList{}, func(o client.Object) error {
		if uninstall.OfPolicy(o.(*admissionv1.MutatingAdmissionPolicyBinding).Spec.PolicyName) {
			return do(o)
		}
		return nil
	}); err != nil {
		return err
	}
	return uninstall.Each(ctx, u.client, &admissionv1.ValidatingAdmissionPolicyBindingList{}, func(o client.Object) error {
		if uninstall.OfPolicy(o.(*admissionv1.ValidatingAdmissionPolicyBinding).Spec.PolicyName) {
			return do(o)
		}
		return nil
	})
}

func (u *uninstalling) findNamespace(ctx context.Context, found *installation) error {
	namespace := &corev1.Namespace{}
	if err := u.client.Get(ctx, client.ObjectKey{Name: uninstall.Namespace}, namespace); err != nil {
		return client.IgnoreNotFound(err)
	}
	found.namespace = namespace.Labels[uninstall.NameLabel] == uninstall.NameValue
	return uninstall.Each(ctx, u.client, &corev1.PodList{}, func(o client.Object) error {
		if o.GetLabels()[uninstall.NameLabel] != uninstall.NameValue {
			found.foreign = append(found.foreign, o.GetName())
		}
		return nil
	}, client.InNamespace(uninstall.Namespace))
}

// describe returns the kind and name of an object, such as "ClusterRole everynode-view".
func (u *uninstalling) describe(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		if kinds, _, err := cmdutil.Scheme.ObjectKinds(o); err == nil && len(kinds) > 0 {
			kind = kinds[0].Kind
		}
	}
	if o.GetNamespace() != "" {
		return kind + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return kind + " " + o.GetName()
}

// lines returns a description of what is removed.
func (i *installation) lines(records bool) []text.Line {
	var rows [][]text.Line
	add := func(what, more string) { rows = append(rows, text.Cells(what, more)) }
	for _, kind := range []struct {
		name    string
		objects []string
	}{
		{"NodeJobs", namesOf(i.jobs, describeJob)},
		{"NodeGuards", namesOf(i.guards, func(g *v1alpha1.NodeGuard) string { return g.Namespace + "/" + g.Name })},
		{"NodeDisruptionBudgets", i.nodeBudgets},
	} {
		if n := len(kind.objects); n > 0 {
			add(kind.name, fmt.Sprintf("%d: %s", n, cmdutil.JoinNames(kind.objects)))
		}
	}
	for _, nodes := range []struct {
		what  string
		names []string
	}{{"Gates", i.gated}, {"Cordons", i.cordoned}, {"Labels, annotations, conditions", i.marked}} {
		if n := len(nodes.names); n > 0 {
			add(nodes.what, fmt.Sprintf("on %s: %s", plural.Count(n, "node"), cmdutil.JoinNames(nodes.names)))
		}
	}
	if i.pods+i.budgets > 0 {
		add("Pods, budgets", plural.Count(i.pods, "pod")+", "+plural.Count(i.budgets, "PodDisruptionBudget"))
	}
	for _, o := range i.objects {
		kind, name, _ := strings.Cut(o, " ")
		add(kind, name)
	}
	switch {
	case i.namespace && len(i.foreign) > 0:
		add("Namespace", uninstall.Namespace+" stays: it has other pods: "+cmdutil.JoinNames(i.foreign))
	case i.namespace:
		add("Namespace", uninstall.Namespace)
	}
	lines := append([]text.Line{text.Toned(text.Strong, "To be removed:")}, text.Table(rows)...)
	if !records {
		lines = append(lines, text.Toned(text.Dim, "Records and published results of NodeJobs with deletionPolicy: Retain stay on the nodes. To remove them as well, add --records"))
	}
	return append(lines, i.stays()...)
}

func describeJob(job *v1alpha1.NodeJob) string {
	name := job.Namespace + "/" + job.Name
	if job.Spec.DeletionPolicy == v1alpha1.DeletionRollback && job.Spec.Rollback != nil {
		name += " (is rolled back)"
	}
	return name
}

func namesOf[T any](items []T, name func(*T) string) []string {
	names := make([]string, 0, len(items))
	for i := range items {
		names = append(names, name(&items[i]))
	}
	return names
}

// toRollBack returns the NodeJobs whose task must be rolled back on nodes before they are deleted, with their status
// messages.
func (u *uninstalling) toRollBack(ctx context.Context, jobs []v1alpha1.NodeJob) ([]string, error) {
	waiting := map[string]string{} // by record key
	for i := range jobs {
		job := &jobs[i]
		if !u.skipRollback && job.Spec.DeletionPolicy == v1alpha1.DeletionRollback && job.Spec.Rollback != nil {
			waiting[v1alpha1.RecordKey(job.Namespace, job.Name)] = job.Namespace + "/" + job.Name + stalledMessage(job)
		}
	}
	if len(waiting) == 0 {
		return nil, nil
	}
	names := map[string]bool{}
	err := uninstall.Each(ctx, u.client, &corev1.NodeList{}, func(o client.Object) error {
		for key, name := range waiting {
			if record.Read(o.GetLabels(), o.GetAnnotations(), key).Record != nil {
				names[name] = true
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(names)), err
}

// stalledMessage returns the reason why a NodeJob that is being deleted makes no progress, in parentheses.
func stalledMessage(job *v1alpha1.NodeJob) string {
	stalled := cmdutil.Stalled(job)
	if job.DeletionTimestamp.IsZero() || stalled == nil {
		return ""
	}
	return " (" + stalled.Message + ")"
}
