// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

const (
	// FloorLabel marks a node that is done for the floor program.
	FloorLabel = "bench.everynode.dev/floor"
	// floorWorkers limits the concurrent requests of the floor program, as the manager limits its own.
	floorWorkers = 16
)

// The label and the prefix of the name that the pods of all floor programs have.
const (
	floorLabel, floorLabelValue = "bench", "floor"
	floorPrefix                 = "floor-"
)

// floor does the minimum that is necessary to run something once on each of a number of nodes over the API, and to know
// the result: create a pod that is bound to the node, patch the node when the pod has ended, and delete the pod. It has
// no retries, no limits and no status, and stores nothing. It has further advantages: protobuf throughout, responses
// that contain metadata only, a watch of succeeded pods only, no watch of nodes after all are known, and no
// authorization checks, since it is the administrator.
type floor struct {
	client
	nodes int
	// recorded floors make the writes of the manager.
	recorded bool
	// create and finish are queues of the nodes for the two halves of the work.
	create, finish chan string
}

// RunFloor runs the floor program for a number of nodes. A recorded one makes the same writes as the manager, with the same
// content. It watches from the start, and begins when it reads a byte.
func RunFloor(ctx context.Context, config *rest.Config, args []string, in io.Reader) error {
	if len(args) != 2 {
		return errors.New("usage: everynode-bench floor NODES RECORDED")
	}
	nodes, nodesErr := strconv.Atoi(args[0])
	recorded, err := strconv.ParseBool(args[1])
	if err := errors.Join(nodesErr, err); err != nil {
		return err
	}
	f := &floor{nodes: nodes, recorded: recorded, create: make(chan string, nodes), finish: make(chan string, nodes)}
	if f.client, err = newClient(config, "everynode-bench-floor"); err != nil {
		return err
	}
	return f.run(ctx, in)
}

func (f *floor) run(ctx context.Context, in io.Reader) error {
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return f.watchNodes(ctx) })
	all.Go(func() error { return f.watchPods(ctx) })
	if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting to begin: %w", err)
	}
	for range floorWorkers {
		all.Go(func() error { return f.work(ctx) })
	}
	return all.Wait() // until the parent process has read the cost, and ends this one
}

// work prefers nodes in progress to new ones. There are no retries: the measurement of a failed floor program is not valid.
func (f *floor) work(ctx context.Context) error {
	for {
		var err error
		select {
		case node := <-f.finish:
			err = f.end(ctx, node)
		default:
			select {
			case <-ctx.Done():
				return nil
			case node := <-f.finish:
				err = f.end(ctx, node)
			case node := <-f.create:
				err = f.start(ctx, node)
			}
		}
		if err != nil {
			return err
		}
	}
}

// watchNodes sends each node once, when it is Ready: kwok 0.8 drops pods that are bound earlier.
func (f *floor) watchNodes(ctx context.Context) error {
	known := map[string]bool{}
	return f.follow(ctx, "nodes", "", "", func(o runtime.Object) bool {
		node := o.(*corev1.Node)
		if !known[node.Name] && kube.NodeReady(node) {
			known[node.Name] = true
			f.create <- node.Name
		}
		return len(known) < f.nodes
	})
}

// watchPods sends the node of each pod that has succeeded. The API server filters the pods.
func (f *floor) watchPods(ctx context.Context) error {
	known := map[string]bool{}
	return f.follow(ctx, "pods", floorLabel+"="+floorLabelValue, "status.phase=Succeeded", func(o runtime.Object) bool {
		node := strings.TrimPrefix(o.(*corev1.Pod).Name, floorPrefix)
		if !known[node] {
			known[node] = true
			f.finish <- node
		}
		return true
	})
}

func (f *floor) start(ctx context.Context, node string) error {
	pod := LeastPod(node)
	if f.recorded {
		pod = recordedPod(node)
	}
	return f.Post().Namespace(Namespace).Resource("pods").SetHeader("Accept", metadata).Body(pod).Do(ctx).Error()
}

// end makes two writes that are as small as possible. With a record, no result can be lost and each can be inspected
// later: it writes the record, and a third write removes the finalizer.
func (f *floor) end(ctx context.Context, node string) error {
	done := []byte(`{"metadata":{"labels":{"` + FloorLabel + `":"done"}}}`)
	if f.recorded {
		done = someRecord()
	}
	if err := f.patch(ctx, types.MergePatchType, "nodes", node, done); err != nil {
		return err
	}
	err := f.Delete().Namespace(Namespace).Resource("pods").Name(floorPrefix+node).SetHeader("Accept", metadata).Do(ctx).Error()
	if err != nil || !f.recorded {
		return err
	}
	off := []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + v1alpha1.PodFinalizer + `"]}}`)
	return f.patch(ctx, types.StrategicMergePatchType, "pods", floorPrefix+node, off)
}

// LeastPod returns the pod of a floor without a record.
func LeastPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: floorPrefix + node, Namespace: Namespace, Labels: map[string]string{floorLabel: floorLabelValue}},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "task", Image: "registry.local/task"}},
		},
	}
}

// Some values with realistic lengths.
const (
	someUID      = "3b4c1d7e-52f0-4f0e-9a51-0c8d4f6b2a11"
	someMachine  = "0123456789abcdef0123456789abcdef"
	someRevision = "0a1b2c3d4e"
	// Script is that of the NodeJob on simulated nodes, which do not run it.
	Script = "set -e\nwant=262144\nif [ \"$want\" -gt \"$(sysctl -n vm.max_map_count)\" ]; then sysctl -w vm.max_map_count=$want; fi\n"
)

// recordedPod is as the pods of the manager, with a finalizer and a script. Only the owner is omitted, since there is none.
func recordedPod(node string) *corev1.Pod {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "bench", Namespace: Namespace, UID: someUID}}
	pod := task.Pod(job, task.Source{Script: Script}, task.Attempt{
		Phase: task.Task, Revision: someRevision, Number: 1, NodeName: node, NodeUID: someUID, MachineID: someMachine, BootID: someUID,
	}, task.Options{RunnerImage: "registry.local/everynode/runner:dev", PriorityClassName: "system-node-critical"})
	pod.Name, pod.OwnerReferences = floorPrefix+node, nil
	pod.Labels[floorLabel] = floorLabelValue
	return pod
}

// someRecord is a patch with a record.
func someRecord() []byte {
	now := time.Now().UTC().Truncate(time.Second)
	value := record.Encode(record.Record{
		Revision: someRevision, Outcome: record.Succeeded, Attempts: 1, StartedAt: now, FinishedAt: now, ExitCode: new(int32(0)),
		BootID: someUID, MachineID: someMachine, PodUID: someUID,
	})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{FloorLabel: someRevision}, "annotations": map[string]string{FloorLabel: value},
	}})
	if err != nil {
		panic(err) // strings always marshal
	}
	return patch
}
