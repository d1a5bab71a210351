// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var words = Words{
	Kind:       "NodeJob",
	Made:       "the task's pod",
	Privileged: "A task is root on its node: keep NodeJobs in a namespace of their own and allow it there with",
	Field:      "spec.task",
}

func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "job-0123456789", errors.New(why))
}

// terminating is the response of the API server in a terminating namespace.
func terminating(why string) error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "job-0123456789", errors.New(why))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		err  error
		want *hold.Why
	}{
		"Pod Security": {
			forbidden(
				`violates PodSecurity "restricted:latest": privileged (container "task" must not set securityContext.privileged=true)`,
			),
			&hold.Why{
				Reason: v1alpha1.ReasonPodForbidden,
				Message: `the API server refuses the task's pod in namespace ns: violates PodSecurity "restricted:latest": privileged ` +
					`(container "task" must not set securityContext.privileged=true). A task is root on its node: keep NodeJobs in a namespace of their own and allow it there with: ` +
					`kubectl label namespace ns pod-security.kubernetes.io/enforce=privileged --overwrite`,
			},
		},
		"a quota": {
			forbidden("exceeded quota: pods, requested: pods=1, used: pods=10, limited: pods=10"),
			&hold.Why{
				Reason: v1alpha1.ReasonPodForbidden,
				Message: "the API server refuses the task's pod in namespace ns: exceeded quota: pods, requested: pods=1, used: pods=10, limited: pods=10. " +
					"Allow it in namespace ns (quota, limits, admission policies), or move the NodeJob to a namespace that does",
			},
		},
		"a namespace without its service account": {
			forbidden(`error looking up service account ns/default: serviceaccount "default" not found`),
			&hold.Why{
				Reason: v1alpha1.ReasonServiceAccountNotFound,
				Message: `the API server refuses the task's pod in namespace ns: error looking up service account ns/default: serviceaccount "default" not found. ` +
					"Kubernetes creates it in each namespace: check that kube-controller-manager runs, or create it: kubectl create serviceaccount default -n ns",
			},
		},
		"a service account that does not exist": {
			forbidden(`error looking up service account ns/web.reader: serviceaccount "web.reader" not found`),
			&hold.Why{
				Reason: v1alpha1.ReasonServiceAccountNotFound,
				Message: `the API server refuses the task's pod in namespace ns: error looking up service account ns/web.reader: serviceaccount "web.reader" not found. ` +
					"Create ServiceAccount web.reader in namespace ns: kubectl create serviceaccount web.reader -n ns; or correct spec.task",
			},
		},
		"a namespace that is being deleted": {
			terminating("unable to create new content in namespace ns because it is being terminated"),
			&hold.Why{
				Reason: v1alpha1.ReasonNamespaceTerminating,
				Message: "the API server refuses the task's pod in namespace ns: unable to create new content in namespace ns because it is being terminated. " +
					"Namespace ns is being deleted, and the NodeJob with it: nothing more can run",
			},
		},
		"a template that is not a valid pod": {
			apierrors.NewInvalid(
				schema.GroupKind{Kind: "Pod"},
				"job-0123456789",
				field.ErrorList{field.Required(field.NewPath("spec", "containers").Index(0).Child("image"), "")},
			),
			&hold.Why{
				Reason:  v1alpha1.ReasonPodInvalid,
				Message: "the API server refuses the task's pod in namespace ns: spec.containers[0].image: Required value. Correct spec.task of the NodeJob in namespace ns",
			},
		},
		"an invalid request": {
			apierrors.NewBadRequest("strict decoding error"),
			&hold.Why{
				Reason:  v1alpha1.ReasonPodInvalid,
				Message: "the API server refuses the task's pod in namespace ns: strict decoding error. Correct spec.task of the NodeJob in namespace ns",
			},
		},
		"too many requests is a temporary error":               {apierrors.NewTooManyRequests("slow down", 1), nil},
		"a timeout is not a refusal of the pod":                {apierrors.NewTimeoutError("etcd", 1), nil},
		"an API server that does not respond is not a refusal": {errors.New("connection refused"), nil},
		"a webhook that does not respond": {
			apierrors.NewInternalError(errors.New(`calling webhook "x": connection refused`)),
			&hold.Why{
				Reason: v1alpha1.ReasonPodNotCreated,
				Message: `the API server refuses the task's pod in namespace ns: Internal error occurred: calling webhook "x": connection refused. ` +
					"The NodeJob is not the cause. Check what handles pods in namespace ns, such as an admission webhook that does not respond: kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations. It is retried automatically",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job-uid", Generation: 1}}
			r := NewRefusals(words)
			refusal := AsRefusal(tt.err)
			if got, want := refusal != nil, tt.want != nil; got != want {
				t.Fatalf("refused: %v, want %v", got, want)
			}
			if refusal == nil {
				refusal = tt.err
			}
			refused, err := r.Judge(job, []error{nil, refusal, refusal}, noon)
			if refused != (tt.want != nil) || (err != nil) == refused {
				t.Errorf("judged: %v, %v", refused, err)
			}
			if tt.want != nil {
				tt.want.Until = noon.Add(firstRefusalWait)
			}
			if diff := cmp.Diff(tt.want, r.Of(job)); diff != "" {
				t.Errorf("obstacle (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedPodsAreRetriedWithBackoff(t *testing.T) {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job-uid", Generation: 1}}
	r := NewRefusals(words)
	var waits []time.Duration
	for range 6 {
		r.note(job, forbidden("no"), noon)
		waits = append(waits, r.Of(job).Until.Sub(noon))
	}
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, longestRefusalWait, longestRefusalWait}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}

	changed := job.DeepCopy()
	changed.Generation = 2
	if got := r.Of(changed); got != nil {
		t.Errorf("the NodeJob was changed and is still blocked by %+v", got)
	}
	r.note(changed, forbidden("no"), noon)
	if got := r.Of(changed).Until.Sub(noon); got != firstRefusalWait {
		t.Errorf("it waits %v after the change, want %v", got, firstRefusalWait)
	}
	r.Clear(client.ObjectKeyFromObject(job))
	if got := r.Of(changed); got != nil {
		t.Errorf("a pod was created, and the NodeJob is still blocked by %+v", got)
	}
}

// An administrator must not be told to allow privileged pods because the author of a template asks for one.
func TestATemplateThatViolatesPodSecurityIsNoReasonToRaiseTheLevel(t *testing.T) {
	ofTemplate := words
	ofTemplate.Template = func(o client.Object) string {
		if o.GetName() == "templated" {
			return "spec.task.template"
		}
		return ""
	}
	for name, want := range map[string]string{
		"templated": "spec.task.template asks for what the Pod Security level of namespace ns refuses. Remove it there, or create the NodeJob in a namespace for such pods",
		"script":    "kubectl label namespace ns pod-security.kubernetes.io/enforce=privileged --overwrite",
	} {
		r, job := NewRefusals(ofTemplate), &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		r.note(job, forbidden(`violates PodSecurity "restricted:latest": privileged`), noon)
		if got := r.Of(job).Message; !strings.HasSuffix(got, want) || strings.Contains(got, "kubectl label") != (name == "script") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The condition's message must not differ from node to node, nor be longer than a person reads.
func TestRefusalsAreStableAndBounded(t *testing.T) {
	message := func(pod, why string) string {
		r := NewRefusals(words)
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: "job-uid"}}
		r.note(job, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod, errors.New(why)), noon)
		return r.Of(job).Message
	}
	if a, b := message("job-1", "no"), message("job-2", "no"); a != b {
		t.Errorf("%q for one pod, %q for the next", a, b)
	}
	long := message("job-1", "first this"+strings.Repeat(" and ä\x1b[31m that", 1000))
	if len(long) > 1024 || strings.Contains(long, "\x1b") {
		t.Errorf("%d bytes: %q", len(long), long)
	}
	if !strings.Contains(long, "first this and") {
		t.Errorf("the beginning is missing: %q", long)
	}
}
