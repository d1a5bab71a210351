// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-pause holds a pod's namespaces: it is the sandbox image's only program. As
// process 1 of a pod that shares its process namespace it also collects orphans.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != syscall.EINTR && (err != nil || pid <= 0) {
				break
			}
		}
	}
}
