// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
)

// observePeers collects what this NodeJob needs to know about other NodeJobs.
func (r observer) observePeers(ctx context.Context, seen *observation) error {
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeJobs: %w", err)
	}
	all := make([]*v1alpha1.NodeJob, 0, len(jobs.Items))
	for i := range jobs.Items {
		all = append(all, r.written.job(&jobs.Items[i]))
	}
	nodes := map[string]labels.Selector{seen.job.Namespace: seen.input.AllowedNodes}
	peers, err := r.allowedOnly(ctx, seen.job.Namespace, all, nodes)
	if err != nil {
		return err
	}
	observe.Peers(&seen.input, peers, nodes, r.records.read)
	if seen.job.Spec.Gate != nil {
		seen.input.GateWarning = r.gates.gap(seen.job.Namespace)
	}
	return nil
}
