// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task_test

import (
	"testing"

	"github.com/everynode/everynode/internal/nodejob/task"
)

func TestCannotSayNo(t *testing.T) {
	for script, want := range map[string]bool{
		"":                               false,
		"grep -q x /etc/y":               false,
		"grep -q x /etc/y || true":       true,
		"grep -q x /etc/y || :\n\n# end": true,
		"grep -q x /etc/y\nexit 0":       true,
		"grep -q x /etc/y; true":         true,
		"test -e /a || exit 1\nexit 0":   false,
		"pgrep everynode-exit 0":         false,
		"! true":                         false,
		"true":                           true,
	} {
		if got := task.CannotSayNo(script); got != want {
			t.Errorf("%q: %t, want %t", script, got, want)
		}
	}
}
