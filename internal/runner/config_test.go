// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/runner/contract"
)

func TestParseConfig(t *testing.T) {
	script := func(text string, interpreter ...string) Script { return Script{Text: text, Interpreter: interpreter} }
	check := script("check", "/bin/sh")
	tests := map[string]struct {
		env     []string
		want    Config // without Environ
		wantErr string
	}{
		"a script alone is run by sh": {env: []string{"EVERYNODE_SCRIPT=x"}, want: Config{Task: script("x", "/bin/sh")}},
		"everything together": {
			env:  []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_CHECK=check", "EVERYNODE_TIMEOUT=90", `EVERYNODE_INTERPRETER=["bash","-eu"]`},
			want: Config{Task: script("x", "bash", "-eu"), Check: &check, Timeout: 90 * time.Second},
		},
		"a #! line": {
			env:  []string{"EVERYNODE_SCRIPT=#!/usr/bin/python3\nx"},
			want: Config{Task: script("#!/usr/bin/python3\nx", "/usr/bin/python3")},
		},
		"the rest of a #! line is one argument": {
			env:  []string{"EVERYNODE_SCRIPT=#! /usr/bin/env  -S bash -eu \n"},
			want: Config{Task: script("#! /usr/bin/env  -S bash -eu \n", "/usr/bin/env", "-S bash -eu")},
		},
		"a #! line without an end": {
			env:  []string{"EVERYNODE_SCRIPT=#!/bin/true"},
			want: Config{Task: script("#!/bin/true", "/bin/true")},
		},
		"files": {
			env: []string{
				"EVERYNODE_SCRIPT=x",
				`EVERYNODE_MOUNTED_FILES={"dir":"/f","folders":[{"name":"a"},{"name":"b","secret":true}]}`,
			},
			want: Config{
				Task:  script("x", "/bin/sh"),
				Files: &contract.Files{Dir: "/f", Folders: []contract.Folder{{Name: "a"}, {Name: "b", Secret: true}}},
			},
		},
		"files that are no JSON object": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_MOUNTED_FILES=/f"},
			wantErr: "reading EVERYNODE_MOUNTED_FILES as a JSON object",
		},
		"an empty #! line": {
			env:     []string{"EVERYNODE_SCRIPT=#! \nx"},
			wantErr: "the #! line of EVERYNODE_SCRIPT names no interpreter",
		},
		"an empty script": {
			env:     []string{"EVERYNODE_SCRIPT="},
			wantErr: "neither EVERYNODE_SCRIPT nor EVERYNODE_COMMAND is set",
		},
		"a command": {
			env:  []string{`EVERYNODE_COMMAND=["printf","%s\\n","a  b","","$x"]`, "EVERYNODE_CHECK=check"},
			want: Config{Task: Script{Command: []string{"printf", `%s\n`, "a  b", "", "$x"}}, Check: &check},
		},
		"a command beside a script": {
			env:     []string{"EVERYNODE_SCRIPT=x", `EVERYNODE_COMMAND=["a"]`},
			wantErr: "both EVERYNODE_SCRIPT and EVERYNODE_COMMAND are set",
		},
		"a command that is not JSON": {
			env:     []string{"EVERYNODE_COMMAND=uname -r"},
			wantErr: "reading EVERYNODE_COMMAND as a JSON array of strings",
		},
		"a command without a program": {
			env:     []string{`EVERYNODE_COMMAND=["","-r"]`},
			wantErr: "EVERYNODE_COMMAND names no program",
		},
		"a command with a NUL": {
			env:     []string{`EVERYNODE_COMMAND=["a","b\u0000"]`},
			wantErr: "EVERYNODE_COMMAND contains a NUL",
		},
		"a command that is too long": {
			env:     []string{`EVERYNODE_COMMAND=["` + strings.Repeat("a", contract.MaxScriptBytes) + `"]`},
			wantErr: "at most 65536 are possible",
		},
		"a reboot with a command": {
			env:     []string{"EVERYNODE_REBOOT=Now", "EVERYNODE_BOOT_ID=a", `EVERYNODE_COMMAND=["a"]`},
			wantErr: "EVERYNODE_REBOOT=Now runs no script",
		},
		"a script of 64 KiB": {
			env:  []string{"EVERYNODE_SCRIPT=" + strings.Repeat("#", contract.MaxScriptBytes)},
			want: Config{Task: script(strings.Repeat("#", contract.MaxScriptBytes), "/bin/sh")},
		},
		"a larger script": {
			env:     []string{"EVERYNODE_SCRIPT=" + strings.Repeat("#", contract.MaxScriptBytes+1)},
			wantErr: "EVERYNODE_SCRIPT has 65537 bytes; at most 65536 are possible",
		},
		"an interpreter that is not JSON": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_INTERPRETER=/bin/bash"},
			wantErr: "reading EVERYNODE_INTERPRETER as a JSON array of strings",
		},
		"an interpreter that is an empty array": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_INTERPRETER=[]"},
			wantErr: "EVERYNODE_INTERPRETER names no interpreter",
		},
		"an interpreter with an empty name": {
			env:     []string{"EVERYNODE_SCRIPT=x", `EVERYNODE_INTERPRETER=["","-e"]`},
			wantErr: "EVERYNODE_INTERPRETER names no interpreter",
		},
		"an interpreter with a NUL": {
			env:     []string{"EVERYNODE_SCRIPT=x", `EVERYNODE_INTERPRETER=["a\u0000"]`},
			wantErr: "EVERYNODE_INTERPRETER contains a NUL",
		},
		"a check that also runs before": {
			env:  []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_CHECK=check", "EVERYNODE_CHECK_BEFORE=true"},
			want: Config{Task: script("x", "/bin/sh"), Check: &check, CheckBefore: true},
		},
		"no check that could run before": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_CHECK_BEFORE=true"},
			wantErr: "there is no check",
		},
		"an unknown value for the check before": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_CHECK=check", "EVERYNODE_CHECK_BEFORE=1"},
			wantErr: `EVERYNODE_CHECK_BEFORE is "1"; give true`,
		},
		"the check's interpreter is checked, too": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_CHECK=y", "EVERYNODE_CHECK_INTERPRETER={}"},
			wantErr: "reading EVERYNODE_CHECK_INTERPRETER",
		},
		"a script before a reboot": {
			env:  []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_REBOOT=Always"},
			want: Config{Task: script("x", "/bin/sh"), Reboot: contract.RebootAlways},
		},
		"a script that may request a reboot": {
			env:  []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_CHECK=check", "EVERYNODE_REBOOT=IfRequested"},
			want: Config{Task: script("x", "/bin/sh"), Check: &check, Reboot: contract.RebootIfRequested},
		},
		"a reboot needs no script": {
			env:  []string{"EVERYNODE_REBOOT=Now", "EVERYNODE_BOOT_ID= a-b\n", "EVERYNODE_TIMEOUT=60"},
			want: Config{Reboot: contract.RebootNow, BootID: "a-b", Timeout: time.Minute},
		},
		"a reboot without a boot ID": {
			env:     []string{"EVERYNODE_REBOOT=Now", "EVERYNODE_BOOT_ID= "},
			wantErr: "EVERYNODE_BOOT_ID is not set: EVERYNODE_REBOOT=Now needs to know which boot it is to end",
		},
		"a reboot with a script": {
			env:     []string{"EVERYNODE_REBOOT=Now", "EVERYNODE_BOOT_ID=a", "EVERYNODE_SCRIPT=x"},
			wantErr: "EVERYNODE_REBOOT=Now runs no script: leave EVERYNODE_SCRIPT, EVERYNODE_COMMAND and EVERYNODE_CHECK out",
		},
		"a reboot with a check": {
			env:     []string{"EVERYNODE_REBOOT=Now", "EVERYNODE_BOOT_ID=a", "EVERYNODE_CHECK=x"},
			wantErr: "EVERYNODE_REBOOT=Now runs no script",
		},
		"a reboot whose timeout is not a number": {
			env:     []string{"EVERYNODE_REBOOT=Now", "EVERYNODE_BOOT_ID=a", "EVERYNODE_TIMEOUT=soon"},
			wantErr: "EVERYNODE_TIMEOUT",
		},
		"an unknown reboot policy": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_REBOOT=now"},
			wantErr: `EVERYNODE_REBOOT is "now"; give Always, IfRequested or Now, or leave it out`,
		},
		"the policy Never must be omitted": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_REBOOT=Never"},
			wantErr: `EVERYNODE_REBOOT is "Never"`,
		},
		"an output that is kept": {
			env:  []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_OUTPUT=Tail", "EVERYNODE_VERSION=v1"},
			want: Config{Task: script("x", "/bin/sh"), ManagerVersion: "v1"},
		},
		"an output that is not kept": {
			env:  []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_OUTPUT=None"},
			want: Config{Task: script("x", "/bin/sh"), NoOutput: true},
		},
		"an output kept in an unknown way": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_OUTPUT=none"},
			wantErr: `EVERYNODE_OUTPUT is "none"; give Tail or None, or leave it out`,
		},
		"names of secrets that are not JSON": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_MASK=A,B"},
			wantErr: "reading EVERYNODE_MASK as a JSON array of strings",
		},
		"a time limit of zero": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_TIMEOUT=0"},
			wantErr: `EVERYNODE_TIMEOUT is "0"; give whole seconds, at least 1`,
		},
		"a time limit that overflows": {
			env:     []string{"EVERYNODE_SCRIPT=x", "EVERYNODE_TIMEOUT=9999999999"},
			wantErr: "EVERYNODE_TIMEOUT",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseConfig(tt.env)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error %v, want %q in it", err, tt.wantErr)
				}
				return
			}
			tt.want.Environ = []string{"HOME=/root", "PATH=" + defaultPath, "USER=root", "LOGNAME=root"}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("error %v, config (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestParseConfigKeepsPathAndHome(t *testing.T) {
	got, err := ParseConfig([]string{"EVERYNODE_SCRIPT=x", "HOME=/home/me", "A=1=2", "PATH=/opt/bin", "EVERYNODE_RESULTS=/forged"})
	if diff := cmp.Diff(
		[]string{"HOME=/home/me", "A=1=2", "PATH=/opt/bin", "USER=root", "LOGNAME=root"},
		got.Environ,
	); diff != "" ||
		err != nil {
		t.Errorf("error %v, environment (-want +got):\n%s", err, diff)
	}
}

func TestParseConfigReadsSecrets(t *testing.T) {
	got, err := ParseConfig([]string{"EVERYNODE_SCRIPT=x", "A=a=1", "B=b", `EVERYNODE_MASK=["B","A","MISSING"]`})
	if diff := cmp.Diff([]string{"b", "a=1", ""}, got.Secrets); diff != "" || err != nil {
		t.Errorf("error %v, secrets (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(
		[]string{"A=a=1", "B=b", "HOME=/root", "PATH=" + defaultPath, "USER=root", "LOGNAME=root"},
		got.Environ,
	); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}
