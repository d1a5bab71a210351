// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watcher sends the changes of the objects that a request selects.
type watcher struct {
	*call
	selects func(client.Object) bool
	frames  chan []byte
	// last is when the last event is sent.
	last time.Time
	// resumes is when the watch continues that was interrupted last. Then it sends the newest versions.
	resumes time.Time
	// seen are the objects that it has sent.
	seen map[key]client.Object
}

// longestInterruption is how long client-go waits at most before it asks again for a watch that has ended.
const longestInterruption = time.Minute

// maxFrames is more than the events of any history.
const maxFrames = 100_000

// watch begins with all objects, as clients ask for with sendInitialEvents.
func (c *call) watch() (*http.Response, error) {
	selects, err := c.selector()
	if err != nil {
		return c.respond(nil, err)
	}
	w := &watcher{call: c, selects: selects, frames: make(chan []byte, maxFrames), seen: map[key]client.Object{}}
	reader, writer := io.Pipe()
	w.begin()
	go w.run(writer)
	return c.response(http.StatusOK, http.Header{}, body{reader, writer}), nil
}

// body is that of the response to a watch. A read after Close returns io.EOF: after another error, the client of metadata sends an event
// that nothing receives, and its goroutine stays.
type body struct {
	io.Reader
	io.Closer
}

func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.sorted(w.resource.Kind) {
		w.see(keyOf(o), w.shown(keyOf(o), o))
	}
	if k := w.shownLate; k.kind == w.resource.Kind && w.objects[k] == nil { // it was deleted
		w.see(k, w.before)
	}
	w.watches = append(w.watches, w)
	synced := w.empty()
	synced.SetResourceVersion(strconv.Itoa(w.version + 1))
	synced.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	w.emit(watch.Bookmark, synced)
}

// run writes the events until the request ends.
func (w *watcher) run(to *io.PipeWriter) {
	ended := w.req.Context().Done()
	for open := true; open; {
		select {
		case frame := <-w.frames:
			_, err := to.Write(frame)
			open = err == nil
		case <-ended:
			open = false
		}
	}
	_ = to.Close() // it always succeeds
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches = slices.DeleteFunc(slices.Clone(w.watches), func(other *watcher) bool { return other == w })
}

func (w *watcher) emit(kind watch.EventType, o client.Object) {
	frame, err := json.Marshal(map[string]any{"type": kind, "object": w.as(o)})
	if err != nil {
		panic(fmt.Sprintf("encoding an event: %v", err)) // only API types
	}
	w.frames <- append(frame, '\n')
}

// send sends a change later, and after all earlier ones. Its caller has locked mu.
func (w *watcher) send(o client.Object, exists bool) {
	k := keyOf(o)
	if k.kind != w.resource.Kind {
		return
	}
	lag := w.Between(time.Millisecond, 20*time.Millisecond, k.kind, w.version)
	if w.faults && w.Roll(8, k.kind, w.version, "late") == 0 {
		lag *= 150
	}
	interrupted := w.isInterrupted(k)
	at := time.Now().Add(lag)
	if at.Before(w.resumes) {
		at = w.resumes
	}
	if !at.After(w.last) {
		at = w.last.Add(time.Microsecond)
	}
	w.last = at
	w.isBusy(at)
	time.AfterFunc(time.Until(at), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case w.req.Context().Err() != nil:
			return
		case w.compress, interrupted:
			o = w.objects[k]
		case !exists:
			o = nil
		}
		w.see(k, o)
	})
}

// isInterrupted reports whether the watch is interrupted now. A change may interrupt it.
func (w *watcher) isInterrupted(changed key) bool {
	now := time.Now()
	if w.version == w.Interrupts {
		w.resumes = now.Add(longestInterruption)
	}
	if w.faults && !now.Before(w.resumes) && w.Roll(20, changed.kind, w.version, "is interrupted") == 0 {
		w.resumes = now.Add(w.Between(time.Second, longestInterruption, changed.kind, w.version))
	}
	return now.Before(w.resumes)
}

// see sends the difference between an object and what was sent of it; nil if it does not exist.
func (w *watcher) see(k key, o client.Object) {
	if o != nil && !w.selects(o) {
		o = nil
	}
	before := w.seen[k]
	switch {
	case before == nil && o == nil, before != nil && o != nil && before.GetResourceVersion() == o.GetResourceVersion():
	case o == nil:
		delete(w.seen, k)
		w.emit(watch.Deleted, before)
	case before == nil:
		w.seen[k] = o
		w.emit(watch.Added, o)
	default:
		w.seen[k] = o
		w.emit(watch.Modified, o)
	}
}
