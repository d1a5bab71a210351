// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a measured program, which the harness starts and ends.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	in   io.WriteCloser
	out  *bufio.Reader
	// ended is closed when the process has ended, with its error in err.
	ended chan struct{}
	err   error
}

// startProcess starts a program with its errors in a log file.
func startProcess(dir, name string, env []string, argv ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(argv[0], argv[1:]...), log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer log.Close()
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = log
	// Ctrl-C does not reach a separate process group: the process ends when the harness ends it or dies.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.ended) }()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// expect waits for a line.
func (p *process) expect(ctx context.Context, want string) error {
	line := make(chan string, 1)
	go func() { text, _ := p.out.ReadString('\n'); line <- strings.TrimSpace(text) }()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case got := <-line:
		if got != want {
			return fmt.Errorf("waiting for %s: it says %q instead of %q; see its log:\n%s", p.name, got, want, p.tail())
		}
	}
	return nil
}

// alive returns an error after the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended (%w):\n%s", p.name, p.err, p.tail())
	default:
		return nil
	}
}

func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	const most = 2000
	return string(data[max(0, len(data)-most):])
}

// stop ends the process, by force if it does not end within a few seconds.
func (p *process) stop() error {
	p.in.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(5 * time.Second):
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", p.name, err)
	}
	<-p.ended
	return nil
}
