// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/seal"
)

// Statuses decides which status of a NodeGuard counts. Any user with rights on nodeguards/status can write one, so only those
// count that the manager has sealed. It remembers the newest of each NodeGuard. While the manager runs, a user who
// overwrites a status, or restores an earlier one, changes nothing. It is not safe for concurrent use.
type Statuses struct {
	Key    seal.Key
	newest map[types.UID]v1alpha1.NodeGuardStatus
}

// Open replaces the status of a NodeGuard by the newest that the manager has written, if it is another one. Then it has no
// seal, so that the manager writes it again. A NodeGuard without a known status has none. What the manager writes is opened
// after the write, and so remembered.
func (s *Statuses) Open(g *v1alpha1.NodeGuard) {
	known := s.newest[g.UID]
	if s.Key.OpenNodeGuard(g) && g.Status.ControllerState.Writes >= known.ControllerState.Writes {
		if s.newest == nil {
			s.newest = map[types.UID]v1alpha1.NodeGuardStatus{}
		}
		s.newest[g.UID] = *g.Status.DeepCopy()
		return
	}
	g.Status = *known.DeepCopy()
	g.Status.ControllerState.Seal = ""
}

// Seal marks a status that the manager is about to write. Its number is a time, so that it is above all earlier ones even if the
// last number is lost, because a user has overwritten the status.
func (s *Statuses) Seal(g *v1alpha1.NodeGuard, now time.Time) {
	g.Status.ControllerState.Writes = max(g.Status.ControllerState.Writes+1, now.UnixMilli())
	g.Status.ControllerState.Seal = s.Key.NodeGuard(g)
}

// Forget drops what is known of a deleted NodeGuard.
func (s *Statuses) Forget(uid types.UID) { delete(s.newest, uid) }
