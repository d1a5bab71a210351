// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
)

// No test here may reboot the machine it runs on, even if the code is wrong. So where a runner
// could request a reboot, it finds only programs in a folder of the test
// and has no reboot(2); and where it must refuse before, the boot to end does not exist.
const (
	thisBoot  = "11111111-1111-4111-8111-111111111111"
	otherBoot = "22222222-2222-4222-8222-222222222222"
)

// fakeNode replaces the programs and system calls by which a node reboots.
type fakeNode struct {
	Dir    string // has the node's programs, and the file calls, a line for each that was called
	BootID string // path
	// Restart: reboot(2) works, but takes its time. Otherwise it fails.
	Restart bool
}

// testPower is the power of a runner under test, and its environment.
func testPower(environ []string) (*power, []string) {
	p := nodePower()
	p.restart = func(*hostThread) error { return errors.New("no test gets here") }
	text := lookup(environ, "TEST_NODE")
	if text == "" {
		return p, environ
	}
	var node fakeNode
	if err := json.Unmarshal([]byte(text), &node); err != nil {
		panic(err)
	}
	p.bootID, p.systemd, p.path = node.BootID, filepath.Join(node.Dir, "systemd"), ""
	p.allowed = func(*hostThread) error { return nil }
	p.restart = func(*hostThread) error {
		if err := appendFile(filepath.Join(node.Dir, "calls"), "reboot(2)\n"); err != nil || !node.Restart {
			return errors.Join(err, unix.EPERM)
		}
		return nil
	}
	return p, with(environ, "PATH", node.Dir)
}

func appendFile(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// newFakeNode makes a node that is in thisBoot, with programs by their name.
func newFakeNode(t *testing.T, programs map[string]string) fakeNode {
	t.Helper()
	node := fakeNode{Dir: t.TempDir()}
	node.BootID = filepath.Join(node.Dir, "boot_id")
	node.write(t, "boot_id", thisBoot+"\n")
	for name, script := range programs {
		switch target, isLink := strings.CutPrefix(script, "-> "); {
		case isLink:
			if err := os.Symlink(target, filepath.Join(node.Dir, name)); err != nil {
				t.Fatal(err)
			}
		case name == "systemd":
			if err := os.Mkdir(filepath.Join(node.Dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(script, "#!"):
			node.write(t, name, script)
		default:
			node.write(t, name, "#!/bin/sh\necho \""+name+"${*:+ $*}\" >> "+node.Dir+"/calls\n"+script+"\n")
		}
	}
	return node
}

func (n fakeNode) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.Dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (n fakeNode) calls(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(n.Dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(content)
}

// environ is that of a runner that is to reboot the node.
func (n fakeNode) environ(t *testing.T, more ...string) []string {
	t.Helper()
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"TEST_NODE=" + string(text), "EVERYNODE_REBOOT=Now", "EVERYNODE_BOOT_ID=" + thisBoot}, more...)
}

func TestReboot(t *testing.T) {
	t.Parallel()
	const (
		sleeps  = "PATH=/bin:/usr/bin exec sleep 60"
		stopped = "kill -TERM $PPID; " + sleeps // as a kubelet does whose node shuts down
	)
	tests := map[string]struct {
		programs   map[string]string
		restart    bool
		timeout    string
		wantCalls  string
		wantCode   int
		wantReason string
		wantSaid   string
	}{
		"systemd is asked, then forced, then the kernel is asked": {
			programs:   map[string]string{"systemd": "", "systemctl": ""},
			timeout:    "3",
			wantCalls:  "systemctl reboot\nsystemctl reboot --force\nreboot(2)\n",
			wantCode:   1,
			wantReason: outcome.ReasonRebootFailed,
			wantSaid:   "reboot(2): operation not permitted\nthe node did not go down within 3s",
		},
		"the runner waits when the kernel was asked": {
			restart:    true,
			timeout:    "3",
			wantCalls:  "reboot(2)\n",
			wantCode:   1,
			wantReason: outcome.ReasonRebootFailed,
			wantSaid:   "rebooting the node by reboot(2)\nthe node did not go down within 3s",
		},
		"without a time limit the next method follows after a while, and the last wait ends when the runner is killed": {
			programs: map[string]string{"systemd": "", "systemctl": `[ "$2" != --force ] || { ` + stopped + "; }"}, restart: true,
			wantCalls: "systemctl reboot\nsystemctl reboot --force\n",
			wantCode:  143, wantReason: outcome.ReasonDisrupted, wantSaid: "the runner received SIGTERM before the node went down",
		},
		"a refused request is repeated, and a runner that is stopped makes no further request": {
			programs: map[string]string{
				"systemd":   "",
				"systemctl": `read first < $0.refused || { echo yes > $0.refused; echo a lock is held >&2; exit 1; }; ` + stopped,
			},
			timeout:    "20",
			wantCalls:  "systemctl reboot\nsystemctl reboot\n",
			wantCode:   143,
			wantReason: outcome.ReasonDisrupted,
			wantSaid:   "a lock is held\neverynode-runner: systemctl reboot: it ended with exit code 1\n",
		},
		"a refused forced request is not repeated": {
			programs: map[string]string{"systemd": "", "systemctl": `[ "$2" != --force ] || exit 1`}, restart: true, timeout: "3",
			wantCalls: "systemctl reboot\nsystemctl reboot --force\nreboot(2)\n",
			wantCode:  1, wantReason: outcome.ReasonRebootFailed, wantSaid: "systemctl reboot --force: it ended with exit code 1\n",
		},
		"a systemctl that hangs is not awaited": {
			programs: map[string]string{"systemd": "", "systemctl": sleeps}, restart: true, timeout: "3",
			wantCalls: "systemctl reboot\nsystemctl reboot --force\nreboot(2)\n",
			wantCode:  1, wantReason: outcome.ReasonRebootFailed, wantSaid: "systemctl reboot: it did not answer\n",
		},
		"a systemctl that is killed counts as refused": {
			programs: map[string]string{"systemd": "", "systemctl": `[ "$2" = --force ] || kill -SEGV $$; ` + stopped}, timeout: "3",
			wantCode: 143, wantReason: outcome.ReasonDisrupted, wantSaid: "systemctl reboot: it was killed by SIGSEGV\n",
		},
		"a node with systemd and without systemctl": {
			programs: map[string]string{"systemd": ""}, wantCalls: "reboot(2)\n",
			wantCode: 1, wantReason: outcome.ReasonRebootFailed, wantSaid: "systemctl reboot: it is not in the node's PATH",
		},
		"a systemctl that cannot run": {
			programs: map[string]string{"systemd": "", "systemctl": "#!/no/such/loader"}, wantCalls: "reboot(2)\n",
			wantCode: 1, wantReason: outcome.ReasonRebootFailed, wantSaid: "its own loader or interpreter is missing",
		},
		"another init system has another program": {
			programs: map[string]string{"reboot": "", "systemctl": ""}, timeout: "3", wantCalls: "reboot\nreboot(2)\n",
			wantCode: 1, wantReason: outcome.ReasonRebootFailed, wantSaid: "the node did not go down within 3s",
		},
		"a program that fails is not called again, and the runner fails if the kernel refuses too": {
			programs:   map[string]string{"reboot": "echo no init >&2; exit 1"},
			wantCalls:  "reboot\nreboot(2)\n",
			wantCode:   1,
			wantReason: outcome.ReasonRebootFailed,
			wantSaid:   "no init\neverynode-runner: reboot: it ended with exit code 1\neverynode-runner: rebooting the node by reboot(2)\neverynode-runner: reboot(2): operation not permitted\nthe node did not go down",
		},
		"the program of systemd is not used without systemd": {
			programs: map[string]string{"reboot": "-> systemctl", "systemctl": ""}, wantCalls: "reboot(2)\n",
			wantCode: 1, wantReason: outcome.ReasonRebootFailed,
		},
		"systemctl is told to leave no kernel running": {
			programs: map[string]string{
				"systemd":   "",
				"systemctl": `echo "skip=$SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT $EVERYNODE_REBOOT$EVERYNODE_BOOT_ID"; ` + stopped,
			},
			wantCalls:  "systemctl reboot\n",
			wantCode:   143,
			wantReason: outcome.ReasonDisrupted,
			wantSaid:   "skip=1 \n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newFakeNode(t, tt.programs)
			node.Restart = tt.restart
			environ := node.environ(t)
			if tt.timeout != "" {
				environ = append(environ, "EVERYNODE_TIMEOUT="+tt.timeout)
			}
			got := runToEnd(t, environ...)
			if got.code != tt.wantCode || got.outcome.Reason != tt.wantReason || !strings.Contains(got.outcome.Message, tt.wantSaid) {
				t.Errorf(
					"ended with %d %q, want %d %q; message %q, want %q in it",
					got.code,
					got.outcome.Reason,
					tt.wantCode,
					tt.wantReason,
					got.outcome.Message,
					tt.wantSaid,
				)
			}
			if !strings.Contains(got.stderr, lastLine(got.outcome.Message)) {
				t.Errorf("stderr %q lacks the end of the message %q", got.stderr, got.outcome.Message)
			}
			if diff := cmp.Diff(tt.wantCalls, node.calls(t)); diff != "" && tt.wantCalls != "" {
				t.Errorf("what the node was asked (-want +got):\n%s", diff)
			}
		})
	}
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

func TestNodeIsRebootedOnlyFromBootToEnd(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		bootID     string // the content of the file; "-" for none
		wantCode   int
		wantReason string
		wantSaid   string
	}{
		"another boot": {
			bootID:   otherBoot + "\n",
			wantSaid: "the node has rebooted already: its boot ID is " + otherBoot + ", the one to leave was " + thisBoot,
		},
		"an empty boot ID": {bootID: "\n", wantCode: 125, wantReason: outcome.ReasonRunnerError, wantSaid: "boot_id is empty"},
		"a boot ID that cannot be read": {
			bootID:     "-",
			wantCode:   125,
			wantReason: outcome.ReasonRunnerError,
			wantSaid:   "reading the node's boot ID",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newFakeNode(t, map[string]string{"systemd": "", "systemctl": "", "reboot": ""})
			node.write(t, "boot_id", tt.bootID)
			if tt.bootID == "-" {
				if err := os.Remove(node.BootID); err != nil {
					t.Fatal(err)
				}
			}
			got := runToEnd(t, node.environ(t)...)
			if got.code != tt.wantCode || got.outcome.Reason != tt.wantReason || !strings.Contains(got.outcome.Message, tt.wantSaid) {
				t.Errorf(
					"ended with %d %q, want %d %q; message %q, want %q in it",
					got.code,
					got.outcome.Reason,
					tt.wantCode,
					tt.wantReason,
					got.outcome.Message,
					tt.wantSaid,
				)
			}
			if calls := node.calls(t); calls != "" {
				t.Errorf("the node was asked to reboot: %q", calls)
			}
		})
	}
}

func TestBootIDIsReadOnNode(t *testing.T) {
	t.Parallel()
	target := startNode(t, 0)
	node := newFakeNode(t, nil)
	node.BootID = "/mnt/marker" // is on the node only
	got := startRunner(t, target, testLimits(), node.environ(t, "EVERYNODE_BOOT_ID="+otherBoot)...).wait()
	if got.code != 0 || !strings.Contains(got.outcome.Message, "its boot ID is this is the node") {
		t.Errorf("ended with %d %+v", got.code, got.outcome)
	}
	same := startRunner(t, target, testLimits(), node.environ(t, "EVERYNODE_BOOT_ID=this is the node")...).wait()
	if same.code != 1 || same.outcome.Reason != outcome.ReasonRebootFailed || node.calls(t) != "reboot(2)\n" {
		t.Errorf("ended with %d %+v, the node was asked %q", same.code, same.outcome, node.calls(t))
	}
}

func TestSecondContainerDoesNotReboot(t *testing.T) {
	t.Parallel()
	node := newFakeNode(t, map[string]string{"systemd": "", "systemctl": "echo accepted"})
	environ := node.environ(t, "EVERYNODE_TIMEOUT=60", "TEST_RUN_DIR="+t.TempDir())
	first := startRunner(t, 0, testLimits(), environ...)
	first.stdout.waitFor(t, "accepted")
	first.signal(unix.SIGKILL)
	_ = first.cmd.Wait() // killed: the error says so
	if got := startRunner(t, 0, testLimits(), environ...).wait(); got.code != 143 || got.outcome.Reason != outcome.ReasonDisrupted {
		t.Errorf("in the same boot it ended with %d and %+v", got.code, got.outcome)
	}
	node.write(t, "boot_id", otherBoot+"\n")
	if got := startRunner(t, 0, testLimits(), environ...).wait(); got.code != 0 || got.outcome.Reason != "" {
		t.Errorf("in the next boot it ended with %d and %+v", got.code, got.outcome)
	}
	if diff := cmp.Diff("systemctl reboot\n", node.calls(t)); diff != "" {
		t.Errorf("what the node was asked (-want +got):\n%s", diff)
	}
}

// These runners have the privileges of pods, except for reboot(2) itself.
func TestNoRebootOutsidePodOfNode(t *testing.T) {
	t.Parallel()
	nowhere := func(*testing.T) int { return 0 }
	tests := map[string]struct {
		target   func(*testing.T) int
		wantSaid string
	}{
		"a runner without a target": {nowhere, "the target is process 0"},
		"a target that is not process 1": {
			func(t *testing.T) int { return startNode(t, 0) },
			"only the node of process 1 can be rebooted",
		},
		"a target in a pid namespace of its own": {
			func(t *testing.T) int { return startNode(t, unix.CLONE_NEWPID) },
			"only the node of process 1 can be rebooted",
		},
		"a target in the runner's own mount namespace": {func(*testing.T) int { return os.Getpid() }, "the runner's own mount namespace"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := startRunner(t, tt.target(t), testLimits(), "EVERYNODE_REBOOT=Now", "EVERYNODE_BOOT_ID="+otherBoot).wait()
			if got.code != 125 || got.outcome.Reason != outcome.ReasonNamespaceError ||
				!strings.Contains(got.outcome.Message, tt.wantSaid) {
				t.Errorf("ended with %d %+v, want %q", got.code, got.outcome, tt.wantSaid)
			}
		})
	}
}

func TestMayReboot(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		host hostThread
		want bool
	}{
		"the runner's own namespaces":             {host: hostThread{}},
		"those of another process":                {host: hostThread{target: 4711}},
		"process 1 in another pid namespace":      {host: hostThread{target: 1, otherPIDs: true}},
		"process 1 in the runner's pid namespace": {host: hostThread{target: 1}, want: true},
	}
	for name, tt := range tests {
		err := tt.host.mayReboot()
		if (err == nil) != tt.want || (err != nil && !errors.Is(err, errNamespaces)) {
			t.Errorf("%s: %v", name, err)
		}
		if tt.want {
			continue
		}
		// These threads do not run, so this would wait forever before it called reboot(2).
		if err := tt.host.restart(); !errors.Is(err, errNamespaces) {
			t.Errorf("%s: reboot(2) was not refused: %v", name, err)
		}
	}
}
