// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/manager/metricsauth"
)

// TestMetricsNeedAPermission has the manager's account check clients, as the manager does.
func TestMetricsNeedAPermission(t *testing.T) {
	w := newWorld(t)
	content, err := os.ReadFile("../../config/rbac/metrics_reader.yaml")
	must(t, err)
	role := &rbacv1.ClusterRole{}
	must(t, yaml.Unmarshal(content, role))
	must(t, admin.Create(w.Ctx, role))
	t.Cleanup(func() { must(t, admin.Delete(context.WithoutCancel(w.Ctx), role)) })
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.Namespace, Name: "prometheus"}},
	}
	must(t, admin.Create(w.Ctx, binding))
	t.Cleanup(func() { must(t, admin.Delete(context.WithoutCancel(w.Ctx), binding)) })

	address := w.serveMetrics()
	for name, tt := range map[string]struct {
		token string
		want  int
	}{
		"no token":                {"", http.StatusUnauthorized},
		"an invalid token":        {"eyJhbGciOiJub25lIn0.e30.", http.StatusUnauthorized},
		"a token without a right": {w.tokenOf("without-a-right"), http.StatusForbidden},
		"a token with the right":  {w.tokenOf("prometheus"), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			w.Eventually("the API server knows the role", func() error {
				if got := scrape(t, address, tt.token); got != tt.want {
					return fmt.Errorf("the status is %d, want %d", got, tt.want)
				}
				return nil
			})
		})
	}
	if response, err := http.Get("http://" + address + "/metrics"); err == nil { //nolint:noctx // it does not get far
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS, the status is %s", response.Status)
		}
	}
}

// serveMetrics starts the server of metrics, and returns its address.
func (w *world) serveMetrics() string {
	w.T.Helper()
	httpClient, err := rest.HTTPClientFor(asManager)
	must(w.T, err)
	server, err := metricsserver.NewServer(metricsauth.Options("127.0.0.1:0", true), asManager, httpClient)
	must(w.T, err)
	ctx, cancel := context.WithCancel(w.Ctx)
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	w.T.Cleanup(func() {
		cancel()
		must(w.T, <-done)
	})
	bound := server.(interface{ GetBindAddr() string })
	w.Eventually("the server listens", func() error {
		if bound.GetBindAddr() == "" {
			return fmt.Errorf("it has no address")
		}
		return nil
	})
	return bound.GetBindAddr()
}

// tokenOf returns a token of a new service account.
func (w *world) tokenOf(name string) string {
	w.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	must(w.T, admin.Create(w.Ctx, account))
	return requestToken(w.T, admin, account)
}

// requestToken returns a token of a service account.
func requestToken(t *testing.T, c client.Client, account *corev1.ServiceAccount) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	must(t, c.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

// scrape requests the metrics, and returns the status.
func scrape(t *testing.T, address, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	must(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	untrusting := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	} //nolint:gosec // it makes its own certificate
	response, err := untrusting.Do(request)
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode
}
