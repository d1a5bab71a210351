// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/install"
)

// TestR25_WhateverDiesMeanwhile kills the manager in each phase of two drains, and restarts the API server.
func TestR25_WhateverDiesMeanwhile(t *testing.T) {
	g := newGuarded(t, 2, nil)
	a, b := g.nodes[0], g.nodes[1]
	first := g.drain(a)
	g.killManager()
	g.drained(a, first)
	g.killManager()
	second := g.drain(b)
	wantText(t, g.held(b, v1alpha1.ReasonMaxUnavailableReached).Message, a)
	must(t, real.RestartAPIServer(g.Ctx))
	select {
	case err := <-second:
		if err == nil {
			t.Fatal("the second drain has ended, and the first node is not back")
		}
		second = g.drain(b) // kubectl does not outlive every restart of the API server
	default:
	}
	notEnded(t, "the second drain", second)
	g.uncordon(a)
	g.killManager()
	if err := <-second; err != nil { // kubectl does not outlive every restart of the API server
		g.drained(b, g.drain(b))
	}
	g.killManager()
	g.uncordon(b)
	g.ready(a, b)
	g.neverTwo()
}

func TestR25_ANodeThatDiesHoldsTheOthers(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, 2, nil)
	dead, other := g.nodes[0], g.nodes[1]
	must(t, real.StopKubelet(g.Ctx, dead))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = real.StartKubelet(ctx, dead) // it already runs if the test has passed
	})
	g.Eventually("the dead node counts as unavailable", func() error {
		if live := g.guard(); live.Status.Nodes.Unavailable != 1 {
			return fmt.Errorf("the status is %+v", live.Status)
		}
		return nil
	})
	done := g.drain(other)
	g.Eventually("the dead node is reported", func() error {
		if held := g.held(other, v1alpha1.ReasonMaxUnavailableReached); !strings.Contains(held.Message, dead+" (not Ready)") {
			return fmt.Errorf("it is held since %s", held.Message)
		}
		return nil
	})
	notEnded(t, "the drain", done)
	must(t, real.StartKubelet(g.Ctx, dead))
	g.drained(other, done)
	g.uncordon(other)
	g.ready(dead, other)
}

// TestR25_EverynodesOwnDrainsWaitAsWell : a NodeJob that may take two nodes at once gets one after the other.
func TestR25_EverynodesOwnDrainsWaitAsWell(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, 2, nil)
	two := intstr.FromInt32(2)
	g.job("drained", "true", func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance.Drain, s.Maintenance.MaxUnavailable = &v1alpha1.DrainSpec{}, &two
	})
	for _, node := range g.nodes {
		g.Done("drained", node)
	}
	g.ready(g.nodes...)
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	if len(g.log.gone) != 2 || g.log.most != 1 {
		t.Errorf("%d companions were evicted, and at most %d nodes were without one at once: want 2 and 1", len(g.log.gone), g.log.most)
	}
}

func TestRecipeStorageGuard(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, 1, nil)
	node := g.nodes[0]
	g.kubectl("-n", g.Namespace, "delete", "nodeguard", "storage")
	root, err := install.Root()
	must(t, err)
	content, err := os.ReadFile(filepath.Join(root, "recipes", "storage-guard.yaml"))
	must(t, err)
	guard := &v1alpha1.NodeGuard{}
	must(t, yaml.UnmarshalStrict(content, guard))
	guard.Namespace, guard.Name, guard.Spec.Target.DaemonSet = g.Namespace, "storage", "storage"
	guard.Spec.Release.Check.PeriodSeconds = new(int32(5))
	g.Eventually("the recipe can be applied", func() error { return admin.Create(g.Ctx, guard) })
	g.ready(node)
	g.sh(node, "echo Ada looks at a disk > /run/everynode-hold")
	done := g.drain(node)
	if held := g.held(node, v1alpha1.ReasonCheckFailed); !strings.Contains(held.Message, "Ada looks at a disk") {
		t.Errorf("the reason is not reported: %s", held.Message)
	}
	g.sh(node, "rm /run/everynode-hold")
	g.drained(node, done)
	g.uncordon(node)
	g.ready(node)
	must(t, client.IgnoreNotFound(admin.Delete(g.Ctx, guard)))
}
