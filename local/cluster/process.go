// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/everynode/everynode/local/internal/nodespec"
	"github.com/everynode/everynode/local/internal/procs"
)

// environment is that of all processes of the cluster: the marker, and nothing of the caller's but
// what programs need to run at all.
func (s *state) environment() []string {
	env := []string{nodespec.Marker + "=" + s.dir}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// spawn starts a program that outlives this one, with its output in a file, and returns its record.
// The program's end is collected while this one lives, or it would stay a zombie.
func (s *state) spawn(logFile, program string, args ...string) (procs.Record, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return procs.Record{}, fmt.Errorf("opening a log: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	cmd.Env = s.environment()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return procs.Record{}, err
	}
	record, err := procs.Identify(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }()
	if err != nil {
		return procs.Record{}, fmt.Errorf("%w\n%s", err, logTail(logFile))
	}
	return record, nil
}

// logTail is the end of a log, as part of an error message.
func logTail(file string) string {
	const size = 4096
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		if _, err := f.Seek(-size, io.SeekEnd); err != nil {
			return ""
		}
	}
	data, err := io.ReadAll(f)
	if err != nil || len(data) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) > 15 {
		lines = lines[len(lines)-15:]
	}
	return fmt.Sprintf("the end of %s:\n  %s", filepath.Base(file), strings.Join(lines, "\n  "))
}
