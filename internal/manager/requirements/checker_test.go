// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/nodebudget/budget"
)

const met, not, unknown = v1alpha1.RequirementMet, v1alpha1.RequirementNotMet, v1alpha1.RequirementUnknown

// anywhere forbids no address: the test servers are on this machine.
func anywhere(netip.Addr) bool { return false }

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
			body(400, `"bad matcher format: \u001b"`), `Invalid: the Alertmanager rejects the request: bad matcher format: \x1b`,
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
			"Unknown: net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded",
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
				c := &Checker{http: newHTTPClient(anywhere)}
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
	c := &Checker{http: newHTTPClient(anywhere)}
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
	c := New(nil, nil, claims.New(), time.Now)
	for url, want := range map[string]string{
		"http://169.254.169.254/latest":  "Unknown: dial tcp 169.254.169.254:80: connections to 169.254.169.254:80 are not allowed",
		"http://[fe80::1%25lo]:80":       "Unknown: dial tcp [fe80::1%lo]:80: connections to",
		"http://[::ffff:169.254.1.1]:80": "Unknown: dial tcp [::ffff:169.254.1.1]:80: connections to",
		"http://user:password@am:9093":   "Invalid: alerts.url must be",
		"file:///etc/passwd":             "Invalid: alerts.url must be",
		"http://":                        "Invalid: alerts.url must be",
		"http://a b":                     "Invalid: alerts.url must be",
	} {
		got := answer(t, c, v1alpha1.BudgetRequirement{Alerts: &v1alpha1.RequiredAlerts{URL: url}})
		if !strings.HasPrefix(got, want) && !strings.Contains(got, "are not allowed") {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

// reader returns an object or an error.
type reader struct {
	client.Reader
	object map[string]any
	err    error
	asked  []string
}

func (r *reader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.asked = append(r.asked, o.GetObjectKind().GroupVersionKind().String()+" "+key.String())
	if r.err == nil {
		o.(*unstructured.Unstructured).Object = r.object
	}
	return r.err
}

func TestObjects(t *testing.T) {
	resource := schema.GroupResource{Group: "ceph.rook.io", Resource: "cephclusters"}
	large := make([]any, 5000)
	for i := range large {
		large[i] = int64(i)
	}
	object := map[string]any{
		"status": map[string]any{
			"health": "HEALTH_OK", "osds": int64(3), "ratio": 0.5, "ready": true, "text": "a\x1bb", "list": large,
		},
	}
	tests := map[string]struct {
		cel  string
		err  error
		want string
	}{
		"true": {cel: "object.status.health == 'HEALTH_OK'", want: "Met"},
		"false": {
			cel:  "object.status.osds > 3",
			want: "NotMet: the expression is false for CephCluster rook/main: object.status.osds > 3",
		},
		"a field that is a bool":      {cel: "object.status.ready", want: "Met"},
		"a field that is not":         {cel: "object.status.health", want: "Unknown: the result of object.cel is of type string"},
		"a field that does not exist": {cel: "object.status.nothing == 1", want: "Unknown: evaluating object.cel: no such key: nothing"},
		"an optional field":           {cel: "object.?status.?nothing.orValue(1) == 1", want: "Met"},
		"numbers of different types":  {cel: "object.status.ratio < 1 && object.status.osds >= 2.5", want: "Met"},
		"a result that is hostile":    {cel: "int(object.status.text) == 1", want: "Unknown: evaluating object.cel: "},
		"a syntax error":              {cel: "object.", want: "Invalid: object.cel: ERROR: <input>:1:8: Syntax error"},
		"another variable": {
			cel:  "oldObject.x",
			want: "Invalid: object.cel: ERROR: <input>:1:1: undeclared reference to 'oldObject'",
		},
		"not a condition": {cel: "'yes'", want: "Invalid: object.cel is of type string, and must be true or false"},
		"too expensive": {
			cel:  "object.status.list.all(a, object.status.list.all(b, a + b >= 0))",
			want: "Unknown: evaluating object.cel: operation cancelled: actual cost limit exceeded",
		},
		"a long expression": {
			cel:  "object.status.osds == 0 &&" + strings.Repeat(" ", 900) + "true",
			want: "NotMet: the expression is false",
		},
		"not found": {
			cel:  "true",
			err:  apierrors.NewNotFound(resource, "main"),
			want: "Unknown: CephCluster rook/main does not exist",
		},
		"an unknown kind": {
			cel: "true", err: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "CephCluster"}},
			want: "Unknown: the API server does not know CephCluster in ceph.rook.io/v1",
		},
		"forbidden": {
			cel: "true",
			err: apierrors.NewForbidden(resource, "main", nil),
			want: "Unknown: the manager may not get CephCluster rook/main: kubectl create clusterrole everynode-requires-cephclusters --verb=get" +
				" --resource=cephclusters.ceph.rook.io; kubectl create clusterrolebinding everynode-requires-cephclusters" +
				" --clusterrole=everynode-requires-cephclusters --serviceaccount=everynode-system:everynode-manager",
		},
		"an error": {
			cel:  "true",
			err:  apierrors.NewInternalError(fmt.Errorf("x\ny")),
			want: `Unknown: getting CephCluster rook/main: Internal error`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects := &reader{object: object, err: tt.err}
			c := &Checker{Objects: objects}
			r := v1alpha1.BudgetRequirement{Object: &v1alpha1.RequiredObject{
				APIVersion: "ceph.rook.io/v1", Kind: "CephCluster", Namespace: "rook", Name: "main", CEL: tt.cel,
			}}
			if got := answer(t, c, r); !strings.HasPrefix(got, tt.want) || tt.want == "Met" && got != tt.want {
				t.Errorf("the answer is %q, want %q", got, tt.want)
			}
			if len(objects.asked) > 0 && objects.asked[0] != "ceph.rook.io/v1, Kind=CephCluster rook/main" {
				t.Errorf("it reads %v", objects.asked)
			}
		})
	}
}

func TestASecretIsNotRead(t *testing.T) {
	objects := &reader{object: map[string]any{}}
	for kind, want := range map[string]string{"Secret": "Invalid: object.kind: a Secret cannot be read", "ConfigMap": "Met"} {
		objects.asked = nil
		r := v1alpha1.BudgetRequirement{Object: &v1alpha1.RequiredObject{APIVersion: "v1", Kind: kind, Name: "x", CEL: "true"}}
		if got := answer(t, &Checker{Objects: objects}, r); got != want || (len(objects.asked) > 0) != (want == "Met") {
			t.Errorf("%s: %q, and it reads %v", kind, got, objects.asked)
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
		return &v1alpha1.RequiredObject{APIVersion: "v1", Kind: "ConfigMap", Name: "x", CEL: cel}
	}
	b.Spec.Requires = []v1alpha1.BudgetRequirement{{Name: "a", Object: object("object.go")}, {Name: "b", Object: object("!object.go")}}
	stored, objects, registry := &budgets{one: b}, &reader{object: map[string]any{"go": true}}, claims.New()
	c := New(stored, objects, registry, func() time.Time { return now })
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

	objects.err = apierrors.NewServiceUnavailable("x")
	failed := noon.Add(time.Hour)
	check(failed, every, 1)
	if got := check(failed.Add(every), every, 0); got[0].State != unknown || !got[0].FailingSince.Equal(failed) {
		t.Errorf("the answers are %+v, want a failure since %v", got, failed)
	}
	b.Generation++
	if got := check(failed.Add(2*every), every, 1); !got[0].FailingSince.Equal(now) || registry.AnswersOf("b").Generation != 2 {
		t.Errorf("the answers are %+v, want a failure since the change of the spec", got)
	}
	objects.err = nil
	if got := check(failed.Add(3*every), every, 1); !got[0].FailingSince.IsZero() {
		t.Errorf("the answers are %+v, want no failure", got)
	}

	// What is not needed is not checked, and forgotten.
	for name, change := range map[string]func(*v1alpha1.NodeDisruptionBudget){
		"expired":         func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.ExpiresAt = &metav1.Time{Time: now} },
		"being deleted":   func(b *v1alpha1.NodeDisruptionBudget) { b.DeletionTimestamp = &metav1.Time{Time: now} },
		"no requirements": func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Requires = nil },
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
