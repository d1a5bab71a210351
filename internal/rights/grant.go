// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"fmt"
	"slices"
	"strings"
)

// accountPrefix is what the names of ServiceAccounts as users begin with.
const accountPrefix = "system:serviceaccount:"

// isPlain reports whether a shell, and the name of a binding, may contain the name of a user.
func isPlain(user string) bool {
	return user != "" && !strings.ContainsFunc(user, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("@._:-", r)
	})
}

// Subject returns the name of a user as part of a name, and the flag by which kubectl binds a role to it.
func Subject(user string) (name, flag string) {
	if !isPlain(user) {
		user = "USER"
	}
	if account, is := strings.CutPrefix(user, accountPrefix); is {
		return user, "--serviceaccount=" + account
	}
	return user, "--user=" + user
}

// Grants returns the commands by which an administrator grants rights to a user: one role and binding for each scope, that
// is, for the NodeJobs of one namespace on nodes, for the objects of one namespace, and for NodeDisruptionBudgets.
func Grants(missing []Right, user string) []string {
	var commands []string
	for len(missing) > 0 {
		first := missing[0]
		var same []Right
		missing = slices.DeleteFunc(slices.Clone(missing), func(r Right) bool {
			if r.OnNodes() != first.OnNodes() || r.Name != first.Name || r.Namespace != first.Namespace {
				return false
			}
			same = append(same, r)
			return true
		})
		if first.OnNodes() {
			commands = append(commands, grantOnNodes(same, user)...)
		} else {
			commands = append(commands, grantInNamespace(same, user)...)
		}
	}
	return commands
}

// grantOnNodes creates a ClusterRole, since no role that is installed is limited to a namespace.
func grantOnNodes(needed []Right, user string) []string {
	var verbs []string
	for _, r := range needed {
		if !slices.Contains(verbs, r.Verb) {
			verbs = append(verbs, r.Verb)
		}
	}
	namespace := needed[0].Name
	role := fmt.Sprintf("everynode-%s-in-%s", strings.Join(verbs, "-"), namespace)
	name, flag := Subject(user)
	return []string{
		fmt.Sprintf("kubectl create clusterrole %s --verb=%s --resource=nodejobs.everynode.dev/nodes --resource-name=%s", role, strings.Join(verbs, ","), namespace),
		fmt.Sprintf("kubectl create clusterrolebinding %s-%s --clusterrole=%s %s", name, role, role, flag),
	}
}

// editors are the installed ClusterRoles for resources of Everynode.
var editors = map[string]string{
	"nodejobs": "everynode-nodejob-editor", "nodeguards": "everynode-nodeguard-editor", "nodedisruptionbudgets": "everynode-nodedisruptionbudget-editor",
}

// grantInNamespace binds the roles that are installed. For other resources, it creates a role with just these verbs.
func grantInNamespace(needed []Right, user string) []string {
	name, flag := Subject(user)
	namespace := needed[0].Namespace
	verbs := map[string][]string{}
	var resources, commands []string
	for _, r := range needed {
		resource := r.Resource
		if _, ours := editors[resource]; !ours && r.Group != "" {
			resource += "." + r.Group
		}
		if verbs[resource] == nil {
			resources = append(resources, resource)
		}
		if !slices.Contains(verbs[resource], r.Verb) {
			verbs[resource] = append(verbs[resource], r.Verb)
		}
	}
	for _, resource := range resources {
		if role := editors[resource]; role != "" && namespace == "" {
			commands = append(commands, fmt.Sprintf("kubectl create clusterrolebinding %s-%s --clusterrole=%s %s", name, role, role, flag))
			continue
		} else if role != "" {
			commands = append(commands, fmt.Sprintf("kubectl -n %s create rolebinding %s-%s --clusterrole=%s %s", namespace, name, role, role, flag))
			continue
		}
		short, _, _ := strings.Cut(resource, ".")
		role := strings.Join(append(slices.Clone(verbs[resource]), short), "-")
		commands = append(commands,
			fmt.Sprintf("kubectl -n %s create role %s --verb=%s --resource=%s", namespace, role, strings.Join(verbs[resource], ","), resource),
			fmt.Sprintf("kubectl -n %s create rolebinding %s-%s --role=%s %s", namespace, name, role, role, flag))
	}
	return commands
}
