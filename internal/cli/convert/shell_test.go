// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestNodeChangesAreRemovedFromScripts(t *testing.T) {
	label := func(key, value string) []nodeChange { return []nodeChange{{kind: "label", key: key, value: value}} }
	tests := map[string]struct {
		script      string
		want        string
		wantChanges []nodeChange
	}{
		"a line of its own": {"work\nkubectl label node $N a/b=c\nmore\n", "work\nmore\n", label("a/b", "c")},
		"after the work in the same line": {
			"work && kubectl label nodes \"$N\" a/b=\"c\" --overwrite\n", "work\n", label("a/b", "c")},
		"between other commands":         {"work; kubectl label no $N a=b && echo done\n", "work; echo done\n", label("a", "b")},
		"with a fallback":                {"kubectl label node $N a=b || echo failed; work\n", "work\n", label("a", "b")},
		"over several lines":             {"kubectl label node $N \\\n  a=b \\\n  --overwrite\nwork\n", "work\n", label("a", "b")},
		"in a chain over several lines":  {"a && \\\n  kubectl label node $N a=b && \\\n  c\n", "a && c\n", label("a", "b")},
		"at the end of a chain":          {"a && \\\n  kubectl label node $N a=b\n", "a\n", label("a", "b")},
		"alone in a block":               {"if work; then\n  kubectl label node $N a=b\nfi\n", "if work; then\n  :\nfi\n", label("a", "b")},
		"after then":                     {"if work; then kubectl label node $N a=b; fi\n", "if work; then true; fi\n", label("a", "b")},
		"repeated until it succeeds":     {"until kubectl label node $N a=b; do sleep 1; done\n", "until true; do sleep 1; done\n", label("a", "b")},
		"with a flag that has a value":   {"kubectl --kubeconfig /k label node/$N a=b\n", "", label("a", "b")},
		"with a value from a program":    {"kubectl label node $N a=$(uname -r | cut -d- -f1) | cat\n", "", label("a", "$(uname -r | cut -d- -f1)")},
		"a label that is removed":        {"kubectl label node $N a/b-\n", "", []nodeChange{{kind: "label", key: "a/b", remove: true}}},
		"a taint that is removed":        {"kubectl taint nodes $N a/b:NoSchedule-\n", "", []nodeChange{{kind: "taint", key: "a/b", remove: true}}},
		"a taint with a value":           {"kubectl taint nodes $N a/b=c:NoSchedule\n", "", []nodeChange{{kind: "taint", key: "a/b", value: "c:NoSchedule"}}},
		"an annotation":                  {"kubectl annotate node $N a/b='x y'\n", "", []nodeChange{{kind: "annotate", key: "a/b", value: "x y"}}},
		"not in a here-document":         {"cat <<EOF\nkubectl label node $N a=b\nEOF\n", "cat <<EOF\nkubectl label node $N a=b\nEOF\n", nil},
		"not in a comment":               {"# kubectl label node $N a=b\nwork # it's fine\n", "# kubectl label node $N a=b\nwork # it's fine\n", nil},
		"not for pods":                   {"kubectl label pod p a=b\n", "kubectl label pod p a=b\n", nil},
		"no other command":               {"kubectl get node $N -o yaml\n", "kubectl get node $N -o yaml\n", nil},
		"with an apostrophe in a string": {"echo \"it's done\"; kubectl label node $N a=b\n", "echo \"it's done\"\n", label("a", "b")},
		"a patch with escaped quotes": {
			"T=$(cat /var/run/secrets/kubernetes.io/serviceaccount/token)\nwork\ncurl -X PATCH -d \"{\\\"metadata\\\":{\\\"labels\\\":{\\\"a/b\\\":\\\"c\\\"}}}\" https://x/api/v1/nodes/$N\n",
			"work\n", label("a/b", "c")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, changes := dropNodeChanges(tt.script)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantChanges, changes, cmp.AllowUnexported(nodeChange{})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestLongScriptsAreSplitInTime has a quote that is never closed, which makes one command of all lines.
func TestLongScriptsAreSplitInTime(t *testing.T) {
	if lines := logicalLines("echo '" + strings.Repeat("x\n", 1<<20)); len(lines) != 1 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestWaitsAtTheEndAreRemoved(t *testing.T) {
	tests := map[string]struct {
		script, want string
		wantFound    bool
	}{
		"sleep infinity":              {"work\nsleep infinity\n", "work\n", true},
		"exec in the same line":       {"work && exec sleep infinity", "work\n", true},
		"a long sleep":                {"work; sleep 1d", "work\n", true},
		"a short sleep is work":       {"work; sleep 5", "work; sleep 5", false},
		"tail":                        {"work\nexec tail -f /dev/null\n# end\n", "work\n", true},
		"a loop in one line":          {"work; while true; do sleep 3600; done", "work\n", true},
		"a loop over lines":           {"work\nwhile :\ndo\n  sleep 60\ndone\n", "work\n", true},
		"in the background":           {"trap : TERM INT; work\nsleep infinity & wait\n", "trap : TERM INT; work\n", true},
		"only a wait":                 {"sleep infinity", "", true},
		"a loop with work stays":      {"while true; do work; sleep 60; done", "while true; do work; sleep 60; done", false},
		"a wait in the middle stays":  {"sleep infinity\nwork\n", "sleep infinity\nwork\n", false},
		"a program named like a wait": {"work --sleep infinity", "work --sleep infinity", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := dropSleep(tt.script)
			if got != tt.want || found != tt.wantFound {
				t.Errorf("%q, %t", got, found)
			}
		})
	}
}

func TestLoopsBecomeSchedules(t *testing.T) {
	tests := map[string]struct {
		script, want string
		wantEvery    time.Duration
	}{
		"in one line":         {"while true; do work; sleep 5m; done", "work\n", 5 * time.Minute},
		"after a setup":       {"setup\nwhile :; do\n  work\n  if x; then\n    more\n  fi\n  sleep 60\ndone\n", "setup\nwork\nif x; then\n  more\nfi\n", time.Minute},
		"without a sleep":     {"while true; do nc -l 80; done", "while true; do nc -l 80; done", 0},
		"with another ending": {"while true; do work; sleep 60; done; more", "while true; do work; sleep 60; done; more", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, every, _ := dropLoop(tt.script); got != tt.want || every != tt.wantEvery {
				t.Errorf("%q, %s", got, every)
			}
		})
	}
}

func TestProgramsOfContainers(t *testing.T) {
	tests := map[string]struct {
		command, args []string
		want          program
	}{
		"a shell":                {[]string{"/bin/sh", "-c"}, []string{"work"}, program{script: "work", shell: "sh", options: []string{}}},
		"a shell with options":   {[]string{"bash", "-euxo", "pipefail", "-c", "work"}, nil, program{script: "work", shell: "bash", options: []string{"eux", "o pipefail"}}},
		"a shell in args":        {nil, []string{"sh", "-c", "work"}, program{script: "work", shell: "sh", options: []string{}}},
		"nsenter with a shell":   {[]string{"nsenter", "-t", "1", "-m", "--", "bash", "-c", "work"}, nil, program{script: "work", shell: "bash", options: []string{}, onNode: true}},
		"nsenter in short":       {[]string{"nsenter", "-mt", "1", "work"}, nil, program{argv: []string{"work"}, onNode: true}},
		"nsenter with all":       {[]string{"/usr/bin/nsenter", "--target=1", "--all", "work", "-v"}, nil, program{argv: []string{"work", "-v"}, onNode: true}},
		"nsenter without mounts": {[]string{"nsenter", "-t", "1", "-n", "--", "work"}, nil, program{argv: []string{"nsenter", "-t", "1", "-n", "--", "work"}}},
		"nsenter of another process": {[]string{"nsenter", "-t", "7", "-m", "work"}, nil,
			program{argv: []string{"nsenter", "-t", "7", "-m", "work"}}},
		"nsenter in a script":     {[]string{"sh", "-c", "nsenter -t 1 -m -u -- work; nsenter --mount=/proc/1/ns/mnt -- more"}, nil, program{script: "work; more", shell: "sh", options: []string{}, onNode: true}},
		"a shell in a script":     {[]string{"sh", "-ec", "nsenter -t 1 -m -- sh -c 'a && b'"}, nil, program{script: "a && b", shell: "sh", options: []string{"e"}, onNode: true}},
		"chroot":                  {[]string{"chroot", "/host", "work"}, nil, program{argv: []string{"work"}, onNode: true}},
		"chroot to another place": {[]string{"chroot", "/other", "work"}, nil, program{argv: []string{"chroot", "/other", "work"}}},
		"chroot in a script":      {[]string{"sh", "-c", "chroot /host work && chroot /host <<EOF\nmore\nEOF"}, nil, program{script: "work && sh <<EOF\nmore\nEOF", shell: "sh", options: []string{}, onNode: true}},
		"a file":                  {[]string{"/scripts/run.sh"}, nil, program{file: "/scripts/run.sh", argv: []string{"/scripts/run.sh"}}},
		"a shell with a file":     {[]string{"bash", "/scripts/run.sh"}, nil, program{file: "/scripts/run.sh", shell: "bash", options: []string{}}},
		"a program":               {[]string{"/app", "-v"}, nil, program{argv: []string{"/app", "-v"}}},
		"the image alone":         {nil, nil, program{}},
		"arguments of the image":  {nil, []string{"-v"}, program{argv: []string{"-v"}}},
		"positional parameters":   {[]string{"sh", "-c", "echo $1", "x", "y"}, nil, program{argv: []string{"sh", "-c", "echo $1", "x", "y"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := programOf(&corev1.Container{Command: tt.command, Args: tt.args}, []string{"/host"})
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(program{})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
