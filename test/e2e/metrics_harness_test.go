// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/test/install"
)

// metrics reads the manager's metrics from its pod, as a Prometheus with the role everynode-metrics-reader does.
func (w *world) metrics() string {
	w.T.Helper()
	address, end := w.forward(w.manager().Name, 8080)
	defer end()
	request, err := http.NewRequestWithContext(w.Ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	must(w.T, err)
	request.Header.Set("Authorization", "Bearer "+w.metricsToken())
	untrusting := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	} //nolint:gosec // it makes its own certificate
	response, err := untrusting.Do(request)
	must(w.T, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(w.T, err)
	if response.StatusCode != http.StatusOK {
		w.T.Fatalf("the metrics endpoint answers %s: %s", response.Status, body)
	}
	return string(body)
}

// metricsToken returns a token of a service account that may read the metrics.
func (w *world) metricsToken() string {
	w.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "prometheus"}}
	must(w.T, client.IgnoreAlreadyExists(admin.Create(w.Ctx, account)))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everynode-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.Namespace, Name: account.Name}},
	}
	must(w.T, client.IgnoreAlreadyExists(admin.Create(w.Ctx, binding)))
	request := &authenticationv1.TokenRequest{}
	must(w.T, admin.SubResource("token").Create(w.Ctx, account, request))
	return request.Status.Token
}

// forward makes a port of a pod of the manager a local one, until end is called.
func (w *world) forward(pod string, port int) (address string, end func()) {
	w.T.Helper()
	cfg, err := real.RESTConfig()
	must(w.T, err)
	transport, upgrader, err := spdy.RoundTripperFor(cfg)
	must(w.T, err)
	target, err := url.Parse(fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/portforward", cfg.Host, install.Namespace, pod))
	must(w.T, err)
	stop, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	forwarder, err := portforward.New(dialer, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	must(w.T, err)
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		w.T.Fatalf("forwarding port %d of %s: %v", port, pod, err)
	}
	ports, err := forwarder.GetPorts()
	must(w.T, err)
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() {
		close(stop)
		must(w.T, <-failed)
	}
}
