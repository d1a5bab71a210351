// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// targets are the nodes of a run.
type targets struct {
	// selected are the nodes that were selected before the limit.
	selected []string
	// names are the nodes on which the command runs.
	names []string
	// unreachable maps nodes that cannot run anything now to the reason.
	unreachable map[string]string
	// otherOS maps nodes on which no command can run to their operating systems.
	otherOS map[string]string
	// allowed are the nodes that the namespace is limited to, nil for all nodes or if that is not known, and notAllowed the others.
	allowed    labels.Selector
	notAllowed []string
	// recorded are the nodes in names that have the record of a NodeJob with the name of the run.
	recorded []string
	// uids are the UIDs of the nodes in names, and nodes what freezes read of them.
	uids  map[string]types.UID
	nodes []plan.Node
}

// targets finds the selected nodes.
func (o *options) targets(ctx context.Context) (targets, error) {
	found := targets{unreachable: map[string]string{}, otherOS: map[string]string{}, uids: map[string]types.UID{}}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return found, cmdutil.Failf(cmdutil.ExitUsage, "-l %s is no selector: %w", o.selector, err)
	}
	var obstacle *hold.Why
	if found.allowed, obstacle = o.allowedNodes(ctx); obstacle != nil {
		return found, cmdutil.Failf(cmdutil.ExitForbidden, "nothing was run: %s", obstacle.Message)
	}
	var all []string
	key := v1alpha1.RecordKey(o.namespace, o.name)
	var page corev1.NodeList
	err = cmdutil.EachPage(ctx, o.client, &page, func() {
		for i := range page.Items {
			node := &page.Items[i]
			all = append(all, node.Name)
			if len(o.nodes) == 0 || slices.Contains(o.nodes, node.Name) {
				o.addTarget(&found, node, key)
			}
		}
	}, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return found, err
	}
	slices.Sort(found.selected)
	slices.Sort(found.notAllowed)
	slices.Sort(found.names)
	slices.Sort(found.recorded)
	if err := o.checkTargets(found, all); err != nil {
		return found, err
	}
	return found, o.checkRecorded(ctx, found.recorded)
}

// allowedNodes returns what hold.AllowedNodes does. If the user may not read the namespace, the manager decides.
func (o *options) allowedNodes(ctx context.Context) (labels.Selector, *hold.Why) {
	var namespace corev1.Namespace
	if o.client.Get(ctx, client.ObjectKey{Name: o.namespace}, &namespace) != nil {
		return nil, nil
	}
	return hold.AllowedNodes(o.namespace, namespace.Annotations)
}

// addTarget adds a selected node, unless the limit excludes it.
func (o *options) addTarget(found *targets, node *corev1.Node, key string) {
	found.selected = append(found.selected, node.Name)
	if !o.limit.keeps(node.Name) {
		return
	}
	if !hold.AllowsNode(found.allowed, node.Labels) {
		found.notAllowed = append(found.notAllowed, node.Name)
		return
	}
	if !task.FitsOS(corev1.Linux, node.Labels) {
		found.otherOS[node.Name] = node.Labels[corev1.LabelOSStable]
		return
	}
	if why := unreachableReason(node); why != "" {
		found.unreachable[node.Name] = why
		return
	}
	found.names = append(found.names, node.Name)
	found.uids[node.Name] = node.UID
	found.nodes = append(found.nodes, plan.Node{Name: node.Name, Labels: node.Labels, Created: node.CreationTimestamp.Time})
	if o.name != "" && record.Read(node.Labels, node.Annotations, key).Present {
		found.recorded = append(found.recorded, node.Name)
	}
}

// checkRecorded rejects a name for which nodes have records. The records of a deleted NodeJob would be taken for those
// of the run.
func (o *options) checkRecorded(ctx context.Context, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	err := o.client.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.name}, &v1alpha1.NodeJob{})
	if err == nil {
		return cmdutil.Failf(cmdutil.ExitUsage, "there is a NodeJob %s in namespace %s already: give another --name, or none", o.name, o.namespace)
	}
	key := v1alpha1.RecordKey(o.namespace, o.name)
	return cmdutil.Failf(cmdutil.ExitUsage, "%s still %s the record of an earlier NodeJob %s/%s, as deletionPolicy Retain leaves it (label and annotation %s): %s. It would be taken for that of this run. Give another --name, or none; or remove the records: kubectl label nodes --all %[5]s- %[7]s- && kubectl annotate nodes --all %[5]s-",
		plural.Count(len(nodes), "node"), carries(len(nodes)), o.namespace, o.name, key, cmdutil.JoinNames(nodes), record.SealKey(key))
}

func carries(n int) string {
	if n == 1 {
		return "carries"
	}
	return "carry"
}

// checkTargets returns an error for an invalid selection.
func (o *options) checkTargets(found targets, all []string) error {
	var unknown []string
	for _, name := range o.nodes {
		if !slices.Contains(all, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(all)
	if len(unknown) > 0 {
		return cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s; there are %s", cmdutil.JoinNames(unknown), cmdutil.JoinNames(cmdutil.Nearest(unknown[0], all)))
	}
	if len(found.notAllowed) > 0 && (len(o.nodes) > 0 || len(found.notAllowed) == len(found.selected)) {
		return cmdutil.Failf(cmdutil.ExitForbidden, "nothing was run: %s is not allowed: %s", cmdutil.JoinNames(found.notAllowed), hold.NodeNotAllowed(o.namespace, found.allowed))
	}
	return o.checkFound(found)
}

// checkFound returns an error if the command cannot run on any of the nodes that were found.
func (o *options) checkFound(found targets) error {
	switch {
	case len(found.selected) > 0 && len(found.names)+len(found.unreachable)+len(found.otherOS) == 0:
		return o.limit.empty(found.selected)
	case len(o.nodes) > 0 && len(found.otherOS) > 0:
		return cmdutil.Failf(cmdutil.ExitUsage, "commands and scripts run on Linux nodes only: leave out %s (label %s)", cmdutil.JoinNames(slices.Sorted(maps.Keys(found.otherOS))), corev1.LabelOSStable)
	case len(found.names)+len(found.unreachable) == 0 && len(found.otherOS) > 0:
		return cmdutil.Failf(cmdutil.ExitNotFound, "nothing was run: %s", found.describeOtherOS())
	case len(found.names)+len(found.unreachable) == 0 && o.selector != "":
		return cmdutil.Failf(cmdutil.ExitNotFound, "no node has the labels -l %s: kubectl get nodes --show-labels shows what there is", o.selector)
	case len(found.names)+len(found.unreachable) == 0:
		return cmdutil.Failf(cmdutil.ExitNotFound, "the cluster has no nodes")
	case len(found.names) == 0:
		return cmdutil.Failf(cmdutil.ExitNodesFailed, "nothing was run: %s", describeUnreachable(found.unreachable))
	}
	return nil
}

// describeOtherOS returns how many nodes are excluded because no command runs on their operating system, and names a
// few.
func (t targets) describeOtherOS() string {
	return fmt.Sprintf("%s not on Linux (label %s): %s", plural.CountAre(len(t.otherOS), "node"), corev1.LabelOSStable, cmdutil.JoinNames(slices.Sorted(maps.Keys(t.otherOS))))
}

// checkNamespace refuses a namespace in which nothing starts.
func (o *options) checkNamespace(ctx context.Context) error {
	served := console.CheckNamespace(ctx, o.client, o.namespace)
	message := served.Message(o.namespace)
	switch {
	case served == console.NamespaceNotServed:
		return cmdutil.Failf(cmdutil.ExitForbidden, "nothing was run: %s", message)
	case message != "":
		o.Tell(text.Toned(text.Warn, "note: ").With(message))
	}
	return nil
}

// checkFreezes names the freezes under which the command does not start, and refuses it without --wait.
func (o *options) checkFreezes(ctx context.Context, found targets) error {
	budgets, err := cmdutil.BudgetsFor(ctx, o.client)
	if err != nil {
		o.Tell(text.Toned(text.Warn, "note: ").With("could not check whether nodes are frozen: " + err.Error()))
	}
	freezes := slices.DeleteFunc(cmdutil.FreezesOn(budgets, found.nodes, o.Now()), func(f view.Freeze) bool { return f.Budget.Spec.AppliesTo != v1alpha1.AppliesToAllTasks })
	if len(freezes) == 0 {
		return nil
	}
	o.Tell(view.Freezes(freezes, o.Now(), term.Of(o.ErrOut, o.Getenv).Options().Width)...)
	if o.wait {
		return nil
	}
	return cmdutil.Failf(cmdutil.ExitWaits, "nothing was run, because the nodes are frozen. To run the command when they are not any more, within --starting-deadline: --wait")
}

// confirm asks for confirmation if more than one node is affected.
func (o *options) confirm(ctx context.Context, found targets) error {
	atOnce, err := intstr.GetScaledValueFromIntOrPercent(new(o.concurrency(len(found.names))), len(found.names), false)
	if err != nil {
		return cmdutil.Failf(cmdutil.ExitUsage, "--max-concurrent %s: %w", o.maxConcurrent, err)
	}
	question := fmt.Sprintf("Run %s as root on %s, %d at once: %s", o.what(), plural.Count(len(found.names), "node"), min(max(atOnce, 1), len(found.names)), cmdutil.JoinNames(found.names))
	o.tellUnused(found)
	if hint := o.shellHint(); hint != "" {
		o.Tell(text.Toned(text.Warn, "note: ").With(hint))
	}
	o.tellLeftOut(found)
	if o.yes || len(found.names) == 1 {
		return nil
	}
	return o.Confirm(ctx, question, "--yes")
}

func (o *options) tellLeftOut(found targets) {
	leftOut := func(nodes string) { o.Tell(text.Toned(text.Warn, "left out: ").With(nodes)) }
	if len(found.notAllowed) > 0 {
		leftOut(fmt.Sprintf("%s (%s): %s",
			plural.Count(len(found.notAllowed), "node"), cmdutil.JoinNames(found.notAllowed), hold.NodeNotAllowed(o.namespace, found.allowed)))
	}
	if len(found.otherOS) > 0 {
		leftOut(found.describeOtherOS())
	}
	if len(found.unreachable) > 0 {
		leftOut(describeUnreachable(found.unreachable))
	}
}
