// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// role is an environment variable of the processes that the test starts: "tests", or "go", which starts tests.
const role = "EVERYNODE_CLEANUP_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "tests":
		os.Exit(Run(tests))
	case "go":
		os.Exit(startTests())
	}
	os.Exit(m.Run())
}

// tests starts a process, and has a temporary file, until it reads the end of its input.
func tests() int {
	server := exec.Command("sleep", "100")
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	server.Stdout = os.Stdout
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	file, err := os.CreateTemp("", "")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(os.Getpid(), file.Name())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 7
}

// startTests starts tests as `go test` does, and removes the folder in which it has built them.
func startTests() int {
	cmd := exec.Command(os.Args[1])
	cmd.Env = append(os.Environ(), role+"=tests")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	_ = os.RemoveAll(filepath.Dir(filepath.Dir(os.Args[1])))
	return 0
}

func TestNothingIsLeftOfTests(t *testing.T) {
	signal := func(signal syscall.Signal) func(tests, goCommand int, in io.Closer) error {
		return func(tests, _ int, _ io.Closer) error { return syscall.Kill(tests, signal) }
	}
	for name, end := range map[string]func(tests, goCommand int, in io.Closer) error{
		"tests that end":               func(_, _ int, in io.Closer) error { return in.Close() },
		"tests that SIGTERM ends":      signal(syscall.SIGTERM),
		"tests that SIGKILL ends":      signal(syscall.SIGKILL),
		"tests whose go test is ended": func(_, goCommand int, _ io.Closer) error { return syscall.Kill(goCommand, syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program := filepath.Join(dir, "go-build1", "b001", "some.test")
			content, err := os.ReadFile(os.Args[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(program, content, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(os.Args[0], filepath.Join(dir, "go")); err != nil {
				t.Fatal(err)
			}

			out, allOutputs, err := os.Pipe() // its end is read when all processes have ended
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			goCommand := exec.Command(filepath.Join(dir, "go"), program)
			goCommand.Env = append(os.Environ(), role+"=go", "TMPDIR="+dir)
			goCommand.Stdout, goCommand.Stderr = allOutputs, allOutputs
			in, err := goCommand.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := goCommand.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = goCommand.Wait() }()
			defer in.Close()
			if err := errors.Join(allOutputs.Close(), out.SetReadDeadline(time.Now().Add(30*time.Second))); err != nil {
				t.Fatal(err)
			}

			reader := bufio.NewReader(out)
			var tests int
			var file string
			if _, err := fmt.Fscanln(reader, &tests, &file); err != nil || !strings.HasPrefix(file, dir) {
				t.Fatalf("the tests have not started, with %q: %v", file, err)
			}
			if err := end(tests, goCommand.Process.Pid, in); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
				t.Errorf("waiting until all processes have ended: %v\n%s", err, rest)
			}
			left, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{filepath.Join(dir, "go")}; !slices.Equal(left, want) {
				t.Errorf("there is %v, want %v", left, want)
			}
		})
	}
}
