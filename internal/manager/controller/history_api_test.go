// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

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
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // as the API server applies it
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// An API server in memory, for histories. Each request and each event of a watch takes some time, which depends on the
// seed and on the object. So no two of them happen at the same time, and each seed always results in the same history.

type apiKey struct {
	kind string
	client.ObjectKey
}

func apiKeyOf(o client.Object) apiKey { return apiKey{kindOf(o), client.ObjectKeyFromObject(o)} }

func kindOf(o runtime.Object) string {
	if _, is := o.(*metav1.PartialObjectMetadata); is {
		return o.GetObjectKind().GroupVersionKind().Kind
	}
	return reflect.TypeOf(o).Elem().Name()
}

type historyAPI struct {
	seed int64
	// stored is called after each change, with the lock held; after is nil for a deletion.
	stored func(before, after client.Object)

	mu      sync.Mutex
	objects map[apiKey]client.Object
	version int
	// made counts the objects of each name, and asked the requests about each.
	made, asked map[string]int
	watches     []*historyWatch
	// faults is true while requests fail and watches are late. compress is true if watches omit intermediate versions, as
	// they do after an interruption.
	faults, compress bool
	// busy is when something was last changed, or has failed.
	busy time.Time
}

// roll returns a number below n that depends on the seed and the texts.
func (a *historyAPI) roll(n int, texts ...any) int {
	h := fnv.New64a()
	fmt.Fprint(h, a.seed, texts)
	sum := h.Sum64()
	return int((sum ^ sum>>29) * 0xbf58476d1ce4e5b9 >> 33 % uint64(n))
}

// between returns a duration that depends on the seed and the texts.
func (a *historyAPI) between(least, most time.Duration, texts ...any) time.Duration {
	return least + time.Duration(
		a.roll(int((most-least)/time.Microsecond), texts...),
	)*time.Microsecond + time.Duration(
		a.roll(1000, "ns", texts),
	)
}

func missing404(key apiKey) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: key.kind}, key.Name)
}

func conflict409(key apiKey) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: key.kind}, key.Name, errors.New("it has changed"))
}

// request makes a request of the manager: it takes some time, and may fail, or seem to fail.
func (a *historyAPI) request(ctx context.Context, verb string, o client.Object, do func() error) error {
	a.mu.Lock()
	name := fmt.Sprint(verb, apiKeyOf(o))
	a.asked[name]++
	id, fails := fmt.Sprint(name, a.asked[name]), a.faults
	a.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(a.between(time.Millisecond, 20*time.Millisecond, id)):
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !fails || a.roll(10, id, "fails") > 0 {
		return do()
	}
	a.busy = time.Now()
	switch a.roll(3, id, "how") {
	case 0:
		return conflict409(apiKeyOf(o))
	case 1:
		return apierrors.NewServerTimeout(schema.GroupResource{Resource: kindOf(o)}, verb, 0)
	}
	return cmp.Or(do(), error(apierrors.NewTimeoutError("the response is lost", 0)))
}

// get returns a stored object, which must not be modified; nil if there is none.
func get[T client.Object](a *historyAPI, namespace, name string) (found T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, _ = a.objects[apiKey{reflect.TypeFor[T]().Elem().Name(), client.ObjectKey{Namespace: namespace, Name: name}}].(T)
	return found
}

// all returns the stored objects of a type, sorted by their names.
func all[T client.Object](a *historyAPI) (found []T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.sorted(reflect.TypeFor[T]().Elem().Name()) {
		found = append(found, o.(T))
	}
	return found
}

func (a *historyAPI) sorted(kind string) (found []client.Object) {
	for key, o := range a.objects {
		if key.kind == kind {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return found
}

// edit changes an object if it exists.
func edit[T client.Object](a *historyAPI, o T, change func(T)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if live, ok := a.objects[apiKeyOf(o)].(T); ok && live.GetUID() == o.GetUID() {
		changed := live.DeepCopyObject().(T)
		change(changed)
		a.put(changed)
	}
}

func (a *historyAPI) create(o client.Object) error {
	key := apiKeyOf(o)
	if a.objects[key] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: key.kind}, key.Name)
	}
	name := fmt.Sprint(key)
	a.made[name]++
	o.SetUID(types.UID(fmt.Sprintf("%s-%s-%d", strings.ToLower(key.kind), key.Name, a.made[name])))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	o.SetGeneration(1)
	a.put(o.DeepCopyObject().(client.Object))
	copyTo(o, a.objects[key])
	return nil
}

func copyTo(o, from client.Object) {
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
}

// put stores a new version of an object.
func (a *historyAPI) put(o client.Object) {
	key := apiKeyOf(o)
	before := a.objects[key]
	if equality.Semantic.DeepEqual(before, o) {
		return
	}
	if job, is := o.(*v1alpha1.NodeJob); is && before != nil && !equality.Semantic.DeepEqual(before.(*v1alpha1.NodeJob).Spec, job.Spec) {
		job.Generation++
	}
	a.version++
	a.busy = time.Now()
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.objects[key] = o
	after := o
	if gone := o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && *o.GetDeletionGracePeriodSeconds() == 0; gone {
		delete(a.objects, key)
		after = nil
	}
	for _, w := range a.watches {
		w.send(o, after != nil)
	}
	a.stored(before, after)
}

func (a *historyAPI) remove(o client.Object, opts ...client.DeleteOption) error {
	key := apiKeyOf(o)
	live := a.objects[key]
	if live == nil {
		return missing404(key)
	}
	if p := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions; p != nil &&
		((p.UID != nil && *p.UID != live.GetUID()) || (p.ResourceVersion != nil && *p.ResourceVersion != live.GetResourceVersion())) {
		return conflict409(key)
	}
	if live.GetDeletionTimestamp() != nil {
		return nil
	}
	changed, grace := live.DeepCopyObject().(client.Object), int64(0)
	if pod, is := live.(*corev1.Pod); is && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		grace = 30
	}
	changed.SetDeletionTimestamp(&metav1.Time{Time: time.Now().Truncate(time.Second).Add(time.Duration(grace) * time.Second)})
	changed.SetDeletionGracePeriodSeconds(&grace)
	changed.SetGeneration(live.GetGeneration() + 1)
	a.put(changed)
	return nil
}

func (a *historyAPI) patch(o client.Object, kind types.PatchType, data []byte) error {
	key := apiKeyOf(o)
	live := a.objects[key]
	if live == nil {
		return missing404(key)
	}
	body, err := json.Marshal(live)
	if err == nil && kind == types.StrategicMergePatchType {
		body, err = strategicpatch.StrategicMergePatch(body, data, live)
	} else if err == nil {
		body, err = jsonpatch.MergePatch(body, data)
	}
	changed := reflect.New(reflect.TypeOf(live).Elem()).Interface().(client.Object)
	if err := errors.Join(err, json.Unmarshal(body, changed)); err != nil {
		return err
	}
	if changed.GetUID() != live.GetUID() || changed.GetResourceVersion() != live.GetResourceVersion() {
		return conflict409(key)
	}
	if job, is := changed.(*v1alpha1.NodeJob); is {
		job.Status = live.(*v1alpha1.NodeJob).Status
	}
	a.put(changed)
	copyTo(o, changed)
	return nil
}

// historyReader reads from the API server.
type historyReader struct {
	client.Reader
	*historyAPI
}

func (r historyReader) Get(_ context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := apiKey{kindOf(o), name}
	live := r.objects[key]
	if live == nil {
		return missing404(key)
	}
	copyTo(o, live)
	return nil
}

func (r historyReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := (&client.ListOptions{}).ApplyOptions(opts)
	var found []runtime.Object
	for _, live := range r.sorted(strings.TrimSuffix(kindOf(list), "List")) {
		if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(live.GetLabels())) {
			continue
		}
		if pod, is := live.(*corev1.Pod); is && o.FieldSelector != nil {
			if node, exact := o.FieldSelector.RequiresExactMatch(nodeNameField); exact && node != pod.Spec.NodeName {
				continue
			}
		}
		found = append(found, live.DeepCopyObject())
	}
	return meta.SetList(list, found)
}

// historyClient is the client of a manager: it reads from the cache.
type historyClient struct {
	client.Client
	client.Reader
	*historyAPI
}

func (c historyClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.Reader.Get(ctx, key, o, opts...)
}

func (c historyClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Reader.List(ctx, list, opts...)
}

func (c historyClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	dry := len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0
	return c.request(ctx, "create", o, func() error {
		if dry {
			return nil
		}
		return c.create(o)
	})
}

func (c historyClient) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return c.request(ctx, "patch", o, func() error { return c.patch(o, patch.Type(), data) })
}

func (c historyClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.request(ctx, "delete", o, func() error { return c.remove(o, opts...) })
}

func (c historyClient) Status() client.SubResourceWriter {
	return historySubresource{nil, c.historyAPI}
}

func (c historyClient) SubResource(string) client.SubResourceClient {
	return historySubresource{nil, c.historyAPI}
}

type historySubresource struct {
	client.SubResourceClient
	*historyAPI
}

// Update writes the status of a NodeJob.
func (s historySubresource) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.request(ctx, "status", o, func() error {
		live, is := s.objects[apiKeyOf(o)].(*v1alpha1.NodeJob)
		if !is {
			return missing404(apiKeyOf(o))
		}
		if live.ResourceVersion != o.GetResourceVersion() || live.UID != o.GetUID() {
			return conflict409(apiKeyOf(o))
		}
		changed := live.DeepCopy()
		o.(*v1alpha1.NodeJob).Status.DeepCopyInto(&changed.Status)
		s.put(changed)
		copyTo(o, changed)
		return nil
	})
}

// Create evicts a pod.
func (s historySubresource) Create(ctx context.Context, o, _ client.Object, _ ...client.SubResourceCreateOption) error {
	return s.request(ctx, "evict", o, func() error { return s.remove(o) })
}

// historyWatch sends the changes of the objects of a kind.
type historyWatch struct {
	*historyAPI
	kind     string
	metadata bool
	selector labels.Selector
	results  chan watch.Event
	stopped  bool
	// last is when the last event is sent.
	last time.Time
	// seen are the objects that it has sent.
	seen map[apiKey]client.Object
}

// watch returns a watch that begins with all objects. metadata is true if only those are sent. A nil selector selects all.
func (a *historyAPI) watch(kind string, metadata bool, selector labels.Selector) watch.Interface {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := &historyWatch{
		historyAPI: a,
		kind:       kind,
		metadata:   metadata,
		selector:   selector,
		results:    make(chan watch.Event, 10000),
		seen:       map[apiKey]client.Object{},
	}
	for _, o := range a.sorted(kind) {
		w.see(apiKeyOf(o), o)
	}
	a.watches = append(a.watches, w)
	synced := &metav1.PartialObjectMetadata{}
	if synced.ResourceVersion = strconv.Itoa(a.version + 1); !metadata {
		kinds := map[string]client.Object{"Node": &corev1.Node{}, "Pod": &corev1.Pod{}, "NodeJob": &v1alpha1.NodeJob{}}
		kinds[kind].SetResourceVersion(synced.ResourceVersion)
		kinds[kind].SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.results <- watch.Event{Type: watch.Bookmark, Object: kinds[kind]}
		return w
	}
	synced.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	synced.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	w.results <- watch.Event{Type: watch.Bookmark, Object: synced}
	return w
}

func (w *historyWatch) ResultChan() <-chan watch.Event { return w.results }

func (w *historyWatch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.watches = slices.DeleteFunc(slices.Clone(w.watches), func(other *historyWatch) bool { return other == w })
}

// send sends a change later, and after all earlier ones.
func (w *historyWatch) send(o client.Object, exists bool) {
	key := apiKeyOf(o)
	if key.kind != w.kind {
		return
	}
	lag := w.between(time.Millisecond, 20*time.Millisecond, w.kind, w.version)
	if w.faults && w.roll(8, w.kind, w.version, "late") == 0 {
		lag *= 150
	}
	at := time.Now().Add(lag)
	if !at.After(w.last) {
		at = w.last.Add(time.Microsecond)
	}
	w.last = at
	if w.busy.Before(at) {
		w.busy = at
	}
	time.AfterFunc(time.Until(at), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case w.compress:
			o = w.objects[key]
		case !exists:
			o = nil
		}
		w.see(key, o)
	})
}

// see sends the difference between an object and what was sent of it; nil if it does not exist.
func (w *historyWatch) see(key apiKey, o client.Object) {
	if o != nil && w.selector != nil && !w.selector.Matches(labels.Set(o.GetLabels())) {
		o = nil
	}
	before := w.seen[key]
	kind := watch.Modified
	switch {
	case w.stopped, before == nil && o == nil, before != nil && o != nil && before.GetResourceVersion() == o.GetResourceVersion():
		return
	case o == nil:
		kind = watch.Deleted
		o = before
		delete(w.seen, key)
	case before == nil:
		kind = watch.Added
		fallthrough
	default:
		w.seen[key] = o
	}
	sent := o.DeepCopyObject()
	if w.metadata {
		only := &metav1.PartialObjectMetadata{}
		only.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(key.kind))
		o.DeepCopyObject().(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta).DeepCopyInto(&only.ObjectMeta)
		sent = only
	}
	w.results <- watch.Event{Type: kind, Object: sent}
}
