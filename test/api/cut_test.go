// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
)

// fault is what happens to a write.
type fault struct {
	name string
	// done reports whether the write succeeds although its response is lost.
	done bool
	// answer is the response that the manager gets instead; nil if the manager dies.
	answer error
}

var nodeJobs = v1alpha1.GroupVersion.WithResource("nodejobs").GroupResource()

var allFaults = []fault{
	{name: "the manager dies before it"},
	{name: "the manager dies after it", done: true},
	{name: "a conflict", answer: apierrors.NewConflict(nodeJobs, "x", errors.New("another client was faster"))},
	{name: "no answer in time", done: true, answer: fmt.Errorf("sending: %w", context.DeadlineExceeded)},
	{name: "the API server's own time-out", done: true, answer: apierrors.NewServerTimeout(nodeJobs, "x", 1)},
	{name: "too many requests", answer: apierrors.NewTooManyRequests("try again", 1)},
	{name: "an internal error", answer: apierrors.NewInternalError(errors.New("etcd does not respond"))},
}

// cut puts one fault into one write of the managers of a world. Writes are told apart by what they are
// for, since those of one pass come in any order.
type cut struct {
	fault fault
	// write is the name of the one that is cut; "" for none.
	write string

	mu sync.Mutex
	// names are all observed writes, in their order.
	names []string
	// times counts the writes of one sort.
	times map[string]int
	// attempts are the attempts by the names of their pods.
	attempts map[string]string
	reached  bool
	dead     bool
	// died is closed when a new manager must replace the manager.
	died chan struct{}
}

func newCut(f fault, write string) *cut {
	return &cut{fault: f, write: write, times: map[string]int{}, attempts: map[string]string{}, died: make(chan struct{})}
}

// revive lets the next manager write.
func (c *cut) revive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = false
}

func (c *cut) seen() (names []string, reached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names, c.reached
}

// do executes a write, unless it is the selected one. The object must not show a result that the manager does not get.
func (c *cut) do(verb string, o client.Object, write func(o client.Object) error) error {
	hit, dead := c.note(verb, o)
	switch {
	case dead:
		return errDead
	case !hit:
		return write(o)
	}
	if c.fault.done {
		_ = write(o.DeepCopyObject().(client.Object)) // the result is in the lost response
	}
	if c.fault.answer == nil {
		close(c.died)
		return errDead
	}
	return c.fault.answer
}

// note says whether this write is the one that is cut, and whether the manager is dead already.
func (c *cut) note(verb string, o client.Object) (hit, dead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false, true
	}
	name := c.name(verb, o)
	c.times[name]++
	if _, isPod := o.(*corev1.Pod); !isPod || c.times[name] > 1 {
		name = fmt.Sprintf("%s %d", name, c.times[name])
	}
	c.names = append(c.names, name)
	if c.reached || name != c.write {
		return false, false
	}
	c.reached, c.dead = true, c.fault.answer == nil
	return true, false
}

// name says what a write is for, in the same words in each world.
func (c *cut) name(verb string, o client.Object) string {
	switch o := o.(type) {
	case *corev1.Pod:
		if verb == "create" {
			c.attempts[o.Name] = fmt.Sprintf(
				"%s %s on %s",
				o.Labels[v1alpha1.PhaseLabel],
				o.Annotations[v1alpha1.AttemptAnnotation],
				role(o.Spec.NodeName),
			)
		}
		if attempt, ours := c.attempts[o.Name]; ours {
			return verb + " the pod of " + attempt
		}
		return verb + " of pod " + o.Name
	case *corev1.Node:
		return verb + " " + role(o.Name)
	}
	return verb + " of the NodeJob"
}

// role is the part of a node's name that is the same in each world.
func role(node string) string { return node[strings.LastIndex(node, "-")+1:] }

func (c *cut) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return c.do("create", o, func(o client.Object) error { return next.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, next client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return c.do("patch", o, func(o client.Object) error { return next.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return c.do("delete", o, func(o client.Object) error { return next.Delete(ctx, o, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, next client.Client, sub string, o client.Object, body client.Object, opts ...client.SubResourceCreateOption) error {
			return c.do(sub, o, func(o client.Object) error { return next.SubResource(sub).Create(ctx, o, body, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, next client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return c.do(sub, o, func(o client.Object) error { return next.SubResource(sub).Update(ctx, o, opts...) })
		},
		// The manager has no other writes. If one is added, this test must fail.
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return errUnknownWrite
		},
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return errUnknownWrite
		},
		DeleteAllOf: func(context.Context, client.WithWatch, client.Object, ...client.DeleteAllOfOption) error {
			return errUnknownWrite
		},
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return errUnknownWrite
		},
		SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			return errUnknownWrite
		},
	}
}

var errUnknownWrite = errors.New("a write that no test cuts: add it to cut.funcs")
