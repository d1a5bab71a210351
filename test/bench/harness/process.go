// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is a measured program, which the harness starts and ends.
type process struct {
	name   string
	cmd    *exec.Cmd
	cancel context.CancelFunc
	log    string
	in     io.WriteCloser
	// ended is closed when the process has ended, with its error in err.
	ended chan struct{}
	err   error
}

// startProcess starts a program with its errors in a log file.
func startProcess(ctx context.Context, dir, name string, env []string, argv ...string) (_ *process, err error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx)) // only stop ends it
	defer func() {
		if err != nil {
			p.cancel()
			err = fmt.Errorf("starting %s: %w", name, err)
		}
	}()
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = log
	// Ctrl-C does not reach a separate process group: the process ends when the harness ends it or dies.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second // and then it is killed
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.err = p.cmd.Wait(); close(p.ended) }()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// tell makes a helper begin.
func (p *process) tell() error {
	if _, err := p.in.Write([]byte("\n")); err != nil {
		return fmt.Errorf("telling %s to begin: %w\n%s", p.name, err, p.tail())
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
func (p *process) stop() {
	if p == nil {
		return
	}
	p.in.Close()
	p.cancel()
	<-p.ended
}
