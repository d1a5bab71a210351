// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/text"
)

func runNode(name string, state RunState, change ...func(*RunNode)) RunNode {
	n := RunNode{Name: name, State: state, Since: before(4 * time.Second)}
	for _, c := range change {
		c(&n)
	}
	return n
}

func failedWith(code int32, reason, said string) func(*RunNode) {
	return func(n *RunNode) {
		n.Reason, n.Said = reason, said
		if code >= 0 {
			n.ExitCode = &code
		}
	}
}

// manyNodes are 3,000 nodes, most of which have succeeded.
func manyNodes() []RunNode {
	var all []RunNode
	for i := range 3000 {
		n := runNode(fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/250, i%250), RunSucceeded)
		switch {
		case i%400 == 7:
			failedWith(1, "TaskFailed", fmt.Sprintf("tune2fs: No such file or directory while trying to open /dev/nvme%dn1p1", i))(&n)
			n.State = RunFailed
		case i > 2600:
			n.State = RunWaiting
		case i > 2300:
			n.State = RunRunning
			if i == 2500 {
				n.Said = "ImagePullBackOff: image registry.example/runner:1"
			}
		}
		all = append(all, n)
	}
	return all
}

func TestRunAsPeopleSeeIt(t *testing.T) {
	three := []RunNode{
		runNode("node-1", RunSucceeded), runNode("node-2", RunRunning), runNode("node-3", RunWaiting),
	}
	ended := []RunNode{
		runNode("node-1", RunSucceeded),
		runNode("node-2", RunFailed, failedWith(3, "TaskFailed", "no disk at \x1b[2J/dev/sdz")),
		runNode("node-3", RunFailed, failedWith(-1, "DeadlineExceeded", "")),
		runNode("node-4", RunUnreachable, failedWith(-1, "", "it has been unreachable since 2026-01-01 11:00 UTC")),
		runNode("node-5", RunNotRun, failedWith(-1, "", "the run was stopped before it started there")),
		runNode("node-6", RunDeleted),
	}
	tests := map[string]Run{
		"three-nodes":          {Name: "run-x7f2q", Nodes: three},
		"three-thousand-nodes": {Name: "run-x7f2q", Nodes: manyNodes()},
		"being-stopped": {
			Name:  "run-x7f2q",
			Nodes: three,
			Note:  "stopping: no new attempts start, and running attempts may finish. Ctrl-C again ends this command only",
		},
		"bad-ends": {Name: "run-x7f2q", Nodes: ended},
	}
	for name, run := range tests {
		run.Now, run.Began = now, before(72*time.Second)
		run.Namespace, run.Command, run.Selection = "node-setup", "echo 'a  b'", "--all"
		if name == "bad-ends" {
			run.Command, run.Selection, run.Began = "sh -c 'echo \x1b[2J "+strings.Repeat(
				"and more ",
				50,
			)+"'", "-l pool=db\n", before(
				26*time.Hour,
			)
		}
		t.Run(name, func(t *testing.T) {
			drawn(t, "run-"+name, func(width int) []text.Line {
				run.Width = width
				return run.Frame()
			})
			drawn(t, "run-end-"+name, func(width int) []text.Line {
				run.Width = width
				return append([]text.Line{run.Summary(), nil}, run.End()...)
			})
		})
	}
}

func TestOutputsAreFolded(t *testing.T) {
	var outputs []Output
	for i := range 47 {
		outputs = append(outputs, Output{Node: fmt.Sprintf("node-%02d", i), State: RunSucceeded, Text: "6.8.0-45-generic\n"})
	}
	outputs[7].Text = "5.15.0-1\n"
	outputs[9].Text = "\x1b[2A\rnode-08: forged\nsecond\tline\n"
	outputs[11].Text = ""
	for _, i := range []int{20, 21} {
		outputs[i].State, outputs[i].ExitCode, outputs[i].Text = RunFailed, new(int32(127)), "sh: uname: not found\n"
	}
	outputs[30].Text, outputs[30].Cut, outputs[30].Sum = "end of much\n", 123456, "a"
	outputs[31].Text, outputs[31].Cut, outputs[31].Sum = "end of much\n", 123456, "b"
	outputs[33].Note = "the logs of its pod could not be read; this is what is on record, at most the last 1024 bytes"
	outputs[40].State, outputs[40].Text, outputs[40].Why = RunUnreachable, "", "it has been unreachable since 2026-01-01 11:00 UTC"
	// Data is never truncated, regardless of the terminal.
	for name, o := range map[string]text.Options{"fold.file": {}, "fold.colour": {Colour: true}} {
		golden(t, name, text.Print(Fold(outputs), o))
	}
}

// golden compares a whole text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (if it is right: go test ./internal/ui/view -update): -want +got\n%s", path, diff)
	}
}
