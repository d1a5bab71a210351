// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// maxOrphans limits the notifications of deleted objects. Those of the other objects are limited by their status.
const maxOrphans = 256

// queue holds the notifications that are not delivered yet. The objects take turns, and the notifications of an object keep
// their order.
type queue struct {
	mu sync.Mutex
	// objects are the objects with notifications in their status, and deleted objects with notifications that wait.
	objects map[Object]*letters
	// turns are the objects with notifications that wait, the next one first.
	turns []Object
	// filled has a value after a notification has been added.
	filled chan struct{}
}

// letters are the notifications of an object.
type letters struct {
	waiting []v1alpha1.Notification
	// handled are the ids of notifications that need not be sent any more, but are still in the status, since when.
	handled map[string]time.Time
	deleted bool
}

func newQueue() *queue {
	return &queue{objects: map[Object]*letters{}, filled: make(chan struct{}, 1)}
}

// offer adds the notifications in the stored status of an object that the queue does not have yet. It returns how many are
// dropped, because newer ones have replaced them in the status.
func (q *queue) offer(o Object, pending []v1alpha1.Notification) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.objects[o]
	if l == nil {
		if len(pending) == 0 {
			return 0
		}
		q.markDeleted(o.Kind, o.NamespacedName) // an earlier object of the same name
		l = &letters{handled: map[string]time.Time{}}
		q.objects[o] = l
	}
	stored := map[string]bool{}
	for i := range pending {
		stored[id(o, &pending[i])] = true
	}
	maps.DeleteFunc(l.handled, func(name string, _ time.Time) bool { return !stored[name] })
	was := len(l.waiting)
	l.waiting = slices.DeleteFunc(l.waiting, func(n v1alpha1.Notification) bool { return !stored[id(o, &n)] })
	dropped = was - len(l.waiting)
	waits := map[string]bool{}
	for i := range l.waiting {
		waits[id(o, &l.waiting[i])] = true
	}
	for i := range pending {
		name := id(o, &pending[i])
		if _, handled := l.handled[name]; !handled && !waits[name] {
			l.waiting = append(l.waiting, pending[i])
		}
	}
	q.turn(o)
	q.tidy(o)
	return dropped
}

// turn adds an object to the turns if it has notifications that wait, and removes it if it has none.
func (q *queue) turn(o Object) {
	i, waits := slices.Index(q.turns, o), len(q.objects[o].waiting) > 0
	switch {
	case i >= 0 && !waits:
		q.turns = slices.Delete(q.turns, i, i+1)
	case i < 0 && waits:
		q.turns = append(q.turns, o)
		select {
		case q.filled <- struct{}{}:
		default:
		}
	}
}

// next returns the notification to send next; false if there is none.
func (q *queue) next() (Object, v1alpha1.Notification, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 0 {
		return Object{}, v1alpha1.Notification{}, false
	}
	o := q.turns[0]
	return o, q.objects[o].waiting[0], true
}

// postpone lets the other objects send first.
func (q *queue) postpone(o Object) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.turns, o); i >= 0 {
		q.turns = append(slices.Delete(q.turns, i, i+1), o)
	}
}

// handle removes a notification that need not be sent any more.
func (q *queue) handle(o Object, n *v1alpha1.Notification, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, name := q.objects[o], id(o, n)
	if l == nil {
		return // the object was deleted, and there were too many others
	}
	l.handled[name] = now
	l.waiting = slices.DeleteFunc(l.waiting, func(w v1alpha1.Notification) bool { return id(o, &w) == name })
	q.turns = slices.DeleteFunc(q.turns, func(t Object) bool { return t == o })
	q.turn(o)
	q.tidy(o)
}

// handled returns which of the notifications of an object need not be sent any more, since when.
func (q *queue) handled(o Object) map[string]time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.objects[o]; l != nil {
		return maps.Clone(l.handled)
	}
	return nil
}

// orphan notes that all objects of a kind and name are deleted. It returns how many notifications are dropped, because too
// many are of deleted objects.
func (q *queue) orphan(kind string, name types.NamespacedName) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.markDeleted(kind, name)
	orphans := 0
	for _, o := range slices.Clone(q.turns) {
		l := q.objects[o]
		if !l.deleted {
			continue
		}
		if orphans += len(l.waiting); orphans > maxOrphans {
			dropped += len(l.waiting)
			q.turns = slices.DeleteFunc(q.turns, func(t Object) bool { return t == o })
			delete(q.objects, o)
		}
	}
	return dropped
}

func (q *queue) markDeleted(kind string, name types.NamespacedName) {
	for o, l := range q.objects {
		if o.Kind == kind && o.NamespacedName == name {
			l.deleted = true
			q.tidy(o)
		}
	}
}

// length is how many notifications wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, o := range q.turns {
		n += len(q.objects[o].waiting)
	}
	return n
}

// tidy forgets an object that has nothing to remember.
func (q *queue) tidy(o Object) {
	if l := q.objects[o]; len(l.waiting) == 0 && (l.deleted || len(l.handled) == 0) {
		delete(q.objects, o)
	}
}
