// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestWhatAPageDoesWrongIsSeen covers what the other tests rely on: they check that a page has no problems, and requests nothing else.
func TestWhatAPageDoesWrongIsSeen(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<script>setTimeout(() => { throw new Error("boom") }); fetch("/missing")</script>`)
	}))
	t.Cleanup(server.Close)
	tab := open(t, server.URL, 800, 600, false)
	for _, want := range []string{"Error: boom", "/missing"} {
		wait(t, want, func() error {
			if slices.ContainsFunc(tab.Problems(), func(problem string) bool { return strings.Contains(problem, want) }) {
				return nil
			}
			return fmt.Errorf("the problems are %q", tab.Problems())
		})
	}
	if !slices.Contains(tab.Requests(), server.URL+"/missing") {
		t.Errorf("the requests are %q", tab.Requests())
	}
}
