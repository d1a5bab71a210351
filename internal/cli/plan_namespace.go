// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/cli/view"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/task"
)

// checkNamespace notes that the namespace of a NodeJob does not have the label that allows NodeJobs. Whether the manager
// requires the label is a flag of the manager, so this is no obstacle unless the status says so. A user who may not read the
// namespace gets no note.
func (o *planOptions) checkNamespace(ctx context.Context, v *view.Plan) {
	namespace := &corev1.Namespace{}
	if observe.ToldObstacle(v.Job) != nil || o.client.Get(ctx, client.ObjectKey{Name: v.Job.Namespace}, namespace) != nil || task.AllowsNodeJobs(namespace.Labels) {
		return
	}
	v.Notes = append(v.Notes, "unless the manager serves all namespaces, "+task.NamespaceNotAllowed(v.Job.Namespace).Message)
}
