// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is an API server in memory, for histories of the whole manager. Only tests import it.
//
// Each request that writes, and each event of a watch, takes some time, which depends on the seed and on the object. So no two of them
// happen at the same time, and with the clock of testing/synctest each seed always results in the same history.
package fakeapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // as the API server applies it
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
)

// Server is the API server.
type Server struct {
	// Stored is called after each change, with the lock held; after is nil for a deletion. Told is called for each event.
	Stored func(before, after client.Object)
	Told   func(reason, regarding, note string)
	// Evicting is called with the lock held when a client requests the eviction of a pod, before the decision. Evict does not call it.
	Evicting func(pod *corev1.Pod)
	// Meets is called with the lock held for each request that writes, and returns what it meets. what is its verb, and the kind and the name
	// of the object.
	Meets func(what string) Fault
	// Interrupts is the change that interrupts the watches of its kind for longestInterruption, by its number (Version); 0 for none.
	Interrupts int
	// Scheme has the kinds that it serves.
	Scheme *runtime.Scheme

	seed int64

	mu      sync.Mutex
	objects map[key]client.Object
	version int
	// made counts the objects of each name, and asked the requests about each.
	made, asked map[string]int
	watches     []*watcher
	// faults is true while requests fail and watches are late. compress is true if watches omit intermediate versions, as
	// they do after an interruption.
	faults, compress bool
	// busy is when something was last changed, or has failed, or when the last watch shows that.
	busy time.Time
	// down is true while nothing is served. shownLate is the object that new watches show as it was before its last change; nil if it did
	// not exist.
	down      bool
	shownLate key
	before    client.Object
}

// New returns a server without objects. If compress is true, watches omit intermediate versions.
func New(t testing.TB, seed int64, compress bool) *Server {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return &Server{
		Stored: func(_, _ client.Object) {}, Told: func(_, _, _ string) {}, Evicting: func(*corev1.Pod) {},
		Meets:  func(string) Fault { return NoFault },
		Scheme: scheme, seed: seed, compress: compress,
		objects: map[key]client.Object{}, made: map[string]int{}, asked: map[string]int{},
	}
}

type key struct {
	kind string
	client.ObjectKey
}

func keyOf(o client.Object) key { return key{KindOf(o), client.ObjectKeyFromObject(o)} }

// KindOf returns the kind of an object.
func KindOf(o runtime.Object) string { return reflect.TypeOf(o).Elem().Name() }

// Roll returns a number below n that depends on the seed and the texts.
func (s *Server) Roll(n int, texts ...any) int {
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, texts)
	sum := h.Sum64()
	return int((sum ^ sum>>29) * 0xbf58476d1ce4e5b9 >> 33 % uint64(n))
}

// Between returns a duration that depends on the seed and the texts.
func (s *Server) Between(least, most time.Duration, texts ...any) time.Duration {
	span := int((most - least) / time.Microsecond)
	return least + time.Duration(s.Roll(span, texts...))*time.Microsecond + time.Duration(s.Roll(1000, "ns", texts))
}

// SetFaults lets requests fail, or no longer, and returns whether they did.
func (s *Server) SetFaults(now bool) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.faults = s.faults, now
	return before
}

// Quiet reports whether nothing has happened for some time.
func (s *Server) Quiet(since time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.busy) > since
}

// isBusy notes that something happens at a time. Its caller has locked mu.
func (s *Server) isBusy(at time.Time) {
	if s.busy.Before(at) {
		s.busy = at
	}
}

// Version is that of the last change.
func (s *Server) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func notFound(k key) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: k.kind}, k.Name)
}

func conflict(k key) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: k.kind}, k.Name, errors.New("it has changed"))
}

// request makes a request that writes: it takes some time, and may fail, or seem to fail.
func (s *Server) request(ctx context.Context, verb string, k key, do func() error) error {
	s.mu.Lock()
	name := fmt.Sprint(verb, k)
	s.asked[name]++
	id, fails := fmt.Sprint(name, s.asked[name]), s.faults
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.Between(time.Millisecond, 20*time.Millisecond, id)):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errDown
	}
	fault := s.Meets(strings.Join([]string{verb, k.kind, k.Name}, " "))
	if fails && s.Roll(10, id, "fails") == 0 {
		fault = []Fault{Conflict, TimedOut, Lost}[s.Roll(3, id, "how")]
	}
	return s.meet(fault, verb, k, do)
}

// Get returns a stored object, which must not be modified; nil if there is none.
func Get[T client.Object](s *Server, namespace, name string) (found T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, _ = s.objects[key{reflect.TypeFor[T]().Elem().Name(), client.ObjectKey{Namespace: namespace, Name: name}}].(T)
	return found
}

// All returns the stored objects of a type, sorted by their names. They must not be modified.
func All[T client.Object](s *Server) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return allOf[T](s)
}

func allOf[T client.Object](s *Server) (found []T) {
	for _, o := range s.sorted(reflect.TypeFor[T]().Elem().Name()) {
		found = append(found, o.(T))
	}
	return found
}

func (s *Server) sorted(kind string) (found []client.Object) {
	for k, o := range s.objects {
		if k.kind == kind {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return found
}

// Edit changes an object, including its status, if it exists.
func Edit[T client.Object](s *Server, o T, change func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if live, ok := s.objects[keyOf(o)].(T); ok && live.GetUID() == o.GetUID() {
		changed := live.DeepCopyObject().(T)
		change(changed)
		s.put(changed)
	}
}

// Create stores an object, and sets its UID and its times.
func (s *Server) Create(o client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create(o)
}

// Remove deletes an object. A pod that runs needs its kubelet to end. It does nothing if the object does not exist.
func (s *Server) Remove(o client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return client.IgnoreNotFound(s.remove(keyOf(o), &metav1.DeleteOptions{}))
}

func (s *Server) create(o client.Object) error {
	k := keyOf(o)
	if s.objects[k] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: k.kind}, k.Name)
	}
	name := fmt.Sprint(k)
	s.made[name]++
	o.SetUID(types.UID(fmt.Sprintf("%s-%s-%d", strings.ToLower(k.kind), k.Name, s.made[name])))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	o.SetGeneration(1)
	s.put(o.DeepCopyObject().(client.Object))
	copyTo(o, s.objects[k])
	return nil
}

func copyTo(o, from client.Object) {
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
}

// hasGeneration has the kinds whose generation counts the changes of their spec.
var hasGeneration = map[string]bool{
	"NodeJob": true, "NodeGuard": true, "NodeDisruptionBudget": true, "PodDisruptionBudget": true, "DaemonSet": true,
}

func field(o client.Object, name string) reflect.Value {
	return reflect.ValueOf(o).Elem().FieldByName(name)
}

// put stores a new version of an object. Its caller has locked mu.
func (s *Server) put(o client.Object) {
	k := keyOf(o)
	before := s.objects[k]
	if equality.Semantic.DeepEqual(before, o) {
		return
	}
	if hasGeneration[k.kind] && before != nil && !equality.Semantic.DeepEqual(field(before, "Spec").Interface(), field(o, "Spec").Interface()) {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	s.version++
	s.isBusy(time.Now())
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[k] = o
	after := o
	if gone := o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && *o.GetDeletionGracePeriodSeconds() == 0; gone {
		delete(s.objects, k)
		after = nil
	}
	for _, w := range s.watches {
		w.send(o, after != nil)
	}
	s.disruptionChanged(o)
	s.Stored(before, after)
}

func (s *Server) remove(k key, options *metav1.DeleteOptions) error {
	live := s.objects[k]
	if live == nil {
		return notFound(k)
	}
	if p := options.Preconditions; p != nil &&
		((p.UID != nil && *p.UID != live.GetUID()) || (p.ResourceVersion != nil && *p.ResourceVersion != live.GetResourceVersion())) {
		return conflict(k)
	}
	if live.GetDeletionTimestamp() != nil {
		return nil
	}
	changed, grace := live.DeepCopyObject().(client.Object), int64(0)
	if pod, is := live.(*corev1.Pod); is && pod.Spec.NodeName != "" && !kube.PodEnded(pod.Status.Phase) {
		grace = 30
	}
	changed.SetDeletionTimestamp(&metav1.Time{Time: time.Now().Truncate(time.Second).Add(time.Duration(grace) * time.Second)})
	changed.SetDeletionGracePeriodSeconds(&grace)
	changed.SetGeneration(live.GetGeneration() + 1)
	s.put(changed)
	return nil
}

// patch changes an object as a patch says, and returns what is stored then. part is "" or "status".
func (s *Server) patch(k key, kind types.PatchType, data []byte, part string) (client.Object, error) {
	live := s.objects[k]
	if live == nil {
		return nil, notFound(k)
	}
	body, err := json.Marshal(live)
	if err == nil && kind == types.StrategicMergePatchType {
		body, err = strategicpatch.StrategicMergePatch(body, data, live)
	} else if err == nil {
		body, err = jsonpatch.MergePatch(body, data)
	}
	changed := reflect.New(reflect.TypeOf(live).Elem()).Interface().(client.Object)
	if err := errors.Join(err, json.Unmarshal(body, changed)); err != nil {
		return nil, err
	}
	return s.update(k, changed, part)
}

// update stores a changed object, and returns what is stored then. The status changes only with its part, and nothing else does then.
func (s *Server) update(k key, changed client.Object, part string) (client.Object, error) {
	live := s.objects[k]
	switch {
	case live == nil:
		return nil, notFound(k)
	case changed.GetUID() != live.GetUID() || changed.GetResourceVersion() != live.GetResourceVersion():
		return nil, conflict(k)
	case part == "status":
		status := field(changed, "Status")
		changed = live.DeepCopyObject().(client.Object)
		field(changed, "Status").Set(status)
	case field(changed, "Status").IsValid():
		field(changed, "Status").Set(field(live.DeepCopyObject().(client.Object), "Status"))
	}
	s.put(changed)
	return changed, nil
}

// Dependents returns the objects that an object with this UID owned, and that no other object owns.
func (s *Server) Dependents(owner types.UID) (found []client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	exists := map[types.UID]bool{}
	for _, o := range s.objects {
		exists[o.GetUID()] = true
	}
	for _, o := range s.objects {
		owned, others := false, false
		for _, ref := range o.GetOwnerReferences() {
			owned, others = owned || ref.UID == owner, others || exists[ref.UID]
		}
		if owned && !others {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b client.Object) int { return strings.Compare(fmt.Sprint(keyOf(a)), fmt.Sprint(keyOf(b))) })
	return found
}
