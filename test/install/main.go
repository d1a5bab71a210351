// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// RunOnRealNodes runs the tests of a package between setUp and tearDown, and returns the exit code for os.Exit. Without root
// there are no real nodes: it says so, and skips the tests, which is a failure in CI. An interrupt also calls tearDown, even
// during a test.
func RunOnRealNodes(run func() int, setUp func(context.Context) error, tearDown func()) int {
	if os.Geteuid() != 0 {
		fmt.Println("SKIPPED: these tests need real nodes, and real nodes need root")
		if os.Getenv("CI") != "" {
			return 1
		}
		return 0
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupts
		cancel()
		tearDown()
		os.Exit(130)
	}()
	defer tearDown()
	if err := setUp(ctx); err != nil {
		fmt.Println("setting up:", err)
		return 1
	}
	return run()
}
