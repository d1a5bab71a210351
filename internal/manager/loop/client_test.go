// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestNewClientDeletesPods(t *testing.T) {
	conflict := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Reason:   metav1.StatusReasonConflict,
		Code:     http.StatusConflict,
	}
	missing := conflict
	missing.Reason, missing.Code = metav1.StatusReasonNotFound, http.StatusNotFound
	tests := map[string]struct {
		code     int
		response any
		want     func(error) bool
	}{
		"the pod remains until its finalizer is removed": {
			http.StatusOK,
			corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}},
			func(err error) bool { return err == nil },
		},
		"a response that cannot be decoded is not read": {
			http.StatusOK,
			"a pod of a later version",
			func(err error) bool { return err == nil },
		},
		"another pod has the name": {http.StatusConflict, conflict, apierrors.IsConflict},
		"the pod is gone":          {http.StatusNotFound, missing, apierrors.IsNotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var asked string
			var options metav1.DeleteOptions
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.Method + " " + r.URL.Path
				body, err := io.ReadAll(r.Body)
				if err == nil {
					err = json.Unmarshal(body, &options)
				}
				if err != nil {
					t.Errorf("reading the options: %v", err)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.code)
				if err := json.NewEncoder(w).Encode(tt.response); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			transport, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			c, err := NewClient(config, client.Options{HTTPClient: transport})
			if err != nil {
				t.Fatal(err)
			}
			err = c.Delete(
				t.Context(),
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job-1"}},
				client.Preconditions{UID: new(types.UID("pod-uid"))},
			)
			if !tt.want(err) {
				t.Errorf("unexpected result: %v", err)
			}
			if want := "DELETE /api/v1/namespaces/ns/pods/job-1"; asked != want {
				t.Errorf("request %q, want %q", asked, want)
			}
			if diff := cmp.Diff(new(types.UID("pod-uid")), options.Preconditions.UID); diff != "" {
				t.Errorf("UID in the precondition (-want +got):\n%s", diff)
			}
		})
	}
}
