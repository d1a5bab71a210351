// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// rerunsOnChange makes a NodeJob rerun when the content of an object of its namespace changes.
func rerunsOnChange(kind v1alpha1.ContentKind, name string) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Inputs = append(j.Spec.Task.Inputs, v1alpha1.ContentRef{Kind: kind, Name: name})
	}
}

func secret(uid types.UID, value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: uid},
		Data:       map[string][]byte{"key": []byte(value)},
	}
}

func configMap(uid types.UID, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: uid}, Data: map[string]string{"key": value}}
}

// hidden answers requests for Secrets with err, or with the existing object if err is nil.
func hidden(err *error) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, isSecret := o.(*corev1.Secret); isSecret && *err != nil {
				return *err
			}
			return c.Get(ctx, key, o, opts...)
		},
	}
}

var mayNot = apierrors.NewForbidden(corev1.Resource("secrets"), "x", errors.New("no RBAC policy matched"))

// woken are the NodeJobs that a poll wakes.
func (r *fakeReconciler) woken() []string {
	var names []string
	for {
		select {
		case e := <-r.wake:
			names = append(names, e.Object.GetNamespace()+"/"+e.Object.GetName())
		default:
			return names
		}
	}
}

// contentOf is the revision that the content makes, or the obstacle.
func (r *fakeReconciler) contentOf(job *v1alpha1.NodeJob) string {
	r.t.Helper()
	source, obstacle, err := r.source(r.t.Context(), job)
	if err != nil {
		r.t.Fatal(err)
	}
	if obstacle != nil {
		return obstacle.Reason
	}
	hashes := make([]string, 0, len(source.Inputs))
	for _, input := range source.Inputs {
		hashes = append(hashes, input.Content)
	}
	return strings.Join(hashes, ",")
}

func (r *fakeReconciler) update(o client.Object) {
	r.t.Helper()
	if err := r.Client.Update(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
}

func TestContents(t *testing.T) {
	const same, changed = "same", "changed"
	var answer error
	recreate := func(r *fakeReconciler, o client.Object) { r.delete(o); r.create(o) }
	tests := map[string]struct {
		kind v1alpha1.ContentKind
		has  client.Object
		do   func(r *fakeReconciler)
		// wantAtOnce and wantPolled are what a pass observes after the change, and after a poll.
		wantAtOnce, wantPolled string
		// wantWoken is true if the poll triggers a pass of the NodeJob.
		wantWoken bool
	}{
		"nothing happens to a ConfigMap": {
			kind:       v1alpha1.ContentConfigMap,
			has:        configMap("1", "a"),
			do:         func(*fakeReconciler) {},
			wantAtOnce: same,
			wantPolled: same,
		},
		"nothing happens to a Secret": {
			kind:       v1alpha1.ContentSecret,
			has:        secret("1", "a"),
			do:         func(*fakeReconciler) {},
			wantAtOnce: same,
			wantPolled: same,
		},
		"a ConfigMap changes": {kind: v1alpha1.ContentConfigMap, has: configMap("1", "a"),
			do: func(r *fakeReconciler) { r.update(configMap("1", "b")) }, wantAtOnce: changed, wantPolled: changed},
		"a ConfigMap gets a label": {kind: v1alpha1.ContentConfigMap, has: configMap("1", "a"), do: func(r *fakeReconciler) {
			o := configMap("1", "a")
			o.Labels = map[string]string{"x": "y"}
			r.update(o)
		}, wantAtOnce: same, wantPolled: same},
		"a ConfigMap gets binary data": {kind: v1alpha1.ContentConfigMap, has: configMap("1", "a"), do: func(r *fakeReconciler) {
			o := configMap("1", "a")
			o.BinaryData = map[string][]byte{"bin": {0}}
			r.update(o)
		}, wantAtOnce: changed, wantPolled: changed},
		"a ConfigMap is recreated with the same content": {kind: v1alpha1.ContentConfigMap, has: configMap("1", "a"),
			do: func(r *fakeReconciler) { recreate(r, configMap("2", "a")) }, wantAtOnce: same, wantPolled: same},
		"a ConfigMap is deleted": {
			kind:       v1alpha1.ContentConfigMap,
			has:        configMap("1", "a"),
			do:         func(r *fakeReconciler) { r.delete(configMap("1", "a")) },
			wantAtOnce: v1alpha1.ReasonConfigMapNotFound,
			wantPolled: v1alpha1.ReasonConfigMapNotFound,
		},
		"a ConfigMap is created": {kind: v1alpha1.ContentConfigMap,
			do: func(r *fakeReconciler) { r.create(configMap("1", "a")) }, wantAtOnce: changed, wantPolled: changed},
		"a Secret changes": {kind: v1alpha1.ContentSecret, has: secret("1", "a"),
			do: func(r *fakeReconciler) { r.update(secret("1", "b")) }, wantAtOnce: same, wantPolled: changed, wantWoken: true},
		"a Secret gets a label": {kind: v1alpha1.ContentSecret, has: secret("1", "a"), do: func(r *fakeReconciler) {
			o := secret("1", "a")
			o.Labels = map[string]string{"x": "y"}
			r.update(o)
		}, wantAtOnce: same, wantPolled: same},
		// A user who sees the revision must not be able to test guesses of the content.
		"a Secret is recreated with the same content": {kind: v1alpha1.ContentSecret, has: secret("1", "a"),
			do: func(r *fakeReconciler) { recreate(r, secret("2", "a")) }, wantAtOnce: same, wantPolled: changed, wantWoken: true},
		"a Secret is deleted": {
			kind:       v1alpha1.ContentSecret,
			has:        secret("1", "a"),
			do:         func(r *fakeReconciler) { r.delete(secret("1", "a")) },
			wantAtOnce: same,
			wantPolled: v1alpha1.ReasonSecretNotFound,
			wantWoken:  true,
		},
		"a Secret is created": {
			kind:       v1alpha1.ContentSecret,
			do:         func(r *fakeReconciler) { r.create(secret("1", "a")) },
			wantAtOnce: v1alpha1.ReasonSecretNotFound,
			wantPolled: changed,
			wantWoken:  true,
		},
		"a Secret is forbidden": {kind: v1alpha1.ContentSecret, has: secret("1", "a"),
			do: func(*fakeReconciler) { answer = mayNot }, wantAtOnce: same, wantPolled: v1alpha1.ReasonSecretForbidden, wantWoken: true},
		"the API server does not respond": {kind: v1alpha1.ContentSecret, has: secret("1", "a"),
			do: func(*fakeReconciler) { answer = errors.New("away") }, wantAtOnce: same, wantPolled: same},
		// Without permission, a missing Secret is forbidden; with permission, it is not found.
		"a missing Secret becomes forbidden": {
			kind:       v1alpha1.ContentSecret,
			do:         func(*fakeReconciler) { answer = mayNot },
			wantAtOnce: v1alpha1.ReasonSecretNotFound,
			wantPolled: v1alpha1.ReasonSecretForbidden,
			wantWoken:  true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			answer = nil
			job := liveJob(rerunsOnChange(tt.kind, "x"))
			objects := []client.Object{job}
			if tt.has != nil {
				objects = append(objects, tt.has)
			}
			r := newFaultyReconciler(t, hidden(&answer), objects...)
			before := r.contentOf(job)
			tt.do(r)
			saw := func(now string) string {
				switch {
				case now == before && len(now) == 64:
					return same
				case len(now) == 64:
					return changed
				}
				return now
			}
			if got := saw(r.contentOf(job)); got != tt.wantAtOnce {
				t.Errorf("at once: %s, want %s", got, tt.wantAtOnce)
			}
			r.pollOnce(t.Context())
			if got := r.woken(); (len(got) > 0) != tt.wantWoken {
				t.Errorf("the poll wakes %v, want %v", got, tt.wantWoken)
			}
			if got := saw(r.contentOf(job)); got != tt.wantPolled {
				t.Errorf("after a poll: %s, want %s", got, tt.wantPolled)
			}
			r.pollOnce(t.Context())
			if got := r.woken(); len(got) > 0 {
				t.Errorf("another poll wakes %v, although nothing has changed", got)
			}
		})
	}
}

func TestContentObstaclesSayHowToFixThem(t *testing.T) {
	tests := map[string]struct {
		kind       v1alpha1.ContentKind
		name       string
		answer     error
		installed  string
		wantReason string
		want       string
	}{
		"a missing ConfigMap": {kind: v1alpha1.ContentConfigMap, name: "x", wantReason: v1alpha1.ReasonConfigMapNotFound,
			want: "spec.task.inputs: ConfigMap ns/x does not exist. Create it; the NodeJob then continues automatically"},
		"a missing Secret": {kind: v1alpha1.ContentSecret, name: "x", wantReason: v1alpha1.ReasonSecretNotFound,
			want: "spec.task.inputs: Secret ns/x does not exist. Create it; the NodeJob continues within 30 s"},
		"no permission": {
			kind:       v1alpha1.ContentSecret,
			name:       "x",
			answer:     mayNot,
			wantReason: v1alpha1.ReasonSecretForbidden,
			want:       "spec.task.inputs: the manager may not read Secret ns/x. Allow it with: kubectl -n ns create role everynode-x --verb=get --resource=secrets --resource-name=x && kubectl -n ns create rolebinding everynode-x --role=everynode-x --serviceaccount=everynode-system:everynode-manager; the NodeJob continues within 30 s",
		},
		"no permission, and the manager is in another namespace": {
			kind:       v1alpha1.ContentSecret,
			name:       "x",
			answer:     mayNot,
			installed:  "ops",
			wantReason: v1alpha1.ReasonSecretForbidden,
			want:       "spec.task.inputs: the manager may not read Secret ns/x. Allow it with: kubectl -n ns create role everynode-x --verb=get --resource=secrets --resource-name=x && kubectl -n ns create rolebinding everynode-x --role=everynode-x --serviceaccount=ops:everynode-manager; the NodeJob continues within 30 s",
		},
		// A user who copies the command must not run what the author of a NodeJob has put into a name.
		"an invalid name of a Secret": {
			kind:       v1alpha1.ContentSecret,
			name:       "x;reboot\x1b[2J",
			answer:     mayNot,
			wantReason: v1alpha1.ReasonSecretNotFound,
			want:       `spec.task.inputs: no Secret can have the name "x;reboot\\x1b[2J". Correct it`,
		},
		"an invalid name of a ConfigMap": {kind: v1alpha1.ContentConfigMap, name: "../x", wantReason: v1alpha1.ReasonConfigMapNotFound,
			want: `spec.task.inputs: no ConfigMap can have the name "../x". Correct it`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := liveJob(rerunsOnChange(tt.kind, tt.name))
			r := newFaultyReconciler(t, hidden(&tt.answer), job)
			r.Own.Pod.Namespace = tt.installed
			_, obstacle, err := r.source(t.Context(), job)
			if err != nil || obstacle == nil {
				t.Fatalf("%+v, %v", obstacle, err)
			}
			if diff := cmp.Diff(tt.want, obstacle.Message); diff != "" || obstacle.Reason != tt.wantReason || !obstacle.Until.IsZero() {
				t.Errorf("%+v, message (-want +got):\n%s", obstacle, diff)
			}
		})
	}
}

// An API server that does not respond is not a problem that a user has to fix.
func TestAContentThatCannotBeReadIsAnErrorOfThePass(t *testing.T) {
	away := apierrors.NewInternalError(errors.New("etcd is away"))
	tests := map[string]struct {
		kind   v1alpha1.ContentKind
		answer error
	}{
		"a Secret":    {v1alpha1.ContentSecret, away},
		"a ConfigMap": {v1alpha1.ContentConfigMap, away},
		"a ConfigMap, which the role allows to read": {v1alpha1.ContentConfigMap, mayNot},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := liveJob(rerunsOnChange(tt.kind, "x"))
			r := newFaultyReconciler(
				t,
				interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return tt.answer
				}},
				job,
			)
			if _, obstacle, err := r.source(t.Context(), job); !errors.Is(err, tt.answer) || obstacle != nil {
				t.Errorf("%+v, %v, want the error", obstacle, err)
			}
			if len(r.contents.seen) > 0 {
				t.Errorf("%v is kept", r.contents.seen)
			}
		})
	}
}

// Each event triggers a pass, which must not request unchanged content from the API server.
func TestAContentIsFetchedWhenItMayHaveChanged(t *testing.T) {
	gets := 0
	job := liveJob(rerunsOnChange(v1alpha1.ContentConfigMap, "x"), rerunsOnChange(v1alpha1.ContentSecret, "x"))
	r := newReconciler(t, job, configMap("1", "a"), secret("1", "a"))
	live := newFaultyReconciler(
		t,
		interceptor.Funcs{
			Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				gets++
				return r.Client.Get(ctx, key, o, opts...)
			},
		},
	)
	r.Reader = live.Client
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"first", func() {}, 2},
		{"again", func() {}, 0},
		{"when the ConfigMap has changed", func() { r.update(configMap("1", "b")) }, 1},
		{"when the Secret has changed, which no watch reports", func() { r.update(secret("1", "b")) }, 0},
		{"when the ConfigMap is deleted", func() { r.delete(configMap("1", "b")) }, 1},
		{"while it is missing", func() {}, 0},
	} {
		step.do()
		gets = 0
		r.contentOf(job)
		if gets != step.want {
			t.Errorf("%s: %d requests, want %d", step.what, gets, step.want)
		}
	}
}

// Content that no NodeJob references must not be polled forever.
func TestUnreferencedContentsAreForgotten(t *testing.T) {
	other := liveJob(rerunsOnChange(v1alpha1.ContentSecret, "x"), func(j *v1alpha1.NodeJob) { j.Name = "other" })
	tests := map[string]func(r *fakeReconciler, job *v1alpha1.NodeJob){
		"when the NodeJob is deleted": func(r *fakeReconciler, job *v1alpha1.NodeJob) {
			if err := r.cleanUpDeleted(r.t.Context(), client.ObjectKeyFromObject(job)); err != nil {
				r.t.Error(err)
			}
		},
		"when the NodeJob no longer references it": func(r *fakeReconciler, job *v1alpha1.NodeJob) {
			job.Spec.Task.Inputs = nil
			r.contentOf(job)
		},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			job := liveJob(rerunsOnChange(v1alpha1.ContentSecret, "x"))
			r := newReconciler(t, secret("1", "a"))
			r.contentOf(job)
			r.contentOf(other)
			key := contentKey{client.ObjectKeyFromObject(job), task.Inputs(&job.Spec.Task)[0]}
			happens(r, job)
			if kept := r.contents.secrets(); len(kept) != 1 {
				t.Errorf("%v is kept, want only that of the other NodeJob", kept)
			}
			if r.contents.set(key, content{hashes: task.Hashes{Content: "late"}}) || len(r.contents.secrets()) != 1 {
				t.Error("a late response is kept")
			}
		})
	}
}

// A ConfigMap that becomes usable is noticed at once, and one that is not usable is not read again in each pass.
func TestFilesOfAConfigMapWithoutLabel(t *testing.T) {
	job := liveJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Files = []v1alpha1.FilesSource{{Name: "a", ConfigMap: &v1alpha1.FilesFromObject{Name: "x"}}}
	})
	r := newReconciler(t, job, configMap("1", "a"))
	if got := r.contentOf(job); got != v1alpha1.ReasonConfigMapNotLabeled {
		t.Errorf("without the label: %s", got)
	}
	reader := r.Reader
	r.Reader = nil // a read would panic
	if got := r.contentOf(job); got != v1alpha1.ReasonConfigMapNotLabeled {
		t.Errorf("again: %s", got)
	}
	r.Reader = reader
	labeled := configMap("1", "a")
	labeled.Labels = map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue}
	r.update(labeled)
	source, obstacle, err := r.source(t.Context(), job)
	if err != nil || obstacle != nil || len(source.Files) != 1 || len(source.Inputs) != 0 {
		t.Errorf("%+v, %+v, %v", source, obstacle, err)
	}
	labeled.Data["key"] = "b"
	r.update(labeled)
	if changed, _, _ := r.source(t.Context(), job); changed.Files[0] == source.Files[0] {
		t.Error("another content has the same hash")
	}
}

// A Secret may be one of task.inputs, and one of task.files that lacks a key: each field says what it needs, after one read.
func TestTwoFieldsOfOneSecret(t *testing.T) {
	needs := func(key string) *v1alpha1.NodeJob {
		return liveJob(rerunsOnChange(v1alpha1.ContentSecret, "x"), func(j *v1alpha1.NodeJob) {
			j.Name = key
			j.Spec.Task.Files = []v1alpha1.FilesSource{{Name: "tls", Secret: &v1alpha1.FilesFromObject{
				Name: "x", Items: []v1alpha1.FileItem{{Key: key, Path: "a"}},
			}}}
		})
	}
	has, lacks := needs("key"), needs("other")
	r := newReconciler(t, secret("1", "a"))
	if got := r.contentOf(has); len(got) != 64 {
		t.Errorf("with the key: %s", got)
	}
	if got := r.contentOf(lacks); got != v1alpha1.ReasonSecretNotFound {
		t.Errorf("without the key: %s", got)
	}
	added := secret("1", "a")
	added.Data["other"] = nil
	r.update(added)
	r.pollOnce(t.Context())
	woken := r.woken()
	slices.Sort(woken)
	if woken = slices.Compact(woken); !slices.Equal(woken, []string{"ns/key", "ns/other"}) {
		t.Errorf("the poll wakes %v", woken)
	}
	if got := r.contentOf(lacks); len(got) != 64 {
		t.Errorf("with the key that was added: %s", got)
	}
}

// What a ConfigMap of task.files contains can change without the NodeJob, so it is part of what a confirmation is for.
func TestContentsHash(t *testing.T) {
	job := liveJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Files = []v1alpha1.FilesSource{{Name: "a", ConfigMap: &v1alpha1.FilesFromObject{Name: "x"}}}
	})
	hash := func(source task.Source) string { return contentsHash(job, source) }
	if hash(task.Source{Files: []task.Hashes{{Content: "a"}}}) == hash(task.Source{Files: []task.Hashes{{Content: "b"}}}) {
		t.Error("other files have the same hash")
	}
	if hash(task.Source{Inputs: []task.Hashes{{Content: "a"}}}) != hash(task.Source{Inputs: []task.Hashes{{Content: "b"}}}) {
		t.Error("contents of task.inputs, which do not run, change the hash")
	}
}
