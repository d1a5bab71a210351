// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

const (
	// freezeName is the name of a freeze if none is given.
	freezeName = "freeze"
	// defaultFreeze is how long a freeze lasts if --for is not given. So a freeze that is forgotten does not last.
	defaultFreeze = 4 * time.Hour
	leastFreeze   = time.Minute
	longestFreeze = 7 * 24 * time.Hour
	// defaultHolds is how long freeze waits until the freeze holds if --timeout is not given.
	defaultHolds = time.Minute
	// maxReason is the limit of spec.reason.
	maxReason = 1024
)

type freezeOptions struct {
	*console.Factory
	client          client.WithWatch
	name            string
	lasts           time.Duration
	isDefault       bool
	reason          string
	selector        string
	disruptionsOnly bool
	allowEmpty      bool
	timeout         time.Duration
}

func newFreezeCommand(f *console.Factory) *cobra.Command {
	o := &freezeOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "freeze [NAME] --reason TEXT [--for DURATION] [-l SELECTOR]",
		Short: "Freeze nodes for some time: no NodeJob starts, and no drain ends",
		Long: `Freeze nodes for some time by creating a NodeDisruptionBudget that allows nothing: no attempt of a NodeJob starts on the selected nodes,
and drains by other tools wait. They evict the other pods of their nodes before they wait. What has begun continues. Without -l, all nodes
are frozen, also those that join.

The command waits until the freeze holds, and says what is stopped. If something is not after --timeout, such as without a manager, it says
what, and fails with exit code 11. The freeze stays.

A freeze ends automatically after --for, at most 7 days, or earlier with thaw. With --disruptions-only, NodeJobs that do not cordon, drain
or reboot start as before. If a freeze with this name exists, and does not end later, its end is moved, and without --reason it keeps its
reason; one that has ended is replaced. For windows and limits, create a NodeDisruptionBudget.`,
		Example: `  # all nodes, for the time of an incident
  kubectl everynode freeze --for 4h --reason "INC-42"

  # some nodes, besides another freeze
  kubectl everynode freeze databases -l pool=databases --for 30m --reason "restore of the backup"`,
		Args:              atMostOneName("the name of the freeze"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.name, o.isDefault = cmp.Or(strings.Join(args, ""), freezeName), !cmd.Flags().Changed("for")
			spec, err := o.spec()
			if err != nil {
				return err
			}
			if o.client, err = o.Client(); err != nil {
				return err
			}
			return o.run(cmd.Context(), spec)
		},
	}
	cmd.Flags().DurationVar(&o.lasts, "for", defaultFreeze, "how long it lasts: 1m to 168h")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for those whose work waits, such as the name of an incident; required unless a freeze is extended")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "freeze only nodes with these labels")
	cmd.Flags().BoolVar(&o.allowEmpty, "allow-empty", false, "also with a selector that matches no node yet")
	cmd.Flags().DurationVar(&o.timeout, "timeout", defaultHolds, "how long to wait until the freeze holds; 0 to not wait")
	cmd.Flags().BoolVar(&o.disruptionsOnly, "disruptions-only", false, "let NodeJobs start that do not cordon, drain or reboot")
	return cmd
}

// atMostOneName accepts no argument, or a name that is not empty.
func atMostOneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) == 1 && args[0] != "" {
			return nil
		}
		return console.ExactArgs(1, what+", or nothing")(cmd, args)
	}
}

// spec returns the spec of the freeze, without its end.
func (o *freezeOptions) spec() (v1alpha1.NodeDisruptionBudgetSpec, error) {
	o.reason = strings.TrimSpace(o.reason)
	none := intstr.FromInt32(0)
	spec := v1alpha1.NodeDisruptionBudgetSpec{
		AppliesTo: v1alpha1.AppliesToAllTasks, Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: &none}}, JoiningNodes: v1alpha1.JoiningNodesIncluded,
		Enforcement: v1alpha1.BudgetEnforce, Description: o.reason,
	}
	switch {
	case len(o.reason) > maxReason:
		return spec, cmdutil.Failf(cmdutil.ExitUsage, "--reason is too long: at most %d bytes are possible", maxReason)
	case o.lasts < leastFreeze || o.lasts > longestFreeze:
		return spec, cmdutil.Failf(cmdutil.ExitUsage, "--for %s: give 1m to 168h (7 days). To hold nodes for longer, create a NodeDisruptionBudget", o.lasts)
	}
	if o.disruptionsOnly {
		spec.AppliesTo = v1alpha1.AppliesToDisruptions
	}
	if o.selector != "" {
		selector, err := metav1.ParseToLabelSelector(o.selector)
		if err != nil {
			return spec, cmdutil.Failf(cmdutil.ExitUsage, "-l %s: %w", o.selector, err)
		}
		spec.Selector = selector
	}
	return spec, nil
}

func (o *freezeOptions) run(ctx context.Context, spec v1alpha1.NodeDisruptionBudgetSpec) error {
	existing, err := cmdutil.GetBudget(ctx, o.client, o.name) // its response also has the time of the API server
	if err != nil {
		return err
	}
	ends := metav1.NewTime(o.Now().Add(o.lasts).Truncate(time.Second))
	spec.ExpiresAt = &ends
	if existing != nil {
		if err := o.mayReplace(existing, &spec); err != nil {
			return err
		}
		if !cmdutil.IsExpired(existing, o.Now()) {
			spec.Description = cmp.Or(spec.Description, existing.Spec.Description)
		}
	}
	if spec.Description == "" {
		return cmdutil.Failf(cmdutil.ExitUsage, "a freeze needs a reason, for those whose work waits: --reason \"INC-42\"")
	}
	b := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: o.name}, Spec: spec}
	nodes, err := o.countNodes(ctx, b)
	if err != nil {
		return err
	}
	if err := o.write(ctx, existing, b); err != nil {
		return err
	}
	if err := o.tell(b, nodes); err != nil || o.timeout <= 0 {
		return err
	}
	return o.waitUntilHeld(ctx, b)
}

// countNodes returns how many nodes the freeze selects; 0 if the user may not list nodes.
func (o *freezeOptions) countNodes(ctx context.Context, b *v1alpha1.NodeDisruptionBudget) (int, error) {
	nodes, err := cmdutil.SelectedNodes(ctx, o.client, b, o.Now())
	switch {
	case cmdutil.CodeOf(err) == cmdutil.ExitForbidden:
		o.Tell(text.Of("how many nodes are frozen is not known: " + err.Error()))
		return 0, nil
	case err == nil && nodes == 0 && o.selector != "" && !o.allowEmpty:
		return 0, cmdutil.Failf(cmdutil.ExitNotFound, "no node matches -l %s. Nothing was changed. To freeze only nodes that join: --allow-empty", o.selector)
	}
	return nodes, err
}

// mayReplace returns why a budget with the name of the freeze is not replaced by one with this spec; nil if it has expired, or if only its
// end is moved.
func (o *freezeOptions) mayReplace(b *v1alpha1.NodeDisruptionBudget, spec *v1alpha1.NodeDisruptionBudgetSpec) error {
	const another = "Or use another name: kubectl everynode freeze NAME"
	switch {
	case !budget.IsFreeze(&b.Spec):
		return cmdutil.Failf(cmdutil.ExitError, "NodeDisruptionBudget %s exists, and is not a freeze. Nothing was changed. Use another name: kubectl everynode freeze NAME", b.Name)
	case !b.DeletionTimestamp.IsZero():
		return cmdutil.Failf(cmdutil.ExitError, "NodeDisruptionBudget %s is being deleted. Nothing was changed. Try again, or use another name: kubectl everynode freeze NAME", b.Name)
	case cmdutil.IsExpired(b, o.Now()):
		return nil
	case b.Spec.ExpiresAt == nil || spec.ExpiresAt.Before(b.Spec.ExpiresAt):
		return cmdutil.Failf(cmdutil.ExitError, "the nodes are frozen already, for longer. %s. Nothing was changed. End it: kubectl everynode thaw %s. %s",
			view.Freeze{Budget: b}.Sentence(o.Now()), b.Name, another)
	case !isMove(b.Spec, *spec):
		return cmdutil.Failf(cmdutil.ExitError, "the nodes are frozen already. %s. Nothing was changed, because the freeze has other nodes, or another scope. End it first: kubectl everynode thaw %s. %s",
			view.Freeze{Budget: b}.Sentence(o.Now()), b.Name, another)
	}
	return nil
}

// isMove reports whether two freezes have only different ends and reasons.
func isMove(before, after v1alpha1.NodeDisruptionBudgetSpec) bool {
	for _, spec := range []*v1alpha1.NodeDisruptionBudgetSpec{&before, &after} {
		spec.ExpiresAt, spec.Description = nil, ""
		spec.AppliesTo = cmp.Or(spec.AppliesTo, v1alpha1.AppliesToDisruptions)
		spec.JoiningNodes = cmp.Or(spec.JoiningNodes, v1alpha1.JoiningNodesExempt)
		spec.Enforcement = cmp.Or(spec.Enforcement, v1alpha1.BudgetEnforce)
	}
	return equality.Semantic.DeepEqual(before, after)
}

// write creates the freeze, or replaces an existing one if it is still as it was read.
func (o *freezeOptions) write(ctx context.Context, existing, b *v1alpha1.NodeDisruptionBudget) error {
	if existing == nil {
		return cmdutil.Explain(o.client.Create(ctx, b))
	}
	spec := b.Spec
	*b = *existing.DeepCopy()
	b.Spec = spec
	return cmdutil.Explain(o.client.Update(ctx, b))
}

// tell says what is held, until when, and how to end it.
func (o *freezeOptions) tell(b *v1alpha1.NodeDisruptionBudget, nodes int) error {
	f := view.Freeze{Budget: b, Nodes: nodes}
	if err := o.Say(text.Of("nodedisruptionbudget "+b.Name+": ").Tone(text.Strong, "frozen "+f.Until(o.Now())+": "+f.Holds())); err != nil {
		return err
	}
	if b.Spec.AppliesTo == v1alpha1.AppliesToAllTasks {
		o.Tell(text.Toned(text.Dim, "Tasks and drains that have begun continue. New drains by other tools evict pods, and wait at the end. To stop tasks as well: kubectl everynode abort NAME"))
	} else {
		o.Tell(text.Toned(text.Dim, "Drains that have begun continue. NodeJobs that do not cordon, drain or reboot start as before"))
	}
	if o.isDefault {
		o.Tell(text.Toned(text.Dim, "It lasts "+duration.HumanDuration(defaultFreeze)+", the default: --for sets another time, up to 168h"))
	}
	o.Tell(text.Toned(text.Dim, "To end it: kubectl everynode thaw "+b.Name))
	return nil
}

// holdsEvery is how often waitUntilHeld reads the budget.
const holdsEvery = 500 * time.Millisecond

// waitUntilHeld waits until a manager has observed the freeze, and the API server grants no eviction of a seat of its nodes. It says what
// is stopped, and returns an error that says what is not if that takes longer than --timeout.
func (o *freezeOptions) waitUntilHeld(ctx context.Context, b *v1alpha1.NodeDisruptionBudget) error {
	began := o.Now()
	var live *v1alpha1.NodeDisruptionBudget
	var readErr error
	waitErr := wait.PollUntilContextTimeout(ctx, holdsEvery, o.timeout, true, func(ctx context.Context) (bool, error) {
		found, err := cmdutil.GetBudget(ctx, o.client, b.Name)
		switch readErr = err; {
		case err != nil: // it is read again until the time is over
		case found == nil || found.UID != b.UID:
			return false, cmdutil.Failf(cmdutil.ExitGone, "NodeDisruptionBudget %s was deleted meanwhile: nothing is frozen by it", b.Name)
		default:
			live = found
		}
		return live != nil && holds(live), nil
	})
	switch {
	case waitErr == nil:
		return o.Say(text.Of(jobsOf(live) + ": stopped. Drains by other tools: stopped on " + drainsOf(live) + ", after " + duration.HumanDuration(max(time.Second, o.Now().Sub(began)))))
	case !wait.Interrupted(waitErr):
		return waitErr
	case ctx.Err() != nil:
		return ctx.Err()
	case live == nil:
		return cmdutil.Failf(cmdutil.ExitTimedOut, "whether the freeze holds is not known: %w. It stays", readErr)
	case live.Status.ObservedGeneration != live.Generation:
		return cmdutil.Failf(cmdutil.ExitTimedOut, "drains by other tools are NOT stopped, and NodeJobs only when a manager runs: no manager has observed the freeze for %s; check that one is running: %s. The freeze stays",
			duration.HumanDuration(o.timeout), view.CheckManager)
	}
	return cmdutil.Failf(cmdutil.ExitTimedOut, "%s: stopped. Drains by other tools are NOT all stopped after %s, but on %s: %s. The freeze stays, and the rest is stopped when this is solved: kubectl everynode budgets %s",
		jobsOf(live), duration.HumanDuration(o.timeout), drainsOf(live), readyMessage(live), b.Name)
}

// holds reports whether the manager says that a freeze holds.
func holds(b *v1alpha1.NodeDisruptionBudget) bool {
	return b.Status.ObservedGeneration == b.Generation && meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady)
}

func readyMessage(b *v1alpha1.NodeDisruptionBudget) string {
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Message
	}
	return "its status has no conditions"
}

// jobsOf names the NodeJobs that a freeze stops.
func jobsOf(b *v1alpha1.NodeDisruptionBudget) string {
	if b.Spec.AppliesTo == v1alpha1.AppliesToAllTasks {
		return "NodeJobs"
	}
	return "NodeJobs that cordon, drain or reboot"
}

// drainsOf says on how many nodes drains by other tools wait.
func drainsOf(b *v1alpha1.NodeDisruptionBudget) string {
	n := b.Status.Nodes
	s := fmt.Sprintf("%d of %s", n.Seats, plural.Count(int(n.Total), "node"))
	if n.Unavailable > 0 {
		s += fmt.Sprintf(" (%d not available already)", n.Unavailable)
	}
	return s
}
