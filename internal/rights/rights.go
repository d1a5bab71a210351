// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rights says which permissions a user needs to create or change an object, because of what the manager then does
// with its own permissions. The admission policies in config/authorization say the same in CEL.
package rights

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Verbs of what NodeJobs do on nodes. They are verbs of nodejobs/nodes, which is not a resource that exists.
const (
	RunAsRoot = "run-as-root"
	Disrupt   = "disrupt"
	Gate      = "gate"
	Label     = "label"
	// IgnoreWindows is to start outside of the windows of NodeDisruptionBudgets.
	IgnoreWindows = "ignore-windows"
)

// Policies returns the names of the policies of config/authorization, except the one that is about attribution.
func Policies() []string {
	return []string{"everynode-nodejobs", "everynode-nodeguards", "everynode-scripts", "everynode-namespaces", "everynode-status", "everynode-pods", "everynode-own-pods"}
}

// Bindings returns the names of the bindings of Policies: those of the policies, and two more for a policy that selects objects
// by any of three labels.
func Bindings() []string {
	return append(Policies(), "everynode-pods-of-nodeguards", "everynode-seats")
}

// Right is a permission, and why it is needed.
type Right struct {
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	// Namespace is empty for a permission at the scope of the cluster.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the resource. For nodejobs/nodes it is the namespace of the NodeJobs.
	Name string `json:"name,omitempty"`
	// Field is the field of the object that needs it.
	Field string `json:"field,omitempty"`
}

// OnNodes reports whether it is a right to do something on nodes through NodeJobs.
func (r Right) OnNodes() bool { return r.Group == v1alpha1.Group && r.Subresource == "nodes" }

// onNodes is the right to do something on nodes through the NodeJobs of a namespace.
func onNodes(verb, namespace, field string) Right {
	return Right{Verb: verb, Group: v1alpha1.Group, Resource: "nodejobs", Subresource: "nodes", Name: namespace, Field: field}
}

// create is the right to create objects in a namespace.
func create(group, resource, namespace, field string) Right {
	return Right{Verb: "create", Group: group, Resource: resource, Namespace: namespace, Field: field}
}

// OfNodeJob returns the rights that the creation of a NodeJob needs: at most one for each verb, with the first field that
// needs it.
func OfNodeJob(job *v1alpha1.NodeJob) []Right { return OfChange(job, job) }

// OfChange returns the rights that each change of the spec of a NodeJob needs. What the spec before it does as root, and what it has put
// on nodes, counts too, because a change may end or remove it.
func OfChange(before, job *v1alpha1.NodeJob) []Right {
	var needed []Right
	add := func(verb string, fields ...string) {
		if field := cmp.Or(fields...); field != "" {
			needed = append(needed, onNodes(verb, job.Namespace, field))
		}
	}
	spec, old := &job.Spec, &before.Spec
	removed := rootField(old)
	add(RunAsRoot, rootField(spec), when(removed != "", removed+", which the change removes"))
	add(Disrupt, disruptField(old, spec))
	add(Gate, when(spec.Gate != nil || old.Gate != nil, "spec.gate"))
	add(Label, when(len(spec.Publish) > 0 || len(old.Publish) > 0, "spec.publish"), when(len(spec.RemoveLabels) > 0, "spec.removeLabels"))
	add(IgnoreWindows, when(len(spec.Maintenance.IgnoreWindowsOn) > 0, "spec.maintenance.ignoreWindowsOn"))
	if spec.Task.Template != nil {
		needed = append(needed, create("", "pods", job.Namespace, "spec.task.template"))
	}
	return needed
}

// OfDeletion returns the rights that the deletion of a NodeJob needs, and the removal of its finalizer: it may be rolled back, the repair of
// drift ends, and what it has put on nodes is removed.
func OfDeletion(job *v1alpha1.NodeJob) []Right {
	var needed []Right
	for _, right := range []Right{
		onNodes(RunAsRoot, job.Namespace, cmp.Or(
			when(job.Spec.DeletionPolicy == v1alpha1.DeletionRollback, "spec.rollback"),
			when(job.Spec.Task.Check != nil && job.Spec.Task.Check.OnDrift == v1alpha1.DriftRun, "spec.task.check.onDrift"))),
		onNodes(Disrupt, job.Namespace, when(cordonsFailed(&job.Spec), "spec.onFailure.action")),
		onNodes(Gate, job.Namespace, when(job.Spec.Gate != nil, "spec.gate")),
		onNodes(Label, job.Namespace, when(len(job.Spec.Publish) > 0 && job.Spec.DeletionPolicy != v1alpha1.DeletionRetain, "spec.publish")),
	} {
		if right.Field != "" {
			needed = append(needed, right)
		}
	}
	return needed
}

// rootField returns the first field because of which a pod runs as root on the host.
func rootField(spec *v1alpha1.NodeJobSpec) string {
	return cmp.Or(
		when(spec.Task.Script != "", "spec.task.script"),
		when(spec.Task.ScriptFrom != nil, "spec.task.scriptFrom"),
		when(len(spec.Task.Command) > 0, "spec.task.command"),
		when(spec.Task.Template == nil, "spec.task"),
		when(spec.Task.Check != nil, "spec.task.check"),
		when(spec.Rollback != nil, "spec.rollback"),
		when(reboots(spec), "spec.maintenance.reboot.policy"),
	)
}

// disruptField returns the first field because of which workloads have to leave a node, or failed nodes get workloads again.
func disruptField(old, spec *v1alpha1.NodeJobSpec) string {
	return cmp.Or(
		when(spec.Maintenance.Drain != nil, "spec.maintenance.drain"),
		when(spec.Maintenance.Cordon, "spec.maintenance.cordon"),
		when(reboots(spec), "spec.maintenance.reboot.policy"),
		when(cordonsFailed(spec) || cordonsFailed(old), "spec.onFailure.action"),
		when(spec.Gate != nil && !slices.Contains([]v1alpha1.GateEffect{"", v1alpha1.GateNoSchedule}, spec.Gate.Effect), "spec.gate.effect"),
	)
}

func cordonsFailed(spec *v1alpha1.NodeJobSpec) bool {
	return !slices.Contains([]v1alpha1.FailureAction{"", v1alpha1.FailureActionNone}, spec.OnFailure.Action)
}

func reboots(spec *v1alpha1.NodeJobSpec) bool {
	return spec.Maintenance.Reboot.Policy != "" && spec.Maintenance.Reboot.Policy != v1alpha1.RebootNever
}

func when(condition bool, field string) string {
	if condition {
		return field
	}
	return ""
}

// OfNodeGuard returns the rights that the creation of a NodeGuard needs, and each change of its spec.
func OfNodeGuard(guard *v1alpha1.NodeGuard) []Right {
	var needed []Right
	if check := guard.Spec.Release.Check; check != nil && check.Script != "" {
		needed = append(needed, onNodes(RunAsRoot, guard.Namespace, "spec.release.check.script"))
	}
	return append(needed, create("", "pods", guard.Namespace, ""), create("policy", "poddisruptionbudgets", guard.Namespace, ""))
}

// OfConfigMap returns the rights that each change of a ConfigMap needs, besides those of Kubernetes.
func OfConfigMap(configMap *corev1.ConfigMap) []Right {
	if configMap.Labels[v1alpha1.ScriptLabel] != v1alpha1.ScriptLabelValue {
		return nil
	}
	return []Right{onNodes(RunAsRoot, configMap.Namespace, "the label "+v1alpha1.ScriptLabel)}
}

// applyVerbs are what `kubectl apply` does.
var applyVerbs = []string{"get", "create", "patch"}

// ToApply returns the rights that `kubectl apply` needs for an object.
func ToApply(group, resource, namespace string) []Right {
	var needed []Right
	for _, verb := range applyVerbs {
		needed = append(needed, Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace})
	}
	return needed
}
