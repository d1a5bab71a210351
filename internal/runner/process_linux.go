// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// interpreterError is why a script or a command cannot be started.
type interpreterError struct {
	code int // 127: not found; 126: found, but cannot be executed
	err  error
	// command is true for the program of a command, which has no interpreter.
	command bool
}

func (e *interpreterError) reason() string {
	if e.command {
		return outcome.ReasonCommandNotFound
	}
	return outcome.ReasonInterpreterNotFound
}

func (e *interpreterError) Error() string { return e.err.Error() }
func (e *interpreterError) Unwrap() error { return e.err }

// stdio is the standard input, output and error of scripts.
type stdio struct{ in, out, err *os.File }

// start starts a script on the node, in its own session and process group, and returns its PID in the runner's PID
// namespace. The files must stay open until the process has ended: shells read their script bit by bit, and a script
// may open $0 again. syscall.ForkExec is used instead of os/exec because the supervisor waits for all children in the
// same way, and os.Process would wait for this one as well.
func (t *hostThread) start(s Script, environ []string, io stdio, open sharedFiles) (pid int, err error) {
	t.do(func() { pid, err = startHere(s, environ, io, open, t.otherPIDs) })
	return pid, err
}

// sharedFiles are what a script opens by a path in /proc.
type sharedFiles struct {
	script, results *os.File
	// files is the folder of the files of the task; nil for none.
	files *os.File
}

// paths returns the paths of the files; that of files is "" if there are none. If the paths work only in processes that inherit
// descriptors, it also returns these, from number 3 on. It must run on the host thread.
func (f sharedFiles) paths() (script, results, files string, inherited []uintptr) {
	all := []*os.File{f.script, f.results}
	if f.files != nil {
		all = append(all, f.files)
	}
	paths, inherit := make([]string, 3), false
	for i, file := range all {
		path, must := fdPath(file, 3+i)
		paths[i], inherit = path, inherit || must
	}
	if inherit {
		for i, file := range all {
			paths[i] = fmt.Sprintf("/proc/self/fd/%d", 3+i)
			inherited = append(inherited, file.Fd())
		}
	}
	return paths[0], paths[1], paths[2], inherited
}

func startHere(s Script, environ []string, io stdio, open sharedFiles, otherPIDs bool) (int, error) {
	scriptPath, resultsPath, filesPath, inherited := open.paths()
	environ = with(environ, contract.EnvResults, resultsPath)
	if filesPath != "" {
		environ, s = with(environ, contract.EnvFiles, filesPath), s.withFiles(filesPath)
	}
	program, kind := s.Interpreter, "interpreter"
	if s.Command != nil {
		program, kind = s.Command, "command"
	}
	path, err := findProgram(kind, program[0], lookup(environ, "PATH"))
	if err != nil {
		return 0, err
	}
	files := append([]uintptr{io.in.Fd(), io.out.Fd(), io.err.Fd()}, inherited...)
	if s.Command != nil {
		// argv[0] is not changed, because the behavior of programs such as busybox depends on it.
		pid, err := spawn(path, s.Command, environ, files, otherPIDs)
		return pid, ofCommand(err)
	}
	argv := append([]string{path}, s.Interpreter[1:]...)
	return spawn(path, append(argv, scriptPath), environ, files, otherPIDs)
}

// ofCommand marks the error as that of a command.
func ofCommand(err error) error {
	if start, ok := errors.AsType[*interpreterError](err); ok {
		start.command = true
	}
	return err
}

// startProgram starts a program of the node, as start does for a script. A name without a slash is looked up in the
// PATH.
func (t *hostThread) startProgram(argv, environ []string, io stdio) (pid int, err error) {
	t.do(func() {
		path, found := lookPath(argv[0], lookup(environ, "PATH"))
		if !found {
			err = errors.New("it is not in the node's PATH " + lookup(environ, "PATH"))
			return
		}
		pid, err = spawn(path, argv, environ, []uintptr{io.in.Fd(), io.out.Fd(), io.err.Fd()}, t.otherPIDs)
	})
	return pid, err
}

// spawn starts a process in its own session. It must run on the host thread.
func spawn(path string, argv, environ []string, files []uintptr, otherPIDs bool) (int, error) {
	attr := &syscall.ProcAttr{Dir: "/", Env: environ, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	if !otherPIDs {
		// If the runner is killed, the process is killed too. In another PID namespace the child cannot see its parent,
		// would assume that it is dead, and would kill itself.
		attr.Sys.Pdeathsig = syscall.SIGKILL
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if errors.Is(err, unix.E2BIG) {
		return 0, tooLarge(path, environ, err)
	}
	if err != nil {
		return 0, startError(path, err)
	}
	return pid, nil
}

// tooLarge explains an error of the kernel that names no cause. Scripts are not passed in the environment, and commands have at most
// MaxScriptBytes, so the cause is the environment.
func tooLarge(path string, environ []string, err error) error {
	largest := slices.MaxFunc(append([]string{"="}, environ...), func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	name, _, _ := strings.Cut(largest, "=")
	return &failure{outcome.ReasonBadConfiguration, fmt.Errorf("starting %q on the node: %w: its environment is too large. One variable may have "+
		"128 KiB, and all together about 2 MiB; the largest variable is %s with %d bytes. Put large values of task.env, such as those of ConfigMaps, into files",
		path, err, name, len(largest))}
}

func startError(interpreter string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT): // it exists, so its loader is missing
		return &interpreterError{code: 127, err: fmt.Errorf("starting %q on the node: its own loader or interpreter is missing: %w", interpreter, err)}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.EPERM):
		return &interpreterError{code: 126, err: fmt.Errorf("starting %q on the node: %w", interpreter, err)}
	}
	return fmt.Errorf("starting %q on the node: %w", interpreter, err)
}

// findProgram finds an interpreter, or the program of a command. It searches on the node, so it must run on the host
// thread.
func findProgram(kind, name, path string) (string, error) {
	notFound := &interpreterError{code: 127, command: kind == "command"}
	if strings.Contains(name, "/") {
		if _, err := os.Stat(name); err != nil {
			notFound.err = fmt.Errorf("%s %q not found on the node: %w", kind, name, errnoOf(err))
			return "", notFound
		}
		return name, nil
	}
	if full, found := lookPath(name, path); found {
		return full, nil
	}
	notFound.err = fmt.Errorf("%s %q not found on the node, looked in PATH %s", kind, name, path)
	return "", notFound
}

// lookPath finds a program on the node, so it must run on the host thread.
func lookPath(name, path string) (full string, found bool) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // "." and the like: what runs must not depend on a directory
		}
		full := filepath.Join(dir, name)
		info, err := os.Stat(full)
		if err == nil && info.Mode().IsRegular() && unix.Access(full, unix.X_OK) == nil {
			return full, true
		}
	}
	return "", false
}

// errnoOf removes the operation and path, which the message already contains.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
