// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package procs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func sleeper(t *testing.T) (*exec.Cmd, Record) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	record, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, record
}

func TestAStoppedProcessIsGone(t *testing.T) {
	cmd, record := sleeper(t)
	go func() { _ = cmd.Wait() }()
	if !record.Alive() {
		t.Fatal("a running process is not alive")
	}
	if err := record.Stop(time.Second); err != nil {
		t.Fatal(err)
	}
	if record.Alive() {
		t.Error("a stopped process is alive")
	}
	if err := record.Stop(0); err != nil {
		t.Errorf("stopping it twice: %v", err)
	}
}

func TestARecycledPidIsLeftAlone(t *testing.T) {
	_, record := sleeper(t)
	stranger := record
	stranger.Start = "1"
	if stranger.Alive() {
		t.Error("another process of the same pid counts as the one recorded")
	}
	if err := stranger.Stop(0); err != nil {
		t.Fatal(err)
	}
	if !record.Alive() {
		t.Error("a process was killed because of the record of another one")
	}
}

func TestARecordSurvivesItsFile(t *testing.T) {
	want, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "record.json")
	if got, err := Load(file); err != nil || got.Alive() {
		t.Errorf("a missing record: %+v, %v", got, err)
	}
	if err := want.Save(file); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(file); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
