// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/everynode/everynode/test/browser/chromium"
)

// builtSite is where `make docs` builds the site of the documentation.
const builtSite = "../../site/public"

// site serves the built site as a host of files does, and counts the bytes of its answers, which are not compressed.
func site(t *testing.T) (address string, sent *atomic.Int64) {
	t.Helper()
	if _, err := os.Stat(builtSite + "/index.html"); err != nil {
		t.Fatalf("the site is not built: %v\nrun: make docs", err)
	}
	sent = &atomic.Int64{}
	files := http.FileServer(http.Dir(builtSite))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		files.ServeHTTP(countingWriter{w, sent}, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, sent
}

type countingWriter struct {
	http.ResponseWriter

	sent *atomic.Int64
}

func (w countingWriter) Write(content []byte) (int, error) {
	n, err := w.ResponseWriter.Write(content)
	w.sent.Add(int64(n))
	return n, err
}

// sitePages are pages of each kind: the start page, a guide, the longest tables, blocks of code, and many headings.
var sitePages = []string{"/", "/docs/nodejob/", "/docs/reference/api/", "/docs/cli/", "/docs/troubleshooting/", "/404.html"}

func TestTheSiteIsAccessible(t *testing.T) {
	source := axe(t)
	address, sent := site(t)
	for _, page := range sitePages {
		for _, view := range []struct {
			width int
			dark  bool
		}{{1280, false}, {1280, true}, {390, false}, {390, true}} {
			before := sent.Load()
			tab := open(t, address+page, view.width, 800, view.dark)
			see(t, tab, "document.readyState === 'complete' && performance.getEntriesByName('first-contentful-paint').length")
			var paint float64
			if err := tab.Evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime", &paint); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%s, %d pixels wide, dark: %t", page, view.width, view.dark)
			t.Logf("%s: first contentful paint after %.0f ms, %d KiB", what, paint, (sent.Load()-before)/1024)
			fits(t, tab)
			if err := tab.Evaluate(source+"; true", nil); err != nil {
				t.Fatal(err)
			}
			isAccessible(t, tab, what)
			isQuiet(t, tab, address)
		}
	}
}

// isQuiet checks that a tab has written no error to its console, and has requested nothing from another host.
func isQuiet(t *testing.T, tab *chromium.Tab, address string) {
	t.Helper()
	if problems := tab.Problems(); len(problems) > 0 {
		t.Errorf("the console has errors: %s", problems)
	}
	for _, request := range tab.Requests() {
		if !strings.HasPrefix(request, address+"/") && request != "about:blank" {
			t.Errorf("the page has requested %s", request)
		}
	}
}

func TestTheSite(t *testing.T) {
	address, _ := site(t)
	index, err := os.ReadFile(builtSite + "/search.json")
	if err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]bool{
		"docs/nodejob": true, "recipes/sunday-window": true, "CHANGELOG": false, "docs/rules": false, "docs/decisions/0001": false, "docs/benchmark": false,
	} {
		if got := strings.Contains(string(index), `"url":"/`+page); got != want {
			t.Errorf("the search finds %s: %t, want %t", page, got, want)
		}
	}
	for _, width := range []int{1280, 390} {
		t.Run(fmt.Sprintf("%d pixels wide", width), func(t *testing.T) {
			tab := open(t, address, width, 800, false)
			see(t, tab, "document.readyState === 'complete'")

			do(t, tab, "document.getElementById('search').focus()")
			if err := tab.Type("how to drain with PDB"); err != nil {
				t.Fatal(err)
			}
			see(t, tab, "document.querySelector('#found a[href*=\"/docs/maintenance/\"]')")
			fits(t, tab)
			do(t, tab, "document.querySelector('#found a[href*=\"/docs/maintenance/\"]').click()")
			see(
				t,
				tab,
				"location.pathname === '/docs/maintenance/' && document.querySelector('h1').textContent === 'Cordon, drain, reboot'",
			)

			search := func(text string) {
				do(
					t,
					tab,
					fmt.Sprintf(
						"{ const s = document.getElementById('search'); s.value = %q; s.dispatchEvent(new Event('input')); }",
						text,
					),
				)
			}
			search("christmas") // shows where the page says it, and leads there
			const windows = "[...document.querySelectorAll('#found a')].find((a) => a.hash === '#only-on-sundays-from-0200-to-0500')"
			see(t, tab, windows+"?.querySelector('mark').textContent === 'exceptDates' && "+windows+".innerText.includes('2026-12-24')")
			search("retry")
			see(t, tab, "document.querySelector('#found mark')?.textContent.toLowerCase().startsWith('retr')")
			see(t, tab, "!document.querySelector('#found a').pathname.includes('/reference/')")
			search("")
			see(t, tab, "document.querySelector('nav a[href$=\"#stop-everything-now\"]').textContent === 'Freezes: stop everything'")

			const dark = "getComputedStyle(document.documentElement).colorScheme === 'dark'"
			see(t, tab, "!("+dark+")")
			do(t, tab, "document.getElementById('theme').click()")
			see(t, tab, dark)
			reload(t, tab)
			see(t, tab, dark) // the choice is remembered

			see(t, tab, "document.querySelector('nav [aria-current=page]').textContent === 'Cordon, drain, reboot'")
			do(t, tab, "document.querySelector('.versions summary').click()")
			see(t, tab, "document.querySelector('.versions').innerText.includes('describes the branch main')")
			fits(t, tab)
			isQuiet(t, tab, address)
		})
	}
}
