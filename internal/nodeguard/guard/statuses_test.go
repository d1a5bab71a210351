// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/seal"
)

func TestWhichStatusCounts(t *testing.T) {
	written := func(s *Statuses, before *v1alpha1.NodeGuard, node string) *v1alpha1.NodeGuard {
		g := before.DeepCopy()
		g.Status.Released = []v1alpha1.ReleasedNode{{Node: node}}
		s.Seal(g, time.Time{})
		return g
	}
	forged := func(g *v1alpha1.NodeGuard) *v1alpha1.NodeGuard {
		g = g.DeepCopy()
		g.Status.Released = []v1alpha1.ReleasedNode{{Node: "forged"}}
		return g
	}
	key := seal.Key{1}
	first := written(&Statuses{Key: key}, guardOf("g"), "n1")
	second := written(&Statuses{Key: key}, first, "n2")
	other := second.DeepCopy()
	other.UID = "other"
	tests := map[string]struct {
		seen   []*v1alpha1.NodeGuard
		want   string
		sealed bool
	}{
		"what the manager has written":           {[]*v1alpha1.NodeGuard{first}, "n1", true},
		"what it has written later":              {[]*v1alpha1.NodeGuard{first, second}, "n2", true},
		"a forged status, and no other is known": {[]*v1alpha1.NodeGuard{forged(first)}, "", false},
		"a forged status, and another is known":  {[]*v1alpha1.NodeGuard{first, forged(second)}, "n1", false},
		"no status, and another is known":        {[]*v1alpha1.NodeGuard{second, guardOf("g")}, "n2", false},
		"an earlier status is restored":          {[]*v1alpha1.NodeGuard{second, first}, "n2", false},
		"the newest again":                       {[]*v1alpha1.NodeGuard{second, first, second}, "n2", true},
		"the status of another NodeGuard":        {[]*v1alpha1.NodeGuard{other}, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := Statuses{Key: key}
			var got *v1alpha1.NodeGuard
			for _, g := range tt.seen {
				got = g.DeepCopy()
				s.Open(got)
			}
			released := ""
			if len(got.Status.Released) > 0 {
				released = got.Status.Released[0].Node
			}
			if released != tt.want || (got.Status.ControllerState.Seal != "") != tt.sealed {
				t.Errorf("released is %q, sealed: %v; want %q, %v", released, got.Status.ControllerState.Seal != "", tt.want, tt.sealed)
			}
		})
	}
}

func TestStatusesOfSeveralNodeGuards(t *testing.T) {
	var s Statuses
	guards := []*v1alpha1.NodeGuard{guardOf("a"), guardOf("b")}
	for i, g := range guards {
		g.UID, g.Status.Revision = types.UID(g.Name), g.Name
		s.Seal(g, time.Time{})
		s.Open(guards[i])
	}
	for _, g := range guards {
		overwritten := g.DeepCopy()
		overwritten.Status = v1alpha1.NodeGuardStatus{}
		if s.Open(overwritten); overwritten.Status.Revision != g.Name {
			t.Errorf("the status of %s is %+v", g.Name, overwritten.Status)
		}
	}
}

func TestADeletedNodeGuardIsForgotten(t *testing.T) {
	var s Statuses
	g := guardOf("g")
	s.Seal(g, time.Time{})
	s.Open(g)
	s.Forget(g.UID)
	if len(s.newest) > 0 {
		t.Errorf("%v is remembered", s.newest)
	}
}
