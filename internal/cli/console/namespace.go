// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/uninstall"
)

// Namespace is whether the manager serves the NodeJobs and NodeGuards of a namespace, as far as the user may read it.
type Namespace uint8

const (
	// NamespaceUnknown means that the namespace cannot be read.
	NamespaceUnknown Namespace = iota
	// NamespaceServed means that the manager serves it.
	NamespaceServed
	// NamespaceNotLabeled means that it lacks the label, and that it is not known whether the manager requires the label.
	NamespaceNotLabeled
	// NamespaceNotServed means that it lacks the label, and that the manager requires the label.
	NamespaceNotServed
)

// CheckNamespace reads a namespace, and if it lacks the label, the flags of the manager.
func CheckNamespace(ctx context.Context, c client.Reader, name string) Namespace {
	var namespace corev1.Namespace
	var manager appsv1.Deployment
	switch {
	case c.Get(ctx, client.ObjectKey{Name: name}, &namespace) != nil:
		return NamespaceUnknown
	case hold.AllowsNodeJobs(namespace.Labels):
		return NamespaceServed
	case c.Get(ctx, client.ObjectKeyFromObject(uninstall.Deployment()), &manager) != nil:
		return NamespaceNotLabeled
	}
	for i := range manager.Spec.Template.Spec.Containers {
		if slices.Contains(manager.Spec.Template.Spec.Containers[i].Args, "--require-namespace-label=false") {
			return NamespaceServed
		}
	}
	return NamespaceNotServed
}

// Message says why nothing starts, and what to do; "" if it does, or if this is not known.
func (n Namespace) Message(name string) string {
	message := hold.NamespaceNotAllowed(name).Message
	switch n {
	case NamespaceNotServed:
		return message
	case NamespaceNotLabeled:
		return "unless the manager serves all namespaces, " + message
	case NamespaceUnknown, NamespaceServed:
	}
	return ""
}
