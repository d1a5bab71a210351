// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// keptRunner is a runner that keeps on a disk what reverts the node.
type keptRunner struct {
	*confirming
	root string
}

func prepareKept(t *testing.T, root string, environ ...string) *keptRunner {
	t.Helper()
	return &keptRunner{
		prepareConfirm(
			t,
			600,
			append([]string{"TEST_KEEP_DIR=" + filepath.Join(root, "everynode", "confirm"), "EVERYNODE_NODEJOB=ns/job"}, environ...)...),
		root,
	}
}

// dir is the folder of the NodeJob.
func (k *keptRunner) dir() string {
	return keptDir(filepath.Join(k.root, "everynode", "confirm"), "ns/job")
}

// kill kills the runner, as the OOM killer does.
func (k *keptRunner) kill() {
	k.t.Helper()
	if err := k.cmd.Process.Kill(); err != nil {
		k.t.Fatal(err)
	}
	_ = k.cmd.Wait()
}

// await waits for a condition.
func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// gone waits until nothing is left on the disk.
func (k *keptRunner) gone() {
	k.t.Helper()
	await(k.t, "the folder is removed", func() bool { return !exists(filepath.Join(k.root, "everynode")) })
}

func (k *keptRunner) noted() string {
	noted, _ := os.ReadFile(k.reverted)
	return strings.TrimSpace(string(noted))
}

// reboot ends everything that a reboot ends: the runner and its keeper.
func (k *keptRunner) reboot() {
	k.t.Helper()
	var keepers []string
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		k.t.Fatal(err)
	}
	for _, path := range all {
		if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), "--"+contract.FlagKeep+"="+k.dir()) {
			keepers = append(keepers, strings.Split(path, "/")[2])
		}
	}
	if len(keepers) != 1 {
		k.t.Fatalf("the keepers are %v", keepers)
	}
	var pid int
	for _, digit := range keepers[0] {
		pid = 10*pid + int(digit-'0')
	}
	if err := unix.Kill(pid, syscall.SIGKILL); err != nil {
		k.t.Fatal(err)
	}
	await(k.t, "the keeper has ended", func() bool {
		content, err := os.ReadFile("/proc/" + keepers[0] + "/cmdline")
		return err != nil || len(content) == 0
	})
	k.kill()
}

func TestARunnerThatIsKilledIsReverted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ script, want string }{
		"in the window":         {script: "echo was=before >> $EVERYNODE_RESULTS", want: "before"},
		"while the script runs": {script: "echo was=within >> $EVERYNODE_RESULTS; exec sleep 1000", want: "within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, t.TempDir(), "EVERYNODE_SCRIPT="+tt.script)
			k.start()
			await(t, "the results are written", func() bool {
				content, err := os.ReadFile(filepath.Join(k.dir(), resultsName))
				return err == nil && len(content) > 0
			})
			k.kill()
			await(t, "the keeper has reverted the node", func() bool { return k.noted() == tt.want })
			k.gone()
			await(t, "no process is left", func() bool { return len(k.survivors()) == 0 })
		})
	}
}

func TestNothingIsLeftOnTheNodeAfterADecision(t *testing.T) {
	t.Parallel()
	t.Run("confirmed", func(t *testing.T) {
		t.Parallel()
		k := prepareKept(t, t.TempDir())
		k.start()
		k.awaitWindow()
		if info, err := os.Stat(filepath.Join(k.dir(), stateName)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the state is %v, %v", info, err)
		}
		k.confirm(confirmation)
		k.want(0, "", "")
		k.gone()
	})
	t.Run("reverted", func(t *testing.T) {
		t.Parallel()
		k := prepareKept(t, t.TempDir())
		k.start()
		k.awaitWindow()
		if err := k.cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		k.want(143, outcome.ReasonDisrupted, "before", "the rollback ran on the node itself")
		k.gone()
	})
	t.Run("without its interpreter", func(t *testing.T) {
		t.Parallel()
		k := prepareKept(t, t.TempDir(), `EVERYNODE_INTERPRETER=["/no/such"]`)
		k.start()
		k.want(127, outcome.ReasonInterpreterNotFound, "")
		k.gone()
	})
}

// TestARebootInTheWindow : a unit of systemd reverts the node, or the next pod does.
func TestARebootInTheWindow(t *testing.T) {
	t.Parallel()
	t.Run("the unit", func(t *testing.T) {
		t.Parallel()
		k := prepareKept(t, t.TempDir(), "TEST_SECRET=hunter22", `EVERYNODE_MASK=["TEST_SECRET"]`)
		k.start()
		k.awaitWindow()
		k.reboot()
		state, err := os.ReadFile(filepath.Join(k.dir(), stateName))
		if err != nil || strings.Contains(string(state), "hunter22") || !strings.Contains(string(state), "EVERYNODE_ROLLBACK_FOR=Failure") {
			t.Errorf("the state is %s, %v", state, err)
		}
		out, err := exec.Command(filepath.Join(k.dir(), programName), "--"+contract.FlagKeep+"="+k.dir()).CombinedOutput()
		if err != nil || k.noted() != "before" ||
			!strings.Contains(string(out), "undone\neverynode-runner: NodeJob ns/job: an attempt ended before") {
			t.Errorf("it printed %s, %v, and the rollback noted %q", out, err, k.noted())
		}
		k.gone()
	})
	t.Run("the unit, with a rollback that fails", func(t *testing.T) {
		t.Parallel()
		k := prepareKept(t, t.TempDir(), "EVERYNODE_ROLLBACK=exit 4")
		k.start()
		k.awaitWindow()
		k.reboot()
		out, err := exec.Command(filepath.Join(k.dir(), programName), "--"+contract.FlagKeep+"="+k.dir()).CombinedOutput()
		if err == nil || err.Error() != "exit status 4" || !strings.Contains(string(out), "ended with exit code 4") {
			t.Errorf("it printed %s, %v", out, err)
		}
		k.gone()
	})
	t.Run("the next pod", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		k := prepareKept(
			t,
			root,
			"TEST_SECRET=hunter22",
			`EVERYNODE_MASK=["TEST_SECRET"]`,
			"EVERYNODE_ROLLBACK=echo with $TEST_SECRET $EVERYNODE_RESULT_WAS",
		)
		k.start()
		k.awaitWindow()
		k.reboot()
		next := prepareKept(t, root, "TEST_SECRET=hunter22", `EVERYNODE_MASK=["TEST_SECRET"]`, "EVERYNODE_SCRIPT=echo the task runs")
		next.start()
		next.awaitWindow()
		next.confirm(confirmation)
		got := next.wait()
		if got.code != 0 || !strings.HasPrefix(got.stdout, "with *** before\nthe task runs\n") {
			t.Errorf("exit code %d; printed %q", got.code, got.stdout)
		}
		if !strings.Contains(got.outcome.Message, "its rollback runs first") || got.outcome.RollbackExitCode != nil {
			t.Errorf("the outcome is %+v", got.outcome)
		}
		next.gone()
	})
	t.Run("the next pod, with a rollback that fails", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		k := prepareKept(t, root, "EVERYNODE_ROLLBACK=exit 4")
		k.start()
		k.awaitWindow()
		k.reboot()
		next := prepareKept(t, root, "EVERYNODE_SCRIPT=echo the task runs")
		next.start()
		got := next.wait()
		if o := got.outcome; got.code != 4 || o.Reason != outcome.ReasonRevertFailed || o.RollbackExitCode == nil ||
			*o.RollbackExitCode != 4 ||
			got.stdout != "" {
			t.Errorf("the outcome is %+v; printed %q", o, got.stdout)
		}
		next.gone()
	})
	t.Run("the next pod is that of the rollback", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		k := prepareKept(t, root)
		k.start()
		k.awaitWindow()
		k.reboot()
		next := startRunner(t, 0, testLimits(), "TEST_KEEP_DIR="+filepath.Join(root, "everynode", "confirm"), "EVERYNODE_NODEJOB=ns/job",
			"EVERYNODE_ROLLBACK_FOR=Failure", "EVERYNODE_SCRIPT=echo rolled back")
		if got := next.wait(); got.code != 0 || got.stdout != "rolled back\n" || k.noted() != "" {
			t.Errorf("exit code %d; printed %q; the earlier rollback noted %q", got.code, got.stdout, k.noted())
		}
		k.gone()
	})
}

// TestAPodWaitsUntilTheKeeperHasReverted : two processes must not run scripts of a NodeJob on a node at the same time.
func TestAPodWaitsUntilTheKeeperHasReverted(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	let := filepath.Join(t.TempDir(), "let")
	if err := unix.Mkfifo(let, 0o600); err != nil {
		t.Fatal(err)
	}
	k := prepareKept(t, root)
	k.cmd.Env = append(k.cmd.Env, "EVERYNODE_ROLLBACK=echo begun >> "+k.reverted+"; read x < "+let+"; echo over >> "+k.reverted)
	k.start()
	k.awaitWindow()
	k.kill()
	await(t, "the keeper reverts", func() bool { return k.noted() == "begun" })
	next := prepareKept(t, root, "EVERYNODE_SCRIPT=cat "+k.reverted)
	next.start()
	if err := os.WriteFile(let, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	next.awaitWindow()
	next.confirm(confirmation)
	if got := next.wait(); got.code != 0 || got.stdout != "begun\nover\n" {
		t.Errorf("exit code %d; printed %q", got.code, got.stdout)
	}
	next.gone()
}

func TestANodeWithoutAPlaceForWhatRevertsIt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := prepareKept(t, file, "EVERYNODE_SCRIPT=echo the task runs")
	k.start()
	got := k.wait()
	if o := got.outcome; o.Reason != outcome.ReasonBadConfiguration || got.stdout != "" ||
		!strings.Contains(o.Message, "the node has no place for what reverts it, so the task was not started") {
		t.Errorf("the outcome is %+v; printed %q", o, got.stdout)
	}
}

// TestNodeJobsShareTheFolderAbove : one removes it when it is empty, while another one needs it.
func TestNodeJobsShareTheFolderAbove(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "everynode", "confirm")
	var group sync.WaitGroup
	for _, job := range []string{"ns/a", "ns/b", "ns/c"} {
		group.Go(func() {
			for range 300 {
				k, err := openKept(keptDir(root, job), true)
				if err != nil {
					t.Errorf("%s: %v", job, err)
					return
				}
				k.remove()
			}
		})
	}
	group.Wait()
}
