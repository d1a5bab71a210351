// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// The test binary has five roles: the tests, the runner (a separate process, because Run takes the
// process over), its keeper, everynode-upload, and the node, a process in namespaces of its own.
func TestMain(m *testing.M) {
	fromMainThread()
	if os.Args[0] == contract.UploadProgram {
		os.Exit(asUploader())
	}
	if len(os.Args) > 1 {
		if dir, found := strings.CutPrefix(os.Args[1], "--"+contract.FlagKeep+"="); found {
			os.Exit(Keep(KeepOptions{Dir: dir, Stdout: os.Stdout, Stderr: os.Stderr, Limits: testLimits()}))
		}
		switch os.Args[1] {
		case "as-runner":
			os.Exit(asRunner(os.Args[2:]))
		case "as-node":
			os.Exit(asNode())
		}
	}
	os.Exit(m.Run())
}

func asRunner(args []string) int {
	target, err := strconv.Atoi(args[0])
	if err != nil {
		panic(err)
	}
	var limits Limits
	if err := json.Unmarshal([]byte(args[2]), &limits); err != nil {
		panic(err)
	}
	power, environ := testPower(os.Environ())
	return Run(Options{
		TargetPID:      target,
		TerminationLog: args[1],
		RunDir:         os.Getenv("TEST_RUN_DIR"),
		ConfirmDir:     os.Getenv("TEST_CONFIRM_DIR"),
		KeepDir:        os.Getenv("TEST_KEEP_DIR"),
		Environ:        environ,
		Stdout:         os.Stdout,
		Stderr:         os.Stderr,
		Started:        time.Now(),
		Limits:         limits,
		power:          power,
		Version:        os.Getenv("TEST_VERSION"),
		Uploader:       os.Getenv("TEST_UPLOADER"),
		SpoolDir:       os.Getenv("TEST_SPOOL_DIR"),
	})
}

// asNode makes its namespaces recognizable: another host name, and a root file system that takes no
// writes and executes nothing that was not there, except for a few empty file systems.
func asNode() int {
	steps := []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
		unix.Mount("node", "/mnt", "tmpfs", unix.MS_NOEXEC, ""),
		unix.Mount("node", "/tmp", "tmpfs", unix.MS_NOEXEC, ""),
		unix.Mount("node", "/run", "tmpfs", unix.MS_NOEXEC, ""),
		unix.Mount("node", "/proc", "proc", 0, ""),
		os.WriteFile("/mnt/marker", []byte("this is the node\n"), 0o644),
		unix.Sethostname([]byte("some-node")),
	}
	if err := errors.Join(steps...); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // until the test ends
	return 0
}

// startNode returns the pid of a node, or skips where the kernel allows none.
func startNode(t *testing.T, moreFlags uintptr) int {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: entering another mount namespace is privileged")
	}
	cmd := exec.Command("/proc/self/exe", "as-node")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | moreFlags,
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, unix.EPERM) {
		t.Skipf("needs CAP_SYS_ADMIN: creating namespaces: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("the node said %q, %v", line, err)
	}
	return cmd.Process.Pid
}

// patience bounds every wait. Passing tests need much less.
const patience = 30 * time.Second

func testLimits() Limits {
	return Limits{
		InterruptGrace: 300 * time.Millisecond, KillAfter: 300 * time.Millisecond, Linger: 200 * time.Millisecond,
		GiveUp: 10 * time.Second, Drain: time.Second, Stall: 100 * time.Millisecond, UploadAfterSignal: time.Second,
		GoDown: time.Second, AskAgain: 50 * time.Millisecond, Probe: 300 * time.Millisecond, Keeper: 10 * time.Second,
	}
}

// running is a runner under test.
type running struct {
	t              *testing.T
	cmd            *exec.Cmd
	node           string // unique; in the environment of every descendant
	log            string
	stdout, stderr *watched
}

type finished struct {
	code           int
	outcome        outcome.Outcome
	stdout, stderr string
}

func prepareRunner(t *testing.T, target int, limits Limits, environ ...string) *running {
	t.Helper()
	asJSON, err := json.Marshal(limits)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{
		t:      t,
		node:   fmt.Sprintf("node-%d-%d", os.Getpid(), time.Now().UnixNano()),
		log:    filepath.Join(t.TempDir(), "log"),
		stdout: newWatched(),
		stderr: newWatched(),
	}
	r.cmd = exec.Command("/proc/self/exe", "as-runner", strconv.Itoa(target), r.log, string(asJSON))
	// Under the race detector every process would otherwise sleep for a second at its end.
	r.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "EVERYNODE_NODE_NAME=" + r.node}, environ...)
	if testing.CoverMode() != "" { // or the runner complains on stderr that it has nowhere to put its share
		r.cmd.Env = append(r.cmd.Env, "GOCOVERDIR="+t.TempDir())
	}
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	return r
}

func startRunner(t *testing.T, target int, limits Limits, environ ...string) *running {
	t.Helper()
	r := prepareRunner(t, target, limits, environ...)
	r.start()
	return r
}

func (r *running) start() {
	r.t.Helper()
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.cmd.Process.Kill() })
}

// wait returns how it ended, and checks what is true for every end: the exit code is the outcome's,
// the outcome is bounded JSON, and no process is left.
func (r *running) wait() finished {
	r.t.Helper()
	guard := time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() })
	defer guard.Stop()
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("waiting for the runner: %v", err)
	}
	message, err := os.ReadFile(r.log)
	if err != nil {
		r.t.Fatal(err)
	}
	f := finished{code: r.cmd.ProcessState.ExitCode(), stdout: r.stdout.String(), stderr: r.stderr.String()}
	var ok bool
	if f.outcome, ok = outcome.Decode(string(message)); !ok {
		r.t.Fatalf("no outcome (%d bytes): %s\nstderr: %s", len(message), message, f.stderr)
	}
	if f.code != f.outcome.ExitCode {
		r.t.Errorf("exit code %d, but the outcome says %d", f.code, f.outcome.ExitCode)
	}
	if left := r.survivors(); len(left) > 0 {
		r.t.Errorf("processes left behind: %v", left)
	}
	return f
}

// survivors returns the pids of the runner's living descendants.
func (r *running) survivors() []string {
	matches, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		r.t.Fatal(err)
	}
	var pids []string
	for _, path := range matches {
		environ, err := os.ReadFile(path) // empty for a zombie
		if err == nil && bytes.Contains(environ, []byte("EVERYNODE_NODE_NAME="+r.node)) {
			pids = append(pids, strings.Split(path, "/")[2])
		}
	}
	return pids
}

func runToEnd(t *testing.T, environ ...string) finished {
	t.Helper()
	return startRunner(t, 0, testLimits(), environ...).wait()
}

// watched is a buffer whose content a test can wait for.
type watched struct {
	mu  sync.Mutex
	new *sync.Cond
	buf bytes.Buffer
}

func newWatched() *watched {
	w := &watched{}
	w.new = sync.NewCond(&w.mu)
	return w
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.new.Broadcast()
	return w.buf.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// waitFor waits until the text has been written.
func (w *watched) waitFor(t *testing.T, text string) {
	t.Helper()
	expired := false
	timer := time.AfterFunc(patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		expired = true
		w.new.Broadcast()
	})
	defer timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for !strings.Contains(w.buf.String(), text) {
		if expired {
			t.Fatalf("%q was not written within %v, only %q", text, patience, w.buf.String())
		}
		w.new.Wait()
	}
}
