// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// same compares a whole output.
func same(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// runJob is the one NodeJob that run has made in the namespace.
func (w *world) runJob() v1alpha1.NodeJob {
	w.T.Helper()
	var jobs v1alpha1.NodeJobList
	w.Eventually("the NodeJob of the run is there", func() error {
		if err := admin.List(w.Ctx, &jobs, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		if len(jobs.Items) != 1 {
			return fmt.Errorf("there are %d", len(jobs.Items))
		}
		return nil
	})
	return jobs.Items[0]
}

func TestR22_ACommandRunsOnNodesAndItsOutputComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.say("run", "node-2", "--", "printf", `%s|`, "a  b", "", "$HOME", "*", "'\"; echo no", "ü\x1b[2Jz")
	if got.code != 0 {
		t.Errorf("exit code %d", got.code)
	}
	same(t, "standard output", "\n"+`node-2: a  b||$HOME|*|'"; echo no|ü\x1b[2Jz|`+"\n", got.out)
	wantText(
		t,
		got.err,
		"1 of 1 succeeded in SECONDS",
		"NodeJob run-NAME is kept for 1h0m0s: kubectl everynode status run-NAME -n NAMESPACE",
	)
	job := w.runJob()
	if *job.Spec.TTLSecondsAfterFinished != 3600 || job.Spec.Nodes.Names[0] != "node-2" {
		t.Errorf("the NodeJob is %+v", job.Spec)
	}
}

// TestR22_NothingOfALongOutputIsLost covers output that does not fit into a record, from a command that ends at once.
func TestR22_NothingOfALongOutputIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.say("run", "node-1", "node-2", "--yes", "--rm", "--max-concurrent", "2", "--", "seq", "1", "20000")
	if got.code != 0 {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	for _, node := range []string{"node-1", "node-2"} {
		var numbers []string
		for line := range strings.Lines(got.out) {
			if number, ok := strings.CutPrefix(line, node+": "); ok {
				numbers = append(numbers, strings.TrimSpace(number))
			}
		}
		if len(numbers) != 20000 || numbers[0] != "1" || numbers[19999] != "20000" {
			t.Errorf("%s printed %d lines", node, len(numbers))
		}
	}
	var job v1alpha1.NodeJobList
	w.Eventually("--rm has deleted the NodeJob", func() error {
		if err := admin.List(w.Ctx, &job, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		if len(job.Items) > 0 {
			return fmt.Errorf("%d are there", len(job.Items))
		}
		return nil
	})
}

func TestR22_TheSameOutputIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	extra := w.join(cluster.NodeOptions{})
	got := w.say("run", "node-1", "node-2", extra, "--yes", "--fold", "--max-concurrent", "100%", "--",
		"sh", "-c", `[ "$EVERYNODE_NODE_NAME" != `+extra+` ] || { echo odd one; exit 3; }; echo same; printf 'no end'`)
	if got.code != 10 {
		t.Errorf("exit code %d", got.code)
	}
	same(t, "standard output", strings.ReplaceAll(`
2 nodes: node-1, node-2
  same
  no end

1 node failed: exit code 3: EXTRA
  odd one
`, "EXTRA", extra), got.out)
	wantText(t, got.err, "2 of 3 succeeded, 1 failed in SECONDS", extra+": exit code 3: odd one")
}

func TestR22_AScriptAndARecordForEachNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.sayWith(
		"#!/bin/sh\necho out; echo err >&2; [ $EVERYNODE_NODE_NAME = node-2 ]\n",
		"run",
		"node-1",
		"node-2",
		"--yes",
		"-o",
		"json",
		"-f",
		"-",
	)
	if got.code != 10 {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	var result struct {
		Succeeded bool
		Nodes     []struct {
			Node, Outcome, Reason, Output string
			ExitCode                      *int
		}
	}
	must(t, json.Unmarshal([]byte(got.out), &result))
	if result.Succeeded || len(result.Nodes) != 2 {
		t.Fatalf("the result is %s", got.out)
	}
	for i, want := range []struct {
		outcome string
		code    int
	}{{"Failed", 1}, {"Succeeded", 0}} {
		n := result.Nodes[i]
		// Two streams are two pipes: containerd writes down first what it happens to read first.
		both := n.Output == "out\nerr\n" || n.Output == "err\nout\n"
		if n.Outcome != want.outcome || n.ExitCode == nil || *n.ExitCode != want.code || !both {
			t.Errorf("the record of %s is %+v", n.Node, n)
		}
	}
}

// TestR22_AtATerminal : the question, the live view, and Ctrl-C once.
func TestR22_AtATerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	no := w.terminal("run", "node-1", "node-2", "--", "true")
	no.await("Continue? [y/N]")
	no.press("\n")
	got := no.end()
	if got.code != 7 {
		t.Errorf("exit code %d", got.code)
	}
	same(t, "the terminal after a no", `
Run true as root on 2 nodes, 2 at once: node-1, node-2.
Continue? [y/N]
error: nothing was done`, got.out)

	yes := w.terminal(
		"run",
		"node-1",
		"node-2",
		"--max-concurrent",
		"1",
		"--",
		"sh",
		"-c",
		"printf 'begun\\n\\033[2J\\033[5A\\rnode-2: forged\\n'; sleep 8; echo over",
	)
	yes.await("Continue? [y/N]")
	yes.press("y\n")
	yes.await("node-1: begun")
	yes.await("running     node-1")
	yes.press(ctrlC)
	yes.await("stopping: no new attempts start")
	got = yes.end()
	if got.code != 130 {
		t.Errorf("exit code %d", got.code)
	}
	// The terminal shows the keys as well.
	screen, rest, _ := strings.Cut(got.out, "Command  ")
	same(t, "the terminal after Ctrl-C", `
Run sh -c 'printf '\''begun\n\033[2J\033[5A\rnode-2: forged\n'\''; sleep 8; echo over' as root on 2 nodes, 1 at once: node-1, node-2.
Continue? [y/N] y
node-1: begun
node-1: \x1b[2J\x1b[5A\x0dnode-2: forged
node-1: over
1 of 2 succeeded, 1 not run in SECONDS
  not run     node-2: the run was stopped before it started there
`, strings.ReplaceAll(screen, "^C", ""))
	// How this is broken into lines depends on the names.
	wantText(
		t,
		strings.Join(strings.Fields(rest), " "),
		"is kept for 1h0m0s. To let the rest run: kubectl everynode resume run-NAME -n NAMESPACE. To delete it: kubectl delete nodejob run-NAME -n NAMESPACE",
	)
	job := w.runJob()
	if !job.Spec.Suspend {
		t.Error("it is not suspended")
	}
	resumed := w.say("resume", job.Name)
	same(t, "resume", "nodejob "+w.plain(job.Name)+": resumed: spec.suspend true -> false\n", resumed.out)
	w.Done(job.Name, "node-2")
}

// TestR22_CtrlCTwiceDetaches checks that running attempts continue, and can be inspected later.
func TestR22_CtrlCTwiceDetaches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.terminal("run", "node-2", "--", "sh", "-c", "echo begun; sleep 10; echo over")
	at.await("node-2: begun")
	at.press(ctrlC)
	at.await("stopping: no new attempts start")
	at.press(ctrlC)
	got := at.end()
	if got.code != 130 {
		t.Errorf("exit code %d", got.code)
	}
	wantText(
		t,
		strings.Join(strings.Fields(got.out), " "),
		"0 of 1 succeeded, 1 running in SECONDS",
		"running attempts continue without this command. To check it later: kubectl everynode status run-NAME -n NAMESPACE --watch; kubectl everynode logs run-NAME -n NAMESPACE.",
	)
	w.Done(w.runJob().Name, "node-2")
}

// TestR22_CtrlCTwiceWithRmEndsWhatRuns on the node, and leaves nothing behind.
func TestR22_CtrlCTwiceWithRmEndsWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mark := w.markFile()
	at := w.terminal("run", "node-2", "--rm", "--", "sh", "-c", "trap 'echo ended > "+mark+"; exit 1' TERM; echo begun; sleep 60 & wait")
	at.await("node-2: begun")
	job := w.runJob()
	at.press(ctrlC)
	at.await("stopping: no new attempts start")
	at.press(ctrlC)
	if got := at.end(); got.code != 130 {
		t.Errorf("exit code %d", got.code)
	}
	w.Eventually("the NodeJob is gone", func() error {
		err := admin.Get(w.Ctx, client.ObjectKeyFromObject(&job), &job)
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	w.NoPods()
	if on := w.On(job.Name, "node-2"); on.Present {
		t.Errorf("the node carries %+v", on)
	}
	w.Eventually("the script was told to end", func() error {
		if out := w.sh("node-2", "cat "+mark+" || true"); !strings.Contains(out, "ended") {
			return fmt.Errorf("it has written %q", out)
		}
		return nil
	})
}

// TestR22_APipeThatIsClosedEarly checks that the run continues, and that a message says so.
func TestR22_APipeThatIsClosedEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := w.everynode("run", "node-2", "--", "sh", "-c", "for i in 1 2 3 4 5; do echo line $i; sleep 1; done; : > "+w.markFile())
	out, err := cmd.StdoutPipe()
	must(t, err)
	var errs strings.Builder
	cmd.Stderr = &errs
	must(t, cmd.Start())
	first := make([]byte, 7)
	_, err = out.Read(first)
	must(t, err)
	must(t, out.Close())
	code := exitCode(t, cmd.Wait())
	if code != 130 {
		t.Errorf("exit code %d", code)
	}
	wantText(
		t,
		strings.Join(strings.Fields(w.plain(errs.String())), " "),
		"The run continues without this command. To check it later: kubectl everynode status run-NAME -n NAMESPACE --watch",
	)
	w.Done(w.runJob().Name, "node-2")
}

// TestR22_ANodeJobThatIsDeletedInMidRun ends the command, with what was printed until then.
func TestR22_ANodeJobThatIsDeletedInMidRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.terminal("run", "node-2", "--", "sh", "-c", "echo begun; sleep 60")
	at.await("node-2: begun")
	job := w.runJob()
	must(t, admin.Delete(w.Ctx, &job))
	got := at.end()
	if got.code != 12 {
		t.Errorf("exit code %d", got.code)
	}
	wantText(t, got.out, "node-2: begun", "0 of 1 succeeded, 1 not run in SECONDS", "not run     node-2: the NodeJob was deleted")
}

// TestR22_WhereNoPrivilegedPodMayRun checks that nothing is left behind, and that the message says what to do.
func TestR22_WhereNoPrivilegedPodMayRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(
		t,
		admin.Patch(
			w.Ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}},
			mergePatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`),
		),
	)
	began := time.Now()
	got := w.say("run", "node-2", "--", "true")
	if got.code != 10 || time.Since(began) > 30*time.Second {
		t.Errorf("exit code %d after %s", got.code, time.Since(began))
	}
	wantText(
		t,
		got.err,
		"1 not run",
		"PodForbidden",
		"pod-security.kubernetes.io/enforce=privileged",
		"Nothing was run, and NodeJob run-NAME is deleted.",
	)
	var jobs v1alpha1.NodeJobList
	w.Eventually("the NodeJob is gone", func() error {
		if err := admin.List(w.Ctx, &jobs, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		if len(jobs.Items) > 0 {
			return fmt.Errorf("%d are there", len(jobs.Items))
		}
		return nil
	})
}

// TestR22_ManifestsWorkOnARealNode applies the output of create unchanged, and reverts it with abort --rollback.
func TestR22_ManifestsWorkOnARealNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	made := w.raw(
		"echo \"$EVERYNODE_NODE_NAME\" > "+w.markFile()+"\n",
		"create",
		"script",
		"scripted",
		"-f",
		"-",
		"-l",
		"world="+w.Namespace,
	)
	_, err := install.Kubectl(w.Ctx, real, made, "apply", "-f", "-")
	must(t, err)
	w.Done("scripted", node)
	if got := w.sh(node, "cat "+w.markFile()); got != node {
		t.Errorf("the script wrote %q", got)
	}
}
