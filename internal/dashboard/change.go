// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/plan"
)

// Names of the commands that the page offers.
const (
	Promote = "promote"
	Suspend = "suspend"
	Resume  = "resume"
	Retry   = "retry"
	Skip    = "skip"
)

// Change is a change that a user makes with the page: a command with its arguments.
type Change struct {
	Verb      string `json:"verb"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID is the UID of the NodeJob that the page showed: another NodeJob with the same name is not changed.
	UID types.UID `json:"uid"`
	// Node is the node of retry and skip; "" for all failed nodes. NodeUID is the UID of the node that the page showed.
	Node    string    `json:"node,omitempty"`
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// To is the step of promote.
	To string `json:"to,omitempty"`
}

// Offer is a change that is possible now.
type Offer struct {
	Change
	// Label is what a button says, and Effect what happens.
	Label  string `json:"label"`
	Effect string `json:"effect"`
	// Command is the command that makes the change.
	Command string `json:"command"`
}

// Changes are the commands that change objects.
type Changes interface {
	// OfJob returns what is possible for a NodeJob.
	OfJob(job *v1alpha1.NodeJob, now time.Time) []Offer
	// OfNode returns what is possible for a node.
	OfNode(job *v1alpha1.NodeJob, node *plan.Node) []Offer
	// Make makes a change, and prints what it did to the outputs of the factory.
	Make(ctx context.Context, f *cmdutil.Factory, c client.WithWatch, change Change) error
}

// Job returns the key of the NodeJob.
func (c Change) Job() client.ObjectKey { return client.ObjectKey{Namespace: c.Namespace, Name: c.Name} }

// check returns why a change is not one that the page offers; "" if it is.
func (c Change) check() string {
	for _, name := range c.names() {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Sprintf("%q is not a name: %s", name, problems[0])
		}
	}
	hasNode, hasTo := c.Node != "", c.To != ""
	switch {
	case !slices.Contains([]string{Promote, Suspend, Resume, Retry, Skip}, c.Verb):
		return fmt.Sprintf("there is no change %q", c.Verb)
	case c.UID == "":
		return "the UID of the NodeJob is missing"
	case hasNode != (c.NodeUID != ""):
		return "a node needs its UID"
	case hasTo != (c.Verb == Promote):
		return "only promote has a step, and it needs one"
	case hasNode != (c.Verb == Skip) && c.Verb != Retry:
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
	argv := []string{"kubectl", "everynode", c.Verb, c.Name}
	if c.Node != "" {
		argv = append(argv, c.Node)
	}
	if c.To != "" {
		argv = append(argv, "--to", c.To)
	}
	argv = append(argv, "-n", c.Namespace)
	if kubeContext != "" {
		argv = append(argv, "--context", kubeContext)
	}
	return cmdutil.ShellQuoted(argv)
}

// with returns offers with their commands.
func (o *observed) with(offers []Offer) []Offer {
	for i := range offers {
		offers[i].Command = offers[i].command(o.flag)
	}
	return append([]Offer{}, offers...)
}

// offersOfNode returns what is possible for the i-th node. It is offered where it helps: on nodes that have failed or wait.
func (o *observed) offersOfNode(job *v1alpha1.NodeJob, i int, state plan.State) []Offer {
	if o.changes == nil || (state != plan.Failed && state != plan.Waiting) {
		return []Offer{}
	}
	return o.with(o.changes.OfNode(job, &o.Nodes[i]))
}

func (o *observed) offersOfJob(job *v1alpha1.NodeJob) []Offer {
	if o.changes == nil {
		return []Offer{}
	}
	return o.with(o.changes.OfJob(job, o.Now))
}

// status returns the HTTP status for the error of a change.
func status(err error) int {
	return cmp.Or(map[int]int{
		cmdutil.ExitForbidden: 403, cmdutil.ExitNotFound: 404, cmdutil.ExitNotInstalled: 404, cmdutil.ExitNoAnswer: 502,
	}[cmdutil.CodeOf(err)], 422)
}

// sentences joins the lines that a command printed.
func sentences(printed string) []string {
	return slices.DeleteFunc(strings.Split(printed, "\n"), func(line string) bool { return line == "" })
}
