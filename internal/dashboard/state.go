// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"maps"
	"sync"
)

// maxGone limits the names that are remembered after their removal. A tab that is older than the oldest of them gets
// everything again.
const maxGone = 20_000

// entry is a part of the page's state, and the version of the state in which it changed last.
type entry struct {
	value   json.RawMessage
	version uint64
}

// state is what all tabs show: values by key. It is computed once, and shared by all tabs. A tab knows the version that it
// has received, and gets what has changed after that: a slow tab skips what is outdated, and needs no queue.
type state struct {
	mu      sync.Mutex
	version uint64
	entries map[string]entry
	// gone are the versions in which keys were removed, and forgotten is the version before which they are not known.
	gone      map[string]uint64
	forgotten uint64
	// changed is closed by the next change.
	changed chan struct{}
}

func newState() *state {
	return &state{entries: map[string]entry{}, gone: map[string]uint64{}, changed: make(chan struct{}), forgotten: 1}
}

// change is what a tab must do to have a version of the state.
type change struct {
	Version uint64 `json:"version"`
	// Reset is true if the tab must drop what it has.
	Reset bool                       `json:"reset,omitempty"`
	Set   map[string]json.RawMessage `json:"set,omitempty"`
	Gone  []string                   `json:"gone,omitempty"`
}

// replace makes the values the new state.
func (s *state) replace(values map[string]json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changed := s.version+1, false
	for key, value := range values {
		if old, ok := s.entries[key]; ok && string(old.value) == string(value) {
			continue
		}
		s.entries[key] = entry{value, next}
		delete(s.gone, key)
		changed = true
	}
	for key := range s.entries {
		if _, ok := values[key]; !ok {
			delete(s.entries, key)
			s.gone[key] = next
			changed = true
		}
	}
	if !changed {
		return
	}
	if len(s.gone) > maxGone {
		clear(s.gone)
		s.forgotten = next
	}
	s.version = next
	close(s.changed)
	s.changed = make(chan struct{})
}

// since returns what has changed after a version, and a channel that is closed by the next change. Version 0 is a tab that
// has nothing.
func (s *state) since(version uint64) (change, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := change{Version: s.version}
	if version == 0 || version > s.version || version < s.forgotten {
		c.Reset, version = true, 0
	}
	for key, e := range s.entries {
		if e.version > version {
			if c.Set == nil {
				c.Set = map[string]json.RawMessage{}
			}
			c.Set[key] = e.value
		}
	}
	if !c.Reset {
		for key, at := range maps.All(s.gone) {
			if at > version {
				c.Gone = append(c.Gone, key)
			}
		}
	}
	return c, s.changed
}
