// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodeinit

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/everynode/everynode/local/internal/nodespec"
)

// restartDelay is how long a service that ended stays down: long enough to see it gone, short
// enough that a script may kill containerd and wait for it to come back.
const restartDelay = 500 * time.Millisecond

// service keeps one program running until it is told otherwise.
type service struct {
	nodespec.Service
	reaper *reaper
	env    []string
	needs  []<-chan struct{} // all closed when the service may start

	mu      sync.Mutex
	wanted  bool
	pid     int
	changed chan struct{} // closed and replaced at each change of wanted or pid
}

func newService(spec nodespec.Service, r *reaper, env []string, needs []<-chan struct{}) *service {
	return &service{Service: spec, reaper: r, env: env, needs: needs, wanted: true, changed: make(chan struct{})}
}

// run is the service's life. It never returns: the node ends by the end of process 1.
func (s *service) run() {
	for _, need := range s.needs {
		<-need
	}
	for {
		s.await(func() bool { return s.wanted })
		if err := s.runOnce(); err != nil {
			log.Printf("%s: %v", s.Name, err)
		}
		time.Sleep(restartDelay)
	}
}

func (s *service) runOnce() error {
	out, err := os.OpenFile(filepath.Join(nodespec.LogPath, s.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	defer null.Close()
	path, err := exec.LookPath(s.Argv[0])
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	s.mu.Lock()
	if !s.wanted {
		s.mu.Unlock()
		return nil
	}
	pid, done, err := s.reaper.start(path, s.Argv, s.env, [3]*os.File{null, out, out})
	s.setLocked(s.wanted, pid)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	log.Printf("%s: started as process %d", s.Name, pid)
	status := <-done
	log.Printf("%s: process %d ended: exit code %d, signal %d", s.Name, pid, status.ExitStatus(), status.Signal())
	s.mu.Lock()
	s.setLocked(s.wanted, 0)
	s.mu.Unlock()
	return nil
}

func (s *service) setLocked(wanted bool, pid int) {
	s.wanted, s.pid = wanted, pid
	close(s.changed)
	s.changed = make(chan struct{})
}

// await returns once the condition, read under the lock, holds.
func (s *service) await(condition func() bool) {
	for {
		s.mu.Lock()
		ok, changed := condition(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		<-changed
	}
}

// want starts or stops the service. A stop returns when the program is gone.
func (s *service) want(wanted bool) {
	s.mu.Lock()
	s.setLocked(wanted, s.pid)
	pid := s.pid
	s.mu.Unlock()
	if wanted {
		return
	}
	if pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	s.await(func() bool { return s.pid == 0 })
}

// kill ends the program with SIGKILL; it is restarted automatically.
func (s *service) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == 0 {
		return fmt.Errorf("%s is not running", s.Name)
	}
	return syscall.Kill(s.pid, syscall.SIGKILL)
}
