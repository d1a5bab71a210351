// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package subject contains the programs with which Everynode is compared. Each runs as its own process, so that its CPU
// and memory can be measured separately.
package subject

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	watchtools "k8s.io/client-go/tools/watch"
)

const (
	// Namespace of all pods: config/gate binds the gate to it.
	Namespace = "node-setup"
	// ConfiguredLabel is the label that the pods of the DaemonSet pattern set on their node.
	ConfiguredLabel = "bench.everynode.dev/configured"
	// DaemonSetName is also the value of the label "app" on its pods.
	DaemonSetName = "configure-node"
	// taskSeconds is the duration of a task for all subjects.
	taskSeconds = 1
)

// Accept headers: responses are not read, so they request as little as possible.
const (
	protobuf = "application/vnd.kubernetes.protobuf"
	metadata = protobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// client makes the requests of a subject.
type client struct{ rest.Interface }

func newClient(config *rest.Config, agent string) (client, error) {
	config = rest.CopyConfig(config)
	config.UserAgent, config.QPS = agent, -1
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return client{}, fmt.Errorf("making a client: %w", err)
	}
	return client{c.CoreV1().RESTClient()}, nil
}

// namespaceOf returns an empty string for objects without a namespace.
func namespaceOf(resource string) string {
	if resource == corev1.ResourcePods.String() {
		return Namespace
	}
	return ""
}

func (c client) patch(ctx context.Context, kind types.PatchType, resource, name string, body []byte) error {
	return c.Patch(kind).Namespace(namespaceOf(resource)).Resource(resource).Name(name).SetHeader("Accept", metadata).Body(body).Do(ctx).Error()
}

// follow sends all objects, and then each one that is added or changed, until see returns false. It is not an informer,
// because it stores no objects. It starts with the cache of the API server. The API server ends a watch whose client is
// too slow. Then follow starts again, and sends existing objects again.
func (c client) follow(ctx context.Context, resource, labels, fields string, see func(runtime.Object) bool) error {
	for ctx.Err() == nil {
		events, err := c.Get().Namespace(namespaceOf(resource)).Resource(resource).
			VersionedParams(&metav1.ListOptions{
				Watch: true, LabelSelector: labels, FieldSelector: fields, ResourceVersion: "0", TimeoutSeconds: new(int64(6 * 3600)),
			}, scheme.ParameterCodec).Watch(ctx)
		if err != nil {
			return fmt.Errorf("watching %s: %w", resource, err)
		}
		_, err = watchtools.UntilWithoutRetry(ctx, events, func(event watch.Event) (bool, error) {
			switch event.Type {
			case watch.Error:
				return false, apierrors.FromObject(event.Object)
			case watch.Deleted:
				return false, nil
			default:
				return !see(event.Object), nil
			}
		})
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && !errors.Is(err, watchtools.ErrWatchClosed) {
			return fmt.Errorf("watching %s: %w", resource, err)
		}
	}
	return nil
}

// RunLabeler does what a pod of the DaemonSet pattern does itself after its script: it labels its node. Simulated nodes
// run no scripts, so this program does it for all of them, with one request each. A pod with kubectl would need
// several. Only these requests are part of the cost of the pattern.
func RunLabeler(ctx context.Context, config *rest.Config) error {
	c, err := newClient(config, "everynode-bench-labeler")
	if err != nil {
		return err
	}
	label := func(node string) {
		err := c.patch(ctx, types.MergePatchType, "nodes", node, []byte(`{"metadata":{"labels":{"`+ConfiguredLabel+`":"1"}}}`))
		if err != nil && ctx.Err() == nil {
			panic(err) // a node without the label would be waited for forever
		}
	}
	seen := map[types.UID]bool{}
	return c.follow(ctx, "pods", "app="+DaemonSetName, "status.phase=Running", func(o runtime.Object) bool {
		pod := o.(*corev1.Pod)
		if !seen[pod.UID] {
			seen[pod.UID] = true
			time.AfterFunc(taskSeconds*time.Second, func() { label(pod.Spec.NodeName) })
		}
		return true
	})
}
