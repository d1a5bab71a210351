// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// children returns the PIDs of a process's children by walking /proc. The kernel can provide this list in a file
// (/proc/<pid>/task/<tid>/children), but not every kernel is built with it. It must run outside the host thread: the
// container's /proc has the runner's own PIDs.
func children(parent int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for processes left behind: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it has ended in the meantime
		}
		if ppid, ok := parentOf(stat); ok && ppid == parent {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// parentOf reads the fourth field of /proc/<pid>/stat. The second field is the command's name in parentheses. It can
// contain any character, so the last closing parenthesis counts.
func parentOf(stat []byte) (int, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	ppid, err := strconv.Atoi(string(fields[1]))
	return ppid, err == nil
}
