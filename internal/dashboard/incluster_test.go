// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/clitest"
)

// apiServer knows the tokens secret-of-alice and secret-of-bob. Each user may read one node, which has the user's name.
func apiServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, known := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer secret-of-")
		list := metav1.ListMeta{ResourceVersion: "1"}
		switch path := r.URL.Path; {
		case !known:
			clitest.RespondError(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
		case strings.HasSuffix(path, "/selfsubjectreviews"):
			clitest.Respond(w, authenticationv1.SelfSubjectReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
				Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: user}},
			})
		case r.URL.Query().Get("watch") != "":
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case path == clitest.NodesPath:
			clitest.Respond(w, corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: list,
				Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + user}}}})
		case strings.HasSuffix(path, "/nodejobs"):
			clitest.Respond(
				w,
				v1alpha1.NodeJobList{
					TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJobList"},
					ListMeta: list,
				},
			)
		case strings.HasSuffix(path, "/nodeguards"):
			clitest.Respond(
				w,
				v1alpha1.NodeGuardList{
					TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeGuardList"},
					ListMeta: list,
				},
			)
		default:
			clitest.Respond(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: list})
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// testSite is a dashboard in the cluster, and what it logs.
type testSite struct {
	*inCluster
	*httptest.Server
	log *clitest.Buffer
	t   *testing.T
}

func newSite(t *testing.T, change func(*InCluster)) *testSite {
	t.Helper()
	log := &clitest.Buffer{}
	o := &InCluster{
		APIServer: apiServer(t).URL, Cluster: "production", Namespace: "node-setup", Log: slog.New(slog.NewTextHandler(log, nil)),
		PlainHTTP: true, Now: time.Now, After: time.After,
	}
	change(o)
	ctx, cancel := context.WithCancel(context.Background())
	s := o.newServer(ctx)
	web := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		cancel()
		web.CloseClientConnections()
		web.Close()
	})
	return &testSite{s, web, log, t}
}

// reply is an answer that has ended.
type reply struct {
	code    int
	header  http.Header
	cookies []*http.Cookie
	said    string
}

// request makes a request as the page does.
func (s *testSite) request(method, path, body string, change func(*http.Request)) reply {
	s.t.Helper()
	got := reply{}
	s.stream(method, path, body, change, func(answer *http.Response) {
		said, err := io.ReadAll(answer.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		got = reply{answer.StatusCode, answer.Header, answer.Cookies(), string(said)}
	})
	return got
}

// stream makes a request, and calls read with the answer before it has ended.
func (s *testSite) stream(method, path, body string, change func(*http.Request), read func(*http.Response)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Origin", s.URL)
		r.Header.Set("Content-Type", "application/json")
	}
	change(r)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	read(answer)
	_ = answer.Body.Close()
}

// logIn logs a user in, and returns the cookie.
func (s *testSite) logIn(user string) *http.Cookie {
	s.t.Helper()
	answer := s.request(http.MethodPost, "/api/login", `{"token":" secret-of-`+user+`\n"}`, as)
	if answer.code != http.StatusOK || len(answer.cookies) != 1 {
		s.t.Fatalf("answer %d with the cookies %v", answer.code, answer.cookies)
	}
	return answer.cookies[0]
}

func with(c *http.Cookie) func(*http.Request) { return func(r *http.Request) { r.AddCookie(c) } }

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// nodes returns the names of the nodes that a tab shows.
func (s *testSite) nodes(of func(*http.Request)) []string {
	s.t.Helper()
	var names []string
	s.stream(http.MethodGet, "/api/stream?since=0", "", of, func(answer *http.Response) {
		for lines := json.NewDecoder(answer.Body); len(names) == 0; {
			var c change
			if err := lines.Decode(&c); err != nil {
				s.t.Fatalf("answer %d: %v", answer.StatusCode, err)
			}
			for key := range c.Set {
				if name, is := strings.CutPrefix(key, "node:"); is {
					names = append(names, name)
				}
			}
		}
	})
	return names
}

func TestALoginGetsACookieThatOnlyTheBrowserReads(t *testing.T) {
	s := newSite(t, func(*InCluster) {})
	c := s.logIn("alice")
	if c.Name != "__Host-everynode" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" ||
		c.Domain != "" ||
		len(c.Value) < 26 {
		t.Errorf("cookie %+v", c)
	}
	if got := s.nodes(with(c)); !slices.Equal(got, []string{"node-of-alice"}) {
		t.Errorf("nodes %v", got)
	}
	if other := s.logIn("alice"); other.Value == c.Value {
		t.Error("two sessions have the same ID")
	}
}

func TestUsersDoNotSeeTheDataOfOthers(t *testing.T) {
	s := newSite(t, func(*InCluster) {})
	alice, bob := s.logIn("alice"), s.logIn("bob")
	for _, test := range []struct {
		who    string
		change func(*http.Request)
		want   string
	}{
		{"alice", with(alice), "node-of-alice"}, {"bob", with(bob), "node-of-bob"},
		{"alice through a proxy", bearer("secret-of-alice"), "node-of-alice"}, {"bob through a proxy", bearer("secret-of-bob"), "node-of-bob"},
		{"bob through a proxy, with the cookie of alice", func(r *http.Request) { r.AddCookie(alice); bearer("secret-of-bob")(r) }, "node-of-bob"},
		{"bob through a proxy with a password, with a cookie", func(r *http.Request) { r.AddCookie(bob); r.SetBasicAuth("a", "b") }, "node-of-bob"},
	} {
		if got := s.nodes(test.change); !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s: nodes %v", test.who, got)
		}
	}
	if answer := s.request(http.MethodGet, "/api/node?name=node-of-alice", "", with(bob)); answer.code != http.StatusNotFound {
		t.Errorf("bob gets the node of alice: %d", answer.code)
	}
}

func TestALogoutEndsTheSession(t *testing.T) {
	s := newSite(t, func(*InCluster) {})
	c, other := s.logIn("alice"), s.logIn("alice")
	var answer reply
	s.stream(http.MethodGet, "/api/stream?since=0", "", with(c), func(tab *http.Response) {
		answer = s.request(http.MethodPost, "/api/logout", "{}", with(c))
		if _, err := io.Copy(io.Discard, tab.Body); err != nil {
			t.Errorf("the stream does not end: %v", err)
		}
	})
	if answer.code != http.StatusOK || len(answer.cookies) != 1 || answer.cookies[0].MaxAge >= 0 {
		t.Errorf("answer %d with the cookies %v", answer.code, answer.cookies)
	}
	if answer := s.request(http.MethodGet, "/api/job", "", with(c)); answer.code != http.StatusUnauthorized {
		t.Errorf("answer %d after the logout", answer.code)
	}
	if got := s.nodes(with(other)); !slices.Equal(got, []string{"node-of-alice"}) {
		t.Errorf("the other session has the nodes %v", got)
	}
}

func TestRequestsThatTheDashboardInTheClusterRefuses(t *testing.T) {
	s := newSite(t, func(o *InCluster) { o.Hosts = []string{"everynode.example.com"} })
	host := func(change func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			r.Host = "everynode.example.com"
			if r.Header.Get("Origin") != "" {
				r.Header.Set("Origin", "https://everynode.example.com")
			}
			change(r)
		}
	}
	header := func(name, value string) func(*http.Request) {
		return host(func(r *http.Request) { r.Header.Set(name, value) })
	}
	const good = `{"token":"secret-of-alice"}`
	for name, test := range map[string]struct {
		method, path, body string
		change             func(*http.Request)
		want               int
		logIn              bool
	}{
		"a login of the page":               {http.MethodPost, "/api/login", good, host(as), http.StatusOK, false},
		"of another site":                   {http.MethodPost, "/api/login", good, header("Origin", "https://evil.example.com"), http.StatusForbidden, false},
		"of a page without an origin":       {http.MethodPost, "/api/login", good, header("Origin", "null"), http.StatusForbidden, false},
		"of no browser":                     {http.MethodPost, "/api/login", good, host(func(r *http.Request) { r.Header.Del("Origin") }), http.StatusForbidden, false},
		"as a form sends it":                {http.MethodPost, "/api/login", good, header("Content-Type", "text/plain"), http.StatusUnsupportedMediaType, false},
		"with GET":                          {http.MethodGet, "/api/login", "", host(as), http.StatusNotFound, false},
		"a login with a wrong token":        {http.MethodPost, "/api/login", `{"token":"wrong"}`, host(as), http.StatusUnauthorized, false},
		"a login without a token":           {http.MethodPost, "/api/login", `{}`, host(as), http.StatusUnauthorized, false},
		"a login with a path":               {http.MethodPost, "/api/login", `{"token":"secret-of-alice","namespace":"../nodes"}`, host(as), http.StatusBadRequest, false},
		"a login that is too large":         {http.MethodPost, "/api/login", `{"token":"` + strings.Repeat("a", maxLoginBytes) + `"}`, host(as), http.StatusRequestEntityTooLarge, false},
		"a logout of another site":          {http.MethodPost, "/api/logout", "{}", header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden, false},
		"another host":                      {http.MethodGet, "/", "", as, http.StatusMisdirectedRequest, false},
		"the page":                          {http.MethodGet, "/", "", host(as), http.StatusOK, false},
		"a probe of the kubelet":            {http.MethodGet, "/healthz", "", as, http.StatusOK, false},
		"data without a session":            {http.MethodGet, "/api/stream", "", host(as), http.StatusUnauthorized, true},
		"data with an unknown session":      {http.MethodGet, "/api/stream", "", host(with(&http.Cookie{Name: cookie, Value: "x"})), http.StatusUnauthorized, true},
		"data with a wrong token":           {http.MethodGet, "/api/stream", "", header("Authorization", "Bearer wrong"), http.StatusUnauthorized, false},
		"data with an empty token":          {http.MethodGet, "/api/stream", "", header("Authorization", "Bearer "), http.StatusUnauthorized, true},
		"data with the token in the URL":    {http.MethodGet, "/api/stream?token=secret-of-alice", "", host(as), http.StatusUnauthorized, true},
		"data in a frame of another site":   {http.MethodGet, "/", "", host(func(r *http.Request) { navigate(r, "iframe") }), http.StatusForbidden, false},
		"data with a token for other sites": {http.MethodGet, "/api/job", "", host(func(r *http.Request) { bearer("secret-of-alice")(r); r.Header.Set("Sec-Fetch-Site", "cross-site") }), http.StatusForbidden, false},
		"a change":                          {http.MethodPost, "/api/change", suspendJ, host(bearer("secret-of-alice")), http.StatusMethodNotAllowed, false},
	} {
		t.Run(name, func(t *testing.T) {
			answer := s.request(test.method, test.path, test.body, test.change)
			if answer.code != test.want || strings.Contains(answer.said, `"logIn":true`) != test.logIn {
				t.Errorf("answer %d, want %d: %s", answer.code, test.want, answer.said)
			}
			if policy := answer.header.Get(
				"Content-Security-Policy",
			); test.path != "/healthz" &&
				!strings.Contains(policy, "default-src 'none'") {
				t.Errorf("policy %q", policy)
			}
			if answer.header.Get("Access-Control-Allow-Origin") != "" || (len(answer.cookies) > 0) != (name == "a login of the page") {
				t.Errorf("headers %v", answer.header)
			}
		})
	}
}

func TestATokenIsNeitherLoggedNorSentBack(t *testing.T) {
	s := newSite(t, func(*InCluster) {})
	c := s.logIn("alice")
	said := &strings.Builder{}
	for _, answer := range []reply{
		s.request(http.MethodGet, "/", "", with(c)), s.request(http.MethodGet, "/mode.js", "", with(c)), s.request(http.MethodGet, "/api/job", "", with(c)),
		s.request(http.MethodPost, "/api/login", `{"token":"secret-of-alice"}`, as), s.request(http.MethodPost, "/api/login", `{"token":"secret-of-nobody at all"}`, as),
		s.request(http.MethodPost, "/api/login", `{"token":["secret-of-alice"]}`, as), s.request(http.MethodPost, "/api/logout", "{}", with(c)),
		s.request(http.MethodGet, "/api/job", "", bearer("secret-of-alice")), s.request(http.MethodGet, "/api/job", "", bearer("wrong-secret-of-bob")),
	} {
		_ = answer.header.Write(said)
		said.WriteString(answer.said)
	}
	for where, text := range map[string]string{"an answer": said.String(), "the log": s.log.String()} {
		if strings.Contains(text, "secret-of") {
			t.Errorf("the token is in %s:\n%s", where, text)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "msg=login user=alice") || strings.Contains(log, c.Value) {
		t.Errorf("the log is %s", log)
	}
}

func TestTheNamespaceOfAUserWhoMayNotReadAll(t *testing.T) {
	o := &InCluster{Namespace: "node-setup"}
	for name, test := range map[string]struct{ user, namespace, want string }{
		"a user":                      {"alice", "", "node-setup"},
		"a user who names one":        {"alice", "team-a", "team-a"},
		"a service account":           {"system:serviceaccount:team-b:reader", "", "team-b"},
		"an account, and another one": {"system:serviceaccount:team-b:reader", "team-a", "team-a"},
	} {
		if got := o.namespaceOf(&session{login: login{namespace: test.namespace}, user: test.user}); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
