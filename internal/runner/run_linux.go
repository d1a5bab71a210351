// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/version"
)

// Options are what Run needs from main.
type Options struct {
	// TargetPID is the process in whose namespaces the scripts run; 0 for the runner's own.
	TargetPID int
	// TerminationLog is the path of the file for the outcome.
	TerminationLog string
	// RunDir is where the pod's containers store what the task did; "" or missing: nowhere.
	RunDir string
	// ConfirmDir is where the kubelet writes a confirmation. Without confirmations, it is not used.
	ConfirmDir string
	// KeepDir is the folder on the node for what reverts it while it is not confirmed; "" for none: then nothing does after the
	// end of the runner.
	KeepDir string
	// Uploader is the path of everynode-upload, and SpoolDir a folder for the output until it is archived. Without an archive,
	// neither is used.
	Uploader, SpoolDir string
	// Environ is the runner's environment, see ParseConfig.
	Environ []string
	// Stdout and Stderr get the scripts' output, unchanged, and Stderr also gets the runner's own lines.
	Stdout, Stderr io.Writer
	// Started is when the time limit started.
	Started time.Time
	// Version of this program; "" if it is unknown.
	Version string
	Limits  Limits

	power *power // nil: the node's own
}

// Run runs one attempt to its end, writes its outcome, and returns the exit code for the container, which is the
// outcome's. It changes global state of the process (signals, children, and the subreaper attribute), so it can run
// only once in a process.
func Run(o Options) (exitCode int) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	children := make(chan os.Signal, 1) // one is enough: reap takes all
	signal.Notify(children, unix.SIGCHLD)
	// A broken stdout must not end the runner. Notify is used because the script would inherit the effect of
	// signal.Ignore, and then "yes | head" never ends.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)

	log, err := openLog(o.TerminationLog)
	if err != nil {
		fmt.Fprintf(o.Stderr, "everynode-runner: %v\n", err)
	}
	config, err := ParseConfig(o.Environ)
	if err != nil {
		return report(log, o.Stderr, failed(outcome.Outcome{NotStarted: hasNotStarted(o.RunDir)}, &failure{outcome.ReasonBadConfiguration, err}), nil)
	}
	a := &attempt{Config: config, Options: o}
	a.supervisor = supervisor{limits: o.Limits, signals: signals, children: children}
	if config.Timeout > 0 {
		a.supervisor.deadline = time.After(time.Until(o.Started.Add(config.Timeout)))
	}
	if err := a.prepare(); err != nil {
		return report(log, o.Stderr, failed(outcome.Outcome{NotStarted: hasNotStarted(o.RunDir)}, err), nil)
	}
	if rebooted, err := (&rebooter{a}).alreadyDone(); err != nil {
		return report(log, o.Stderr, failed(outcome.Outcome{}, err), nil)
	} else if rebooted != nil {
		return report(log, o.Stderr, *rebooted, nil)
	}
	turn, before, err := acquireRunLock(o.RunDir, signals, a.supervisor.deadline)
	if err != nil {
		return report(log, o.Stderr, failed(outcome.Outcome{NotStarted: hasNotStarted(o.RunDir)}, err), nil)
	}
	if before != nil {
		return report(log, o.Stderr, *before, []string{"the task is not run again in this container: " + before.Message})
	}
	result, said := a.run()
	if err := turn.end(result); err != nil {
		said = append(said, err.Error())
	}
	if config.Archive != nil {
		result, said = a.archived(log, turn, result, said)
	}
	return report(log, o.Stderr, result, said)
}

// report ends an attempt. It also writes notes that the script did not print to stderr, for users who read the logs. If
// stderr has no reader, the outcome must not wait for it.
func report(log *os.File, stderr io.Writer, o outcome.Outcome, said []string) int {
	err := writeLog(log, o)
	if err != nil {
		said = append(said, err.Error())
	}
	if said == nil {
		said = []string{o.Message}
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		for _, line := range said {
			fmt.Fprintf(stderr, "everynode-runner: %s\n", line)
		}
	}()
	select {
	case <-printed:
	case <-time.After(time.Second):
	}
	return o.ExitCode
}

// failure is an error of the runner itself, with the reason that the outcome shows.
type failure struct {
	reason string
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failed adds an error to an outcome.
func failed(o outcome.Outcome, err error) outcome.Outcome {
	o.ExitCode, o.Reason = exitRunner, outcome.ReasonRunnerError
	var interpreter *interpreterError
	var own *failure
	switch {
	case errors.As(err, &interpreter):
		o.ExitCode, o.Reason = interpreter.code, interpreter.reason()
	case errors.Is(err, errNamespaces):
		o.Reason = outcome.ReasonNamespaceError
	case errors.As(err, &own):
		o.Reason = own.reason
	}
	o.Note(err.Error())
	return o
}

// attempt is one run of the task's script and its check.
type attempt struct {
	Config
	Options
	supervisor supervisor
	host       *hostThread
	results    *os.File
	files      *os.File // nil if the task has no files
	secrets    *masker
	// printed returns how many bytes of output there are until now, and last is the script that has run last.
	printed    func() int
	last       lastScript
	begun      bool     // the task has started
	reverted   *int     // the exit code of the rollback that ran without a confirmation; nil if none did
	kept       *kept    // what reverts the node if this process ends; nil for nothing
	spool      *spool   // nil: the output is not archived, or cannot be
	spoolError error    // why it cannot be
	notes      []string // what the outcome contains in addition to the scripts' output
}

// run executes the attempt, which is both scripts or a reboot, and collects output, results and notes.
func (a *attempt) run() (o outcome.Outcome, notes []string) {
	defer func() { _ = a.results.Close() }() // also keeps it open until here, because scripts open it by our descriptor
	a.openSpool()
	var last tail
	defer func() { o.NotStarted = !a.begun && exists(a.RunDir) }()
	io, finish, err := a.openOutput(&last)
	if err != nil {
		return failed(o, err), nil
	}
	work := a.runScripts
	if a.Reboot == contract.RebootNow {
		work = (&rebooter{a}).reboot
	}
	if version.Differ(a.Version, a.ManagerVersion) {
		a.note("this is everynode-runner %s, and the manager is %s: name the runner image of the manager's release in its flag --runner-image",
			a.Version, a.ManagerVersion)
	}
	ended, err := work(io)
	finish()
	if err == nil {
		a.noteSilence(ended)
	}
	o.ExitCode, o.Reason = ended.code, ended.reason
	o.Message = a.keptOutput(&last, ended)
	if err != nil {
		o = failed(o, err)
		a.notes = append(a.notes, err.Error())
	}
	a.addResults(&o)
	o.RollbackExitCode = a.reverted
	return o, append([]string{}, a.notes...)
}

// keptOutput returns the part of the scripts' output that the outcome contains.
func (a *attempt) keptOutput(last *tail, ended ending) string {
	switch {
	case !a.NoOutput:
		return strings.TrimRight(outcome.Clean(last.String(), outcome.MaxMessageBytes), "\n")
	case ended.code != 0:
		return "the output is not kept (task.output.record: None)"
	}
	return ""
}

// addResults adds the results, and appends all notes to the message.
func (a *attempt) addResults(o *outcome.Outcome) {
	content, err := readResults(a.results)
	if err == nil {
		o.Results, o.Truncated, err = a.parseResults(content)
	}
	if err != nil {
		a.note("results: %v", err)
	}
	if o.Truncated {
		a.note("results: some were omitted or cut: at most %d of %d bytes each and %d together are recorded",
			outcome.MaxResults, outcome.MaxValueBytes, outcome.MaxResultsBytes)
	}
	for _, note := range a.notes {
		o.Note(note)
	}
}

// parseResults reads the results and masks the secrets in them. Masking comes before truncation, because half a secret
// could not be found. A request for a reboot is preserved, even if a secret is "true".
func (a *attempt) parseResults(content []byte) (results map[string]string, truncated bool, err error) {
	if a.secrets == nil {
		return outcome.ParseResults(content)
	}
	masked := []byte(a.secrets.text(string(content)))
	if len(content) > outcome.MaxInputBytes { // it must still be recognized as too long
		masked = append(masked, bytes.Repeat([]byte(" "), len(content)-len(masked))...)
	}
	results, truncated, err = outcome.ParseResults(masked)
	for key, value := range results {
		results[key] = a.secrets.text(value)
	}
	if plain, _, _ := outcome.ParseResults(content); outcome.RebootRequested(plain) {
		if results == nil {
			results = map[string]string{}
		}
		results[outcome.RebootKey] = outcome.RebootValue
	}
	return results, truncated, err
}

func (a *attempt) note(format string, args ...any) {
	a.notes = append(a.notes, fmt.Sprintf(format, args...))
}

// prepare does what is necessary before a script can start.
func (a *attempt) prepare() (err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the subreaper: %w", err)
	}
	if a.results, err = newMemfd("everynode-results"); err != nil {
		return err
	}
	a.supervisor.results = a.results
	if err = a.openFiles(); err != nil {
		return err
	}
	a.secrets = newMasker(a.Secrets)
	if a.host, err = enterHost(a.TargetPID); err != nil {
		return err
	}
	if lookup(a.Config.Environ, "SHELL") == "" {
		a.host.do(func() { a.Config.Environ = with(a.Config.Environ, "SHELL", rootShell("/etc/passwd")) })
	}
	return nil
}

// openOutput connects the scripts with the container. One pair of pipes serves both scripts.
func (a *attempt) openOutput(last *tail) (stdio, func(), error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return stdio{}, nil, fmt.Errorf("opening standard input: %w", err)
	}
	outRead, outWrite, err := pipe()
	if err != nil {
		return stdio{}, nil, err
	}
	errRead, errWrite, err := pipe()
	if err != nil {
		return stdio{}, nil, err
	}
	out := startPump(outRead, a.Stdout, last, a.spool, a.Limits.Stall, a.secrets)
	errs := startPump(errRead, a.Stderr, last, a.spool, a.Limits.Stall, a.secrets)
	a.printed = func() int { return out.printed() + errs.printed() }
	return stdio{null, outWrite, errWrite}, func() {
		_ = outWrite.Close() // ours; the scripts' copies are closed with them
		_ = errWrite.Close()
		inAll := a.Limits.Stall
		if !a.supervisor.toldAt.IsZero() {
			inAll = a.Limits.Drain // the pod is killed soon
		}
		out.finish(a.Limits.Drain, inAll)
		errs.finish(a.Limits.Drain, inAll)
	}, nil
}

// pipe returns a pipe whose write end blocks, as programs expect of their output, while reading supports deadlines.
// os.Pipe would make both ends non-blocking.
func pipe() (read, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("creating a pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, fmt.Errorf("creating a pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}
