// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testing/clitest"
)

// local returns a dashboard of this API server, and what it prints.
func local(t *testing.T, api http.HandlerFunc) (d *dashboard, said *clitest.Buffer) {
	t.Helper()
	f, _, said := clitest.NewFactory(t, api)
	c, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	o := &Local{Client: c, Pods: f.Pods, Namespace: "ns", Now: f.Now, After: f.After, Tell: f.Tell}
	return o.newServer("127.0.0.1:8137"), said
}

// serve returns a dashboard of an API server that answers nothing, and a function that requests something of it.
func serve(t *testing.T) (d *dashboard, request func(path string, change func(*http.Request)) *httptest.ResponseRecorder) {
	t.Helper()
	d, _ = local(t, http.NotFound)
	return d, func(path string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.host+path, nil)
		r.Header.Set("Authorization", "Bearer "+d.token)
		change(r)
		w := httptest.NewRecorder()
		d.handler().ServeHTTP(w, r)
		return w
	}
}

func TestRequestsOfOthersAreRefused(t *testing.T) {
	_, request := serve(t)
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, test := range map[string]struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		"the page itself": {"/api/node?name=a", func(*http.Request) {}, http.StatusNotFound},
		"the page, with the headers of a browser": {"/api/node?name=a", func(r *http.Request) {
			r.Header.Set("Origin", "http://127.0.0.1:8137")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}, http.StatusNotFound},
		"without a token":                                 {"/api/node?name=a", with("Authorization", ""), http.StatusUnauthorized},
		"with another token":                              {"/api/node?name=a", with("Authorization", "Bearer AAAA"), http.StatusUnauthorized},
		"with a token in a cookie":                        {"/api/stream", func(r *http.Request) { r.Header.Del("Authorization"); r.Header.Set("Cookie", "token=x") }, http.StatusUnauthorized},
		"with the token in the address":                   {"/api/stream?token=x", with("Authorization", ""), http.StatusUnauthorized},
		"with another host, as after a change of DNS":     {"/api/node?name=a", func(r *http.Request) { r.Host = "evil.example.com:8137" }, http.StatusMisdirectedRequest},
		"with another port":                               {"/", func(r *http.Request) { r.Host = "127.0.0.1:80" }, http.StatusMisdirectedRequest},
		"the page with another host":                      {"/", func(r *http.Request) { r.Host = "evil.example.com" }, http.StatusMisdirectedRequest},
		"with localhost as the host":                      {"/api/node?name=a", func(r *http.Request) { r.Host = "localhost:8137" }, http.StatusNotFound},
		"of another web page":                             {"/api/node?name=a", with("Origin", "https://evil.example.com"), http.StatusForbidden},
		"of another server on this machine":               {"/api/node?name=a", with("Origin", "http://127.0.0.1:9999"), http.StatusForbidden},
		"of another site, without an origin":              {"/app.js", with("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"of another port of this machine":                 {"/app.js", with("Sec-Fetch-Site", "same-site"), http.StatusForbidden},
		"of a page without an origin, such as a sandbox":  {"/api/node?name=a", with("Origin", "null"), http.StatusForbidden},
		"a user who follows a link":                       {"/", func(r *http.Request) { navigate(r, "document") }, http.StatusOK},
		"a frame of another site":                         {"/", func(r *http.Request) { navigate(r, "iframe") }, http.StatusForbidden},
		"a link to data":                                  {"/api/node?name=a", func(r *http.Request) { navigate(r, "document") }, http.StatusForbidden},
		"another method":                                  {"/api/node?name=a", func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
		"a file of the program":                           {"/dashboard.go", func(*http.Request) {}, http.StatusNotFound},
		"a NodeJob that does not exist":                   {"/api/job?namespace=a&name=b", func(*http.Request) {}, http.StatusNotFound},
		"the log of a pod that is not of a NodeJob":       {"/api/log?namespace=kube-system&pod=etcd", func(*http.Request) {}, http.StatusNotFound},
		"the log of a pod, with a path instead of a name": {"/api/log?namespace=a&pod=../../secrets", func(*http.Request) {}, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			got := request(test.path, test.change)
			if got.Code != test.want {
				t.Errorf("answer %d, want %d: %s", got.Code, test.want, got.Body)
			}
			for header, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
				"Cross-Origin-Resource-Policy": "same-origin",
			} {
				// net/http removes Cache-Control from the answer that a file does not exist.
				if noFile := header == "Cache-Control" &&
					test.path == "/dashboard.go"; !noFile &&
					!strings.Contains(got.Header().Get(header), want) {
					t.Errorf("%s: %q", header, got.Header().Get(header))
				}
			}
			if got.Header().Get("Access-Control-Allow-Origin") != "" || got.Header().Get("Set-Cookie") != "" {
				t.Errorf("headers %v", got.Header())
			}
		})
	}
}

// navigate makes a request one that opens a page from another site.
func navigate(r *http.Request, destination string) {
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Sec-Fetch-Dest", destination)
}

func TestTooManyTabsAreRefused(t *testing.T) {
	d, request := serve(t)
	for range maxTabs {
		d.tabs <- struct{}{}
	}
	got := request("/api/stream", func(*http.Request) {})
	if got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "32 tabs show this dashboard already: close one") {
		t.Errorf("answer %d: %s", got.Code, got.Body)
	}
}

func TestTooManyRequestsForDetailsAreRefused(t *testing.T) {
	d, request := serve(t)
	for range maxDetails - 1 {
		d.details <- struct{}{}
	}
	for range 2 { // one place is free, and is free again after a request
		for _, path := range []string{"/api/job?namespace=a&name=b", "/api/node?name=a"} {
			if got := request(path, func(*http.Request) {}); got.Code != http.StatusNotFound {
				t.Errorf("%s: answer %d: %s", path, got.Code, got.Body)
			}
		}
	}
	d.details <- struct{}{}
	for _, path := range []string{"/api/job?namespace=a&name=b", "/api/node?name=a", "/api/budgets"} {
		got := request(path, func(*http.Request) {})
		if got.Code != http.StatusTooManyRequests ||
			!strings.Contains(got.Body.String(), "8 requests for a NodeJob, a node or budgets are being answered already: try again") {
			t.Errorf("%s: answer %d: %s", path, got.Code, got.Body)
		}
	}
}

// deadlines records an answer and its deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	write time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.write = at
	return nil
}

// TestARequestForDetailsEnds : the API server does not respond, or the client does not read.
func TestARequestForDetailsEnds(t *testing.T) {
	d, _ := serve(t)
	now := time.Now()
	d.machine = func() time.Time { return now }
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	d.detail(func(_ http.ResponseWriter, r *http.Request) {
		if at, has := r.Context().Deadline(); !has || at.After(now.Add(detailTimeout)) {
			t.Errorf("the request ends at %s", at)
		}
	})(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/node", nil))
	if !w.write.Equal(now.Add(detailTimeout)) {
		t.Errorf("the answer ends at %s", w.write)
	}
}

func TestEachDashboardHasItsOwnToken(t *testing.T) {
	one, _ := serve(t)
	other, _ := serve(t)
	if one.token == other.token || len(one.token) < 26 {
		t.Errorf("tokens %q and %q", one.token, other.token)
	}
	if want := "http://127.0.0.1:8137/#token=" + one.token; one.address() != want {
		t.Errorf("address %q", one.address())
	}
}
