// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package procs keeps track of processes across runs of a program, by pid and start time, so that a
// process that merely got a recycled pid is never signalled.
package procs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/everynode/everynode/local/internal/wholefile"
)

// Record identifies a process.
type Record struct {
	PID int `json:"pid"`
	// Start is opaque: equal for the same process only.
	Start string `json:"start"`
	Boot  string `json:"boot,omitempty"`
}

// Identify makes the record of a running process.
func Identify(pid int) (Record, error) {
	start, err := startTime(pid)
	if err != nil {
		return Record{}, fmt.Errorf("identifying process %d: %w", pid, err)
	}
	return Record{PID: pid, Start: start, Boot: bootID()}, nil
}

// Alive reports whether exactly this process still runs. A zombie without other threads does not.
func (r Record) Alive() bool {
	if r.PID <= 1 {
		return false
	}
	now, err := Identify(r.PID)
	return err == nil && now == r
}

// Signal sends a signal to exactly this process. It is not an error if the process has ended.
func (r Record) Signal(signal syscall.Signal) error {
	if r.PID <= 1 {
		return nil
	}
	// On Linux FindProcess holds a pidfd: after it, the comparison and the signal mean one process.
	process, err := os.FindProcess(r.PID)
	if err != nil {
		return fmt.Errorf("finding process %d: %w", r.PID, err)
	}
	defer process.Release()
	if !r.Alive() {
		return nil
	}
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling process %d: %w", r.PID, err)
	}
	return nil
}

// Stop asks the process to end, kills it when it has not within the grace period, and waits until
// it is gone.
func (r Record) Stop(grace time.Duration) error {
	if grace > 0 {
		if err := r.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		if r.wait(grace) {
			return nil
		}
	}
	if err := r.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !r.wait(10 * time.Second) {
		return fmt.Errorf("process %d is still there 10 s after SIGKILL", r.PID)
	}
	return nil
}

func (r Record) wait(limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for r.Alive() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// Save writes the record to a file, whole or not at all.
func (r Record) Save(path string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("recording process %d: %w", r.PID, err)
	}
	if err := wholefile.Write(path, data); err != nil {
		return fmt.Errorf("recording process %d: %w", r.PID, err)
	}
	return nil
}

// Load reads a record. A file that is not there gives the zero record, which is no process.
func Load(path string) (Record, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("reading a process record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}
