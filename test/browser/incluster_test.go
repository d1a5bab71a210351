// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/clitest"
	dashboardpkg "github.com/everynode/everynode/internal/dashboard"
	"github.com/everynode/everynode/test/browser/chromium"
)

// component is a dashboard as it runs in the cluster.
type component struct {
	address string
	log     clitest.Buffer
	// ahead is how far its clock is ahead.
	ahead atomic.Int64
}

// inCluster serves a dashboard as everynode-dashboard does. Its timers fire a hundred times faster.
func inCluster(t *testing.T, change func(*dashboardpkg.InCluster)) *component {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, env.Config.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the server
	if err != nil {
		t.Fatal(err)
	}
	c := &component{address: "https://" + listener.Addr().String()}
	o := &dashboardpkg.InCluster{
		APIServer: "https://" + strings.TrimPrefix(
			env.Config.Host,
			"https://",
		),
		APIServerCA: ca,
		Cluster:     "production",
		Namespace:   namespace,
		Log:         slog.New(slog.NewJSONHandler(&c.log, nil)),
		Now:         func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) },
		After:       func(d time.Duration) <-chan time.Time { return time.After(d / 100) },
	}
	if change != nil {
		change(o)
	}
	if o.PlainHTTP {
		c.address = "http://" + listener.Addr().String()
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// account creates a service account whose permissions are these rules in the whole cluster, or only in the namespace, and
// returns a token of it.
func account(t *testing.T, name string, everywhere bool, rules ...rbacv1.PolicyRule) (account *corev1.ServiceAccount, token string) {
	t.Helper()
	account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	create(t, account, nil)
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	if everywhere {
		create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, nil)
		create(
			t,
			&rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: name},
				Subjects:   subjects,
			},
			nil,
		)
	} else {
		create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}, nil)
		create(
			t,
			&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: name},
				Subjects:   subjects,
			},
			nil,
		)
	}
	request := &authenticationv1.TokenRequest{}
	if err := admin.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return account, request.Status.Token
}

var (
	readsAll = []rbacv1.PolicyRule{
		{
			APIGroups: []string{"", v1alpha1.Group},
			Resources: []string{"nodes", "pods", "nodejobs", "nodeguards"},
			Verbs:     []string{"get", "list", "watch"},
		},
	}
	readsNodeJobs = rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.Group},
		Resources: []string{"nodejobs"},
		Verbs:     []string{"list", "watch"},
	}
)

const loginForm = "document.querySelector('#login')"

// visit opens the page of a dashboard in the cluster.
func visit(t *testing.T, address string) *chromium.Tab {
	t.Helper()
	tab := open(t, "about:blank", 1280, 800, false)
	if err := tab.AcceptCertificates(); err != nil {
		t.Fatal(err)
	}
	if err := tab.Go(address); err != nil {
		t.Fatal(err)
	}
	return tab
}

// logIn enters a token into the form.
func logIn(t *testing.T, tab *chromium.Tab, token string) {
	t.Helper()
	see(t, tab, loginForm+".open && document.activeElement.id === 'login-token'")
	if err := tab.Type(token); err != nil {
		t.Fatal(err)
	}
	press(t, tab, "Enter")
}

func TestAUserLogsInToTheDashboardInTheCluster(t *testing.T) {
	f := newFleet(t, 6)
	f.job("max-map-count", "true", outcomes(6, 2, 1), nil)
	f.create()
	f.report()
	c := inCluster(t, nil)
	_, token := account(t, "reader", true, readsAll...)
	tab := visit(t, c.address)
	logIn(t, tab, "wrong")
	see(t, tab, "document.querySelector('#login [role=alert]')?.innerText.includes('does not accept this token')")
	see(t, tab, cells+".length === 0")
	do(t, tab, "document.querySelector('#login-token').value = ''")
	logIn(t, tab, token)
	see(t, tab, cells+".length === 6")
	see(t, tab, stateOf("node-2")+" === 'failed'")
	see(t, tab, "document.querySelector('#user').innerText === 'system:serviceaccount:default:reader'")
	see(t, tab, "document.querySelector('#context').innerText === 'production'")
	see(t, tab, "document.cookie === ''") // scripts cannot read it
	see(t, tab, "Object.keys(sessionStorage).length === 0")

	// The page offers commands, and no changes.
	do(t, tab, "location.hash = '#/job/default/max-map-count/node/node-2'")
	see(t, tab, "document.querySelector('#node').innerText.includes('has failed on node-2')")
	see(t, tab, "document.querySelectorAll('.commands').length > 0 && document.querySelectorAll('.changes').length === 0")
	reload(t, tab) // the session stays
	see(t, tab, "document.querySelector('#node')?.innerText.includes('has failed on node-2')")

	do(t, tab, "document.querySelector('#log-out').click()")
	see(t, tab, loginForm+"?.open && "+cells+".length === 0")
	reload(t, tab)
	see(t, tab, loginForm+"?.open")
	for _, address := range tab.Requests() {
		if strings.Contains(address, token) {
			t.Errorf("the token is in a request: %s", address)
		}
	}
	if log := c.log.String(); strings.Contains(log, token) || !strings.Contains(log, `"user":"system:serviceaccount:default:reader"`) {
		t.Errorf("the log is %s", log)
	}
	noProblems(t, tab, "401")
}

func TestEachUserSeesWhatTheirOwnTokenMayRead(t *testing.T) {
	f := newFleet(t, 3)
	f.job("max-map-count", "true", outcomes(3, 1), nil)
	f.create()
	f.report()
	c := inCluster(t, nil)
	_, all := account(t, "reader", true, readsAll...)
	_, some := account(t, "tenant", false, readsNodeJobs)
	first, second := visit(t, c.address), visit(t, c.address)
	logIn(t, first, all)
	see(t, first, cells+".length === 3")
	logIn(t, second, some)
	see(t, second, "document.querySelectorAll('#jobs li').length === 2")
	for _, want := range []string{"Not all nodes can be shown", "system:serviceaccount:default:tenant may not list nodes in the whole cluster"} {
		see(t, second, fmt.Sprintf("document.querySelector('#notes').innerText.includes(%q)", want))
	}
	see(t, second, cells+".length === 0")
	see(t, first, "document.querySelector('#notes').innerText === ''")
}

func TestASessionEndsWithItsToken(t *testing.T) {
	f := newFleet(t, 3)
	f.create()
	c := inCluster(t, nil)
	reader, token := account(t, "reader", true, readsAll...)
	tab := visit(t, c.address)
	logIn(t, tab, token)
	see(t, tab, cells+".length === 3")
	if err := admin.Delete(t.Context(), reader); err != nil {
		t.Fatal(err)
	}
	// The token is reviewed each minute. The API server accepts it for some seconds more, because it caches its decision. The clock
	// does not reach the time after which the session would end in any case.
	wait(t, "the login", func() error {
		c.ahead.Add(int64(time.Minute))
		var met bool
		err := tab.Evaluate("Boolean("+loginForm+"?.open && "+cells+".length === 0)", &met)
		if err == nil && !met {
			err = errors.New("the page shows the nodes")
		}
		return err
	})
	if passed := time.Duration(c.ahead.Load()); passed >= 11*time.Hour {
		t.Errorf("the session has ended after %s", passed)
	}
}

// TestAProxyLogsUsersIn puts a proxy before the dashboard that adds the token of the user, as oauth2-proxy does.
func TestAProxyLogsUsersIn(t *testing.T) {
	f := newFleet(t, 3)
	f.create()
	c := inCluster(t, func(o *dashboardpkg.InCluster) { o.PlainHTTP = true })
	_, token := account(t, "reader", true, readsAll...)
	target, err := url.Parse(c.address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the server
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Pointer[string]
	sent.Store(&token)
	proxy := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+*sent.Load())
		}},
	}
	go func() { _ = proxy.Serve(listener) }()
	t.Cleanup(func() { _ = proxy.Close() })

	tab := visit(t, "http://"+listener.Addr().String())
	see(t, tab, cells+".length === 3")
	see(
		t,
		tab,
		"document.querySelector('#user').innerText === 'system:serviceaccount:default:reader' && document.querySelector('#log-out').hidden",
	)
	wrong := "wrong"
	sent.Store(&wrong)
	reload(t, tab)
	see(t, tab, "document.querySelector('[role=alert]')?.innerText.includes('does not accept this token')")
	see(t, tab, "!"+loginForm+".open && "+cells+".length === 0") // the proxy would replace another token
}

// TestTheDashboardInTheClusterChangesNothing requests the change of a local dashboard with --allow-changes.
func TestTheDashboardInTheClusterChangesNothing(t *testing.T) {
	c := inCluster(t, nil)
	_, token := account(t, "reader", true, readsAll...)
	body, err := json.Marshal(map[string]string{"verb": "suspend", "namespace": namespace, "name": "j", "uid": "u"})
	if err != nil {
		t.Fatal(err)
	}
	insecure := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	} //nolint:gosec // the dashboard made its own certificate
	t.Cleanup(insecure.CloseIdleConnections)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		r, err := http.NewRequestWithContext(t.Context(), method, c.address+"/api/change", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Authorization": "Bearer " + token, "Origin": c.address, "Content-Type": "application/json"} {
			r.Header.Set(name, value)
		}
		answer, err := insecure.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: answer %d: %s", method, answer.StatusCode, said)
		}
	}
}
