// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-demo shows the main use case on a local cluster: a script runs once on every node, and
// automatically on a node that joins later.
//
//	everynode-demo up      starts the cluster, shows the use case, and leaves the cluster running
//	everynode-demo down    removes everything
//	everynode-demo record FILE.svg
//	                       records a few commands on the running cluster
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

const clusterName = "everynode-demo"

func main() {
	if len(os.Args) < 2 || (len(os.Args) == 3) != (os.Args[1] == "record") || len(os.Args) > 3 {
		usage()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch os.Args[1] {
	case "up":
		err = up(ctx)
	case "down":
		err = down(ctx)
	case "record":
		err = record(ctx, os.Args[2])
	default:
		usage()
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "everynode-demo:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: everynode-demo up | down | record FILE.svg")
	os.Exit(2)
}

// running is the demo's cluster, half-built ones included; nil when there is none.
func running() (*cluster.Cluster, error) {
	clusters, err := cluster.List()
	if err != nil {
		return nil, err
	}
	for _, c := range clusters {
		if c.Name() == clusterName {
			return c, nil
		}
	}
	return nil, nil
}

func down(ctx context.Context) error {
	c, err := running()
	if err != nil {
		return err
	}
	if c == nil {
		fmt.Println("there is no demo cluster")
		return nil
	}
	c.SetProgress(os.Stdout)
	if err := install.StopOutside(c); err != nil {
		return err
	}
	return c.Down(ctx)
}

// up runs the whole demo. If it fails, it leaves what it has started for inspection, and says how to remove it.
func up(ctx context.Context) error {
	earlier, err := running()
	if err != nil {
		return err
	}
	if earlier != nil {
		fmt.Println("a demo cluster is there: it is taken down first")
		if err := down(ctx); err != nil {
			return err
		}
	}
	d := &demo{began: time.Now()}
	if err := d.run(ctx); err != nil {
		return fmt.Errorf("%w\nwhat was started is left for a look; `make demo-down` takes it away", err)
	}
	return nil
}
