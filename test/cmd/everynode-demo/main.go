// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-demo shows the main use case on a local cluster: a script runs once on every node, and
// automatically on a node that joins later.
//
//	everynode-demo up [-kubernetes VERSION]
//	                       starts the cluster, shows the use case, and leaves the cluster running
//	everynode-demo down    removes everything
//	everynode-demo record FILE.svg
//	                       records a few commands on the running cluster
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/local/binaries"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

const clusterName = "everynode-demo"

func main() {
	command, args, kubernetes := parse(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch {
	case command == "up" && len(args) == 0:
		err = up(ctx, kubernetes)
	case command == "down" && len(args) == 0:
		err = down(ctx)
	case command == "record" && len(args) == 1:
		err = record(ctx, args[0])
	default:
		usage()
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "everynode-demo:", err)
		os.Exit(1)
	}
}

// parse returns the command, its arguments, and the version of Kubernetes that it is to use.
func parse(words []string) (command string, args []string, kubernetes string) {
	if len(words) == 0 {
		usage()
	}
	flags := flag.NewFlagSet(words[0], flag.ExitOnError)
	if words[0] == "up" {
		flags.StringVar(&kubernetes, "kubernetes", binaries.DefaultKubernetes,
			"minor version of Kubernetes: "+strings.Join(binaries.KubernetesVersions(), ", "))
	}
	_ = flags.Parse(words[1:]) // ends the program
	return words[0], flags.Args(), kubernetes
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: everynode-demo up [-kubernetes VERSION] | down | record FILE.svg")
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
	if err := c.Down(ctx); err != nil {
		return err
	}
	fmt.Println("retained: the cache of built programs (~/.cache/everynode), and the settings vm.max_map_count and fs.inotify.max_user_instances, if they were raised")
	return nil
}

// up runs the whole demo. If it fails, it leaves what it has started for inspection, and says how to remove it.
func up(ctx context.Context, kubernetes string) error {
	if _, err := binaries.ResolveKubernetes(kubernetes); err != nil {
		return err
	}
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
	d := &demo{began: time.Now(), kubernetes: kubernetes}
	if err := d.run(ctx); err != nil {
		return fmt.Errorf("%w\nwhat was started is left for a look; `make demo-down` takes it away", err)
	}
	return nil
}
