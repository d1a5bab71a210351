// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// access is how the cluster is read: with the permissions of one user.
type access struct {
	client client.WithWatch
	// pods returns a client that reads logs.
	pods func(namespace string) (corev1client.PodInterface, error)
	// now returns the time of the API server.
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
	// machine is the clock of this machine, for durations.
	machine func() time.Time
}

// viewer has what one user may read of the cluster, and answers the requests of the user's tabs for data.
type viewer struct {
	access
	mirrors *mirrors
	state   *state
	// context is the name of the user's context or of the cluster, and flag the context if the user gave it as a flag.
	context, flag string
	// makes is true if the page makes changes. Otherwise, it only names their commands.
	makes bool
	// tabs and logs count the streams, and details the requests for a NodeJob, a node or budgets.
	tabs, logs, details chan struct{}
}

// Limits of what a viewer answers at the same time.
const (
	maxTabs    = 32
	maxLogs    = 8
	maxDetails = 8
)

// newViewer returns a viewer that has read nothing yet. If the user may not read a kind in all namespaces, the viewer reads
// it in this one.
func newViewer(a access, namespace string) *viewer {
	return &viewer{
		access: a, mirrors: newMirrors(a.client, namespace, a.after), state: newState(),
		tabs: make(chan struct{}, maxTabs), logs: make(chan struct{}, maxLogs),
		details: make(chan struct{}, maxDetails),
	}
}

// run keeps what the viewer has up to date until the context ends.
func (v *viewer) run(ctx context.Context) {
	v.mirrors.run(ctx)
	v.compute(ctx)
}
