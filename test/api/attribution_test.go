// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Users who may do everything. The name of the last one is longer than what is kept of it.
var (
	alice, bob = "alice", "bob"
	wordy      = "wordy-" + strings.Repeat("ä", 300)
)

// writers lets the users write everything, and waits until the API server knows it and evaluates the policies.
func (w *world) writers(users ...string) {
	w.T.Helper()
	w.rightsAreAsked()
	for _, user := range users {
		w.bind(user, "cluster-admin", true)
		w.rightsAreKnown(requester{user: user, has: append([]string{pods, budgets}, allEffects...)})
	}
	w.Eventually("a wrong name is not accepted", func() error {
		job := changedBy(jobFromYAML(w.T, w.Namespace, "probe", template), bob)
		if err := w.as(alice).Create(w.Ctx, job, client.DryRunAll); err == nil && named(job) != alice {
			return fmt.Errorf("it is %q", named(job))
		}
		return nil
	})
}

func changedBy(o *unstructured.Unstructured, user string) *unstructured.Unstructured {
	o.SetAnnotations(map[string]string{v1alpha1.ChangedByAnnotation: user})
	return o
}

func named(o client.Object) string { return o.GetAnnotations()[v1alpha1.ChangedByAnnotation] }

// both are who has changed an object, and who has last requested a retry.
func both(o client.Object) [2]string {
	return [2]string{named(o), o.GetAnnotations()[v1alpha1.RequestedByAnnotation]}
}

// attributed are the kinds of which the API server names who changed them, with two changes of the spec.
func attributed(t *testing.T, namespace string) map[*unstructured.Unstructured][2]string {
	t.Helper()
	return map[*unstructured.Unstructured][2]string{
		jobFromYAML(t, namespace, "named", template): {`{"spec":{"suspend":true}}`, `{"spec":{"suspend":false}}`},
		guardFromYAML(t, namespace, "named", `{target: {daemonSet: a}}`): {
			`{"spec":{"maxUnavailable":2}}`,
			`{"spec":{"maxUnavailable":3}}`,
		},
	}
}

// write is a request of a user, and who has changed the object after it, and requested a retry.
type write struct {
	about, user string
	do          func(client.Client, *unstructured.Unstructured) error
	want, asked string
}

// patched returns a request that patches an object.
func (w *world) patched(patch string) func(client.Client, *unstructured.Unstructured) error {
	return func(c client.Client, o *unstructured.Unstructured) error { return c.Patch(w.Ctx, o, mergePatch(patch)) }
}

// put returns a request that replaces an object without the annotation, as a tool does that knows only its own fields.
func (w *world) put(change func(*unstructured.Unstructured)) func(client.Client, *unstructured.Unstructured) error {
	return func(c client.Client, o *unstructured.Unstructured) error {
		o.SetAnnotations(nil)
		change(o)
		return c.Update(w.Ctx, o)
	}
}

// appliedBy returns a request as that of a GitOps tool, which applies its manifest with another value than the live one.
func (w *world) appliedBy(manifest *unstructured.Unstructured, owner string) func(client.Client, *unstructured.Unstructured) error {
	return func(c client.Client, o *unstructured.Unstructured) error {
		o.Object = manifest.DeepCopy().Object
		if o.GetKind() == "NodeGuard" {
			must(w.T, unstructured.SetNestedField(o.Object, int64(9), "spec", "maxUnavailable"))
		} else {
			must(w.T, unstructured.SetNestedField(o.Object, int64(900), "spec", "ttlSecondsAfterFinished"))
		}
		return c.Apply(w.Ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(owner), client.ForceOwnership)
	}
}

func (w *world) writesOf(manifest *unstructured.Unstructured, changes [2]string) []write {
	nothing := func(*unstructured.Unstructured) {}
	otherSpec := func(o *unstructured.Unstructured) {
		if o.GetKind() == "NodeGuard" {
			must(w.T, unstructured.SetNestedField(o.Object, int64(7), "spec", "maxUnavailable"))
		} else {
			must(w.T, unstructured.SetNestedField(o.Object, int64(600), "spec", "ttlSecondsAfterFinished"))
		}
	}
	annotated := func(annotations string) func(client.Client, *unstructured.Unstructured) error {
		return w.patched(`{"metadata":{"annotations":{` + annotations + `}}}`)
	}
	return []write{
		{"a label changes nothing", bob, w.patched(`{"metadata":{"labels":{"a":"b"}}}`), alice, ""},
		{"another name is not accepted", bob, annotated(`"everynode.dev/changed-by":"bob"`), alice, ""},
		{"it cannot be removed", bob, annotated(`"everynode.dev/changed-by":null`), alice, ""},
		{"an update without it does not remove it", bob, w.put(nothing), alice, ""},
		{"a change of the spec", bob, w.patched(changes[0]), bob, ""},
		{
			"a change with the name of another user",
			alice,
			w.patched(strings.TrimSuffix(changes[1], "}") + `,"metadata":{"annotations":{"everynode.dev/changed-by":"bob"}}}`),
			alice,
			"",
		},
		{"an update of the spec without it", bob, w.put(otherSpec), bob, ""},
		{"who requested a retry that was not requested", alice, annotated(`"everynode.dev/requested-by":"bob"`), bob, ""},
		{"a request for a retry", alice, annotated(`"everynode.dev/retry":"1"`), bob, alice},
		{"another annotation", bob, annotated(`"x.test/a":"1"`), bob, alice},
		{"another name of who requested it", bob, annotated(`"everynode.dev/requested-by":"bob"`), bob, alice},
		{"who requested it cannot be removed", bob, annotated(`"everynode.dev/requested-by":null`), bob, alice},
		{
			"a request with the name of another user",
			bob,
			annotated(`"everynode.dev/retry":"2","everynode.dev/requested-by":"alice"`),
			bob,
			bob,
		},
		{
			"a change and a request",
			alice,
			w.patched(strings.TrimSuffix(changes[0], "}") + `,"metadata":{"annotations":{"everynode.dev/retry":"3"}}}`),
			alice,
			alice,
		},
		{"an update without annotations is a request", bob, w.put(nothing), alice, bob},
		{"an apply by a GitOps tool", gitOpsUser, w.appliedBy(manifest, "gitops"), gitOpsUser, bob},
		{"the same manifest by another tool", alice, w.appliedBy(manifest, "other"), gitOpsUser, bob},
		{"a change that the tool has to correct", bob, w.patched(changes[1]), bob, bob},
		{"the manager's finalizer", managerUser, w.patched(`{"metadata":{"finalizers":["everynode.dev/node-records"]}}`), bob, bob},
		{"a long name", wordy, w.patched(changes[0]), string([]rune(wordy)[:256]), bob},
		{
			"a request with a long name",
			wordy,
			annotated(`"everynode.dev/retry":"4"`),
			string([]rune(wordy)[:256]),
			string([]rune(wordy)[:256]),
		},
	}
}

func TestTheAPIServerNamesWhoChangedAnObject(t *testing.T) {
	needsPolicies(t)
	w := newWorld(t)
	w.writers(alice, bob, wordy, gitOpsUser)
	for manifest, changes := range attributed(t, w.Namespace) {
		t.Run(manifest.GetKind(), func(t *testing.T) {
			created := changedBy(manifest.DeepCopy(), bob)
			must(t, w.as(alice).Create(w.Ctx, created))
			if got := named(created); got != alice {
				t.Errorf("alice has created it, and it names %q", got)
			}
			for _, write := range w.writesOf(manifest, changes) {
				if write.user == managerUser && manifest.GetKind() == "NodeGuard" {
					continue // the manager may not write NodeGuards
				}
				live := created.DeepCopy()
				must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(live), live))
				generation := live.GetGeneration()
				if err := write.do(w.as(write.user), live); err != nil {
					t.Errorf("%s: %v", write.about, err)
				}
				if got := both(live); got != [2]string{write.want, write.asked} {
					t.Errorf("%s, by %s: it names %q (generation %d to %d)", write.about, write.user, got, generation, live.GetGeneration())
				}
			}
			must(t, admin.Patch(w.Ctx, created, mergePatch(`{"metadata":{"finalizers":null}}`)))
			must(t, admin.Delete(w.Ctx, created))
		})
	}
}

// Before Kubernetes 1.36, a client can write the annotation, but not with the name of another user.
func TestWithoutTheMutationTheAnnotationCannotNameAnotherUser(t *testing.T) {
	w := newWorld(t)
	w.writers(alice, bob)
	w.unattributed()
	for manifest, changes := range attributed(t, w.Namespace) {
		t.Run(manifest.GetKind(), func(t *testing.T) {
			refused := func(about string, err error) {
				t.Helper()
				if !apierrors.IsForbidden(err) {
					t.Errorf("%s: the API server says %v", about, err)
					return
				}
				wantText(
					t,
					err.Error(),
					"'everynode-attribution'",
					manifest.GetKind()+" "+w.Namespace+"/named",
					"may not name another user",
				)
			}
			refused("created with another name", w.as(bob).Create(w.Ctx, changedBy(manifest.DeepCopy(), alice)))
			live := changedBy(manifest.DeepCopy(), alice)
			must(t, w.as(alice).Create(w.Ctx, live))
			for about, patch := range map[string]string{
				"another name":                                `{"metadata":{"annotations":{"everynode.dev/changed-by":"carol"}}}`,
				"one's own name without a change":             `{"metadata":{"annotations":{"everynode.dev/changed-by":"bob"}}}`,
				"a change that would be that of another user": changes[0],
			} {
				err := w.as(bob).Patch(w.Ctx, live.DeepCopy(), mergePatch(patch))
				refused(about, err)
				wantText(t, err.Error(), "kubectl -n "+w.Namespace+" annotate node", " named everynode.dev/changed-by-")
			}
			for about, annotations := range map[string]string{
				"who requested a retry without a request": `"everynode.dev/requested-by":"bob"`,
				"another name of who requested a retry":   `"everynode.dev/retry":"1","everynode.dev/requested-by":"alice"`,
			} {
				err := w.as(bob).Patch(w.Ctx, live.DeepCopy(), mergePatch(`{"metadata":{"annotations":{`+annotations+`}}}`))
				refused(about, err)
				wantText(t, err.Error(), "names who last requested a retry", " named everynode.dev/requested-by-")
			}
			must(
				t,
				w.as(bob).
					Patch(w.Ctx, live, mergePatch(`{"metadata":{"annotations":{"everynode.dev/retry":"1","everynode.dev/requested-by":"bob"}}}`)),
			)
			if got := both(live); got != [2]string{alice, bob} {
				t.Errorf("after a retry that bob requested, it names %q", got)
			}
			must(t, w.as(bob).Patch(w.Ctx, live, mergePatch(`{"metadata":{"labels":{"a":"b"}}}`)))
			must(t, w.as(bob).Patch(w.Ctx, live, mergePatch(`{"metadata":{"annotations":{"everynode.dev/changed-by":null}}}`)))
			must(t, w.as(bob).Patch(w.Ctx, live, mergePatch(changes[0])))
			if got := named(live); got != "" {
				t.Errorf("it names %q, which no client has written", got)
			}
			must(
				t,
				w.as(bob).
					Patch(w.Ctx, live, mergePatch(strings.TrimSuffix(changes[1], "}")+`,"metadata":{"annotations":{"everynode.dev/changed-by":"bob"}}}`)),
			)
			must(t, admin.Delete(w.Ctx, live))
		})
	}
}

func TestTheRecordNamesWhoHadChangedTheSpecWhenTheAttemptStarted(t *testing.T) {
	needsPolicies(t)
	w := newWorld(t)
	w.writers(alice, bob)
	startManager(t, noFaults)
	w.node("named-1")
	job := w.draft("named")
	must(t, w.as(alice).Create(w.Ctx, job))
	pod := w.podOn("named-1")
	must(t, w.as(bob).Patch(w.Ctx, job, mergePatch(`{"spec":{"ttlSecondsAfterFinished":6000}}`)))
	w.end(pod, 0, "")
	if rec := w.Done("named", "named-1"); rec.ChangedBy != alice || named(w.live("named")) != bob {
		t.Errorf("the record names %q, and the NodeJob %q", rec.ChangedBy, named(w.live("named")))
	}
	config := w.kubeconfigOf()
	wantText(t, w.everynode(config, "explain", "named", "named-1").out, "Spec      last changed by bob; before the last attempt, by alice")
	wantText(t, w.everynode(config, "status", "named").out, "Spec      last changed by bob\n")
	must(t, w.as(alice).Patch(w.Ctx, job, mergePatch(`{"metadata":{"annotations":{"everynode.dev/retry":"1"}}}`)))
	for _, args := range [][]string{{"explain", "named", "named-1"}, {"status", "named"}} {
		wantText(t, w.everynode(config, args...).out, "Spec      last changed by bob", "\nRetry     last requested by alice\n")
	}
}

// unattributed has the API server not name who changes objects in the namespace of the world.
func (w *world) unattributed() {
	w.T.Helper()
	must(
		w.T,
		admin.Patch(
			w.Ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}},
			mergePatch(`{"metadata":{"labels":{"`+unattributedLabel+`":"true"}}}`),
		),
	)
	w.Eventually("no user is named", func() error {
		probe := jobFromYAML(w.T, w.Namespace, "probe", template)
		if err := w.as(alice).Create(w.Ctx, probe, client.DryRunAll); err != nil || named(probe) != "" {
			return errors.Join(fmt.Errorf("it names %q", named(probe)), err)
		}
		return nil
	})
}
