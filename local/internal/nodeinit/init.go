// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package nodeinit is process 1 of a real node: it makes the node's file system and network, runs
// and restarts its daemons, and answers the library.
package nodeinit

import (
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/local/internal/nodespec"
)

// Descriptors that the keeper hands over.
const (
	ListenerFD = 3
	KeeperFD   = 4
)

// environment is what the node's daemons and commands get, besides the cluster's marker.
func environment(spec *nodespec.Spec) []string {
	return []string{
		"PATH=" + nodespec.ProgramsPath + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"CONTAINERD_NAMESPACE=k8s.io",
		nodespec.Marker + "=" + spec.Cluster,
	}
}

type node struct {
	spec     *nodespec.Spec
	env      []string
	reaper   *reaper
	services map[string]*service
	images   *importer
}

// Run is the whole life of the node's process 1. It returns only when the node could not be set up.
func Run(dir string) error {
	// Signals sent from inside the node must not end it; reboot(2) does not come as one.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	spec, err := nodespec.Load(dir)
	if err != nil {
		return err
	}
	keeper := os.NewFile(KeeperFD, "keeper")
	if _, err := keeper.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for the keeper: %w", err)
	}
	// The kernel ends everything in the process namespace with process 1, so this alone makes sure
	// that no node outlives its keeper.
	go func() {
		_, _ = keeper.Read(make([]byte, 1))
		os.Exit(0)
	}()
	file := os.NewFile(ListenerFD, nodespec.InitSocket)
	listener, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("taking over the socket: %w", err)
	}
	file.Close()
	unixListener, ok := listener.(*net.UnixListener)
	if !ok {
		return errors.New("taking over the socket: it is not a unix socket")
	}
	unixListener.SetUnlinkOnClose(false)
	if err := syscall.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := configureNetwork(spec); err != nil {
		return err
	}
	if err := enterRoot(spec); err != nil {
		return err
	}
	n := &node{spec: spec, env: environment(spec), reaper: newReaper(), services: map[string]*service{}}
	if err := setEnvironment(n.env); err != nil {
		return err
	}
	n.images = &importer{run: n.exec}
	n.startServices()
	nodespec.Serve(unixListener, n.answer)
	return errors.New("serving the node's socket ended")
}

// setEnvironment makes programs be looked up as the node's daemons look them up.
func setEnvironment(env []string) error {
	os.Clearenv()
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

// apiServerLimit bounds the wait for the API server: a node that boots while there is none must come
// up all the same.
const apiServerLimit = 30 * time.Second

func (n *node) startServices() {
	runtimeReady, serverSeen := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(runtimeReady)
		start := time.Now()
		waitForRuntime()
		if err := n.images.importMissing(); err != nil {
			log.Printf("importing images: %v", err)
		}
		log.Printf("the runtime is ready after %s", time.Since(start).Round(time.Millisecond))
	}()
	go func() {
		defer close(serverSeen)
		waitForPort(n.spec.APIServer, apiServerLimit)
	}()
	for _, spec := range n.spec.Services {
		var needs []<-chan struct{}
		if spec.NeedsRuntime {
			needs = append(needs, runtimeReady)
		}
		if spec.NeedsAPIServer {
			needs = append(needs, serverSeen)
		}
		s := newService(spec, n.reaper, n.env, needs)
		n.services[spec.Name] = s
		go s.run()
	}
}

func waitForPort(address string, limit time.Duration) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
			return
		}
	}
}
