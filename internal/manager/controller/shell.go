// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/everynode/everynode/internal/manager/archive"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// shell is what all parts of the controller share: the settings, the ways to the API server and its cache, and the memory.
type shell struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Reader reads from the API server.
	Reader client.Reader
	// Recorder writes events.
	Recorder events.EventRecorder
	// Metrics are the metrics of the manager.
	Metrics *Metrics
	// Options are the settings of the installation for the tasks' pods.
	Options task.Options
	// Archive is where the outputs of NodeJobs with task.output.archive are stored.
	Archive archive.Config
	// Own is where the manager itself runs.
	Own Own
	// Now is the clock.
	Now func() time.Time
	// Notifier reports to the URL of the flag --notifications-url; nil without one. It is set before SetupWithManager.
	Notifier *notify.Notifier
	// Room says for which NodeJobs the cache has room; nil for all.
	Room *loop.Trimmer
	// RequireNamespaceLabel is true if only NodeJobs in namespaces with the label v1alpha1.EnabledLabel are served.
	RequireNamespaceLabel bool
	// NodeConditions is true if the manager writes node conditions. Otherwise NodeJobs that publish one do not run.
	NodeConditions bool
	// Claims is what NodeJobs and NodeDisruptionBudgets tell each other; nil without budgets.
	Claims *claims.Registry
	// JoiningFor replaces budget.JoiningFor if it is not zero.
	JoiningFor time.Duration
	// Policies knows whether the admission policies are in force; nil if they do not matter. It is set before SetupWithManager.
	Policies *policies.Checker
	// PollInterval is how often the manager checks what it does not watch.
	PollInterval time.Duration

	// listNodes and listPods list objects of the cache without copying them, so they must not be modified.
	listNodes func(ctx context.Context) ([]*corev1.Node, error)
	listPods  func(ctx context.Context, nodeJob client.ObjectKey) ([]*corev1.Pod, error)

	memory
	releases *releases
	gates    gates
	// wake triggers passes of NodeJobs for changes that no watch reports.
	wake chan event.GenericEvent
}

// Own is where the manager itself runs: its drains do not evict its own pod, and its node comes last.
type Own struct {
	// Pod of the manager, and its node; empty outside of a cluster.
	Pod  client.ObjectKey
	Node string
}

func newShell(c client.Client, reader client.Reader, recorder events.EventRecorder, metrics *Metrics, opts task.Options) *shell {
	return &shell{
		listNodes:    nodesOf(c),
		listPods:     podsByLabel(c),
		Client:       c,
		Reader:       reader,
		Recorder:     recorder,
		Metrics:      metrics,
		Options:      opts,
		Now:          time.Now, //nolint:forbidigo // the one clock of the manager
		PollInterval: pollSeconds * time.Second,
		memory:       newMemory(),
		releases:     newReleases(metrics.releases),
		wake:         make(chan event.GenericEvent, wakeRoom),
	}
}
