// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
)

// maxOrphans limits the notifications of deleted objects. Those of the other objects are limited by their status.
const maxOrphans = 256

// queue holds the notifications that are not delivered yet. The namespaces take turns, and so do the objects of a namespace: one
// namespace cannot delay the others. The notifications of an object keep their order.
type queue struct {
	mu sync.Mutex
	// objects are the objects with notifications in their status, and deleted objects with notifications that wait.
	objects map[Object]*letters
	// order are the namespaces with notifications that wait, and turns their objects, the next one first.
	order []string
	turns map[string][]Object
	// filled has a value after a notification has been added.
	filled chan struct{}
}

// letters are the notifications of an object.
type letters struct {
	waiting []letter
	// rejections are those in a row. Nothing of this object is sent before until.
	rejections int
	until      time.Time
	// handled are the ids of notifications that need not be sent any more, but are still in the status, since when.
	handled map[string]time.Time
	deleted bool
}

// letter is a notification of an object. Its time is not in the future, so that it expires.
type letter struct {
	v1alpha1.Notification
	// id is the one of the notification in the status.
	id string
}

func newQueue() *queue {
	return &queue{objects: map[Object]*letters{}, turns: map[string][]Object{}, filled: make(chan struct{}, 1)}
}

// offer adds the notifications in the stored status of an object that the queue does not have yet. It returns how many are
// dropped, because newer ones have replaced them in the status.
func (q *queue) offer(o Object, pending []v1alpha1.Notification, now time.Time) (dropped int) {
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
	l.waiting = slices.DeleteFunc(l.waiting, func(n letter) bool { return !stored[n.id] })
	dropped = was - len(l.waiting)
	waits := map[string]bool{}
	for i := range l.waiting {
		waits[l.waiting[i].id] = true
	}
	for i := range pending {
		name := id(o, &pending[i])
		if _, handled := l.handled[name]; handled || waits[name] {
			continue
		}
		next := letter{pending[i], name}
		if next.Time.After(now) {
			next.Time = metav1.NewTime(now)
		}
		l.waiting, waits[name] = append(l.waiting, next), true
	}
	q.turn(o)
	q.tidy(o)
	return dropped
}

// turn adds an object to the turns if it has notifications that wait, and removes it if it has none.
func (q *queue) turn(o Object) {
	i, waits := slices.Index(q.turns[o.Namespace], o), len(q.objects[o].waiting) > 0
	switch {
	case i >= 0 && !waits:
		q.leave(o)
	case i < 0 && waits:
		if len(q.turns[o.Namespace]) == 0 {
			q.order = append(q.order, o.Namespace)
		}
		q.turns[o.Namespace] = append(q.turns[o.Namespace], o)
		select {
		case q.filled <- struct{}{}:
		default:
		}
	}
}

// leave removes an object from the turns.
func (q *queue) leave(o Object) {
	rest := slices.DeleteFunc(q.turns[o.Namespace], func(t Object) bool { return t == o })
	q.turns[o.Namespace] = rest
	if len(rest) == 0 {
		delete(q.turns, o.Namespace)
		q.order = slices.DeleteFunc(q.order, func(n string) bool { return n == o.Namespace })
	}
}

// next returns the notification to send next. If there is none, it returns after which time there is one; zero if none waits.
func (q *queue) next(now time.Time) (o Object, next letter, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, namespace := range q.order {
		for _, o := range q.turns[namespace] {
			l := q.objects[o]
			if !now.Before(l.until) {
				return o, l.waiting[0], 0
			}
			wait = loop.Soonest(wait, l.until.Sub(now))
		}
	}
	return Object{}, letter{}, wait
}

// postpone lets the other namespaces send first, and then the other objects of this one.
func (q *queue) postpone(o Object) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pass(o)
}

// pass moves a namespace to the end of the turns, and an object to the end of its namespace.
func (q *queue) pass(o Object) {
	l := q.objects[o]
	if l == nil {
		return // the object was deleted, and there were too many others
	}
	if i := slices.Index(q.order, o.Namespace); i >= 0 {
		q.order = append(slices.Delete(q.order, i, i+1), o.Namespace)
	}
	if i := slices.Index(q.turns[o.Namespace], o); i >= 0 {
		q.turns[o.Namespace] = append(slices.Delete(q.turns[o.Namespace], i, i+1), o)
	}
}

// rejected pauses an object whose notification was rejected, and accepted ends its row of rejections.
func (q *queue) rejected(o Object, now time.Time, pause func(failures int) time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.objects[o]; l != nil {
		l.rejections++
		l.until = now.Add(pause(l.rejections))
	}
}

func (q *queue) accepted(o Object) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.objects[o]; l != nil {
		l.rejections = 0
	}
}

// handle removes a notification that need not be sent any more.
func (q *queue) handle(o Object, name string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.objects[o]
	if l == nil {
		return // the object was deleted, and there were too many others
	}
	l.handled[name] = now
	l.waiting = slices.DeleteFunc(l.waiting, func(w letter) bool { return w.id == name })
	q.pass(o)
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
	for {
		o, all := q.surplus()
		if all <= maxOrphans {
			return dropped
		}
		dropped += len(q.objects[o].waiting)
		q.leave(o)
		delete(q.objects, o)
	}
}

// surplus returns how many notifications of deleted objects wait, and the deleted object to forget if these are too many: the
// last one of the namespace with most of them.
func (q *queue) surplus() (last Object, all int) {
	most := 0
	for _, namespace := range q.order {
		var newest Object
		orphans := 0
		for _, o := range q.turns[namespace] {
			if l := q.objects[o]; l.deleted {
				newest, orphans = o, orphans+len(l.waiting)
			}
		}
		if all += orphans; orphans > most {
			last, most = newest, orphans
		}
	}
	return last, all
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
	for _, l := range q.objects {
		n += len(l.waiting)
	}
	return n
}

// tidy forgets an object that has nothing to remember.
func (q *queue) tidy(o Object) {
	if l := q.objects[o]; len(l.waiting) == 0 && (l.deleted || len(l.handled) == 0) {
		delete(q.objects, o)
	}
}
