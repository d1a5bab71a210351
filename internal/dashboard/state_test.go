// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func values(pairs ...string) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = json.RawMessage(`"` + pairs[i+1] + `"`)
	}
	return all
}

// TestATabGetsWhatHasChanged lets a tab that has a version of the state catch up.
func TestATabGetsWhatHasChanged(t *testing.T) {
	s := newState()
	s.replace(values("a", "1", "b", "1"))
	s.replace(values("a", "2", "b", "1", "c", "1"))
	s.replace(values("a", "2", "c", "1"))
	s.replace(values("a", "2", "c", "1")) // changes nothing
	for name, test := range map[string]struct {
		since uint64
		want  change
	}{
		"a new tab gets everything":                   {0, change{Version: 3, Reset: true, Set: values("a", "2", "c", "1")}},
		"a tab with the first version":                {1, change{Version: 3, Set: values("a", "2", "c", "1"), Gone: []string{"b"}}},
		"a tab that misses a removal":                 {2, change{Version: 3, Gone: []string{"b"}}},
		"a tab that has everything":                   {3, change{Version: 3}},
		"a tab of an earlier process gets everything": {9, change{Version: 3, Reset: true, Set: values("a", "2", "c", "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := s.since(test.since)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAChangeWakesTabs(t *testing.T) {
	s := newState()
	s.replace(values("a", "1"))
	_, changed := s.since(1)
	s.replace(values("a", "1"))
	select {
	case <-changed:
		t.Fatal("the same state wakes tabs")
	default:
	}
	s.replace(values("a", "2"))
	<-changed
}

func TestForgottenRemovalsResetATab(t *testing.T) {
	s := newState()
	many := map[string]json.RawMessage{}
	for i := range maxGone + 1 {
		many[string(rune('a'+i%26))+string(encode(i))] = json.RawMessage("1")
	}
	s.replace(values("kept", "1"))
	s.replace(many)
	s.replace(values("kept", "2"))
	if got, _ := s.since(2); !got.Reset || len(got.Set) != 1 || len(s.gone) != 0 {
		t.Errorf("reset %t, %d values, %d removals remembered", got.Reset, len(got.Set), len(s.gone))
	}
	s.replace(values())
	if got, _ := s.since(3); got.Reset || !slices.Equal(got.Gone, []string{"kept"}) {
		t.Errorf("after that: %+v", got)
	}
}
