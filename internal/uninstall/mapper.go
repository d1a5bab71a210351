// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Mapper returns a mapper for the kinds of an installation and of what it leaves, and for what the command line reads. It does not use
// discovery, because some of the kinds may already be deleted.
func Mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	root, namespaced := meta.RESTScopeRoot, meta.RESTScopeNamespace
	m.Add(CRD("nodejobs").GroupVersionKind(), root)
	policies := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	for version, kinds := range map[schema.GroupVersion]map[string]meta.RESTScope{
		{Version: "v1"}:                                     {"Node": root, "Namespace": root, "Pod": namespaced, "Service": namespaced, "ServiceAccount": namespaced, "Secret": namespaced, "ResourceQuota": namespaced, "ConfigMap": namespaced, "Event": namespaced},
		{Group: "apps", Version: "v1"}:                      {"Deployment": namespaced},
		{Group: "policy", Version: "v1"}:                    {"PodDisruptionBudget": namespaced},
		{Group: "networking.k8s.io", Version: "v1"}:         {"NetworkPolicy": namespaced},
		{Group: "rbac.authorization.k8s.io", Version: "v1"}: {"ClusterRole": root, "ClusterRoleBinding": root, "Role": namespaced, "RoleBinding": namespaced},
		{Group: "coordination.k8s.io", Version: "v1"}:       {"Lease": namespaced},
		{Group: "authorization.k8s.io", Version: "v1"}:      {"SelfSubjectAccessReview": root},
		{Group: "authentication.k8s.io", Version: "v1"}:     {"SelfSubjectReview": root},
		v1alpha1.GroupVersion:                               {"NodeJob": namespaced, "NodeGuard": namespaced, "NodeDisruptionBudget": root},
		policies:                                            {"MutatingAdmissionPolicyBinding": root, "ValidatingAdmissionPolicy": root, "ValidatingAdmissionPolicyBinding": root},
	} {
		for kind, scope := range kinds {
			m.Add(version.WithKind(kind), scope)
		}
	}
	m.AddSpecific(policies.WithKind("ValidatingAdmissionPolicy"), policies.WithResource("validatingadmissionpolicies"), policies.WithResource("validatingadmissionpolicy"), root)
	m.AddSpecific(policies.WithKind("MutatingAdmissionPolicy"), policies.WithResource("mutatingadmissionpolicies"), policies.WithResource("mutatingadmissionpolicy"), root)
	return m
}
