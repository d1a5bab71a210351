// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

func TestRun(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		env        []string
		wantCode   int
		wantReason string
		wantOutput string // a part of stdout
		wantSaid   string // a part of the message
	}{
		"a script that succeeds": {
			env:        []string{"EVERYNODE_SCRIPT=echo done"},
			wantOutput: "done\n",
			wantSaid:   "done",
		},
		"a script that fails keeps its exit code": {
			env:        []string{"EVERYNODE_SCRIPT=echo no disk >&2; exit 3"},
			wantCode:   3,
			wantReason: outcome.ReasonTaskFailed,
			wantSaid:   "no disk",
		},
		"the exit code of the last command counts": {
			env:        []string{"EVERYNODE_SCRIPT=false\n"},
			wantCode:   1,
			wantReason: outcome.ReasonTaskFailed,
		},
		"a script killed by a signal names it": {
			env:        []string{"EVERYNODE_SCRIPT=kill -SEGV $$"},
			wantCode:   139,
			wantReason: outcome.ReasonSignaled,
			wantSaid:   "the script was killed by SIGSEGV",
		},
		"SIGPIPE is not ignored in scripts": {
			env:        []string{"EVERYNODE_SCRIPT=kill -PIPE $$"},
			wantCode:   141,
			wantReason: outcome.ReasonSignaled,
			wantSaid:   "SIGPIPE",
		},
		"standard input is empty": {
			env:        []string{"EVERYNODE_SCRIPT=cat; echo end"},
			wantOutput: "end\n",
		},
		"it starts in the root directory": {env: []string{"EVERYNODE_SCRIPT=pwd"}, wantOutput: "/\n"},
		"it leads a session of its own": {
			env:        []string{"EVERYNODE_SCRIPT=set -- $(cat /proc/$$/stat); [ $5 = $$ ] && [ $6 = $$ ] && echo leader"},
			wantOutput: "leader\n",
		},
		"it inherits no descriptors but the standard ones": {
			env:        []string{"EVERYNODE_SCRIPT=readlink /proc/self/fd/* | grep memfd: | sort -u"},
			wantOutput: "",
		},
		"it can be read again and not be changed": {
			env:        []string{"EVERYNODE_SCRIPT=grep -c again $0; (echo x >$0) 2>/dev/null || echo sealed"},
			wantOutput: "1\nsealed\n",
		},
		"an interpreter with arguments": {
			env:        []string{"EVERYNODE_SCRIPT=false; echo on", `EVERYNODE_INTERPRETER=["/bin/sh","-e"]`},
			wantCode:   1,
			wantReason: outcome.ReasonTaskFailed,
		},
		"a bare interpreter is looked up in the PATH": {
			env:        []string{"EVERYNODE_SCRIPT=echo found", `EVERYNODE_INTERPRETER=["sh"]`},
			wantOutput: "found\n",
		},
		"the #! line counts": {
			env:        []string{"EVERYNODE_SCRIPT=#! /bin/sh -e\nfalse; echo on"},
			wantCode:   1,
			wantReason: outcome.ReasonTaskFailed,
		},
		"the given interpreter beats the #! line": {
			env:        []string{"EVERYNODE_SCRIPT=#!/no/such\necho ran", `EVERYNODE_INTERPRETER=["sh"]`},
			wantOutput: "ran\n",
		},
		"a missing interpreter is named": {
			env:        []string{"EVERYNODE_SCRIPT=#!/no/such/shell\n"},
			wantCode:   127,
			wantReason: outcome.ReasonInterpreterNotFound,
			wantSaid:   `interpreter "/no/such/shell" not found on the node`,
		},
		"a missing bare interpreter is named": {
			env:        []string{"EVERYNODE_SCRIPT=x", `EVERYNODE_INTERPRETER=["nosuchshell"]`, "PATH=/bin"},
			wantCode:   127,
			wantReason: outcome.ReasonInterpreterNotFound,
			wantSaid:   `interpreter "nosuchshell" not found on the node, looked in PATH /bin`,
		},
		"a #! line after an empty line counts": {
			env:        []string{"EVERYNODE_SCRIPT=\n#!/usr/bin/env -S cat --\n[[ x ]]\n"},
			wantOutput: "\n#!/usr/bin/env -S cat --\n[[ x ]]\n",
		},
		"a #! line after comments counts": {
			env:        []string{"EVERYNODE_SCRIPT=# License\n\n# Us\n#!/bin/sh -e\nfalse; echo on"},
			wantCode:   1,
			wantReason: outcome.ReasonTaskFailed,
		},
		"a #! line after a comment counts in a check": {
			env:        []string{"EVERYNODE_SCRIPT=:", "EVERYNODE_CHECK=# License\n#!/no/such\n"},
			wantCode:   127,
			wantReason: outcome.ReasonInterpreterNotFound,
			wantSaid:   "/no/such",
		},
		"a #! line after a command does not count": {
			env:        []string{"EVERYNODE_SCRIPT=cat <<END\n#!/no/such\nEND\n"},
			wantOutput: "#!/no/such\n",
		},
		"a byte order mark is named": {
			env:        []string{"EVERYNODE_SCRIPT=\ufeff#!/bin/sh\ntrue\n"},
			wantCode:   125,
			wantReason: outcome.ReasonBadConfiguration,
			wantSaid:   "EVERYNODE_SCRIPT has a byte order mark (BOM) at the beginning of line 1",
		},
		"Windows line endings in the #! line are named": {
			env:        []string{"EVERYNODE_SCRIPT=#!/bin/sh\r\ntrue\r\n"},
			wantCode:   125,
			wantReason: outcome.ReasonBadConfiguration,
			wantSaid:   "EVERYNODE_SCRIPT has Windows line endings (CRLF), the first in line 1",
		},
		"Windows line endings in a part are named": {
			env:        []string{"EVERYNODE_SCRIPT=set -e\ntouch /no/such\r\n"},
			wantCode:   125,
			wantReason: outcome.ReasonBadConfiguration,
			wantSaid:   "EVERYNODE_SCRIPT has Windows line endings (CRLF), the first in line 2",
		},
		"Windows line endings are named before the task runs": {
			env:        []string{"EVERYNODE_SCRIPT=echo ran", "EVERYNODE_CHECK=true\r\n"},
			wantCode:   125,
			wantReason: outcome.ReasonBadConfiguration,
			wantSaid:   "EVERYNODE_CHECK has Windows line endings (CRLF), the first in line 1",
		},
		"an interpreter that is not a program is named": {
			env:        []string{"EVERYNODE_SCRIPT=#!/etc/passwd\n"},
			wantCode:   126,
			wantReason: outcome.ReasonInterpreterNotFound,
			wantSaid:   `"/etc/passwd"`,
		},
		"a command gets its arguments as they are": {
			env:        []string{`EVERYNODE_COMMAND=["printf","<%s>","a  b","","$HOME","*","'\"; echo no"]`},
			wantOutput: `<a  b><><$HOME><*><'"; echo no>`,
			wantSaid:   `<a  b><><$HOME>`,
		},
		"a command knows the name that it was called by": {
			env:        []string{`EVERYNODE_COMMAND=["sh","-c","echo $0"]`},
			wantOutput: "sh\n",
		},
		"a command that fails keeps its exit code": {
			env:        []string{`EVERYNODE_COMMAND=["sh","-c","echo no disk; exit 3"]`},
			wantCode:   3,
			wantReason: outcome.ReasonTaskFailed,
			wantSaid:   "no disk",
		},
		"a command finds the file for its results": {
			env:        []string{`EVERYNODE_COMMAND=["sh","-c","echo a=1 >> $EVERYNODE_RESULTS; cat $EVERYNODE_RESULTS"]`},
			wantOutput: "a=1\n",
		},
		"a command has its check": {
			env:        []string{`EVERYNODE_COMMAND=["true"]`, "EVERYNODE_CHECK=echo wrong; exit 9"},
			wantCode:   9,
			wantReason: outcome.ReasonCheckFailed,
			wantSaid:   "wrong",
		},
		"a missing command is named": {
			env:        []string{`EVERYNODE_COMMAND=["no-such-command"]`, "PATH=/bin"},
			wantCode:   127,
			wantReason: outcome.ReasonCommandNotFound,
			wantSaid:   `command "no-such-command" not found on the node, looked in PATH /bin`,
		},
		"a missing path of a command is named": {
			env:        []string{`EVERYNODE_COMMAND=["/no/such"]`},
			wantCode:   127,
			wantReason: outcome.ReasonCommandNotFound,
			wantSaid:   `command "/no/such" not found on the node`,
		},
		"a command that is not a program is named": {
			env:        []string{`EVERYNODE_COMMAND=["/etc/passwd"]`},
			wantCode:   126,
			wantReason: outcome.ReasonCommandNotFound,
			wantSaid:   `"/etc/passwd"`,
		},
		"no script is an invalid configuration": {
			wantCode:   125,
			wantReason: outcome.ReasonBadConfiguration,
			wantSaid:   "neither EVERYNODE_SCRIPT nor EVERYNODE_COMMAND is set",
		},
		"a check that succeeds": {
			env:        []string{"EVERYNODE_SCRIPT=echo one", "EVERYNODE_CHECK=echo two"},
			wantOutput: "one\ntwo\n",
			wantSaid:   "one\ntwo",
		},
		"a check that fails fails the attempt": {
			env:        []string{"EVERYNODE_SCRIPT=:", "EVERYNODE_CHECK=echo wrong; exit 9"},
			wantCode:   9,
			wantReason: outcome.ReasonCheckFailed,
			wantSaid:   "wrong",
		},
		"a check that is killed fails the attempt": {
			env:        []string{"EVERYNODE_SCRIPT=:", "EVERYNODE_CHECK=kill -KILL $$"},
			wantCode:   137,
			wantReason: outcome.ReasonCheckFailed,
			wantSaid:   "the check was killed by SIGKILL",
		},
		"a check has an interpreter of its own": {
			env:        []string{"EVERYNODE_SCRIPT=:", "EVERYNODE_CHECK=false; :", `EVERYNODE_CHECK_INTERPRETER=["sh","-e"]`},
			wantCode:   1,
			wantReason: outcome.ReasonCheckFailed,
		},
		"a check whose interpreter is missing says so": {
			env:        []string{"EVERYNODE_SCRIPT=:", "EVERYNODE_CHECK=#!/no/such\n"},
			wantCode:   127,
			wantReason: outcome.ReasonInterpreterNotFound,
			wantSaid:   "/no/such",
		},
		"there is no check of a task that failed": {
			env:        []string{"EVERYNODE_SCRIPT=exit 4", "EVERYNODE_CHECK=exit 5"},
			wantCode:   4,
			wantReason: outcome.ReasonTaskFailed,
		},
		"a check after a reboot is not run before it": {
			env:        []string{"EVERYNODE_REBOOT=Always", "EVERYNODE_SCRIPT=echo one", "EVERYNODE_CHECK=exit 9"},
			wantOutput: "one\n",
			wantSaid:   "one\nthe check runs after the reboot",
		},
		"a check waits for a requested reboot": {
			env: []string{
				"EVERYNODE_REBOOT=IfRequested",
				"EVERYNODE_SCRIPT=echo reboot=true >> $EVERYNODE_RESULTS",
				"EVERYNODE_CHECK=exit 9",
			},
			wantSaid: "the check runs after the reboot",
		},
		"a check waits for a reboot that is requested in JSON": {
			env: []string{
				"EVERYNODE_REBOOT=IfRequested",
				`EVERYNODE_SCRIPT=echo '{"reboot":true}' > $EVERYNODE_RESULTS`,
				"EVERYNODE_CHECK=exit 9",
			},
			wantSaid: "the check runs after the reboot",
		},
		"a check does not wait for a reboot that is not requested": {
			env: []string{
				"EVERYNODE_REBOOT=IfRequested",
				"EVERYNODE_SCRIPT=echo reboot=false >> $EVERYNODE_RESULTS",
				"EVERYNODE_CHECK=exit 9",
			},
			wantCode:   9,
			wantReason: outcome.ReasonCheckFailed,
		},
		"a check does not wait for a reboot that is not allowed": {
			env:        []string{"EVERYNODE_SCRIPT=echo reboot=true >> $EVERYNODE_RESULTS", "EVERYNODE_CHECK=exit 9"},
			wantCode:   9,
			wantReason: outcome.ReasonCheckFailed,
		},
		"a failed task requests no reboot": {
			env: []string{
				"EVERYNODE_REBOOT=IfRequested",
				"EVERYNODE_SCRIPT=echo reboot=true >> $EVERYNODE_RESULTS; exit 4",
				"EVERYNODE_CHECK=exit 9",
			},
			wantCode:   4,
			wantReason: outcome.ReasonTaskFailed,
		},
		"an unknown reboot policy is an invalid configuration": {
			env:        []string{"EVERYNODE_REBOOT=Sometimes", "EVERYNODE_SCRIPT=:"},
			wantCode:   125,
			wantReason: outcome.ReasonBadConfiguration,
			wantSaid:   `EVERYNODE_REBOOT is "Sometimes"`,
		},
		"a time limit that is not reached": {
			env:        []string{"EVERYNODE_SCRIPT=echo in time", "EVERYNODE_TIMEOUT=60"},
			wantOutput: "in time\n",
		},
		"the time limit stops a script": {
			env:        []string{"EVERYNODE_SCRIPT=echo begun; sleep 60", "EVERYNODE_TIMEOUT=1"},
			wantCode:   124,
			wantReason: outcome.ReasonTimedOut,
			wantSaid:   "begun\nthe time limit of 1s passed while the script ran",
		},
		"the time limit lets a script clean up, not succeed": {
			env:        []string{"EVERYNODE_SCRIPT=trap 'echo cleaned; exit 0' TERM; sleep 60 & wait", "EVERYNODE_TIMEOUT=1"},
			wantCode:   124,
			wantReason: outcome.ReasonTimedOut,
			wantOutput: "cleaned\n",
		},
		"the time limit stops a script that ignores it": {
			env:        []string{"EVERYNODE_SCRIPT=trap '' TERM; while :; do sleep 60; done", "EVERYNODE_TIMEOUT=1"},
			wantCode:   124,
			wantReason: outcome.ReasonTimedOut,
		},
		"the time limit includes script and check": {
			env:        []string{"EVERYNODE_SCRIPT=sleep 0.6", "EVERYNODE_CHECK=sleep 60", "EVERYNODE_TIMEOUT=1"},
			wantCode:   124,
			wantReason: outcome.ReasonTimedOut,
			wantSaid:   "while the check ran",
		},
		"a time limit that is not a number is an invalid configuration": {
			env:        []string{"EVERYNODE_SCRIPT=:", "EVERYNODE_TIMEOUT=5m"},
			wantCode:   125,
			wantReason: outcome.ReasonBadConfiguration,
			wantSaid:   `EVERYNODE_TIMEOUT is "5m"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runToEnd(t, tt.env...)
			if got.code != tt.wantCode || got.outcome.Reason != tt.wantReason {
				t.Errorf(
					"ended with %d %q, want %d %q; message: %s",
					got.code,
					got.outcome.Reason,
					tt.wantCode,
					tt.wantReason,
					got.outcome.Message,
				)
			}
			if !strings.Contains(got.stdout, tt.wantOutput) || (tt.wantOutput == "" && strings.Contains(got.stdout, "memfd:")) {
				t.Errorf("stdout %q, want %q in it", got.stdout, tt.wantOutput)
			}
			if !strings.Contains(got.outcome.Message, tt.wantSaid) {
				t.Errorf("message %q, want %q in it", got.outcome.Message, tt.wantSaid)
			}
		})
	}
}

func TestRunInTheNodesNamespaces(t *testing.T) {
	t.Parallel()
	node := startNode(t, 0)
	const script = `
cat /mnt/marker
uname -n
readlink /proc/self/ns/net /proc/self/ns/ipc
touch /root/x 2>/dev/null || echo read-only
echo "host=$(uname -n)" >> "$EVERYNODE_RESULTS"
sh -c 'echo child=1 >> "$EVERYNODE_RESULTS"'
touch /tmp/made-by-the-script`
	got := startRunner(t, node, testLimits(), "EVERYNODE_SCRIPT="+script).wait()
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.code != 0 || len(lines) != 5 {
		t.Fatalf("ended with %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
	}
	want := []string{"this is the node", "some-node", nodeNamespace(t, node, "net"), nodeNamespace(t, node, "ipc"), "read-only"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("what the script saw (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"host": "some-node", "child": "1"}, got.outcome.Results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	// The node's only writable places were empty before; the runner has added nothing.
	after := startRunner(t, node, testLimits(), "EVERYNODE_SCRIPT=ls -A /tmp /run").wait()
	if diff := cmp.Diff("/run:\n\n/tmp:\nmade-by-the-script\n", after.stdout); diff != "" {
		t.Errorf("files on the node (-want +got):\n%s", diff)
	}
}

func nodeNamespace(t *testing.T, pid int, kind string) string {
	t.Helper()
	out, err := exec.Command("readlink", fmt.Sprintf("/proc/%d/ns/%s", pid, kind)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestRunInAnotherPidNamespace(t *testing.T) {
	t.Parallel()
	node := startNode(t, unix.CLONE_NEWPID)
	got := startRunner(
		t,
		node,
		testLimits(),
		`EVERYNODE_SCRIPT=cat /proc/1/cmdline | tr '\0' ' '; echo a=1 >> "$EVERYNODE_RESULTS"; sh -c 'echo b=2 >> "$EVERYNODE_RESULTS"'`,
	).wait()
	if got.code != 0 || !strings.Contains(got.stdout, "as-node") {
		t.Errorf("ended with %d, process 1 is %q, want the node's; stderr %q", got.code, got.stdout, got.stderr)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, got.outcome.Results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestRunRefusesItsOwnMountNamespace(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]int{"its own": unix.Getpid(), "none": 1 << 30} {
		got := startRunner(t, target, testLimits(), "EVERYNODE_SCRIPT=echo ran").wait()
		if got.code != 125 || got.outcome.Reason != outcome.ReasonNamespaceError || got.stdout != "" {
			t.Errorf("%s: ended with %d %q, stdout %q", name, got.code, got.outcome.Reason, got.stdout)
		}
		if !strings.Contains(got.outcome.Message, "securityContext.privileged: true and hostPID: true") {
			t.Errorf("%s: message %q does not name the remedy", name, got.outcome.Message)
		}
	}
}

func TestInterpreters(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{
		"python3": "import os, subprocess, sys\nopen(os.environ['EVERYNODE_RESULTS'], 'a').write('a=1\\n')\n" +
			"subprocess.run(['sh', '-c', 'echo b=2 >> \"$EVERYNODE_RESULTS\"'], close_fds=True, check=True)\n",
		"perl": "open(my $r, '>>', $ENV{EVERYNODE_RESULTS}) or die $!; print $r \"a=1\\n\"; close $r; system('echo b=2 >> $EVERYNODE_RESULTS') == 0 or die;\n",
		"bash": "set -euo pipefail\nmapfile -t lines <<<a=1\nprintf '%s\\n' \"${lines[@]}\" b=2 >> \"$EVERYNODE_RESULTS\"\n",
		"dash": "echo a=1 >> $EVERYNODE_RESULTS\nsetsid sh -c 'echo b=2 >> $EVERYNODE_RESULTS'\n",
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("needs %s: %v", name, err)
			}
			got := runToEnd(t, "HOME=/root", "EVERYNODE_SCRIPT=#!/usr/bin/env -S "+name+"\n"+script)
			if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, got.outcome.Results); diff != "" || got.code != 0 {
				t.Errorf("ended with %d, stderr %q, results (-want +got):\n%s", got.code, got.stderr, diff)
			}
		})
	}
}

func TestEnvironmentOfTheScript(t *testing.T) {
	t.Parallel()
	r := prepareRunner(t, 0, testLimits())
	r.cmd.Env = []string{
		"HOME=/",
		"EVERYNODE_NODE_NAME=" + r.node,
		"EVERYNODE_ATTEMPT=2",
		"PLAIN=a b",
		"EVERYNODE_RESULTS=/etc/shadow",
		"EVERYNODE_SCRIPT=env",
		"EVERYNODE_CHECK=:",
		`EVERYNODE_INTERPRETER=["/bin/sh"]`,
		`EVERYNODE_CHECK_INTERPRETER=["sh"]`,
		"EVERYNODE_TIMEOUT=60",
		"EVERYNODE_REBOOT=IfRequested",
		"EVERYNODE_BOOT_ID=a",
	}
	r.start()
	got := r.wait()
	env := map[string]string{}
	for line := range strings.Lines(got.stdout) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	for _, own := range []string{"_", "PWD", "SHLVL", "OLDPWD"} { // the shell's
		delete(env, own)
	}
	if !strings.HasPrefix(env[contract.EnvResults], "/proc/") {
		t.Errorf("%s is %q", contract.EnvResults, env[contract.EnvResults])
	}
	delete(env, contract.EnvResults)
	want := map[string]string{
		"HOME":                "/root",
		"PATH":                defaultPath,
		"USER":                "root",
		"LOGNAME":             "root",
		"SHELL":               rootShell("/etc/passwd"),
		"EVERYNODE_NODE_NAME": r.node,
		"EVERYNODE_ATTEMPT":   "2",
		"PLAIN":               "a b",
	}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestTheEnvironmentOfTheNodeJobBeatsThatOfALogin(t *testing.T) {
	t.Parallel()
	got := runToEnd(
		t,
		"HOME=/home/app",
		"USER=app",
		"LOGNAME=app2",
		"SHELL=/bin/other",
		`EVERYNODE_COMMAND=["sh","-c","echo $HOME $USER $LOGNAME $SHELL"]`,
	)
	if want := "/home/app app app2 /bin/other\n"; got.stdout != want {
		t.Errorf("stdout %q, want %q", got.stdout, want)
	}
}

func TestRootShell(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ passwd, want string }{
		"a shell":                     {"daemon:x:1:1::/:/bin/false\nroot:x:0:0:root:/root:/bin/bash\n", "/bin/bash"},
		"the first entry of user 0":   {"root:x:0:0:root:/root:/bin/zsh\ntoor:x:0:0::/root:/bin/csh\n", "/bin/zsh"},
		"another name of user 0":      {"admin:x:0:0:root:/root:/bin/ash", "/bin/ash"},
		"no shell":                    {"root:x:0:0:root:/root:\n", "/bin/sh"},
		"a shell that allows nothing": {"root:x:0:0:root:/root:/usr/sbin/nologin\n", "/bin/sh"},
		"a shell that only fails":     {"root:x:0:0:root:/root:/bin/false\n", "/bin/sh"},
		"a shell that is no path":     {"root:x:0:0:root:/root:bash\n", "/bin/sh"},
		"no entry":                    {"daemon:x:1:1::/:/bin/bash\n+::::::\n", "/bin/sh"},
		"a line of another format":    {"root:x:0\n\x00\x00\nroot:x:0:0:root:/root:/bin/bash\n", "/bin/bash"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "passwd")
			if err := os.WriteFile(path, []byte(tt.passwd), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := rootShell(path); got != tt.want {
				t.Errorf("shell %q, want %q", got, tt.want)
			}
		})
	}
	if got := rootShell(filepath.Join(t.TempDir(), "none")); got != "/bin/sh" {
		t.Errorf("without a file: shell %q, want /bin/sh", got)
	}
}
