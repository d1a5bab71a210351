// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// verbs are the commands that the page offers.
var verbs = []plan.Verb{plan.VerbPromote, plan.VerbSuspend, plan.VerbResume, plan.VerbRetry, plan.VerbSkip}

// Change is a change that a user makes with the page: a command with its arguments.
type Change struct {
	Verb      plan.Verb `json:"verb"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// UID is the UID of the NodeJob that the page showed: another NodeJob with the same name is not changed.
	UID types.UID `json:"uid"`
	// Node is the node of retry and skip; "" for all failed nodes. NodeUID is the UID of the node that the page showed.
	Node    string    `json:"node,omitempty"`
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// To is the step of promote.
	To string `json:"to,omitempty"`
}

// job returns the key of the NodeJob.
func (c Change) job() client.ObjectKey { return client.ObjectKey{Namespace: c.Namespace, Name: c.Name} }

// check returns why a change is not one that the page offers; "" if it is.
func (c Change) check() string {
	for _, name := range c.names() {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Sprintf("%q is not a name: %s", name, problems[0])
		}
	}
	hasNode, hasTo := c.Node != "", c.To != ""
	switch {
	case !slices.Contains(verbs, c.Verb):
		return fmt.Sprintf("there is no change %q", c.Verb)
	case c.UID == "":
		return "the UID of the NodeJob is missing"
	case hasNode != (c.NodeUID != ""):
		return "a node needs its UID"
	case hasTo != (c.Verb == plan.VerbPromote):
		return "only promote has a step, and it needs one"
	case hasNode != (c.Verb == plan.VerbSkip) && c.Verb != plan.VerbRetry:
		return "only retry and skip have a node, and skip needs one"
	}
	return ""
}

// names returns all names in a change.
func (c Change) names() []string {
	names := []string{c.Namespace, c.Name}
	for _, name := range []string{c.Node, c.To} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// command returns the command that makes the change, in a context of the kubeconfig unless that is the current one ("").
func (c Change) command(kubeContext string) string {
	argv := append([]string{"kubectl", "everynode"}, plan.Remedy{Verb: c.Verb, Node: c.Node, Step: c.To}.Arguments(c.Name)...)
	argv = append(argv, "-n", c.Namespace)
	if kubeContext != "" {
		argv = append(argv, "--context", kubeContext)
	}
	return cmdutil.ShellQuoted(argv)
}
