// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

const (
	suspendJ = `{"verb":"suspend","namespace":"ns","name":"j","uid":"uid-of-j"}`
	retryOnA = `{"verb":"retry","namespace":"ns","name":"j","uid":"uid-of-j","node":"a","nodeUID":"uid-of-a"}`
)

// fakeAPI has the NodeJob j and the node a, on which it has failed, and counts the changes.
type fakeAPI struct {
	changes int
	// node is the UID of the node.
	node types.UID
	// refuse answers the requests with this method; nil for none.
	refuse func(w http.ResponseWriter)
	method string
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch isNode := strings.HasPrefix(r.URL.Path, clitest.NodesPath); {
	case f.refuse != nil && r.Method == f.method:
		f.refuse(w)
		return
	case isNode:
		node := nodeA()
		node.UID = f.node
		record.SetOn(node, jobKey, record.Record{Revision: "new", Outcome: record.Failed, Attempts: 1, FinishedAt: now})
		clitest.Respond(w, node)
	default:
		clitest.Respond(w, clitest.NodeJob("j"))
	}
	if r.Method == http.MethodPatch {
		f.changes++
	}
}

// changing returns a dashboard that makes changes, its API server, what it prints, and a function that posts a change to it.
func changing(
	t *testing.T,
) (d *dashboard, api *fakeAPI, said *clitest.Buffer, post func(body string, change func(*http.Request)) *httptest.ResponseRecorder) {
	t.Helper()
	api = &fakeAPI{node: "uid-of-a"}
	d, said = local(t, api.ServeHTTP)
	d.AllowChanges = true
	return d, api, said, func(body string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+d.host+"/api/change", strings.NewReader(body))
		for name, value := range map[string]string{
			"Authorization": "Bearer " + d.token, "Origin": "http://" + d.host, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json",
		} {
			r.Header.Set(name, value)
		}
		change(r)
		w := httptest.NewRecorder()
		d.handler().ServeHTTP(w, r)
		return w
	}
}

func as(*http.Request) {}

func TestOnlyThePageMakesChanges(t *testing.T) {
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	long := `{"verb":"suspend","namespace":"` + strings.Repeat("a", maxChangeBytes) + `"}`
	for name, test := range map[string]struct {
		body   string
		change func(*http.Request)
		want   int
	}{
		"the page":                              {suspendJ, as, http.StatusOK},
		"the page at localhost":                 {suspendJ, func(r *http.Request) { r.Host = "localhost:8137"; r.Header.Set("Origin", "http://localhost:8137") }, http.StatusOK},
		"without a token":                       {suspendJ, with("Authorization", ""), http.StatusUnauthorized},
		"with another token":                    {suspendJ, with("Authorization", "Bearer AAAA"), http.StatusUnauthorized},
		"with a token in a cookie":              {suspendJ, func(r *http.Request) { r.Header.Del("Authorization"); r.Header.Set("Cookie", "token=x") }, http.StatusUnauthorized},
		"of another web page":                   {suspendJ, with("Origin", "https://evil.example.com"), http.StatusForbidden},
		"of another server on this machine":     {suspendJ, with("Origin", "http://127.0.0.1:9999"), http.StatusForbidden},
		"of a page without an origin":           {suspendJ, with("Origin", "null"), http.StatusForbidden},
		"of no browser":                         {suspendJ, func(r *http.Request) { r.Header.Del("Origin"); r.Header.Del("Sec-Fetch-Site") }, http.StatusForbidden},
		"of another site, with a stolen origin": {suspendJ, with("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"with another host":                     {suspendJ, func(r *http.Request) { r.Host = "evil.example.com:8137" }, http.StatusMisdirectedRequest},
		"as a form of another page sends it":    {suspendJ, with("Content-Type", "text/plain"), http.StatusUnsupportedMediaType},
		"with GET":                              {suspendJ, func(r *http.Request) { r.Method = http.MethodGet }, http.StatusNotFound},
		"no JSON":                               {"verb=suspend", as, http.StatusBadRequest},
		"an unknown field":                      {`{"verb":"suspend","namespace":"ns","name":"j","uid":"uid-of-j","force":true}`, as, http.StatusBadRequest},
		"a command that the page does not have": {`{"verb":"uninstall","namespace":"ns","name":"j","uid":"u"}`, as, http.StatusBadRequest},
		"a flag instead of a name":              {`{"verb":"suspend","namespace":"ns","name":"--kubeconfig=x","uid":"u"}`, as, http.StatusBadRequest},
		"a path instead of a name":              {`{"verb":"skip","namespace":"ns","name":"j","node":"../secrets/s","uid":"u"}`, as, http.StatusBadRequest},
		"no UID":                                {`{"verb":"suspend","namespace":"ns","name":"j"}`, as, http.StatusBadRequest},
		"promote without a step":                {`{"verb":"promote","namespace":"ns","name":"j","uid":"u"}`, as, http.StatusBadRequest},
		"skip without a node":                   {`{"verb":"skip","namespace":"ns","name":"j","uid":"u"}`, as, http.StatusBadRequest},
		"suspend with a node":                   {`{"verb":"suspend","namespace":"ns","name":"j","uid":"uid-of-j","node":"a","nodeUID":"n"}`, as, http.StatusBadRequest},
		"a node without its UID":                {`{"verb":"skip","namespace":"ns","name":"j","uid":"uid-of-j","node":"a"}`, as, http.StatusBadRequest},
		"a request that is too large":           {long, as, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, api, _, post := changing(t)
			got := post(test.body, test.change)
			if got.Code != test.want {
				t.Errorf("answer %d, want %d: %s", got.Code, test.want, got.Body)
			}
			if (test.want == http.StatusOK) != (api.changes == 1) {
				t.Errorf("%d changes", api.changes)
			}
			if !strings.Contains(got.Header().Get("Content-Security-Policy"), "default-src 'none'") ||
				got.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("headers %v", got.Header())
			}
		})
	}
}

func TestWithoutTheFlagThereIsNothingToPostTo(t *testing.T) {
	d, api, _, post := changing(t)
	d.AllowChanges = false
	if got := post(suspendJ, as); got.Code != http.StatusMethodNotAllowed || api.changes > 0 {
		t.Errorf("answer %d: %s; %d changes", got.Code, got.Body, api.changes)
	}
}

func TestAChangeIsAnsweredWithWhatItsCommandPrints(t *testing.T) {
	const commit = "With GitOps, commit this instead: spec.suspend: true"
	refused := func(code int, reason metav1.StatusReason, message string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { clitest.RespondError(w, code, reason, message) }
	}
	forbidden := refused(http.StatusForbidden, metav1.StatusReasonForbidden, "u may not patch")
	for name, test := range map[string]struct {
		body, method string
		refuse       func(http.ResponseWriter)
		code         int
		want         string
	}{
		"it is made":              {suspendJ, "", nil, http.StatusOK, `{"messages":["nodejob j: suspended: spec.suspend false -\u003e true","` + commit + `"]}`},
		"there is nothing to do":  {strings.Replace(suspendJ, "suspend", "resume", 1), "", nil, http.StatusOK, `{"messages":["nodejob j: nothing to change: it is not suspended"]}`},
		"a permission is missing": {suspendJ, http.MethodPatch, forbidden, http.StatusForbidden, `{"error":"u may not patch"}`},
		"the NodeJob is gone": {suspendJ, http.MethodGet, refused(http.StatusNotFound, metav1.StatusReasonNotFound, "gone"), http.StatusNotFound,
			`{"error":"there is no NodeJob j in namespace ns"}`},
		"the API server does not answer": {suspendJ, http.MethodPatch, refused(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "busy"), http.StatusBadGateway,
			`{"error":"the API server does not answer: busy"}`},
		"the command has printed it": {retryOnA, http.MethodPatch, forbidden, http.StatusForbidden, `{"error":"node a: u may not patch"}`},
		"it is rejected": {suspendJ, http.MethodPatch, refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "denied \x1b[2J"), http.StatusUnprocessableEntity,
			`{"error":"denied \\x1b[2J"}`},
		"it is not possible": {`{"verb":"promote","namespace":"ns","name":"j","uid":"uid-of-j","to":"x"}`, "", nil, http.StatusNotFound,
			`{"error":"there is no step x; the steps are canary, all"}`},
	} {
		t.Run(name, func(t *testing.T) {
			_, api, said, post := changing(t)
			api.method, api.refuse = test.method, test.refuse
			got := post(test.body, as)
			if got.Code != test.code || strings.TrimSpace(got.Body.String()) != test.want {
				t.Errorf("answer %d, want %d:\n%s\n%s", got.Code, test.code, got.Body, test.want)
			}
			if !strings.Contains(said.String(), "from the page: kubectl everynode ") {
				t.Errorf("the terminal says %q", said)
			}
		})
	}
}

func TestChangesAreBounded(t *testing.T) {
	d, api, _, post := changing(t)
	for range maxChanges {
		d.making <- struct{}{}
	}
	if got := post(suspendJ, as); got.Code != http.StatusServiceUnavailable || api.changes > 0 {
		t.Errorf("answer %d: %s", got.Code, got.Body)
	}
	<-d.making
	if got := post(suspendJ, as); got.Code != http.StatusOK || len(d.making) != maxChanges-1 {
		t.Errorf("answer %d: %s", got.Code, got.Body)
	}
}

func TestAChangeIsForTheNodeJobThatThePageShowed(t *testing.T) {
	d, api, _, _ := changing(t)
	for _, verb := range verbs {
		node := map[plan.Verb]string{plan.VerbSkip: "a"}[verb]
		err := d.change(t.Context(), new(messages), Change{Verb: verb, Namespace: "ns", Name: "j", UID: "other", Node: node, To: "all"})
		if cmdutil.CodeOf(err) != cmdutil.ExitNotFound ||
			!strings.Contains(err.Error(), "NodeJob ns/j was deleted, and another NodeJob with this name was created") ||
			api.changes > 0 {
			t.Errorf("%s: %v, %d changes", verb, err, api.changes)
		}
	}
	if err := d.change(
		t.Context(),
		new(messages),
		Change{Verb: plan.VerbSuspend, Namespace: "ns", Name: "j", UID: "uid-of-j"},
	); err != nil ||
		api.changes != 1 {
		t.Errorf("%v, %d changes", err, api.changes)
	}
}

func TestAChangeIsForTheNodeThatThePageShowed(t *testing.T) {
	d, api, _, _ := changing(t)
	api.node = "new"
	for i, verb := range []plan.Verb{plan.VerbRetry, plan.VerbSkip} {
		var said messages
		change := Change{Verb: verb, Namespace: "ns", Name: "j", UID: "uid-of-j", Node: "a", NodeUID: "old"}
		if err := d.change(t.Context(), &said, change); cmdutil.CodeOf(err) != cmdutil.ExitNotFound || api.changes != i {
			t.Errorf("%s on another node: %v, %d changes", verb, err, api.changes)
		}
		if want := "node a was deleted, and another node with this name was created. Nothing was changed"; !strings.Contains(
			strings.Join(said, " "),
			want,
		) {
			t.Errorf("the command says %s", said)
		}
		change.NodeUID = "new"
		if err := d.change(t.Context(), &said, change); err != nil || api.changes != i+1 {
			t.Errorf("%s: %v, %d changes", verb, err, api.changes)
		}
	}
}

func TestTheEquivalentCommand(t *testing.T) {
	for want, test := range map[string]struct {
		change  Change
		context string
	}{
		"kubectl everynode suspend j -n ns":                              {Change{Verb: plan.VerbSuspend, Namespace: "ns", Name: "j"}, ""},
		"kubectl everynode promote j --to all -n ns":                     {Change{Verb: plan.VerbPromote, Namespace: "ns", Name: "j", To: "all"}, ""},
		"kubectl everynode skip j node-7 -n ns":                          {Change{Verb: plan.VerbSkip, Namespace: "ns", Name: "j", Node: "node-7"}, ""},
		"kubectl everynode retry j -n ns --context 'a b; rm -rf '\\''x'": {Change{Verb: plan.VerbRetry, Namespace: "ns", Name: "j"}, "a b; rm -rf 'x"},
	} {
		if got := test.change.command(test.context); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestOffersHaveTheirCommand(t *testing.T) {
	o := observed{flag: "prod"}
	got := o.job(clitest.NodeJob("j"), "").Offers
	if want := "kubectl everynode suspend j -n ns --context prod"; len(got) != 1 || got[0].Command != want {
		t.Errorf("the offers are %+v", got)
	}
}
