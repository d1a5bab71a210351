// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Service accounts and their permissions, ConfigMaps and Secrets: which of them the NodeJobs need.

// account is a service account.
type account struct{ namespace, name string }

// accounts returns the service accounts of the sources that the NodeJobs do not need, and those that they need.
func (c *converter) accounts() (unneeded, needed map[account]*draft) {
	unneeded, needed = map[account]*draft{}, map[account]*draft{}
	for _, d := range c.drafts {
		switch key := (account{d.namespace, d.account}); {
		case d.account == "":
		case d.needsAccount:
			needed[key] = d
		default:
			unneeded[key] = d
		}
	}
	for key := range needed {
		delete(unneeded, key)
	}
	for _, other := range c.others {
		for _, path := range [][]string{{"spec", "template", "spec"}, {"spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}} {
			for _, field := range []string{"serviceAccountName", "serviceAccount"} {
				name, _, _ := unstructured.NestedString(other.Object, append(slices.Clone(path), field)...)
				delete(unneeded, account{c.namespaceOf(other), name})
			}
		}
	}
	return unneeded, needed
}

func (c *converter) namespaceOf(source *unstructured.Unstructured) string {
	return cmp.Or(source.GetNamespace(), c.options.Namespace)
}

// describeAccess says whether a service account, a role or a binding is still needed. It reports whether the object
// belongs to a pattern.
func (c *converter) describeAccess(other *unstructured.Unstructured) bool {
	unneeded, needed := c.accounts()
	if owner := c.ownerOf(other, unneeded); owner != nil {
		owner.drop("%s, if nothing outside of the file uses it", nameOf(other))
		return true
	}
	if owner := c.ownerOf(other, needed); owner != nil {
		owner.note("The %s is needed only if the program uses the API of Kubernetes: see serviceAccountName.", nameOf(other))
		return true
	}
	return false
}

// ownerOf returns the NodeJob whose source alone uses a service account, role or binding; nil if there is none.
func (c *converter) ownerOf(other *unstructured.Unstructured, accounts map[account]*draft) *draft {
	switch kind := other.GetKind(); kind {
	case "ServiceAccount":
		return accounts[account{c.namespaceOf(other), other.GetName()}]
	case "ClusterRoleBinding", "RoleBinding":
		return c.ownerOfBinding(other, accounts)
	default:
		var owner *draft
		for _, binding := range c.objects {
			role, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name")
			roleKind, _, _ := unstructured.NestedString(binding.Object, "roleRef", "kind")
			if !strings.HasSuffix(binding.GetKind(), "RoleBinding") || role != other.GetName() || roleKind != kind {
				continue
			}
			if owner = c.ownerOfBinding(binding, accounts); owner == nil {
				return nil
			}
		}
		return owner
	}
}

// ownerOfBinding returns the NodeJob whose source is the only subject of a binding; nil if there are others.
func (c *converter) ownerOfBinding(binding *unstructured.Unstructured, accounts map[account]*draft) *draft {
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	var owner *draft
	for _, subject := range subjects {
		fields, _ := subject.(map[string]any)
		name, _ := fields["name"].(string)
		namespace, _ := fields["namespace"].(string)
		if fields["kind"] != "ServiceAccount" {
			return nil
		}
		if owner = accounts[account{cmp.Or(namespace, c.namespaceOf(binding)), name}]; owner == nil {
			return nil
		}
	}
	return owner
}

// describeContent says whether a ConfigMap or Secret is still needed. It reports whether it belongs to a pattern.
func (c *converter) describeContent(other *unstructured.Unstructured) bool {
	key := contentKey(other.GetKind(), c.namespaceOf(other), other.GetName())
	for _, d := range c.drafts {
		switch {
		case d.usesTemplate() && slices.Contains(d.mounted, key):
			d.note("The %s is still needed.", nameOf(other))
			return true
		case !d.usesTemplate() && slices.Contains(d.scripts, key):
			d.drop("%s: its script is in task.script", nameOf(other))
			return true
		}
	}
	return false
}
