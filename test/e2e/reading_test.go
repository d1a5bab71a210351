// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// The commands that a user runs while a task fails on its canary, on a terminal and elsewhere.

func TestR22_AFailureIsWatchedExplainedAndRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := plugin() // which is built now, and not while the task runs
	must(t, err)
	canary := w.oldest("node-1", "node-2")[0]
	other := map[string]string{"node-1": "node-2", "node-2": "node-1"}[canary]
	w.job("fails", "printf 'begun\\n\\033[2J\\033[H%s: forged\\n' "+other+"; sleep 5; echo broken; exit 3", onNodes("node-1", "node-2"),
		func(s *v1alpha1.NodeJobSpec) {
			s.Rollout = v1alpha1.RolloutSpec{
				Steps: []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}},
			}
			s.Retry.Limit = new(int32(0))
		})
	watch := w.terminal("status", "fails", "--watch")
	watch.await("> " + canary + "  attempt 1")
	logs := w.say("logs", "fails", "-f")
	got := watch.end()
	if got.code != 10 {
		t.Errorf("exit code %d", got.code)
	}
	wantText(
		t,
		got.out,
		"NodeJob   NAMESPACE/fails",
		"Status    MaxFailuresExceeded",
		// If the canary has failed, another node starts if maxFailures allows it.
		"  ! canary  0 of 1 done, 1 other failed  MaxFailuresExceeded\n    ! "+canary+"  TaskFailed, exit code 3, 1 attempt",
		`      | \x1b[2J\x1b[H`+other+": forged\n      | broken",
		"\n  . all     no nodes                     waits for canary",
	)
	for line := range strings.Lines(logs.out) {
		if !strings.HasPrefix(line, canary+" | ") {
			t.Errorf("the logs have an unexpected line: %q", line)
		}
	}
	wantText(t, logs.out, canary+" | begun\n", canary+` | \x1b[2J\x1b[H`+other+": forged\n", canary+" | broken\n")
	w.Condition("fails", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
	w.NoPods()

	gone := w.say("logs", "fails")
	same(t, "what is left of the logs", canary+" | begun\n"+canary+` | \x1b[2J\x1b[H`+other+": forged\n"+canary+" | broken\n", gone.out)
	same(t, "and what is said of them", "-- 1 pod is gone; the last lines that are on record:\n", gone.err)
	wantText(
		t,
		w.say("explain", "fails", canary).out,
		"NAMESPACE/fails has failed on "+canary+" after 1 attempt, the last ",
		"TaskFailed, exit code 3: broken.",
		"retry fails "+canary,
	)
	wantText(t, w.say("explain", "fails", other).out, "NAMESPACE/fails has not run on "+other+" yet: the rollout has stopped: ")
	wantText(t, w.say("explain", canary).out, "NAMESPACE/fails has failed on "+canary)
}

func TestAPlanOnRealNodesChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "job.yaml")
	must(t, os.WriteFile(file, []byte(`apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: planned}
spec:
  nodes:
    names: [node-1, node-2]
  task: {script: "true"}
  maintenance: {reboot: {policy: Always}}
`), 0o600))
	got := w.say("plan", "-f", file)
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	wantText(
		t,
		got.out,
		"NodeJob   NAMESPACE/planned  revision ",
		", new\n",
		"a dry run: nothing has been changed",
		"  1 canary  1 node  first\n",
		"  2 all  1 node  after canary\n",
		"each node is rebooted after the task",
	)
	if list := w.say(
		"list",
	); list.out != "" ||
		list.err != "there is no NodeJob in namespace NAMESPACE\n" &&
			!strings.HasPrefix(list.err, "there is no NodeJob in namespace NAMESPACE; there are ") {
		t.Errorf("afterwards: %+v", list)
	}
}

// TestCompletionOffersWhatIsThere calls the completion as kubectl does.
func TestCompletionOffersWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("completed", "true", onNode2)
	path, err := plugin()
	must(t, err)
	complete := func(args ...string) string {
		cmd := exec.CommandContext(w.Ctx, path, append([]string{"__complete", "-n", w.Namespace}, args...)...)
		cmd.Env = real.Environ()
		out, err := cmd.Output()
		must(t, err)
		return string(out)
	}
	same(t, "NodeJobs", "completed\n:4\n", complete("status", ""))
	same(t, "steps", "all\n:4\n", complete("promote", "completed", "--to", ""))
	wantText(t, complete("explain", "completed", "node-"), "node-1\n", "node-2\n")
	wantText(t, complete("ex"), "explain\t")
}
