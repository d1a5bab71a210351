// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// What a confirmation is for can also end its runner: a reboot without a shutdown, the OOM killer, or the end of the container. So
// from before the task until the decision, the node has on its disk what reverts it:
//
//	lock                held by the process that decides
//	everynode-runner    a copy of this program
//	state.json          the rollback; there until the decision
//	results             what the task has written to EVERYNODE_RESULTS
//
// Three processes take the lock when the runner is gone, and run the rollback if there is no decision: the keeper, which waits for
// that outside of the container (keeper_linux.go); after a reboot, a unit of systemd, which is there as long as the folder is; and
// the next pod of the NodeJob on this node.
const (
	stateName   = "state.json"
	programName = "everynode-runner"
	resultsName = "results"

	// maxTries limits how often the folders are made again.
	maxTries = 100

	// systemdRuns is there if systemd runs the node (sd_booted(3)), and unitDir has the units of its administrator.
	systemdRuns = "/run/systemd/system"
	unitDir     = "/etc/systemd/system"
	// wantsDir has links to the units that start with the node.
	wantsDir = unitDir + "/multi-user.target.wants"
)

// keptState is what the rollback needs. It has no values of Secrets, which must not be on a disk.
type keptState struct {
	NodeJob  string
	Rollback Script
	Timeout  time.Duration
	Environ  []string
}

// kept is the folder of one NodeJob, locked. Its methods must run on the host thread: the folder is on the node.
type kept struct {
	dir  string
	lock *os.File
}

// keptDir returns the folder of a NodeJob: names of NodeJobs can be longer than those of files.
func keptDir(root, nodeJob string) string {
	sum := sha256.Sum256([]byte(nodeJob))
	return filepath.Join(root, hex.EncodeToString(sum[:16]))
}

// unit returns the name of the unit that reverts the node after a reboot.
func (k *kept) unit() string { return "everynode-revert-" + filepath.Base(k.dir) + ".service" }

// openKept opens a folder and its lock file; create makes them if they are missing. It returns nil if there is no folder.
func openKept(dir string, create bool) (*kept, error) {
	if !create {
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil, nil
		}
		return &kept{dir, lock}, err
	}
	for tries := 0; ; tries++ {
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			var lock *os.File
			if lock, err = os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600); err == nil {
				return &kept{dir, lock}, nil
			}
		}
		// The runner of another NodeJob may have removed the folders above, which were empty.
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) || tries == maxTries {
			return nil, err
		}
	}
}

// locked reports whether this process has the lock now.
func (k *kept) locked() (bool, error) {
	for {
		switch err := unix.Flock(int(k.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("locking %s: %w", k.dir, err)
		}
	}
}

// current reports whether the lock is still that of the folder: who had it before may have removed the folder, and another attempt may
// have made it again.
func (k *kept) current() bool {
	own, err := k.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(filepath.Join(k.dir, lockName))
	return err == nil && os.SameFile(own, there)
}

// state reads what was kept; nil if there is nothing, or no more.
func (k *kept) state() (*keptState, error) {
	content, err := os.ReadFile(filepath.Join(k.dir, stateName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s keptState
	return &s, json.Unmarshal(content, &s)
}

// store writes the folder, so that a loss of power does not lose it. It returns the file for the results.
func (k *kept) store(program io.Reader, s *keptState) (results *os.File, err error) {
	path := filepath.Join(k.dir, programName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // it may run
		return nil, err
	}
	if err := writeSynced(path, program, 0o700); err != nil {
		return nil, err
	}
	results, err = os.OpenFile(filepath.Join(k.dir, resultsName), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(s)
	if err == nil {
		err = writeSynced(filepath.Join(k.dir, stateName), bytes.NewReader(content), 0o600)
	}
	for dir := k.dir; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		err = syncDir(dir)
	}
	if err != nil {
		_ = results.Close()
		return nil, err
	}
	return results, nil
}

// storeUnit makes systemd revert the node after a reboot. Without systemd, the next pod does.
func (k *kept) storeUnit(nodeJob string) error {
	if !exists(systemdRuns) {
		return nil
	}
	// A shell runs the program because SELinux does not let systemd run it.
	text := fmt.Sprintf(`[Unit]
Description=Revert NodeJob %s, which this node has not confirmed
Documentation=https://github.com/everynode/everynode/blob/main/docs/confirm.md
After=network.target

[Service]
ExecStart=/bin/sh -c "exec %s --keep=%s"
`, nodeJob, filepath.Join(k.dir, programName), k.dir)
	if err := os.MkdirAll(wantsDir, 0o755); err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(unitDir, k.unit()), strings.NewReader(text), 0o644); err != nil {
		return err
	}
	if err := os.Symlink("../"+k.unit(), filepath.Join(wantsDir, k.unit())); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return errors.Join(syncDir(unitDir), syncDir(wantsDir))
}

// decided ends the need for the folder: from now on, nothing reverts the node. If it returns an error, something may.
func (k *kept) decided() error {
	if err := os.Remove(filepath.Join(k.dir, stateName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(k.dir)
}

// remove removes what is left after a decision, and releases the lock. Errors do not matter: nothing of it has an effect any more.
func (k *kept) remove() {
	_ = os.Remove(filepath.Join(wantsDir, k.unit()))
	_ = os.Remove(filepath.Join(unitDir, k.unit()))
	for _, name := range []string{programName, resultsName, lockName} {
		_ = os.Remove(filepath.Join(k.dir, name))
	}
	// Those above are removed only if nothing else is in them.
	for _, dir := range []string{k.dir, filepath.Dir(k.dir), filepath.Dir(filepath.Dir(k.dir))} {
		if unix.Rmdir(dir) != nil {
			break
		}
	}
	_ = k.lock.Close()
}

func writeSynced(path string, content io.Reader, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Sync(), file.Close())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// keep stores what reverts the node, and starts the keeper, before the task starts.
func (a *attempt) keep() error {
	if a.KeepDir == "" {
		return nil
	}
	content, err := readResults(a.results) // of the check before the task
	if err != nil {
		return err
	}
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer func() { _ = program.Close() }()
	k, err := a.lockKept(true)
	switch {
	case err != nil:
		return a.noPlace(err)
	case k == nil:
		return nil // it was told to stop, so the task does not start either
	}
	nodeJob := lookup(a.Config.Environ, contract.EnvNodeJob)
	var results *os.File
	a.host.do(func() {
		results, err = k.store(program, &keptState{
			NodeJob: nodeJob, Rollback: a.Confirm.Rollback, Timeout: a.Confirm.RollbackTimeout, Environ: a.withoutSecrets(),
		})
		if err != nil {
			return
		}
		if problem := k.storeUnit(nodeJob); problem != nil {
			a.note("a node that reboots before it is confirmed is reverted by the next pod only: %v", problem)
		}
		err = startKeeper(k.dir, a.TargetPID, a.Limits.Keeper)
	})
	if err != nil {
		a.host.do(func() { _ = k.decided(); k.remove() })
		return a.noPlace(err)
	}
	_ = a.results.Close()
	a.kept, a.results, a.supervisor.results = k, results, results
	if _, err := results.Write(content); err != nil {
		return errors.Join(err, a.decided())
	}
	return nil
}

// noPlace is why the task does not start.
func (a *attempt) noPlace(err error) error {
	return &failure{outcome.ReasonBadConfiguration, fmt.Errorf(
		"the node has no place for what reverts it, so the task was not started: %w. "+
			"%s must be on a disk that can be written and from which programs can run; otherwise, leave spec.confirm out", err, a.KeepDir)}
}

// withoutSecrets returns the environment for a rollback, without the variables that have the value of a Secret.
func (a *attempt) withoutSecrets() []string {
	return slices.DeleteFunc(with(a.Config.Environ, contract.EnvRollbackFor, contract.RollbackForFailure), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(a.Masked, name)
	})
}

// lockKept returns the folder of the NodeJob, locked; nil if there is none, or the attempt was told to stop meanwhile. An earlier pod, or
// its keeper, may have the lock until it has reverted the node.
func (a *attempt) lockKept(create bool) (k *kept, err error) {
	dir := keptDir(a.KeepDir, lookup(a.Config.Environ, contract.EnvNodeJob))
	for a.supervisor.poll(); !a.supervisor.stopped(); a.supervisor.poll() {
		var mine, current bool
		a.host.do(func() {
			if k == nil {
				k, err = openKept(dir, create)
			}
			if k != nil && err == nil {
				mine, err = k.locked()
				current = k.current()
			}
		})
		switch {
		case err != nil || k == nil, mine && current:
			return k, err
		case !current:
			_ = k.lock.Close()
			k = nil
		default:
			time.Sleep(turnPoll)
		}
	}
	return nil, nil
}

// settle reverts the node if an earlier pod of this NodeJob could not decide, and neither its keeper nor the node's systemd has done it.
// The attempt has ended if the rollback fails. A rollback in its own pod does the same anyway.
func (a *attempt) settle(io stdio) (ended ending, failed bool) {
	k, state := a.undecided()
	if k == nil {
		return ending{}, false
	}
	defer a.host.do(func() { _ = k.decided(); k.remove() })
	if state == nil || lookup(a.Config.Environ, contract.EnvRollbackFor) != "" {
		return ending{}, false
	}
	a.note("an earlier attempt ended before the node was confirmed, by a reboot or a kill: its rollback runs first")
	environ := state.Environ
	for _, entry := range a.Config.Environ { // the values of Secrets, which the state does not have
		if name, value, _ := strings.Cut(entry, "="); lookup(environ, name) == "" {
			environ = with(environ, name, value)
		}
	}
	a.host.do(func() { environ = withResults(environ, k.dir) })
	back := a.rollback(io, state.Rollback, state.Timeout, environ)
	if back.code == 0 {
		return ending{}, false
	}
	a.reverted = &back.code
	return ending{back.code, outcome.ReasonRevertFailed}, true
}

// undecided returns what an earlier pod has left, locked; nil if there is nothing.
func (a *attempt) undecided() (k *kept, state *keptState) {
	if a.KeepDir == "" || lookup(a.Config.Environ, contract.EnvNodeJob) == "" {
		return nil, nil
	}
	k, err := a.lockKept(false)
	if k != nil && err == nil {
		a.host.do(func() { state, err = k.state() })
	}
	if err != nil {
		a.note("what an earlier pod has left to revert this node cannot be read: %v", err)
	}
	return k, state
}

// withResults adds the results that the task has written until the runner ended.
func withResults(environ []string, dir string) []string {
	file, err := os.Open(filepath.Join(dir, resultsName))
	if err != nil {
		return environ
	}
	defer func() { _ = file.Close() }()
	content, err := readResults(file)
	if err != nil {
		return environ
	}
	results, _, _ := outcome.ParseResults(content)
	return withVariables(environ, results)
}
