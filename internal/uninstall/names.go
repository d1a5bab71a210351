// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes what Everynode put into a cluster. The command line and the manager share it: the command
// line removes an installation with or without a manager, and the manager finishes a plain `kubectl delete` of its own
// installation before it exits. It only removes objects, fields and keys that are Everynode's (docs/rules.md, rule 8).
package uninstall

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rights"
)

// Names of config/default.
const (
	Namespace = "everynode-system"
	Manager   = "everynode-manager" // name of the Deployment, ServiceAccount, lease, role and bindings
	// Requirements is the name of the ServiceAccount that reads the objects of requirements, and of the Role and RoleBinding by which the
	// manager may act as it.
	Requirements  = "everynode-requirements"
	GatePolicy    = "everynode-gate"
	ManagerPolicy = "everynode-manager"
	Attribution   = "everynode-attribution"
	// NamespaceWarning is the policy of config/warnings.
	NamespaceWarning = "everynode-warn-namespaces"

	leaderElection = "everynode-leader-election"
	sealName       = "everynode-seal"
	quota          = "everynode-critical-pods"
)

// Labels of config/default. NameLabel and NameValue are the label of its namespace, and of all its pods.
const (
	NameLabel = "app.kubernetes.io/name"
	NameValue = "everynode"
	// ComponentLabel and ManagerComponent are the label of the manager's pods, besides NameLabel.
	ComponentLabel   = "app.kubernetes.io/component"
	ManagerComponent = "manager"
)

// CRD is a CustomResourceDefinition of Everynode, by its plural name.
func CRD(plural string) *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	crd.SetName(plural + "." + v1alpha1.Group)
	return crd
}

// Metadata is the metadata of an object, to read it without the rest: the schemas of the CRDs are half a megabyte. It cannot be
// deleted, because controller-runtime deletes metadata only of kinds in the scheme of the client.
func Metadata(o client.Object) *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
	metadata.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	return metadata
}

// CRDs are all CustomResourceDefinitions of Everynode.
func CRDs() []client.Object {
	return []client.Object{CRD("nodejobs"), CRD("nodeguards"), CRD("nodedisruptionbudgets")}
}

// Policies returns the admission policies of config/gate, config/attribution, config/warnings and config/authorization. Their bindings are found by the name of
// their policy.
func Policies() []client.Object {
	all := []client.Object{
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: GatePolicy}},
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: ManagerPolicy}},
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: Attribution}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: Attribution}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: NamespaceWarning}},
	}
	for _, name := range rights.Policies() {
		all = append(all, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return all
}

// OfPolicy reports whether a binding of an admission policy, with the name of its policy, is for one of Policies.
func OfPolicy(policy string) bool {
	return slices.ContainsFunc(Policies(), func(o client.Object) bool { return o.GetName() == policy })
}

// Confinement returns the admission policies of config/confinement and config/node-conditions, with their bindings.
func Confinement() []client.Object {
	var all []client.Object
	for _, part := range []string{"nodes", "pods", "seats", "seal", "namespaces", "budgets", "nodejobs", "rights", "node-status"} {
		name := metav1.ObjectMeta{Name: "everynode-confine-" + part}
		all = append(all, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name}, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name})
	}
	return all
}

// Deployment returns the Deployment of the manager.
func Deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: inNamespace(Manager)}
}

// SealSecret returns the Secret with the key of the installation, without the key.
func SealSecret() *corev1.Secret { return &corev1.Secret{ObjectMeta: inNamespace(sealName)} }

// Namespaced returns the objects of config/default and of its components in its namespace, except the Deployment of the manager.
func Namespaced() []client.Object {
	return []client.Object{
		&rbacv1.RoleBinding{ObjectMeta: inNamespace(leaderElection)},
		&rbacv1.Role{ObjectMeta: inNamespace(leaderElection)},
		&rbacv1.RoleBinding{ObjectMeta: inNamespace(sealName)},
		&rbacv1.Role{ObjectMeta: inNamespace(sealName)},
		SealSecret(),
		&coordinationv1.Lease{ObjectMeta: inNamespace(Manager)},
		&corev1.ResourceQuota{ObjectMeta: inNamespace(quota)},
		&policyv1.PodDisruptionBudget{ObjectMeta: inNamespace(Manager)},
		&networkingv1.NetworkPolicy{ObjectMeta: inNamespace(Manager)},
		&rbacv1.RoleBinding{ObjectMeta: inNamespace(Requirements)},
		&rbacv1.Role{ObjectMeta: inNamespace(Requirements)},
		&corev1.ServiceAccount{ObjectMeta: inNamespace(Requirements)},
		&corev1.ServiceAccount{ObjectMeta: inNamespace(Manager)},
	}
}

// ClusterRBAC returns the cluster-wide RBAC objects of config/default. It excludes bindings that users created for its
// roles.
func ClusterRBAC() []client.Object {
	all := []client.Object{&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: Manager}}}
	for _, name := range []string{
		Manager, "everynode-nodejob-editor", "everynode-nodejob-viewer", "everynode-nodeguard-editor", "everynode-nodeguard-viewer",
		"everynode-nodedisruptionbudget-editor",
		"everynode-run-as-root", "everynode-disrupt", "everynode-gate", "everynode-label", "everynode-ignore-windows", "everynode-all-effects",
		"everynode-view", "everynode-view-nodes", "everynode-view-all", "everynode-view-drains", "everynode-operator", "everynode-operator-nodes",
		"everynode-metrics-reader",
	} {
		all = append(all, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return all
}

func inNamespace(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: Namespace, Name: name}
}
