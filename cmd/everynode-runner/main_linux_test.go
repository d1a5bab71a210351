// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/outcome"
)

func TestInvalidFlagsAreReported(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"an unknown flag":    {[]string{"--bogus"}, "reading the flags: flag provided but not defined: -bogus"},
		"an argument":        {[]string{"script.sh"}, `unexpected argument "script.sh"`},
		"a negative process": {[]string{"--target-pid", "-4"}, "--target-pid is -4, below 0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			if code := run(time.Time{}, append([]string{"--termination-log", log}, tt.args...)); code != 125 {
				t.Errorf("exit code %d, want 125", code)
			}
			message, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := outcome.Decode(string(message))
			if !ok || got.ExitCode != 125 || got.Reason != outcome.ReasonBadConfiguration || !strings.Contains(got.Message, tt.want) {
				t.Errorf("outcome %s, want %q in it", message, tt.want)
			}
		})
	}
}

func TestVersionAndHelpSucceed(t *testing.T) {
	for _, arg := range []string{"--version", "--help"} {
		if code := run(time.Time{}, []string{arg}); code != 0 {
			t.Errorf("%s ended with %d", arg, code)
		}
	}
}

func TestPulledImagesAreReported(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if code := run(time.Time{}, []string{"--termination-log", log, "--pulled"}); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	message, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := outcome.Decode(string(message)); !ok || got.ExitCode != 1 || got.Reason != outcome.ReasonImagesPulled {
		t.Errorf("outcome %s", message)
	}
}
