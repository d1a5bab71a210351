// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Limits of one poll. An author of NodeJobs can list 16 Secrets in each, readable or not. If there are more Secrets
// than the limits allow, they are polled in turn, and changes are detected later.
const (
	maxSecretReads = 300
	// maxSecretTries is for Secrets that could not be read last time.
	maxSecretTries = 30
)

// secretTurns stores which Secrets were read last, so that the next poll continues after them.
type secretTurns struct{ readable, unreadable types.NamespacedName }

// pollSecrets reads each Secret once, however many NodeJobs list it, and one after the other.
func (r watcher) pollSecrets(ctx context.Context) {
	for _, keys := range r.contents.turn() {
		all, err := r.fetchContents(ctx, keys)
		if err != nil {
			logf.FromContext(ctx).WithName("poll").Error(err, "reading a Secret", "nodejob", keys[0].job)
			continue
		}
		for i, key := range keys {
			if r.contents.set(key, all[i]) {
				r.wakeUp(ctx, key.job)
			}
		}
	}
}

// turn returns the Secrets that this poll reads, each with the fields that list it.
func (c *contents) turn() [][]contentKey {
	keys, readable := map[types.NamespacedName][]contentKey{}, map[types.NamespacedName]bool{}
	for key, is := range c.secrets() {
		name := types.NamespacedName{Namespace: key.job.Namespace, Name: key.Name}
		keys[name] = append(keys[name], key)
		readable[name] = readable[name] || is.obstacle == nil
	}
	var reads, tries []types.NamespacedName
	for name := range keys {
		if readable[name] {
			reads = append(reads, name)
		} else {
			tries = append(tries, name)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	reads, c.turns.readable = next(reads, c.turns.readable, maxSecretReads)
	tries, c.turns.unreadable = next(tries, c.turns.unreadable, maxSecretTries)
	turn := make([][]contentKey, 0, len(reads)+len(tries))
	for _, name := range slices.Concat(reads, tries) {
		turn = append(turn, keys[name])
	}
	return turn
}

// next returns at most limit of the names, starting after the last one of the previous turn, and the last one of this
// turn.
func next(names []types.NamespacedName, after types.NamespacedName, limit int) (turn []types.NamespacedName, last types.NamespacedName) {
	slices.SortFunc(names, compareNames)
	first, found := slices.BinarySearchFunc(names, after, compareNames)
	if found {
		first++
	}
	turn = slices.Concat(names[first:], names[:first])
	turn = turn[:min(len(turn), limit)]
	if len(turn) > 0 {
		after = turn[len(turn)-1]
	}
	return turn, after
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
