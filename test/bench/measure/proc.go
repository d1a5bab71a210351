// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is USER_HZ, which is always 100 in the interfaces of Linux.
const ticksPerSecond = 100

// CPUSeconds is the CPU time of the process since its start, in user and kernel mode.
func CPUSeconds(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(data))
}

// parseStat reads user and system time from /proc/PID/stat; see proc_pid_stat(5).
func parseStat(text string) (float64, error) {
	// The name of the program is in parentheses, and may contain spaces and parentheses itself.
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("reading CPU time: unexpected form %q", text)
	}
	sum := 0.0
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading CPU time: %w", err)
		}
		sum += float64(ticks) / ticksPerSecond
	}
	return sum, nil
}

// PeakMiB is the maximum resident memory of the process since its start.
func PeakMiB(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parsePeak(string(data))
}

// ResidentMiB is the current resident memory of the process.
func ResidentMiB(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	kib, err := kibField(string(data), "VmRSS:")
	return kib / 1024, err
}

func parsePeak(status string) (float64, error) {
	kib, err := kibField(status, "VmHWM:")
	return kib / 1024, err
}

// kibField reads a line such as "VmHWM:   1234 kB".
func kibField(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, name)
		if !found {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			return 0, fmt.Errorf("reading memory: unexpected form %q", line)
		}
		return strconv.ParseFloat(fields[0], 64)
	}
	return 0, fmt.Errorf("reading memory: there is no line %s", name)
}

// MachineCPUSeconds is the CPU time of all processes of the machine since its boot.
func MachineCPUSeconds() (float64, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseMachine(string(data))
}

// parseMachine adds up the first line of /proc/stat: user, nice, system, irq and softirq; not idle, iowait, or
// what a guest or another one's guest has used.
func parseMachine(text string) (float64, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("reading the machine's CPU time: unexpected form %q", line)
	}
	sum := 0.0
	for _, i := range []int{1, 2, 3, 6, 7} {
		ticks, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the machine's CPU time: %w", err)
		}
		sum += float64(ticks) / ticksPerSecond
	}
	return sum, nil
}

// MachineMemoryGiB is the machine's memory.
func MachineMemoryGiB() (float64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	kib, err := kibField(string(data), "MemTotal:")
	return kib / 1024 / 1024, err
}

// CPUModel is the name of the processor; "" if the kernel does not report it.
func CPUModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
