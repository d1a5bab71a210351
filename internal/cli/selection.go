// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/apply"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// jobSelection selects NodeJobs by their names or labels, for the commands suspend, resume and retry.
type jobSelection struct {
	// names is what the arguments are.
	names              string
	selector           string
	all, allNamespaces bool
}

func (s *jobSelection) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.selector, "selector", "l", "", "all NodeJobs with these labels")
	cmd.Flags().BoolVar(&s.all, "all", false, "all NodeJobs of the namespace")
	cmd.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "with -l or --all: of all namespaces")
}

// selects reports whether NodeJobs are selected by something other than their names.
func (s *jobSelection) selects() bool { return s.selector != "" || s.all }

// args checks that either names or flags select NodeJobs.
func (s *jobSelection) args(cmd *cobra.Command, args []string) error {
	switch {
	case s.selector != "" && s.all:
		return cmdutil.Failf(cmdutil.ExitUsage, "give -l or --all, not both")
	case s.selects() && len(args) > 0:
		return cmdutil.Failf(cmdutil.ExitUsage, "give names, or select NodeJobs with -l or --all: not both")
	case s.selects():
		return nil
	case s.allNamespaces:
		return cmdutil.Failf(cmdutil.ExitUsage, "-A is for -l and --all: a name is that of a NodeJob in one namespace")
	}
	return console.AtLeastOneArg(s.names+", -l SELECTOR, or --all")(cmd, args)
}

// change makes a change of the selected NodeJobs that is always possible.
func (s *jobSelection) change(ctx context.Context, f *console.Factory, names []string, decide func(*v1alpha1.NodeJob) steer.Decision) error {
	do := func(ctx context.Context, s *apply.Steering) error { return s.Change(ctx, possible(decide)) }
	if !s.selects() {
		return eachJob(ctx, f, names, do)
	}
	jobs, err := s.find(ctx, f)
	if err != nil {
		return err
	}
	return eachSteered(ctx, f, jobs, do)
}

// find returns the selected NodeJobs, sorted by namespace and name.
func (s *jobSelection) find(ctx context.Context, f *console.Factory) ([]steered, error) {
	selector, err := labels.Parse(s.selector)
	if err != nil {
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "-l %s: %w", s.selector, err)
	}
	target, c, err := f.Target("")
	if err != nil {
		return nil, err
	}
	if s.allNamespaces {
		target.Namespace = ""
	}
	found, err := cmdutil.JobKeys(ctx, c, client.InNamespace(target.Namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, cmdutil.Failf(cmdutil.ExitNotFound, "%s", s.none(target.Namespace))
	}
	slices.SortFunc(found, func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) })
	told := map[string]bool{}
	jobs := make([]steered, 0, len(found))
	for _, key := range found {
		printer, name := selectedPrinter{Factory: f, told: told}, key.Name
		if s.allNamespaces {
			printer.namespace, name = key.Namespace, key.String()
		}
		jobs = append(jobs, steered{name, func() (*apply.Steering, error) {
			return &apply.Steering{Printer: printer, Client: c, Key: key}, nil
		}})
	}
	return jobs, nil
}

// none says that no NodeJob is selected.
func (s *jobSelection) none(namespace string) string {
	message := "there is no NodeJob"
	if s.selector != "" {
		message += " that matches -l " + s.selector
	}
	if s.allNamespaces {
		return message + " in this cluster. Nothing was changed"
	}
	return message + " in namespace " + namespace + ". Nothing was changed. For all namespaces, add -A"
}

// selectedPrinter prints what is done with one of the selected NodeJobs.
type selectedPrinter struct {
	*console.Factory
	// namespace is the namespace of the NodeJob if NodeJobs of several namespaces are selected; otherwise "".
	namespace string
	// told are the messages that were printed: a message that is the same for all NodeJobs is printed once.
	told map[string]bool
}

// Say implements apply.Printer.
func (p selectedPrinter) Say(sentences ...text.Line) error {
	if p.namespace == "" {
		return p.Factory.Say(sentences...)
	}
	var named []text.Line
	for _, sentence := range sentences {
		named = append(named, append(text.Of("namespace "+p.namespace+", "), sentence...))
	}
	return p.Factory.Say(named...)
}

// Tell implements apply.Printer.
func (p selectedPrinter) Tell(sentences ...text.Line) {
	for _, sentence := range sentences {
		said := text.Print([]text.Line{sentence}, text.Options{})
		if !p.told[said] {
			p.told[said] = true
			p.Factory.Tell(sentence)
		}
	}
}
