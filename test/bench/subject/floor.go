// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package subject contains the programs with which Everynode is compared. Each runs as its own process, so that its CPU
// and memory can be measured separately.
package subject

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/task"
)

// Names that the programs and the harness share.
const (
	// Namespace of all pods: config/gate binds the gate to it.
	Namespace = "node-setup"
	// FloorLabel marks a node that is done for the floor program.
	FloorLabel = "bench.everynode.dev/floor"
	// floorWorkers limits the concurrent requests of the floor program, as the manager limits its own.
	floorWorkers = 16
)

// Accept headers: responses are not read, so they request as little as possible.
const (
	protobuf = "application/vnd.kubernetes.protobuf"
	metadata = protobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// The label and the prefix of the name that the pods of all floor programs have.
const (
	floorLabel, floorLabelValue = "bench", "floor"
	floorPrefix                 = "floor-"
)

// Floor does the minimum that is necessary to run something once on each of a number of nodes over the API, and to know
// the result: create a pod that is bound to the node, patch the node when the pod has ended, and delete the pod. It has
// no retries, no limits and no status, and stores nothing. It has further advantages: protobuf throughout, responses
// that contain metadata only, a watch of succeeded pods only, no watch of nodes after all are known, and no
// authorization checks, since it is the administrator.
type Floor struct {
	client rest.Interface
	writes floorWrites
	nodes  int
	// create and finish are queues of the nodes for the two halves of the work.
	create, finish chan string
}

// NewFloor returns a Floor for this number of nodes. A recorded one makes the same writes as the manager, with the same
// content.
func NewFloor(config *rest.Config, nodes int, recorded bool) (*Floor, error) {
	client, err := clients(config, "everynode-bench-floor")
	if err != nil {
		return nil, err
	}
	f := &Floor{client: client.CoreV1().RESTClient(), nodes: nodes, create: make(chan string, nodes), finish: make(chan string, nodes)}
	f.writes = least{f.client}
	if recorded {
		f.writes = durable{f.client}
	}
	return f, nil
}

func clients(config *rest.Config, agent string) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.UserAgent, config.QPS = agent, -1
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// Run prints "ready" when it has read the existing objects, begins when it reads a line, and prints "done" at the end.
func (f *Floor) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return f.watchNodes(ctx) })
	all.Go(func() error { return f.watchPods(ctx) })
	if err := begin(in, out); err != nil {
		return err
	}
	var todo sync.WaitGroup
	todo.Add(f.nodes)
	for range floorWorkers {
		all.Go(func() error { return f.work(ctx, &todo) })
	}
	finished := make(chan struct{})
	go func() { todo.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-ctx.Done():
		return all.Wait()
	}
	fmt.Fprintln(out, "done")
	// The parent process reads the cost, and then closes the input.
	_, err := io.Copy(io.Discard, in)
	return err
}

func begin(in io.Reader, out io.Writer) error {
	fmt.Fprintln(out, "ready")
	line := make([]byte, 1)
	if _, err := io.ReadFull(in, line); err != nil {
		return fmt.Errorf("waiting to begin: %w", err)
	}
	return nil
}

// work prefers nodes in progress to new ones.
func (f *Floor) work(ctx context.Context, todo *sync.WaitGroup) error {
	for {
		var err error
		select {
		case node := <-f.finish:
			err = f.end(ctx, node, todo)
		default:
			select {
			case <-ctx.Done():
				return nil
			case node := <-f.finish:
				err = f.end(ctx, node, todo)
			case node := <-f.create:
				err = f.start(ctx, node)
			}
		}
		if err != nil {
			return err // there are no retries: the measurement of a failed floor program is not valid
		}
	}
}

func (f *Floor) start(ctx context.Context, node string) error { return f.writes.start(ctx, node) }

func (f *Floor) end(ctx context.Context, node string, todo *sync.WaitGroup) error {
	defer todo.Done()
	return f.writes.end(ctx, node)
}

// watchNodes sends each node once, when it is Ready: kwok 0.8 drops pods that are bound earlier.
func (f *Floor) watchNodes(ctx context.Context) error {
	known := map[string]bool{}
	err := follow(ctx, f.client, "nodes", "", "", func(o runtime.Object) bool {
		node := o.(*corev1.Node)
		if !known[node.Name] && task.NodeReady(node) {
			known[node.Name] = true
			f.create <- node.Name
		}
		return len(known) < f.nodes
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	return nil
}

// watchPods sends the node of each pod that has succeeded. The API server filters the pods.
func (f *Floor) watchPods(ctx context.Context) error {
	known := map[string]bool{}
	err := follow(ctx, f.client, "pods", floorLabel+"="+floorLabelValue, "status.phase=Succeeded", func(o runtime.Object) bool {
		node := strings.TrimPrefix(o.(*corev1.Pod).Name, floorPrefix)
		if !known[node] {
			known[node] = true
			f.finish <- node
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}
