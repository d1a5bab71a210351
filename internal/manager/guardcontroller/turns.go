// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// turns allow one decision at a time across all NodeGuards, so that each sees the earlier ones. Namespaces take turns: while one NodeGuard
// of a namespace decides or waits, the others of the namespace do not wait, so that they use no worker.
type turns struct {
	deciding sync.Mutex // the one that has waited longest is next

	mu sync.Mutex
	// skipped are the NodeGuards that came while another one of their namespace had its turn or waited, by namespace.
	skipped map[string][]client.ObjectKey
	// needed is how long decisions have waited for what the NodeGuards of a namespace say, since the last one that was made in time.
	needed map[string]time.Duration
}

// take waits for the turn of a NodeGuard's namespace, and returns what ends it. If another NodeGuard of the namespace has it or waits, it
// returns nil, and the end of that turn wakes the NodeGuard.
func (t *turns) take(name client.ObjectKey, wake func(client.ObjectKey)) (end func()) {
	if !t.begin(name) {
		return nil
	}
	t.deciding.Lock()
	return func() {
		t.deciding.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		skipped := t.skipped[name.Namespace]
		delete(t.skipped, name.Namespace)
		for _, next := range skipped {
			wake(next)
		}
	}
}

// begin reports whether no other NodeGuard of the namespace has its turn or waits.
func (t *turns) begin(name client.ObjectKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	skipped, taken := t.skipped[name.Namespace]
	if t.skipped == nil {
		t.skipped, t.needed = map[string][]client.ObjectKey{}, map[string]time.Duration{}
	}
	if taken && !slices.Contains(skipped, name) {
		skipped = append(skipped, name)
	}
	t.skipped[name.Namespace] = skipped
	return !taken
}

// asked notes how long a decision has waited for what a NodeGuard of a namespace says.
func (t *turns) asked(namespace string, for_ time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.needed != nil { // it is before any decision
		t.needed[namespace] += for_
	}
}

// inTime notes that a decision was made in time.
func (t *turns) inTime() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.needed)
}

// slowest returns the namespace whose NodeGuards needed the most time, or else that of the NodeGuard that decides.
func (t *turns) slowest(own string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slow := own
	for namespace, needed := range t.needed {
		if most := t.needed[slow]; needed > most || needed == most && namespace < slow {
			slow = namespace
		}
	}
	return slow
}
