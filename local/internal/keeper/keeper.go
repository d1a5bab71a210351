// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package keeper is the process outside of a real node that simulates its hardware: it starts process 1 of the node in
// new namespaces, connects the network, and starts the node again with a new boot ID after every reboot, regardless of
// who requested it.
package keeper

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/everynode/everynode/local/internal/cgroups"
	"github.com/everynode/everynode/local/internal/nodespec"
	"github.com/everynode/everynode/local/internal/procs"
)

const namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET

// clearLimit is the timeout for the processes of the last boot to leave their control groups.
const clearLimit = 10 * time.Second

// Run keeps a node until it is killed. It returns when the node cannot be set up.
func Run(dir string) error {
	// First of all, so that a cluster whose starter was killed is found again.
	self, err := procs.Identify(os.Getpid())
	if err != nil {
		return err
	}
	if err := self.Save(filepath.Join(dir, nodespec.KeeperRecord)); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
	spec, err := nodespec.Load(dir)
	if err != nil {
		return err
	}
	if err := cgroups.Create(spec.Cgroup); err != nil {
		return err
	}
	if err := cgroups.Enter(spec.Cgroup); err != nil {
		return err
	}
	initListener, err := nodespec.Listen(dir, nodespec.InitSocket)
	if err != nil {
		return err
	}
	listener, err := nodespec.Listen(dir, nodespec.KeeperSocket)
	if err != nil {
		return err
	}
	k := &keeper{spec: spec, listener: initListener, requests: make(chan chan string)}
	go nodespec.Serve(listener, k.answer)
	return k.keep()
}

type keeper struct {
	spec     *nodespec.Spec
	listener *net.UnixListener
	// requests carries reboots; the boot ID, or nothing after an error, is sent back.
	requests chan chan string
}

func (k *keeper) answer(request nodespec.Request) nodespec.Response {
	if request.Op != nodespec.OpReboot {
		return nodespec.Response{Error: fmt.Sprintf("unknown request %q", request.Op)}
	}
	reply := make(chan string, 1)
	k.requests <- reply
	if id := <-reply; id != "" {
		return nodespec.Response{BootID: id}
	}
	return nodespec.Response{Error: "the node did not start; see " + filepath.Join(k.spec.Dir, nodespec.LogDir, "keeper.log")}
}

// running is a node that has been switched on.
type running struct {
	bootID  string
	process *os.Process
	ended   <-chan syscall.WaitStatus
}

// maxBoots is how often in a row a node that was up before is tried to boot again, bootPause apart: what the last
// boot leaves in the kernel, a link or a control group, goes some time after its last process.
const (
	maxBoots  = 10
	bootPause = time.Second
)

var errGaveUp = errors.New("the node's process 1 gave up")

// keep runs the node, one boot after the other. If the first boot fails, the caller gets the error at once.
func (k *keeper) keep() error {
	node, err := k.boot()
	if err != nil {
		return err
	}
	gaveUp := 0
	for first := true; ; first = false {
		reply, err := k.untilNextBoot(node)
		if err == nil {
			gaveUp = 0
		} else if gaveUp++; first || gaveUp == maxBoots {
			return err
		} else {
			time.Sleep(bootPause)
		}
		node, err = k.bootAgain()
		if reply != nil {
			reply <- node.bootID
		}
		if err != nil {
			return err
		}
	}
}

func (k *keeper) bootAgain() (running, error) {
	for try := 1; ; try++ {
		node, err := k.boot()
		if err == nil || try == maxBoots {
			return node, err
		}
		log.Printf("booting, try %d of %d: %v", try, maxBoots, err)
		time.Sleep(bootPause)
	}
}

// untilNextBoot returns when the node has ended and is to start again, with the channel of who asked
// for that; nil when the node itself did. An error is errGaveUp.
func (k *keeper) untilNextBoot(node running) (reply chan string, err error) {
	select {
	case status := <-node.ended:
		log.Printf("the node ended: %v", status)
		if status.Exited() && status.ExitStatus() != 0 {
			return nil, errGaveUp
		}
		// The kernel shows reboot(2) from inside as the end of process 1 by SIGHUP for a restart
		// and by SIGINT for a halt. What is off stays off until someone asks for a boot.
		if status.Signaled() && status.Signal() == syscall.SIGINT {
			return <-k.requests, nil
		}
		return nil, nil
	case reply := <-k.requests:
		if err := node.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			log.Printf("ending the node: %v", err)
		}
		<-node.ended
		return reply, nil
	}
}

// boot starts the node's process 1 with a new boot ID.
func (k *keeper) boot() (running, error) {
	if err := cgroups.Clear(k.spec.Cgroup, clearLimit); err != nil {
		return running{}, err
	}
	id := newUUID()
	if err := os.WriteFile(filepath.Join(k.spec.Dir, nodespec.BootIDFile), []byte(id+"\n"), 0o444); err != nil {
		return running{}, fmt.Errorf("writing the boot ID: %w", err)
	}
	socket, err := k.listener.File()
	if err != nil {
		return running{}, fmt.Errorf("handing the socket over: %w", err)
	}
	defer socket.Close()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return running{}, fmt.Errorf("making the keeper's pipe: %w", err)
	}
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe", "init", k.spec.Dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{socket, theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return running{}, fmt.Errorf("starting the node's process 1: %w", err)
	}
	ended := make(chan syscall.WaitStatus, 1)
	go func() {
		_ = cmd.Wait()
		ours.Close()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		ended <- status
	}()
	if err := k.connect(cmd.Process.Pid, ours); err != nil {
		_ = cmd.Process.Kill()
		<-ended
		return running{}, err
	}
	return running{bootID: id, process: cmd.Process, ended: ended}, nil
}

// connect records the node, connects its network and lets it continue.
func (k *keeper) connect(pid int, pipe *os.File) error {
	record, err := procs.Identify(pid)
	if err != nil {
		return err
	}
	if err := record.Save(filepath.Join(k.spec.Dir, nodespec.InitRecord)); err != nil {
		return err
	}
	if err := plug(k.spec, pid); err != nil {
		return err
	}
	if _, err := pipe.Write([]byte{1}); err != nil {
		return fmt.Errorf("letting the node start: %w", err)
	}
	return nil
}

// newUUID is a random UUID in the kernel's notation.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}
