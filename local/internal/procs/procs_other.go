// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package procs

import (
	"fmt"
	"os/exec"
	"strings"
)

// startTime is the start time of a process as ps prints it.
func startTime(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", fmt.Sprint(pid)).Output()
	if err != nil {
		return "", fmt.Errorf("asking ps for process %d: %w", pid, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// bootID is empty: ps prints a date, which differs between boots anyway.
func bootID() string { return "" }

// Marked finds nothing: other systems do not show a process's environment in one known way.
func Marked(variable, value string) []Record { return nil }
