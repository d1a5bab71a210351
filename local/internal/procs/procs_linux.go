// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package procs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// startTime is the kernel's start time of a process, in clock ticks since the machine's boot.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The command in parentheses may hold spaces and parentheses; what follows the last one is fixed.
	end := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	if end < 0 || len(fields) < 20 {
		return "", fmt.Errorf("reading /proc/%d/stat: unexpected form", pid)
	}
	// A process that is killed is a zombie as soon as its first thread has ended. The others hold what it has open, such as
	// the port that it listens on, until they have ended too.
	if threads := fields[17]; fields[0] == "X" || (fields[0] == "Z" && (threads == "0" || threads == "1")) {
		return "", os.ErrProcessDone
	}
	return fields[19], nil
}

// bootID identifies the boot of the machine, because start times are relative to it.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Marked finds the processes whose environment has the variable with exactly that value.
func Marked(variable, value string) []Record {
	want := []byte(variable + "=" + value)
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	var found []Record
	for _, file := range environs {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // gone, or another user's
		}
		for entry := range bytes.SplitSeq(data, []byte{0}) {
			if !bytes.Equal(entry, want) {
				continue
			}
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			if record, err := Identify(pid); err == nil && pid != os.Getpid() {
				found = append(found, record)
			}
			break
		}
	}
	return found
}
