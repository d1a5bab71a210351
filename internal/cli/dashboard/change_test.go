// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/clitest"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/text"
)

// recorder remembers the changes that it is to make.
type recorder struct {
	made []Change
	err  error
}

func (r *recorder) OfJob(job *v1alpha1.NodeJob, _ time.Time) []Offer {
	return []Offer{{Change: Change{Verb: Suspend, Namespace: job.Namespace, Name: job.Name, UID: job.UID}, Label: "Suspend"}}
}

func (r *recorder) OfNode(*v1alpha1.NodeJob, *plan.Node) []Offer { return nil }

func (r *recorder) Make(_ context.Context, f *cmdutil.Factory, _ client.WithWatch, change Change) error {
	r.made = append(r.made, change)
	if r.err == nil {
		return f.Print([]text.Line{text.Of("suspended")})
	}
	f.Tell(text.Of("note"))
	return r.err
}

const suspendJ = `{"verb":"suspend","namespace":"ns","name":"j","uid":"u"}`

// changing returns a dashboard that makes changes, and a function that posts one to it.
func changing(t *testing.T) (d *dashboard, made *recorder, post func(body string, change func(*http.Request)) *httptest.ResponseRecorder) {
	t.Helper()
	d, _ = serve(t)
	made = &recorder{}
	d.changes, d.makes = made, true
	return d, made, func(body string, change func(*http.Request)) *httptest.ResponseRecorder {
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
		"an unknown field":                      {`{"verb":"suspend","namespace":"ns","name":"j","uid":"u","force":true}`, as, http.StatusBadRequest},
		"a command that the page does not have": {`{"verb":"uninstall","namespace":"ns","name":"j","uid":"u"}`, as, http.StatusBadRequest},
		"a flag instead of a name":              {`{"verb":"suspend","namespace":"ns","name":"--kubeconfig=x","uid":"u"}`, as, http.StatusBadRequest},
		"a path instead of a name":              {`{"verb":"skip","namespace":"ns","name":"j","node":"../secrets/s","uid":"u"}`, as, http.StatusBadRequest},
		"no UID":                                {`{"verb":"suspend","namespace":"ns","name":"j"}`, as, http.StatusBadRequest},
		"promote without a step":                {`{"verb":"promote","namespace":"ns","name":"j","uid":"u"}`, as, http.StatusBadRequest},
		"skip without a node":                   {`{"verb":"skip","namespace":"ns","name":"j","uid":"u"}`, as, http.StatusBadRequest},
		"suspend with a node":                   {`{"verb":"suspend","namespace":"ns","name":"j","uid":"u","node":"a","nodeUID":"n"}`, as, http.StatusBadRequest},
		"a node without its UID":                {`{"verb":"skip","namespace":"ns","name":"j","uid":"u","node":"a"}`, as, http.StatusBadRequest},
		"a request that is too large":           {long, as, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, made, post := changing(t)
			got := post(test.body, test.change)
			if got.Code != test.want {
				t.Errorf("answer %d, want %d: %s", got.Code, test.want, got.Body)
			}
			if count := len(made.made); (test.want == http.StatusOK) != (count == 1) {
				t.Errorf("%d changes", count)
			}
			if !strings.Contains(got.Header().Get("Content-Security-Policy"), "default-src 'none'") || got.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("headers %v", got.Header())
			}
		})
	}
}

func TestWithoutTheFlagThereIsNothingToPostTo(t *testing.T) {
	d, made, post := changing(t)
	d.makes = false
	if got := post(suspendJ, as); got.Code != http.StatusMethodNotAllowed || len(made.made) > 0 {
		t.Errorf("answer %d: %s; changes %v", got.Code, got.Body, made.made)
	}
}

func TestAChangeIsAnsweredWithWhatItsCommandPrints(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code int
		want string
	}{
		"it is made":                     {nil, http.StatusOK, `{"messages":["suspended"]}`},
		"a permission is missing":        {cmdutil.Failf(cmdutil.ExitForbidden, "u may not patch"), http.StatusForbidden, `{"error":"note\nu may not patch"}`},
		"the NodeJob is gone":            {cmdutil.Failf(cmdutil.ExitNotFound, "no NodeJob"), http.StatusNotFound, `{"error":"note\nno NodeJob"}`},
		"the API server does not answer": {context.DeadlineExceeded, http.StatusBadGateway, `{"error":"note\nthe API server does not answer: context deadline exceeded"}`},
		"the command has printed it":     {cmdutil.Exit(cmdutil.ExitForbidden), http.StatusForbidden, `{"error":"note"}`},
		"it is rejected":                 {cmdutil.Failf(cmdutil.ExitError, "denied \x1b[2J"), http.StatusUnprocessableEntity, `{"error":"note\ndenied \\x1b[2J"}`},
	} {
		t.Run(name, func(t *testing.T) {
			d, made, post := changing(t)
			made.err = test.err
			got := post(suspendJ, as)
			if got.Code != test.code || strings.TrimSpace(got.Body.String()) != test.want {
				t.Errorf("answer %d, want %d:\n%s\n%s", got.Code, test.code, got.Body, test.want)
			}
			if diff := cmp.Diff([]Change{{Verb: Suspend, Namespace: "ns", Name: "j", UID: "u"}}, made.made); diff != "" {
				t.Error(diff)
			}
			if said := d.ErrOut.(*clitest.Buffer).String(); !strings.Contains(said, "from the page: kubectl everynode suspend j -n ns\n") {
				t.Errorf("the terminal says %q", said)
			}
		})
	}
}

func TestChangesAreBounded(t *testing.T) {
	d, made, post := changing(t)
	for range maxChanges {
		d.making <- struct{}{}
	}
	if got := post(suspendJ, as); got.Code != http.StatusServiceUnavailable || len(made.made) > 0 {
		t.Errorf("answer %d: %s", got.Code, got.Body)
	}
	<-d.making
	if got := post(suspendJ, as); got.Code != http.StatusOK || len(d.making) != maxChanges-1 {
		t.Errorf("answer %d: %s", got.Code, got.Body)
	}
}

func TestTheEquivalentCommand(t *testing.T) {
	for want, test := range map[string]struct {
		change  Change
		context string
	}{
		"kubectl everynode suspend j -n ns":                              {Change{Verb: Suspend, Namespace: "ns", Name: "j"}, ""},
		"kubectl everynode promote j --to all -n ns":                     {Change{Verb: Promote, Namespace: "ns", Name: "j", To: "all"}, ""},
		"kubectl everynode skip j node-7 -n ns":                          {Change{Verb: Skip, Namespace: "ns", Name: "j", Node: "node-7"}, ""},
		"kubectl everynode retry j -n ns --context 'a b; rm -rf '\\''x'": {Change{Verb: Retry, Namespace: "ns", Name: "j"}, "a b; rm -rf 'x"},
	} {
		if got := test.change.command(test.context); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestOffersHaveTheirCommand(t *testing.T) {
	o := observed{changes: &recorder{}, flag: "prod"}
	got := o.job(clitest.NodeJob("j"), "").Offers
	want := []Offer{{Change: Change{Verb: Suspend, Namespace: "ns", Name: "j", UID: "uid-of-j"}, Label: "Suspend", Command: "kubectl everynode suspend j -n ns --context prod"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
