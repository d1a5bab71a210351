// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// onlyUnreachable reports whether the remaining nodes have been unavailable for long enough.
func (r *running) onlyUnreachable(ctx context.Context) bool {
	if r.view.Count(view.RunRunning) > 0 || r.view.Count(view.RunWaiting) == 0 || !r.seen {
		r.quiet = 0
		return false
	}
	why, err := r.unreachableNodes(ctx)
	if err != nil || len(why) < r.view.Count(view.RunWaiting) {
		r.quiet = 0
		return false
	}
	if r.quiet++; r.quiet < 2 {
		return false
	}
	r.suspend(ctx) // otherwise it would run when they are available again, unnoticed by the user
	for n, w := range why {
		n.State, n.Said = view.RunUnreachable, w
	}
	return true
}

// unreachableNodes returns why waiting nodes cannot run anything now. It does not contain the nodes that can.
func (r *running) unreachableNodes(ctx context.Context) (map[*node]string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	why := map[*node]string{}
	var page corev1.NodeList
	err := cmdutil.EachPage(ctx, r.client, &page, func() {
		for j := range page.Items {
			live := &page.Items[j]
			if n, ours := r.index[live.Name]; ours && n.State == view.RunWaiting && unreachableReason(live) != "" {
				why[n] = unreachableReason(live)
			}
		}
	})
	return why, err
}

// unreachableReason returns the reason why a node cannot run anything now; "" if it can.
func unreachableReason(node *corev1.Node) string {
	if !node.DeletionTimestamp.IsZero() {
		return "it is being deleted"
	}
	ready := kube.ReadyCondition(node)
	if ready == nil {
		return "it has not reported its state yet"
	}
	if ready.Status == corev1.ConditionUnknown {
		return "it has been unreachable since " + ready.LastTransitionTime.UTC().Format("2006-01-02 15:04 UTC")
	}
	return ""
}

// describeUnreachable returns the first unreachable nodes with the reasons, and how many more there are.
func describeUnreachable(unreachable map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(unreachable)) {
		parts = append(parts, name+": "+unreachable[name])
	}
	if len(parts) > cmdutil.MaxNames {
		return strings.Join(parts[:cmdutil.MaxNames], "; ") + fmt.Sprintf("; and %d more", len(parts)-cmdutil.MaxNames)
	}
	return strings.Join(parts, "; ")
}
