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

// editors and viewers are the installed ClusterRoles for resources of Everynode.
var editors = map[string]string{
	"nodejobs": "everynode-nodejob-editor", "nodeguards": "everynode-nodeguard-editor", "nodedisruptionbudgets": "everynode-nodedisruptionbudget-editor",
}

var viewers = map[string]string{"nodejobs": "everynode-nodejob-viewer", "nodeguards": "everynode-nodeguard-viewer"}

// installedRole returns the installed role for a user who lacks these verbs; "" if it would grant more than the user needs to apply a file.
func installedRole(resource string, verbs []string) string {
	switch {
	case len(verbs) == len(applyVerbs):
		return editors[resource]
	case len(verbs) == 1 && verbs[0] == "get":
		return viewers[resource]
	}
	return ""
}

// grantInNamespace binds a role that is installed if the user lacks all that it is for. Otherwise, it creates a role with just the missing
// verbs. Without a namespace, they are ClusterRoles.
func grantInNamespace(needed []Right, user string) []string {
	name, flag := Subject(user)
	kubectl, kind := "kubectl -n "+needed[0].Namespace, "role"
	if needed[0].Namespace == "" {
		kubectl, kind = "kubectl", "clusterrole"
	}
	verbs := map[string][]string{}
	var resources, commands []string
	for _, r := range needed {
		resource := r.Resource
		if r.Group != "" {
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
		short, _, _ := strings.Cut(resource, ".")
		if role := installedRole(short, verbs[resource]); role != "" {
			commands = append(commands, fmt.Sprintf("%s create %sbinding %s-%s --clusterrole=%s %s", kubectl, kind, name, role, role, flag))
			continue
		}
		role := strings.Join(append(slices.Clone(verbs[resource]), short), "-")
		commands = append(commands,
			fmt.Sprintf("%s create %s %s --verb=%s --resource=%s", kubectl, kind, role, strings.Join(verbs[resource], ","), resource),
			fmt.Sprintf("%s create %sbinding %s-%s --%s=%s %s", kubectl, kind, name, role, kind, role, flag))
	}
	return commands
}
