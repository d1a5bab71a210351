// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
)

func TestAnEnvironmentThatIsTooLargeIsNamed(t *testing.T) {
	t.Parallel()
	_, err := spawn(
		"/bin/sh",
		[]string{"sh"},
		[]string{"SMALL=1", "BIG=" + strings.Repeat("x", 140_000), "LARGE=" + strings.Repeat("x", 4_000)},
		nil,
		true,
	)
	if !errors.Is(err, unix.E2BIG) {
		t.Fatalf("%v, want %v", err, unix.E2BIG)
	}
	if got := failed(outcome.Outcome{}, err); got.Reason != outcome.ReasonBadConfiguration || got.ExitCode != exitRunner {
		t.Errorf("%d %s, want %d %s", got.ExitCode, got.Reason, exitRunner, outcome.ReasonBadConfiguration)
	}
	for _, want := range []string{`starting "/bin/sh" on the node`, "argument list too long", "the largest variable is BIG with 140004 bytes", "task.env"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "xxx") {
		t.Errorf("it contains the value: %v", err)
	}
}
