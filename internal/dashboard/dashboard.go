// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard is a web page that shows the nodes of a cluster, their NodeJobs and the reason for every wait, and that follows
// what happens. The command dashboard serves it on the machine of its user.
//
//	mirror: lists and watches, once ──► observed ──► model, detail (pure) ──► state: what changed since a version ──► tabs
//
// The page is in the folder page: modules without a build step. It has only what the user may read, and writes text only.
package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/text"
)

// Local are the options of the dashboard on the machine of its user, with the permissions of this user.
type Local struct {
	// Client reads and changes objects, and Pods reads logs.
	Client client.WithWatch
	Pods   func(namespace string) (corev1client.PodInterface, error)
	// Namespace is shown if the user may not read all namespaces.
	Namespace string
	// Context is the name of the context of the kubeconfig, and ContextFlag the context that the user gave to the command; "" for none.
	Context, ContextFlag string
	// AllowChanges offers changes in the page.
	AllowChanges bool
	// Ready gets the address of the page, with its token.
	Ready func(address string) error
	// Tell prints the changes that the page makes.
	Tell func(...text.Line)
	// Now returns the time of the API server. After returns a channel that receives after a duration.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// dashboard is the server of the page: it has what the user may read of the cluster, and answers the requests of the user's tabs.
type dashboard struct {
	*Local
	mirrors *mirrors
	state   *state
	// machine is the clock of this machine, for durations.
	machine func() time.Time
	// tabs and logs count the streams, and details the requests for a NodeJob, a node or budgets.
	tabs, logs, details chan struct{}
	// token is what a request must have, and host the address on which the server listens.
	token, host string
	// making counts the changes that are being made.
	making chan struct{}
}

// Serve serves the page until the context ends.
func (o *Local) Serve(ctx context.Context, listener net.Listener) error {
	d := o.newServer(listener.Addr().String())
	go d.run(ctx)
	server := &http.Server{
		Handler: d.handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // so that streams end with the command
	}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := o.Ready(d.address()); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Limits of what the server answers at the same time.
const (
	maxTabs    = 32
	maxLogs    = 8
	maxDetails = 8
)

// newServer returns a server that has read nothing yet. If the user may not read a kind in all namespaces, it reads that kind in one.
func (o *Local) newServer(host string) *dashboard {
	return &dashboard{
		Local: o, mirrors: newMirrors(o.Client, o.Namespace, o.After), state: newState(),
		machine: time.Now, //nolint:forbidigo // it measures durations on this machine
		tabs:    make(chan struct{}, maxTabs), logs: make(chan struct{}, maxLogs), details: make(chan struct{}, maxDetails),
		token: rand.Text(), host: host, making: make(chan struct{}, maxChanges),
	}
}

// run keeps what the server has up to date until the context ends.
func (d *dashboard) run(ctx context.Context) {
	d.mirrors.run(ctx)
	d.compute(ctx)
}

// address returns the address of the page. The token is in the fragment, which a browser sends to no server.
func (d *dashboard) address() string { return "http://" + d.host + "/#token=" + d.token }
