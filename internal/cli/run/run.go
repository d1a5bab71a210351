// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package run is the command run: it runs a command or a script once on some nodes, and shows the output.
package run

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/script"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// options are the options of the command run.
type options struct {
	*console.Factory
	namespace string
	client    client.WithWatch

	// nodes, selector and all select the nodes. Exactly one of them is set.
	nodes    []string
	selector string
	all      bool
	// limits are the parts of --limit, which restricts the selected nodes. limited reports whether the flag is set.
	limits  []string
	limited bool
	limit   limit
	// command or file is what to run.
	command []string
	file    string
	script  string

	name                              string
	maxConcurrent, maxFailures        string
	timeout, startingDeadline, ttl    time.Duration
	canary, fold, remove, yes, dryRun bool
	// wait lets the run wait until its nodes are not frozen any more.
	wait   bool
	output string
	// save is the directory for the output of the nodes; "" for none.
	save string

	concurrent, failures intstr.IntOrString
	// signals receives the signals that the user sends.
	signals <-chan os.Signal
}

const (
	maxRunTime   = 24 * time.Hour
	retainPods   = 5 * time.Minute
	signalBuffer = 8
	sumDigits    = 12 // as of a short commit
)

// NewCommand returns the command run.
func NewCommand(f *console.Factory) *cobra.Command {
	o := &options{Factory: f}
	cmd := &cobra.Command{
		Use:   "run (NODE… | -l SELECTOR | --all) (-- COMMAND [ARG…] | -f SCRIPT)",
		Short: "Run a command or a script once on some nodes, and show what they print",
		Long: `Run a command or a script once on some nodes, as root, in the nodes' own namespaces, and show what they print.

The arguments reach the command as they are: no shell reads them, here or on the node. For pipes and variables, give a
script with -f (or -f - for standard input), or run a shell: -- sh -c 'dmesg | tail'.

The command creates a NodeJob with a time to live. Other users can see it, and it continues without this command. It runs
on the nodes that exist now, also if they have taints; unreachable nodes are listed and skipped. A command that fails is
not retried, and the other nodes continue unless --max-failures says otherwise. When the result is known, the NodeJob is
suspended, so that nothing starts later on a machine with the name of one of the nodes.

Ctrl-C prevents new attempts and waits for running ones. A second Ctrl-C, or SIGTERM, ends only this command, and prints how
to check the run later; if nothing has started, it deletes the NodeJob.

Nothing is run if nodes are frozen. With --wait, the run waits for the end of the freeze.

Exit codes: 0 every node succeeded; 10 one did not; 130 ended by Ctrl-C; 12 the NodeJob was deleted; 11 it took too long;
2, 3, 4, 7 nothing was run; 9 nothing was run, because nodes are frozen (docs/cli.md has all).`,
		Example: `  # one node, no question
  kubectl everynode run node-1 -n node-setup -- uname -r

  # all nodes, the same output shown once
  kubectl everynode run --all --fold -n node-setup -- cat /etc/os-release

  # a script on some nodes, one first, then two at once; stop at the first failure
  kubectl everynode run -l pool=db --canary --max-concurrent 2 --max-failures 0 -f fix.sh -n node-setup

  # the output of each node in a file; then again on the nodes on which it did not succeed
  kubectl everynode run --all --save disks -n node-setup -- lsblk
  kubectl everynode run --all --limit @disks -n node-setup -- lsblk

  # in a pipeline: no confirmation, a JSON object for each node as it ends, no NodeJob left behind
  kubectl everynode run --all --yes --rm -o jsonl -n node-setup -- systemctl is-active containerd`,
		ValidArgsFunction: o.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&o.selector, "selector", "l", "", "nodes with these labels")
	flags.BoolVar(&o.all, "all", false, "all nodes")
	flags.StringSliceVar(&o.limits, "limit", nil, "only those of the selected nodes that match one of these names or globs; !NAME excludes; @DIR: those on which the run of --save DIR did not succeed")
	flags.StringVarP(&o.file, "filename", "f", "", "a script, by the #! line or /bin/sh of the node; - for standard input")
	flags.StringVar(&o.maxConcurrent, "max-concurrent", "", "how many nodes at once: a number, or a percentage, which is at least one node (default: 10%, and at least 5)")
	flags.StringVar(&o.maxFailures, "max-failures", "100%", "how many nodes may fail before nothing new starts: a number or a percentage")
	flags.BoolVar(&o.canary, "canary", false, "one node first; the others when it has succeeded there")
	flags.DurationVar(&o.timeout, "timeout", task.DefaultTimeoutSeconds*time.Second, "time limit on each node")
	flags.DurationVar(&o.startingDeadline, "starting-deadline", time.Hour, "nodes on which it has not started by then are left out")
	flags.DurationVar(&o.ttl, "ttl", time.Hour, "how long the NodeJob is kept when it is over")
	flags.StringVar(&o.name, "name", "", "name of the NodeJob; run- and five characters when left out")
	flags.StringVar(&o.save, "save", "", "a new directory for the complete output of each node (NODE.txt) and an index (index.json)")
	flags.BoolVar(&o.fold, "fold", false, "wait for all nodes, and show what is the same once")
	flags.BoolVar(&o.remove, "rm", false, "delete the NodeJob at the end, also after Ctrl-C; a second Ctrl-C ends running attempts")
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&o.wait, "wait", false, "also if nodes are frozen: wait for the end of the freeze, at most for --starting-deadline")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the NodeJob, and do nothing")
	console.AddOutputFlag(cmd, &o.output, console.OutputJSON, outputJSONLines)
	_ = cmd.RegisterFlagCompletionFunc("limit", o.CompleteNodeList("!"))
}

// completeNodes completes names of nodes, unless they are selected in another way or the command has begun.
func (o *options) completeNodes(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if dash := cmd.ArgsLenAtDash(); o.all || o.selector != "" || dash >= 0 && dash < len(args) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.CompleteNodes(cmd, args, toComplete)
}

func (o *options) complete(cmd *cobra.Command, args []string) error {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		o.nodes, o.command = args[:dash], args[dash:]
	} else {
		o.nodes = args
	}
	slices.Sort(o.nodes)
	o.nodes = slices.Compact(o.nodes)
	o.limited = cmd.Flags().Changed("limit")
	if cmd.Flags().Changed("save") && o.save == "" {
		return cmdutil.Failf(cmdutil.ExitUsage, "--save is empty: name a directory, or leave it out")
	}
	var err error
	if o.namespace, err = o.Namespace(); err != nil {
		return err
	}
	return nil
}

// catchSignals subscribes to signals. It discards SIGPIPE: if the reader of the output closes it, the write fails, and the
// command reports what continues without it. The signal does not say what was closed: it is also sent for a connection to
// an API server that has ended.
func (o *options) catchSignals() {
	if o.signals == nil {
		signals := make(chan os.Signal, signalBuffer)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		o.signals = signals
	}
}

// ways returns how many of the ways to select nodes are used.
func (o *options) ways() int {
	ways := 0
	for _, given := range []bool{len(o.nodes) > 0, o.selector != "", o.all} {
		if given {
			ways++
		}
	}
	return ways
}

func (o *options) validate() error {
	switch ways := o.ways(); {
	case ways == 0:
		return cmdutil.Failf(cmdutil.ExitUsage, "on which nodes? Name them, or give -l SELECTOR or --all")
	case ways > 1:
		return cmdutil.Failf(cmdutil.ExitUsage, "give the names of nodes, or -l SELECTOR, or --all: only one of them")
	case len(o.command) > 0 && o.file != "":
		return cmdutil.Failf(cmdutil.ExitUsage, "-f takes no arguments after --: set what the script needs at its beginning, or give no -f")
	case len(o.command) == 0 && o.file == "":
		return cmdutil.Failf(cmdutil.ExitUsage, "run what? Give a command after --, such as: -- uname -r; or a script with -f")
	}
	for _, check := range []func() error{o.validateNames, o.parseLimits, o.validateTimes, o.validateLimits, o.validateCommand, func() error { return checkSaveDir(o.save) }, o.readScript} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) validateNames() error {
	if _, err := labels.Parse(o.selector); err != nil {
		return cmdutil.Failf(cmdutil.ExitUsage, "-l %s is no selector: %w", o.selector, err)
	}
	return nil
}

func (o *options) validateTimes() error {
	for _, t := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{{"--timeout", o.timeout, time.Second}, {"--starting-deadline", o.startingDeadline, time.Second}, {"--ttl", o.ttl, time.Minute}} {
		if t.value < t.least || t.value > maxRunTime || t.value%time.Second != 0 {
			return cmdutil.Failf(cmdutil.ExitUsage, "%s %s: give whole seconds, from %s to %s", t.flag, t.value, t.least, maxRunTime)
		}
	}
	return nil
}

func (o *options) validateLimits() (err error) {
	if o.maxConcurrent != "" {
		if o.concurrent, err = console.ParseNumberOrPercent("--max-concurrent", o.maxConcurrent, 1); err != nil {
			return err
		}
	}
	o.failures, err = console.ParseNumberOrPercent("--max-failures", o.maxFailures, 0)
	return err
}

// validateCommand rejects commands that would not reach the node unchanged.
func (o *options) validateCommand() error {
	if len(o.command) > 0 && o.command[0] == "" {
		return cmdutil.Failf(cmdutil.ExitUsage, "the command is an empty text: name a program after --")
	}
	for i, arg := range o.command {
		if !utf8.ValidString(arg) {
			return cmdutil.Failf(cmdutil.ExitUsage, "argument %d of the command is no UTF-8, and would reach the node as something else: put it into a script, as printf '\\xff'", i)
		}
	}
	if size := len(contract.JSON(o.command)); len(o.command) > 0 && size > contract.MaxScriptBytes {
		return cmdutil.Failf(cmdutil.ExitUsage, "the command has %d bytes; at most %d are possible", size, contract.MaxScriptBytes)
	}
	return nil
}

// shellHint returns how to run a command in a shell, if only a shell understands it; "" otherwise.
func (o *options) shellHint() string {
	const inShell = "no shell reads the command, so %s. To run it in a shell: -- sh -c %s"
	if i := slices.IndexFunc(o.command, isShellOperator); i > 0 {
		return fmt.Sprintf(inShell, o.command[i]+" is an argument like the others", text.Safe(cmdutil.ShellQuoted([]string{strings.Join(o.command, " ")})))
	}
	if len(o.command) != 1 || !strings.ContainsAny(o.command[0], " \t\n|&;<>()$`*?~\"'") {
		return ""
	}
	return fmt.Sprintf(inShell, "the node needs a program with this name", text.Safe(cmdutil.ShellQuoted(o.command)))
}

// isShellOperator reports whether an argument is probably meant for a shell. A semicolon is not: find -exec needs it.
func isShellOperator(arg string) bool {
	return slices.Contains([]string{"|", "||", "&", "&&", ">", ">>", "<", "2>", "2>&1"}, arg)
}

func (o *options) readScript() error {
	if o.file == "" {
		return nil
	}
	content, err := o.ReadFile("the script "+o.file, o.file, contract.MaxScriptBytes)
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(string(content)) == "":
		return cmdutil.Failf(cmdutil.ExitUsage, "the script %s is empty", o.file)
	case !utf8.Valid(content) || strings.ContainsRune(string(content), 0):
		return cmdutil.Failf(cmdutil.ExitUsage, "the script %s is no text in UTF-8", o.file)
	}
	if problem := script.Problem(string(content)); problem != "" {
		return cmdutil.Failf(cmdutil.ExitUsage, "the script %s %s", o.file, problem)
	}
	o.script = string(content)
	return nil
}

// what returns a description of the command for users.
func (o *options) what() string {
	switch o.file {
	case "":
		return text.Safe(cmdutil.ShellQuoted(o.command))
	case "-":
		return "the script from standard input"
	}
	return "the script " + text.Safe(o.file)
}

// whatExactly returns a description that also identifies the content of a script.
func (o *options) whatExactly() string {
	if o.file == "" {
		return o.what()
	}
	return o.what() + " (SHA-256 " + o.scriptSum()[:sumDigits] + ")"
}

// selection returns how the nodes are selected, as on the command line, with a limited number of names.
func (o *options) selection() string {
	selection := cmdutil.JoinNames(o.nodes)
	switch {
	case o.all:
		selection = "--all"
	case o.selector != "":
		selection = "-l " + cmdutil.ShellQuoted([]string{o.selector})
	}
	if len(o.limits) > 0 {
		selection += " --limit " + cmdutil.ShellQuoted([]string{o.limit.String()})
	}
	return selection
}

// run executes the whole command.
func (o *options) run(ctx context.Context) error {
	var err error
	if o.client, err = o.Client(); err != nil {
		return err
	}
	targets, err := o.targets(ctx)
	if err != nil {
		return err
	}
	job := o.job(targets.names)
	if o.dryRun {
		return o.PrintObject(console.OutputYAML, job)
	}
	if err := o.checkNamespace(ctx); err != nil {
		return err
	}
	if err := o.checkFreezes(ctx, targets); err != nil {
		return err
	}
	if err := o.confirm(ctx, targets); err != nil {
		return err
	}
	saved, err := newSaver(o.save)
	if err != nil {
		return err
	}
	defer saved.close()
	o.catchSignals()
	if err := o.create(ctx, job); err != nil {
		return err
	}
	r := newRunning(o, job, targets)
	r.saved = saved
	r.saveIndex(false)
	return r.follow(ctx)
}
