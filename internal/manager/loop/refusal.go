// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/outcome"
)

const (
	firstRefusalWait = time.Second
	// longestRefusalWait limits how long it takes until an object detects that its namespace was fixed.
	longestRefusalWait = 15 * time.Second
	maxRefusalBytes    = 512
)

// Refusals remembers for which objects the API server rejects what they create. It is safe for concurrent use.
type Refusals struct {
	words Words
	mu    sync.Mutex
	of    map[client.ObjectKey]refusal
}

// Words are the words of messages about a rejection, for one kind of objects.
type Words struct {
	// Kind of the objects, such as NodeJob.
	Kind string
	// Made is what is rejected, such as "the task's pod".
	Made string
	// Privileged says why a pod may violate the Pod Security level of its namespace, and what to do. A kubectl command follows it.
	Privileged string
	// Template returns the field by which the author of an object has chosen what its pods need; "" if the pods are those that
	// Privileged is about. An administrator should not raise the level of a namespace because a template asks for it.
	Template func(o client.Object) string
	// Field is the field that makes a pod invalid, such as "spec.task".
	Field string
}

func (w *Words) template(o client.Object) string {
	if w.Template == nil {
		return ""
	}
	return w.Template(o)
}

type refusal struct {
	uid        types.UID
	generation int64
	wait       time.Duration
	is         hold.Why
}

// isOf reports whether the rejection is for the current generation of the object: a change of its spec may have fixed
// the cause.
func (r *refusal) isOf(o client.Object) bool {
	return r.uid == o.GetUID() && r.generation == o.GetGeneration()
}

// NewRefusals returns Refusals for one kind of objects.
func NewRefusals(words Words) *Refusals {
	return &Refusals{words: words, of: map[client.ObjectKey]refusal{}}
}

// Of returns what was last rejected for an object; nil if nothing was, or the object has changed since.
func (r *Refusals) Of(o client.Object) *hold.Why {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.of[client.ObjectKeyFromObject(o)]
	if !ok || !known.isOf(o) {
		return nil
	}
	return &known.is
}

// Clear forgets a rejection, because a creation succeeded or the object no longer exists.
func (r *Refusals) Clear(name client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, name)
}

// Soon allows the next try at once, because a change may have freed quota.
func (r *Refusals) Soon(name client.ObjectKey, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.of[name]; ok && known.is.Until.After(now) {
		known.wait, known.is.Until = 0, now
		r.of[name] = known
	}
}

// RefusedError means that currently nothing of this kind can be created for an object, on any node. It is not an error
// of a pass: the status shows it, and the rejection says when to retry.
type RefusedError struct{ err error }

func (e *RefusedError) Error() string { return e.err.Error() }

// ErrImageVolumes says that the API server removes image volumes from a pod, as it does with fields that it does not support.
var ErrImageVolumes = errors.New("it supports no image volumes, which Kubernetes has by default since 1.35")

// AsRefusal returns a RefusedError for a response that rejects an object regardless of its name, and nil for any other.
func AsRefusal(err error) error {
	if reason, _ := reasonOf(err); reason != "" {
		return &RefusedError{err}
	}
	return nil
}

// missingAccount finds the ServiceAccount that a pod lacks in the answer of the API server.
// Source: kubernetes/plugin/pkg/admission/serviceaccount.
var missingAccount = regexp.MustCompile(`serviceaccount "([a-z0-9.-]+)" not found`)

// LacksDefaultAccount reports whether the API server rejects a pod because its namespace has no service account "default".
// Source: kubernetes/plugin/pkg/admission/serviceaccount.
func LacksDefaultAccount(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `serviceaccount "default" not found`)
}

// Judge records the rejections among the results of a pass's creations, as one, or that there are none any more. It
// returns the other errors.
func (r *Refusals) Judge(o client.Object, errs []error, now time.Time) (refused bool, err error) {
	for _, e := range errs {
		var refusal *RefusedError
		switch {
		case !errors.As(e, &refusal):
			err = errors.Join(err, e)
		case !refused:
			refused = true
			r.note(o, refusal.err, now)
		}
	}
	if len(errs) > 0 && !refused && err == nil {
		r.Clear(client.ObjectKeyFromObject(o))
	}
	return refused, err
}

func (r *Refusals) note(o client.Object, err error, now time.Time) {
	reason, remedy := reasonOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := firstRefusalWait
	if known, ok := r.of[client.ObjectKeyFromObject(o)]; ok && known.isOf(o) {
		wait = max(min(2*known.wait, longestRefusalWait), firstRefusalWait)
	}
	message := fmt.Sprintf("the API server refuses %s in namespace %s: %s. %s", r.words.Made, o.GetNamespace(),
		outcome.CleanHead(withoutName(err), maxRefusalBytes), remedy(&r.words, o))
	r.of[client.ObjectKeyFromObject(o)] = refusal{
		uid:        o.GetUID(),
		generation: o.GetGeneration(),
		wait:       wait,
		is:         hold.Why{Reason: reason, Message: message, Until: now.Add(wait)},
	}
}

// withoutName removes `pods "name" is forbidden: `, which differs between nodes: the message must be stable.
func withoutName(err error) string {
	text := err.Error()
	for _, verb := range []string{"is forbidden: ", "is invalid: "} {
		if _, after, found := strings.Cut(text, verb); found {
			return after
		}
	}
	return text
}

// reasonOf returns why nothing can be created, and what to do about it; "" if err has another cause.
func reasonOf(err error) (reason string, remedy func(w *Words, o client.Object) string) {
	if errors.Is(err, ErrImageVolumes) {
		return v1alpha1.ReasonImageVolumesNotSupported, func(*Words, client.Object) string {
			return "Upgrade Kubernetes, or enable the feature gate ImageVolume of the API server and the kubelets; or take the files from a ConfigMap (task.files.configMap)"
		}
	}
	return reasonOfAnswer(err)
}

// reasonOfAnswer is reasonOf for an answer of the API server.
func reasonOfAnswer(err error) (reason string, remedy func(w *Words, o client.Object) string) {
	switch {
	case apierrors.IsInternalError(err):
		return v1alpha1.ReasonPodNotCreated, func(w *Words, o client.Object) string {
			return fmt.Sprintf("The %s is not the cause. Check what handles pods in namespace %s, such as an admission webhook that does not respond: kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations. It is retried automatically", w.Kind, o.GetNamespace())
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return v1alpha1.ReasonNamespaceTerminating, func(w *Words, o client.Object) string {
			return fmt.Sprintf("Namespace %s is being deleted, and the %s with it: nothing more can run", o.GetNamespace(), w.Kind)
		}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		return v1alpha1.ReasonPodForbidden, func(w *Words, o client.Object) string {
			if field := w.template(o); field != "" {
				return fmt.Sprintf("%s asks for what the Pod Security level of namespace %s refuses. Remove it there, or create the %s in a namespace for such pods", field, o.GetNamespace(), w.Kind)
			}
			return fmt.Sprintf("%s: kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged --overwrite", w.Privileged, o.GetNamespace())
		}
	case LacksDefaultAccount(err):
		return v1alpha1.ReasonServiceAccountNotFound, func(_ *Words, o client.Object) string {
			return fmt.Sprintf("Kubernetes creates it in each namespace: check that kube-controller-manager runs, or create it: kubectl create serviceaccount default -n %s", o.GetNamespace())
		}
	case apierrors.IsForbidden(err) && missingAccount.MatchString(err.Error()):
		return v1alpha1.ReasonServiceAccountNotFound, func(w *Words, o client.Object) string {
			return hold.CreateServiceAccount(o.GetNamespace(), missingAccount.FindStringSubmatch(err.Error())[1], cmp.Or(w.template(o), w.Field))
		}
	case apierrors.IsForbidden(err):
		return v1alpha1.ReasonPodForbidden, func(w *Words, o client.Object) string {
			return fmt.Sprintf("Allow it in namespace %s (quota, limits, admission policies), or move the %s to a namespace that does", o.GetNamespace(), w.Kind)
		}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return v1alpha1.ReasonPodInvalid, func(w *Words, o client.Object) string {
			return fmt.Sprintf("Correct %s of the %s in namespace %s", w.Field, w.Kind, o.GetNamespace())
		}
	}
	return "", nil
}
