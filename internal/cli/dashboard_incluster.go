// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net"

	"github.com/everynode/everynode/internal/cli/dashboard"
)

// ServeDashboard serves the dashboard that runs in the cluster until the context ends. Its page names the commands of this package.
func ServeDashboard(ctx context.Context, listener net.Listener, o *dashboard.InCluster) error {
	o.Changes = changes{}
	return o.Serve(ctx, listener)
}
