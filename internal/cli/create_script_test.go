// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/cli/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func TestCreateScriptRefusesWhatAnInterpreterWouldMisread(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"unix.sh": "#!/bin/sh\ntrue\n", "windows.sh": "#!/bin/sh\r\ntrue\r\n", "bom.sh": "\ufeff#!/bin/sh\ntrue\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"Unix line endings":                   {[]string{"-f", "unix.sh"}, ""},
		"Windows line endings":                {[]string{"-f", "windows.sh"}, "windows.sh has Windows line endings (CRLF), the first in line 1"},
		"a byte order mark":                   {[]string{"-f", "bom.sh"}, "bom.sh has a byte order mark (BOM)"},
		"a check with Windows line endings":   {[]string{"-f", "unix.sh", "--check", "windows.sh"}, "windows.sh has Windows line endings (CRLF)"},
		"a rollback with Windows line ending": {[]string{"-f", "unix.sh", "--rollback", "windows.sh"}, "windows.sh has Windows line endings (CRLF)"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, _ := clitest.NewFactory(t, http.NotFoundHandler())
			root := NewCommand(f)
			root.SetArgs(append([]string{"create", "script", "tune", "-n", "ns"}, tt.args...))
			err := root.ExecuteContext(t.Context())
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || cmdutil.CodeOf(err) != cmdutil.ExitUsage {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func TestCreateMitigation(t *testing.T) {
	modules := []string{"--deny-module", "esp4,esp6"}
	for name, tt := range map[string]struct {
		args []string
		want string // of the error, or "" for a manifest
		has  []string
	}{
		"until a kernel": {
			args: append([]string{"--until-kernel", "6.12.85", "--unless-in-use"}, modules...),
			has:  []string{"value: esp4 esp6", "value: 6.12.85", "  expires:\n    check:\n", "name: UNLESS_IN_USE\n      value: \"yes\"", "name: deny-esp"},
		},
		"until a time": {
			args: append([]string{"--until", "2027-01-31T01:00:00+01:00"}, modules...),
			has:  []string{"  expires:\n    at: \"2027-01-31T00:00:00Z\"\n  nodes", "name: UNLESS_IN_USE\n      value: \"no\""},
		},
		"no modules":            {args: []string{"--until-kernel", "6.12.85"}, want: "which modules? Give --deny-module"},
		"no end":                {args: modules, want: "when does it end? Give --until-kernel"},
		"a module with a space": {args: []string{"--deny-module", "esp4 esp6", "--until-kernel", "6.12.85"}, want: `--deny-module "esp4 esp6" is not the name of a kernel module`},
		"too many modules":      {args: []string{"--deny-module", strings.Repeat("a,", 64) + "a", "--until-kernel", "6.12.85"}, want: "--deny-module has 65 modules"},
		"a kernel that is none": {args: append([]string{"--until-kernel", "latest"}, modules...), want: `--until-kernel "latest" is not the release of a kernel`},
		"a kernel with a quote": {args: append([]string{"--until-kernel", "6.1'"}, modules...), want: `--until-kernel "6.1'" is not the release of a kernel`},
		"a time that is none":   {args: append([]string{"--until", "tomorrow"}, modules...), want: "--until tomorrow is not a time"},
	} {
		t.Run(name, func(t *testing.T) {
			f, out, _ := clitest.NewFactory(t, http.NotFoundHandler())
			root := NewCommand(f)
			root.SetArgs(append([]string{"create", "mitigation", "deny-esp", "-n", "ns"}, tt.args...))
			err := root.ExecuteContext(t.Context())
			if tt.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.want) || cmdutil.CodeOf(err) != cmdutil.ExitUsage ||
					out.String() != "" {
					t.Errorf("%v, want %s; it has written %s", err, tt.want, out)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range tt.has {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%q is missing in\n%s", part, out)
				}
			}
		})
	}
}
