// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package realnodes measures Everynode and the DaemonSet pattern in turn on real nodes of one local cluster: real kubelets
// with containerd and runc.
package realnodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/bench/harness"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/install"
)

// Bench is what to measure.
type Bench struct {
	// Nodes is the number of real nodes.
	Nodes int
	// Pairs is the number of measurements of each subject.
	Pairs int
	// Root is the checkout.
	Root string
	// Progress gets a line per step.
	Progress io.Writer

	cluster  *cluster.Cluster
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	observer *observer
}

// errNotPossible is returned where there are no real nodes.
var errNotPossible = errors.New("this benchmark needs real nodes, and real nodes need Linux and root")

// Possible returns an error where there are no real nodes.
func Possible() error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return errNotPossible
	}
	return nil
}

func (b *Bench) say(format string, args ...any) { fmt.Fprintf(b.Progress, format+"\n", args...) }

// Run makes all measurements. It removes the cluster at the end, also when ctx ends.
func (b *Bench) Run(ctx context.Context) (_ *report.Real, err error) {
	if err := Possible(); err != nil {
		return nil, err
	}
	if err := harness.ClearAway(ctx, b.Progress); err != nil {
		return nil, err
	}
	images, err := install.Build(ctx, b.Root)
	if err != nil {
		return nil, err
	}
	labelNode, err := buildLabelNode(ctx, b.Root)
	if err != nil {
		return nil, err
	}
	b.cluster, err = cluster.Up(ctx, cluster.Options{
		Name: harness.ClusterName(), Nodes: b.Nodes, AuditPolicy: cluster.AuditMetadata, Progress: b.Progress,
		// As production has it: a node that is busy for some seconds is not unreachable.
		NodeMonitorGracePeriod: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		b.cluster.SetProgress(io.Discard)
		err = errors.Join(err, b.cluster.Down(context.WithoutCancel(ctx)))
	}()
	if !b.cluster.Real() {
		return nil, errNotPossible
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if err := b.connect(watching); err != nil {
		return nil, err
	}
	contenders := []contender{&daemonSet{b}, &nodeJob{Bench: b}}
	if err := b.prepare(ctx, images, labelNode); err != nil {
		return nil, err
	}
	return b.turns(ctx, contenders)
}

// connect makes clients and starts to observe.
func (b *Bench) connect(ctx context.Context) error {
	config, err := b.cluster.RESTConfig()
	if err != nil {
		return err
	}
	config.UserAgent = harnessAgent
	if b.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if b.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	b.observer = newObserver()
	return b.observer.start(ctx, b.client)
}

// harnessAgent is the name of this program in the audit log. Its requests are not those of a subject.
const harnessAgent = "everynode-bench-harness"

// prepare installs both subjects, so that only the creation of an object remains.
func (b *Bench) prepare(ctx context.Context, images install.Images, labelNode image) error {
	if err := harness.CreateNamespace(ctx, b.client); err != nil {
		return err
	}
	if err := b.cluster.LoadImage(ctx, labelNodeImage, labelNode); err != nil {
		return fmt.Errorf("loading the image of the DaemonSet: %w", err)
	}
	if _, err := install.Kubectl(ctx, b.cluster, string(account), "apply", "-f", "-"); err != nil {
		return err
	}
	b.say("installing Everynode …")
	return install.Install(ctx, b.cluster, b.Root, images)
}

// turns measures the contenders in turn. The first turn of each fills caches, and is not part of the report.
func (b *Bench) turns(ctx context.Context, contenders []contender) (*report.Real, error) {
	r := &report.Real{Nodes: b.Nodes, Pairs: b.Pairs, Columns: report.RealColumnNames(), Date: time.Now().UTC().Format(time.RFC3339)}
	var err error
	if r.Machine, err = harness.Machine(); err != nil {
		return nil, err
	}
	version, err := b.client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking for the API server's version: %w", err)
	}
	r.Machine.Kubernetes = version.GitVersion
	for round := range b.Pairs + 1 {
		for _, c := range contenders {
			turn, err := b.turn(ctx, c, round)
			if err != nil {
				return r, fmt.Errorf("measuring %s: %w", c.subject(), err)
			}
			if round > 0 {
				r.Turns = append(r.Turns, *turn)
			}
		}
	}
	return r, nil
}

// tail is how long after the last event requests are still counted: events are written with a delay.
const tail = 3 * time.Second

// turn measures one contender once, and removes what it has left.
func (b *Bench) turn(ctx context.Context, c contender, round int) (*report.RealTurn, error) {
	b.observer.reset(c.label(round))
	begin := time.Now()
	if err := c.begin(ctx, round); err != nil {
		return nil, err
	}
	err := b.until(ctx, "all nodes are done and no pod is left", func() (bool, string) {
		done, pods := b.observer.counts()
		return done == b.Nodes && pods == 0, fmt.Sprintf("nodes done %d, pods %d", done, pods)
	})
	if err != nil {
		return nil, errors.Join(err, b.objects(ctx))
	}
	turn := &report.RealTurn{Subject: c.subject(), Pair: round - 1, Wall: time.Since(begin).Seconds()}
	turn.Nodes, turn.PodsCreated = b.observer.rows(begin)
	if err := pause(ctx, tail); err != nil {
		return nil, err
	}
	end := time.Now()
	if turn.Clients, err = harness.Clients(ctx, b.cluster, begin, end); err != nil {
		return nil, err
	}
	delete(turn.Clients, harnessAgent)
	b.say("%s  %s, round %d of %d: all nodes done after %.2f s, no pod left after %.2f s", begin.Format("15:04:05"), c.subject(), round, b.Pairs,
		turn.LastDone(), turn.Wall)
	return turn, c.remove(ctx, round)
}

// objects returns the objects of the benchmark as an error, to explain what a turn waited for.
func (b *Bench) objects(ctx context.Context) error {
	table, err := install.Kubectl(context.WithoutCancel(ctx), b.cluster, "", "get", "nodejobs,daemonsets,pods", "--all-namespaces")
	if err != nil {
		return err
	}
	return fmt.Errorf("the objects then:\n%s", table)
}

// patience is how long a condition may take.
const patience = 2 * time.Minute

// until waits for a condition, which also says how far it is.
func (b *Bench) until(ctx context.Context, what string, reached func() (bool, string)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, state := reached()
		if ok {
			return nil
		}
		if pause(ctx, 5*time.Millisecond) != nil {
			return fmt.Errorf("waiting until %s: %w: %s", what, context.Cause(ctx), state)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
