// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cleanup ends what tests have started, also if they are killed.
package cleanup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/local/internal/procs"
)

const (
	// marker is an environment variable of all processes that the program starts. Its value is the folder of their temporary files.
	marker = "EVERYNODE_CLEANUP"
	// watched is an environment variable of the process that cleans up. Its value is the same folder.
	watched = "EVERYNODE_CLEANUP_WATCHED"
	// goCommand is an environment variable of the process that cleans up: the process ID of `go test`, if that has started the program.
	goCommand = "EVERYNODE_CLEANUP_GO"
)

// Run calls run, and returns the exit code for os.Exit. When the program has ended in any way, even by SIGKILL, another process of
// it kills all processes that the program has started, directly or not, and removes its temporary files. The program also ends
// when `go test`, which has started it, is killed. TestMain calls Run before all else, because the other process calls it, too.
// Processes are killed on Linux only.
func Run(run func() int) int {
	if dir := os.Getenv(watched); dir != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the program has ended
		if err := cleanUp(dir); err != nil {
			fmt.Fprintln(os.Stderr, "cleaning up after the tests:", err)
			return 1
		}
		return 0
	}
	if os.Getenv(marker) != "" {
		return run() // a program that has called Run has started this one, and cleans up
	}
	end, err := start()
	if err != nil {
		fmt.Println("preparing to clean up after the tests:", err)
		return 1
	}
	defer end()
	return run()
}

// start starts the process that cleans up when the program has ended, or has called end.
func start() (end func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "everynode-test-")
	if err != nil {
		return nil, err
	}
	watcher := exec.Command(program) //nolint:noctx // it ends after the program
	watcher.Env = append(os.Environ(), watched+"="+dir)
	watcher.Stderr = os.Stderr                               // `go test` waits until it is closed
	watcher.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C does not end it
	if parent := os.Getppid(); isGo(parent) {
		watcher.Env = append(watcher.Env, goCommand+"="+strconv.Itoa(parent))
		go func() {
			for os.Getppid() == parent {
				time.Sleep(time.Second)
			}
			os.Exit(1)
		}()
	}
	lifeline, err := watcher.StdinPipe()
	if err == nil {
		err = watcher.Start()
	}
	if err == nil {
		err = errors.Join(os.Setenv(marker, dir), os.Setenv("TMPDIR", dir))
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return func() {
		_ = lifeline.Close()
		_ = watcher.Wait() // it has printed its error
	}, nil
}

// isGo reports whether a process is the command go.
func isGo(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.TrimSpace(string(name)) == "go"
}

// cleanUp kills the processes with the marker, and removes the folder.
func cleanUp(dir string) error {
	for {
		left := procs.Marked(marker, dir)
		if len(left) == 0 {
			break
		}
		for _, process := range left { // one that is not yet killed may start others
			if err := process.Stop(0); err != nil {
				return err
			}
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		// Processes of Chromium overwrite their environment, so they have no marker. They end, and may write, a little later.
		if err := os.RemoveAll(dir); err == nil || time.Now().After(deadline) {
			return errors.Join(err, removeBuild())
		}
	}
}

// removeBuild removes the folder in which `go test` has built this program, if go was killed and has not removed it.
func removeBuild() error {
	parent, err := strconv.Atoi(os.Getenv(goCommand))
	if err != nil {
		return nil //nolint:nilerr // go has not started the program
	}
	if _, err := procs.Identify(parent); err == nil {
		return nil
	}
	// The program is /tmp/go-build123/b001/api.test.
	build := filepath.Dir(filepath.Dir(os.Args[0]))
	if !strings.HasPrefix(filepath.Base(build), "go-build") {
		return nil
	}
	return os.RemoveAll(build)
}
