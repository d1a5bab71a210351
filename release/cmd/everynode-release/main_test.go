// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/release"
)

// inGit runs git without the settings of the user.
func inGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(
		t.Context(),
		"git",
		append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-07-01T12:30:15Z", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestDescribe(t *testing.T) {
	tests := map[string]struct {
		prepare     func(t *testing.T, dir string)
		uncommitted bool
		want        string
	}{
		"a commit without a tag": {func(*testing.T, string) {}, false, ""},
		"the commit of the tag":  {func(t *testing.T, dir string) { inGit(t, dir, "tag", "v0.1.0") }, false, ""},
		"the commit of the annotated tag": {
			func(t *testing.T, dir string) { inGit(t, dir, "tag", "-a", "-m", "v0.1.0", "v0.1.0") }, false, "",
		},
		"another commit than that of the tag": {
			func(t *testing.T, dir string) {
				inGit(t, dir, "tag", "v0.1.0")
				inGit(t, dir, "commit", "--allow-empty", "-qm", "second")
			}, false, "check out the tag, or choose another version",
		},
		"a file that is not committed": {
			func(t *testing.T, dir string) { write(t, dir) },
			false,
			"the checkout has changes that are not committed: commit or remove them\n?? file",
		},
		"a trial with a file that is not committed": {func(t *testing.T, dir string) { write(t, dir) }, true, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inGit(t, dir, "init", "-q")
			inGit(t, dir, "commit", "--allow-empty", "-qm", "first")
			tt.prepare(t, dir)
			o := release.Options{Root: dir, Version: "v0.1.0"}
			err := describe(t.Context(), &o, tt.uncommitted)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if err == nil && (len(o.Revision) != 40 || !o.Created.Equal(time.Date(2026, 7, 1, 12, 30, 15, 0, time.UTC))) {
				t.Errorf("revision %q, created at %s", o.Revision, o.Created)
			}
		})
	}
}

func write(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCommandLinesThatAreRefused(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"no command":           {nil, "give a command: build, publish or install"},
		"an unknown command":   {[]string{"ship"}, "give a command: build, publish or install"},
		"no version":           {[]string{"build"}, "no version is given: make release VERSION=v0.1.0"},
		"an argument too much": {[]string{"publish", "now"}, `unexpected argument "now"`},
		"an unknown platform":  {[]string{"build", "-platforms", "linux/arm"}, `the platform "linux/arm" is not one of`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := execute(t.Context(), tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
