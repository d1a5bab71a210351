// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testing/clitest"
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
	modules := []string{"deny-esp", "--deny-module", "esp4,esp6"}
	for name, tt := range map[string]struct {
		args []string
		want string // of the error, or "" for a manifest
		has  []string
		now  time.Time // if it is not the time of the machine
	}{
		"until a kernel": {
			args: append([]string{"--until-kernel", "6.12.85", "--unless-in-use"}, modules...),
			has:  []string{"value: esp4 esp6", "value: 6.12.85\n", "  expires:\n    check:\n", "name: UNLESS_IN_USE\n      value: \"yes\"", "name: deny-esp"},
		},
		"until a time": {
			args: append([]string{"--until", "2027-01-31T01:00:00+01:00"}, modules...),
			has:  []string{"  expires:\n    at: \"2027-01-31T00:00:00Z\"\n  nodes", "name: UNLESS_IN_USE\n      value: \"no\""},
		},
		"until kernels of two series": {
			args: append([]string{"--until-kernel", "6.6.138,6.8.0-110-generic", "--until-series", "7.1"}, modules...),
			has:  []string{"value: 6.6.138 6.8.0-110-generic\n", "name: FIXED_SERIES\n      value: \"7.1\"\n"},
		},
		"a CVE of the catalog": {
			args: []string{"CVE-2026-31431", "--until-kernel", "6.12.83-113.160.amzn2023.x86_64"},
			has: []string{
				"# Denies algif_aead until a fixed kernel runs. CVE-2026-31431 (Copy Fail). Nodes lose: AEAD ciphers",
				"https://www.cve.org/CVERecord?id=CVE-2026-31431, 2026-08-05", "name: cve-2026-31431\n", "value: algif_aead\n",
				"value: 5.10.254 5.15.204 6.1.170 6.6.137 6.12.85 6.18.22 6.19.12 6.12.83-113.160.amzn2023.x86_64\n", "value: \"7.0\"\n",
			},
		},
		"a CVE with other modules": {
			args: []string{"CVE-2026-31431", "--deny-module", "af_alg", "--until-kernel", "6.12.85"},
			has:  []string{"# Denies af_alg until", "name: cve-2026-31431\n", "value: 6.12.85\n"},
		},
		"a CVE that is not in the catalog": {
			args: []string{"CVE-2026-99999", "--until-kernel", "6.12.85"},
			want: "CVE-2026-99999 is not in the catalog, which has CVE-2026-31431, CVE-2026-43284, CVE-2026-43500, CVE-2026-46300. " +
				"Say what the advisory of your vendor says: kubectl everynode create mitigation cve-2026-99999 --deny-module MODULE,... --until-kernel RELEASE,...",
		},
		"no modules":            {args: []string{"deny-esp", "--until-kernel", "6.12.85"}, want: "which modules? Give --deny-module"},
		"no end":                {args: modules, want: "when does it end? Give --until-kernel"},
		"a module with a space": {args: []string{"deny-esp", "--deny-module", "esp4 esp6", "--until-kernel", "6.12.85"}, want: `--deny-module "esp4 esp6" is not the name of a kernel module`},
		"too many modules":      {args: []string{"deny-esp", "--deny-module", strings.Repeat("a,", 64) + "a", "--until-kernel", "6.12.85"}, want: "--deny-module has 65 values"},
		"too many kernels":      {args: append([]string{"--until-kernel", strings.Repeat("6.1,", 64) + "6.1"}, modules...), want: "--until-kernel has 65 values"},
		"a kernel that is none": {args: append([]string{"--until-kernel", "6.12.85,latest"}, modules...), want: `--until-kernel "latest" is not the release of a kernel`},
		"a kernel with a quote": {args: append([]string{"--until-kernel", "6.1'"}, modules...), want: `--until-kernel "6.1'" is not the release of a kernel`},
		"a series that is none": {args: append([]string{"--until-series", "7.1.2"}, modules...), want: `--until-series "7.1.2" is not a series of kernels`},
		"a time that is none":   {args: append([]string{"--until", "tomorrow"}, modules...), want: "--until tomorrow is not a time"},
		"a time that has passed in its time zone": {
			args: append([]string{"--until", "2027-01-31T00:30:00+01:00", "--until-kernel", "6.12.85"}, modules...),
			now:  time.Date(2027, 1, 30, 23, 30, 0, 0, time.UTC),
			want: "--until 2027-01-31T00:30:00+01:00 is in the past: no node would be protected",
		},
		"a time that has not passed in its time zone": {
			args: append([]string{"--until", "2027-01-31T00:30:00+01:00"}, modules...),
			now:  time.Date(2027, 1, 30, 23, 29, 59, 0, time.UTC),
			has:  []string{"  expires:\n    at: \"2027-01-30T23:30:00Z\"\n"},
		},
		"a CVE, and a year that has passed": {
			args: []string{"CVE-2026-31431", "--until", "2025-12-31T23:59:59Z"},
			want: "--until 2025-12-31T23:59:59Z is in the past: no node would be protected",
		},
		"a time that has passed": {args: append([]string{"--until", "2026-01-01T00:00:00Z"}, modules...), want: "--until 2026-01-01T00:00:00Z is in the past: no node would be protected"},
	} {
		t.Run(name, func(t *testing.T) {
			f, out, _ := clitest.NewFactory(t, http.NotFoundHandler())
			if !tt.now.IsZero() {
				f.Now = func() time.Time { return tt.now }
			}
			root := NewCommand(f)
			root.SetArgs(append([]string{"create", "mitigation", "-n", "ns"}, tt.args...))
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
