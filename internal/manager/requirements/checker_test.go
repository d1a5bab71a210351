// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/nodebudget/budget"
)

const met, not, unknown = v1alpha1.RequirementMet, v1alpha1.RequirementNotMet, v1alpha1.RequirementUnknown

// newChecker returns a Checker whose API server is the handler. Its requirements may connect to this machine, where the test servers are.
func newChecker(t *testing.T, budgets client.Reader, registry *claims.Registry, now func() time.Time, handler http.HandlerFunc) *Checker {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	allowed, err := ParseAddresses("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(budgets, &rest.Config{Host: server.URL}, nil, allowed, registry, now)
	if err != nil {
		t.Fatal(err)
	}
	c.services = func(context.Context) ([]netip.Prefix, error) { return prefixes("10.96.0.0/12"), nil }
	return c
}

// answer checks a requirement once, with a limit of time that suits a test.
func answer(t *testing.T, c *Checker, r v1alpha1.BudgetRequirement) string {
	t.Helper()
	state, message, invalid := c.ask(t.Context(), &r)
	if invalid {
		state = "Invalid"
	}
	if len(message) > maxMessage || !utf8.ValidString(message) || strings.ContainsAny(message, "\n\x1b\u202e") {
		t.Errorf("the message is not bounded and escaped: %q", message)
	}
	return strings.TrimSuffix(string(state)+": "+message, ": ")
}

func TestAlerts(t *testing.T) {
	alert := func(names ...string) string {
		var all []string
		for _, name := range names {
			quoted, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf(`{"labels": {"alertname": %s, "severity": "critical"}, "status": {"state": "active"}}`, quoted))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	body := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); _, _ = w.Write([]byte(text)) }
	}
	ends := make(chan struct{})
	tests := map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"no alerts":     {body(200, "[]\n"), "Met"},
		"an alert":      {body(200, alert("Fire")), "NotMet: 1 alert is active: Fire"},
		"many alerts":   {body(200, alert("E", "D", "C", "B", "A", "A")), "NotMet: 6 alerts are active: A, B, C, …"},
		"hostile names": {body(200, alert("\x1b[2J\u202e\n"+strings.Repeat("x", 500))), `NotMet: 1 alert is active: \x1b[2J\u202e\n`},
		"an alert without a name": {
			body(200, `[{"labels": {}}]`), "NotMet: 1 alert is active: (no alertname)",
		},
		"null":              {body(200, "null"), "Unknown: the response is not a list of alerts"},
		"an object":         {body(200, "{}"), "Unknown: the response is not a list of alerts"},
		"a page":            {body(200, "<html>"), "Unknown: the response is not a list of alerts"},
		"nothing":           {body(200, ""), "Unknown: the response is not a list of alerts"},
		"more after a list": {body(200, "[] []"), "Unknown: the response is not a list of alerts"},
		"an error":          {body(503, "no \x1b"), "Unknown: the response is 503 Service Unavailable"},
		"a matcher that the Alertmanager rejects": {
			body(400, `"secret \u001b"`),
			"Invalid: the Alertmanager rejects alerts.matchers (400 Bad Request): a matcher looks like severity=critical",
		},
		"a bad request that is not of an Alertmanager": {body(400, "<html>"), "Unknown: the response is 400 Bad Request"},
		"a redirect": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
			"Unknown: the response is 302 Found, and redirects are not followed",
		},
		"too large": {
			body(200, "["+strings.Repeat(" ", maxResponse)+"]"), "Unknown: the response is larger than 1048576 bytes",
		},
		"large headers": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Large", strings.Repeat("x", 2*maxHeaders))
			},
			"Unknown: alerts.url does not give a complete response of HTTP",
		},
		"too slow": {func(http.ResponseWriter, *http.Request) { <-ends }, "Unknown: no answer within 5s"},
		"a response that does not end": {
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("["))
				_ = http.NewResponseController(w).Flush()
				<-ends
			},
			"Unknown: no answer within 5s",
		},
	}
	t.Run("all", func(t *testing.T) {
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // two wait for the limit of time
				elsewhere := 0
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/am/api/v2/alerts" {
						elsewhere++
						return
					}
					tt.handler(w, r)
				}))
				t.Cleanup(server.CloseClientConnections)
				c := newChecker(t, nil, nil, nil, nil)
				r := v1alpha1.BudgetRequirement{Alerts: &v1alpha1.RequiredAlerts{URL: server.URL + "/am", Matchers: []string{"a=b"}}}
				if got := answer(t, c, r); !strings.HasPrefix(got, tt.want) || tt.want == "Met" && got != tt.want {
					t.Errorf("the answer is %q, want %q", got, tt.want)
				}
				if elsewhere > 0 {
					t.Error("the redirect is followed")
				}
			})
		}
	})
	close(ends)
}

func TestTheRequestForAlerts(t *testing.T) {
	t.Setenv("HTTP_PROXY", "")
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = w.Write([]byte("[]"))
	}))
	defer server.Close()
	c := newChecker(t, nil, nil, nil, nil)
	r := v1alpha1.BudgetRequirement{Alerts: &v1alpha1.RequiredAlerts{URL: server.URL, Matchers: []string{`severity=~"a|b&c"`, "team!=x"}}}
	if state := answer(t, c, r); state != "Met" {
		t.Fatal(state)
	}
	want := "/api/v2/alerts?active=true&filter=severity%3D~%22a%7Cb%26c%22&filter=team%21%3Dx&inhibited=false&silenced=false"
	if got.Method != http.MethodGet || got.RequestURI != want {
		t.Errorf("the request is %s %s, want %s", got.Method, got.RequestURI, want)
	}
	for _, header := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
		if got.Header.Get(header) != "" {
			t.Errorf("it has credentials: %s", header)
		}
	}
}

func TestAddressesThatAreNotAllowed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // it is not used
	c := newChecker(t, nil, nil, nil, nil)
	for url, want := range map[string]string{
		"http://169.254.169.254/latest": "Unknown: alerts.url is neither the address of a Service of the cluster nor one that --requirements-",
		"http://[fe80::1%25lo]:80":      "Unknown: alerts.url is neither",
		"http://192.0.2.1":              "Unknown: alerts.url is neither",
		"http://user:password@am:9093":  "Invalid: alerts.url must be",
		"file:///etc/passwd":            "Invalid: alerts.url must be",
		"http://":                       "Invalid: alerts.url must be",
		"http://a b":                    "Invalid: alerts.url must be",
	} {
		got := answer(t, c, v1alpha1.BudgetRequirement{Alerts: &v1alpha1.RequiredAlerts{URL: url}})
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

// TestWhichAddressesAreAllowed : by default only Services, and metadata services never, in any form.
func TestWhichAddressesAreAllowed(t *testing.T) {
	services := prefixes("10.96.0.0/12", "fd00::/108")
	for _, tt := range []struct {
		allowed, host string
		ip            string
		want          bool
	}{
		{"", "am.monitoring.svc", "10.96.3.4", true},
		{"", "am.monitoring.svc", "fd00::9", true},
		{"", "10.96.3.4", "10.96.3.4", true},
		{"", "am.monitoring.svc", "::ffff:10.96.3.4", true},
		{"", "external-name.monitoring.svc", "192.0.2.1", false},
		{"", "headless.monitoring.svc", "10.0.3.4", false},
		{"headless.monitoring.svc", "headless.monitoring.svc", "10.0.3.4", true},
		{"headless.monitoring.svc", "headless.monitoring.svc.", "10.0.3.4", true},
		{"headless.monitoring.svc", "other.monitoring.svc", "10.0.3.4", false},
		{"192.0.2.0/24,2001:db8::1", "am.example.com", "192.0.2.7", true},
		{"192.0.2.0/24,2001:db8::1", "am.example.com", "64:ff9b::c000:207", true},
		{"192.0.2.0/24,2001:db8::1", "am.example.com", "2001:db8::1", true},
		{"192.0.2.0/24,2001:db8::1", "am.example.com", "2001:db8::2", false},
		{"", "localhost", "127.0.0.1", false},
		{"localhost", "localhost", "127.0.0.1", false},
		{"localhost", "localhost", "::1", false},
		{"127.0.0.1", "localhost", "127.0.0.1", true},
		{"127.0.0.1", "localhost", "127.0.0.2", false},
	} {
		a, err := ParseAddresses(tt.allowed)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.allow(tt.host, netip.MustParseAddr(tt.ip), services); got != tt.want {
			t.Errorf("with %q, %s at %s: %t, want %t", tt.allowed, tt.host, tt.ip, got, tt.want)
		}
	}
	all, err := ParseAddresses("0.0.0.0/0,::/0,metadata.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range []string{
		"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "169.254.170.2", "fe80::1", "fe80::1%eth0", "fd00:ec2::254",
		"fd00:ec2::254%eth0", "fd20:ce::254", "168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "100.100.100.200", "64:ff9b::6464:64c8",
		"192.0.0.192", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "64:ff9b::",
	} {
		if all.allow("metadata.example.com", netip.MustParseAddr(ip), prefixes("0.0.0.0/0", "::/0")) {
			t.Errorf("%s is allowed", ip)
		}
	}
	for _, value := range []string{"10.0.0.0/33", "a_b", "http://am", "am:9093", "a b"} {
		if _, err := ParseAddresses(value); err == nil {
			t.Errorf("%q is accepted", value)
		}
	}
}

// kubernetes is a part of an API server, with one object.
type kubernetes struct {
	object string
	// fails is a Status that is the answer to the request of the object.
	fails *apierrors.StatusError
	mu    sync.Mutex // of asked
	asked []string
}

func (k *kubernetes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resources := map[string]string{
		"/api/v1": `{"name": "configmaps", "kind": "ConfigMap", "namespaced": true},
			{"name": "configmaps/status", "kind": "ConfigMapStatus", "namespaced": true},
			{"name": "secrets", "kind": "Secret", "namespaced": true}, {"name": "nodes", "kind": "Node"}`,
		"/apis/ceph.rook.io/v1": `{"name": "cephclusters", "kind": "CephCluster", "namespaced": true}`,
	}
	if list, is := resources[r.URL.Path]; is {
		_, _ = fmt.Fprintf(w, `{"kind": "APIResourceList", "resources": [%s]}`, list)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	user := r.Header.Get("Impersonate-User")
	if user != "system:serviceaccount:everynode-system:everynode-requirements" || len(r.Header["Impersonate-Group"]) > 0 {
		k.asked = append(k.asked, "as another user")
	}
	if strings.HasPrefix(r.URL.Path, "/apis/unknown/") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	k.asked = append(k.asked, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	if k.fails == nil {
		_, _ = w.Write([]byte(k.object))
		return
	}
	status := k.fails.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func TestObjects(t *testing.T) {
	resource := schema.GroupResource{Group: "ceph.rook.io", Resource: "cephclusters"}
	const object = `{"status": {"health": "HEALTH_OK", "osds": 3, "ratio": 0.5, "ready": true, "text": "secret\u001b",
		"at": "2026-01-02T03:04:05Z", "list": [{"up": true, "n": 1}, {"up": false, "n": 2}, {"up": true, "n": 3}]}}`
	const fieldOrType = "Unknown: object.expression cannot be evaluated for CephCluster rook/main: a field does not exist or has another type"
	tests := map[string]struct {
		cel, object string
		fails       *apierrors.StatusError
		want        string
	}{
		"true": {cel: "object.status.health == 'HEALTH_OK'", want: "Met"},
		"false": {
			cel:  "object.status.osds > 3",
			want: "NotMet: the expression is false for CephCluster rook/main: object.status.osds > 3",
		},
		"a field that is a bool": {cel: "object.status.ready", want: "Met"},
		"a field that is not": {
			cel:  "object.status.health",
			want: "Unknown: the result of object.expression for CephCluster rook/main is not true or false",
		},
		"a field that does not exist": {cel: "object.status.nothing == 1", want: fieldOrType},
		"an optional field":           {cel: "object.?status.?nothing.orValue(1) == 1", want: "Met"},
		"numbers of different types":  {cel: "object.status.ratio < 1 && object.status.osds >= 2.5", want: "Met"},
		"a sum":                       {cel: "object.status.osds + 1 == 4 && object.status.ratio + 0.5 == 1.0", want: "Met"},
		"times": {
			cel:  "timestamp(object.status.at) + duration('1h') > timestamp('2026-01-02T04:00:00Z')",
			want: "Met",
		},
		"how many":            {cel: "object.status.list.filter(x, x.up).size() == 2", want: "Met"},
		"filtered twice":      {cel: "object.status.list.filter(x, x.up).filter(x, x.n > 1).all(x, x.n == 3)", want: "Met"},
		"a filter that fails": {cel: "object.status.list.filter(x, x.nothing).size() == 0", want: fieldOrType},
		"all": {
			cel:  "object.status.list.all(x, x.n in [1, 2, 3]) && object.status.list.exists_one(x, !x.up)",
			want: "Met",
		},
		"texts": {
			cel:  "object.status.health.startsWith('HEALTH_') && object.status.health.size() == 9",
			want: "Met",
		},
		"a value that an error quotes": {cel: "{'a': true}[object.status.text]", want: fieldOrType},
		"a value that no number has":   {cel: "int(object.status.text) == 1", want: fieldOrType},
		"a value that no time has":     {cel: "timestamp(object.status.text) == timestamp(object.status.text)", want: fieldOrType},
		"a value that is not true":     {cel: "object.status.text ? true : false", want: fieldOrType},
		"an index that is a value":     {cel: "object.status.list[object.status.text] == 1", want: fieldOrType},
		"a syntax error":               {cel: "object.", want: "Invalid: object.expression: ERROR: <input>:1:8: Syntax error"},
		"another variable": {
			cel:  "oldObject.x",
			want: "Invalid: object.expression: ERROR: <input>:1:1: undeclared reference to 'oldObject'",
		},
		"not a condition":           {cel: "'yes'", want: "Invalid: object.expression is of type string, and must be true or false"},
		"the function of the macro": {cel: "@keep([], 1) == [1]", want: "Invalid: object.expression: ERROR: <input>:1:1: Syntax error"},
		"an iteration variable is a sum": {
			cel:  "object.status.list.filter(x + 1, true) == []",
			want: "Invalid: object.expression: ERROR: <input>:1:",
		},
		"an object that is not JSON": {
			cel: "true", object: "secret",
			want: "Unknown: the API server does not return CephCluster rook/main as JSON",
		},
		"an object that is large": {
			cel:    "true",
			object: `{"a": "` + strings.Repeat("x", maxObject) + `"}`,
			want:   "Unknown: CephCluster rook/main is larger than 256 KiB",
		},
		"an object that is larger than a response": {
			cel:    "true",
			object: `{"a": "` + strings.Repeat("x", 2*maxResponse) + `"}`,
			want:   "Unknown: CephCluster rook/main is larger than 256 KiB",
		},
		"a long expression": {
			cel:  "object.status.osds == 0 &&" + strings.Repeat(" ", 900) + "true",
			want: "NotMet: the expression is false",
		},
		"not found": {
			cel:   "true",
			fails: apierrors.NewNotFound(resource, "main"),
			want:  "Unknown: CephCluster rook/main does not exist",
		},
		"forbidden": {
			cel:   "true",
			fails: apierrors.NewForbidden(resource, "main", errors.New("secret")),
			want: "Unknown: the ServiceAccount everynode-requirements in everynode-system may not get cephclusters.ceph.rook.io rook/main: " +
				"an administrator must grant it (docs/nodedisruptionbudget.md#permission-to-read-an-object)",
		},
		"an error": {
			cel:   "true",
			fails: apierrors.NewInternalError(errors.New("secret\ny")),
			want:  "Unknown: the API server does not answer as expected",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := &kubernetes{object: cmp.Or(tt.object, object), fails: tt.fails}
			c := newChecker(t, nil, nil, nil, server.ServeHTTP)
			r := v1alpha1.BudgetRequirement{Object: &v1alpha1.RequiredObject{
				APIVersion: "ceph.rook.io/v1", Kind: "CephCluster", Namespace: "rook", Name: "main", Expression: tt.cel,
			}}
			got := answer(t, c, r)
			if !strings.HasPrefix(got, tt.want) || tt.want == "Met" && got != tt.want || strings.Contains(got, "secret") {
				t.Errorf("the answer is %q, want %q", got, tt.want)
			}
			path := "GET /apis/ceph.rook.io/v1/namespaces/rook/cephclusters/main"
			if len(server.asked) > 1 || len(server.asked) == 1 && server.asked[0] != path {
				t.Errorf("it reads %v", server.asked)
			}
		})
	}
}

// TestOnlyTheCanonicalKindIsRead : a Secret is refused as a resource, and no other spelling of a kind leads to a resource.
func TestOnlyTheCanonicalKindIsRead(t *testing.T) {
	const unknown = "Unknown: the API server does not know "
	const names = "Invalid: object.apiVersion, object.namespace and object.name must be names"
	for _, tt := range []struct{ apiVersion, kind, namespace, name, want string }{
		{"v1", "ConfigMap", "n", "x", "Met"},
		{"v1", "Node", "", "x", "Met"},
		{"v1", "Secret", "n", "x", "Invalid: object.kind: a Secret cannot be read"},
		{"v1", "secret", "n", "x", unknown},
		{"v1", "secrets", "n", "x", unknown},
		{"v1", "SECRET", "n", "x", unknown},
		{"v1", "SecretList", "n", "x", unknown},
		{"v1", "Secret ", "n", "x", unknown},
		{"v1", "ConfigMapStatus", "n", "x", unknown},
		{"v1", "configmap", "n", "x", unknown},
		{"v2", "Secret", "n", "x", unknown},
		{"/v1", "Secret", "n", "x", "Invalid: object.kind: a Secret cannot be read"},
		{"unknown/v1", "Secret", "n", "x", unknown},
		{"v1", "ConfigMap", "", "x", "Invalid: object.namespace: set it, because ConfigMap is namespaced"},
		{"v1", "Node", "n", "x", "Invalid: object.namespace: remove it, because Node is cluster-scoped"},
		{"v1", "Node", "", "../secrets/x", names},
		{"v1", "Node", "", "..", names},
		{"v1", "Node", "", "x%2fstatus", names},
		{"v1", "ConfigMap", "n/secrets/x", "y", names},
		{"../v1", "Secret", "n", "x", names},
		{"a/b/c", "Secret", "n", "x", names},
		{"apis/..", "Secret", "n", "x", names},
	} {
		server := &kubernetes{object: "{}"}
		c := newChecker(t, nil, nil, nil, server.ServeHTTP)
		got := answer(t, c, v1alpha1.BudgetRequirement{Object: &v1alpha1.RequiredObject{
			APIVersion: tt.apiVersion, Kind: tt.kind, Namespace: tt.namespace, Name: tt.name, Expression: "true",
		}})
		reads := slices.ContainsFunc(server.asked, func(path string) bool { return path != "GET /api/v2" })
		if !strings.HasPrefix(got, tt.want) || reads != (tt.want == "Met") {
			t.Errorf("%+v: %q, and it reads %v", tt, got, server.asked)
		}
	}
}

// budgets returns one budget; none if it is nil.
type budgets struct {
	client.Reader
	one *v1alpha1.NodeDisruptionBudget
}

func (r *budgets) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if r.one == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	r.one.DeepCopyInto(o.(*v1alpha1.NodeDisruptionBudget))
	return nil
}

func TestTheChecker(t *testing.T) {
	noon := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	now := noon
	b := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "u", Generation: 1}}
	object := func(cel string) *v1alpha1.RequiredObject {
		return &v1alpha1.RequiredObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "x", Expression: cel}
	}
	b.Spec.Requirements = []v1alpha1.BudgetRequirement{{Name: "a", Object: object("object.go")}, {Name: "b", Object: object("!object.go")}}
	stored, objects, registry := &budgets{one: b}, &kubernetes{object: `{"go": true}`}, claims.New()
	c := newChecker(t, stored, registry, func() time.Time { return now }, objects.ServeHTTP)
	planned := 0
	registry.OnReport(func() { planned++ })
	check := func(at time.Time, wantNext time.Duration, wantPlanned int) []budget.Answer {
		t.Helper()
		now, planned = at, 0
		result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "b"}})
		if err != nil || result.RequeueAfter != wantNext || wantPlanned >= 0 && planned != wantPlanned {
			t.Errorf("at %v: %+v, %v, and budgets are planned %d times; want %v and %d", at, result, err, planned, wantNext, wantPlanned)
		}
		return registry.AnswersOf("b").Of
	}
	const every = budget.CheckEvery
	if got := check(noon, every, 1); got[0].State != met || got[1].State != not || !got[0].At.Equal(noon) {
		t.Errorf("the answers are %+v", got)
	}
	if got := check(noon.Add(every), every, 0); !got[0].At.Equal(noon.Add(every)) {
		t.Errorf("the answers are not those of the last check: %+v", got)
	}
	check(noon.Add(every+budget.AnswersLast), every, 1) // the earlier ones were too old

	objects.fails = apierrors.NewServiceUnavailable("x")
	failed := noon.Add(time.Hour)
	check(failed, every, 1)
	if got := check(failed.Add(every), every, 0); got[0].State != unknown || !got[0].FailingSince.Equal(failed) {
		t.Errorf("the answers are %+v, want a failure since %v", got, failed)
	}
	b.Generation++
	if got := check(failed.Add(2*every), every, 1); !got[0].FailingSince.Equal(now) || registry.AnswersOf("b").Generation != 2 {
		t.Errorf("the answers are %+v, want a failure since the change of the spec", got)
	}
	objects.fails = nil
	if got := check(failed.Add(3*every), every, 1); !got[0].FailingSince.IsZero() {
		t.Errorf("the answers are %+v, want no failure", got)
	}

	// What is not needed is not checked, and forgotten.
	for name, change := range map[string]func(*v1alpha1.NodeDisruptionBudget){
		"expired":         func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.ExpiresAt = &metav1.Time{Time: now} },
		"being deleted":   func(b *v1alpha1.NodeDisruptionBudget) { b.DeletionTimestamp = &metav1.Time{Time: now} },
		"no requirements": func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Requirements = nil },
		"deleted":         nil,
	} {
		stored.one = b
		check(now, every, -1)
		asked := len(objects.asked)
		stored.one = nil
		if change != nil {
			stored.one = b.DeepCopy()
			change(stored.one)
		}
		if got := check(now, 0, 0); len(got) > 0 || len(objects.asked) > asked {
			t.Errorf("%s: the answers are %+v, and %v was read", name, got, objects.asked[asked:])
		}
		registry.SetAnswers("b", budget.Answers{})
	}
}
