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
