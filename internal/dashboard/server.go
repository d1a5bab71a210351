// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/ui/cmdutil"
)

//go:embed page
var page embed.FS

// policy allows the page its own modules and styles, and nothing else: no other server, no inline script, no markup from
// text, no frame, no form.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// handler returns the handler of all requests.
//
// The token is in a header that only the page can set, not in a cookie: a browser would send a cookie of 127.0.0.1 to every
// port of this machine, and so to servers of other users.
func (d *dashboard) handler() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	for path, serve := range map[string]http.HandlerFunc{
		"stream": d.serveStream, "log": d.serveLog, "job": d.detail(d.serveJob), "budgets": d.detail(d.serveBudgets), "node": d.detail(d.serveNode),
	} {
		mux.Handle("GET /api/"+path, d.authorized(serve))
	}
	if d.AllowChanges {
		mux.Handle("POST /api/change", d.authorized(d.serveChange))
	}
	return d.protected(mux)
}

// isHost reports whether a host is that of the page. A web page of another site may let its own name point to 127.0.0.1. Its
// requests have that name as the host.
func (d *dashboard) isHost(host string) bool {
	_, port, err := net.SplitHostPort(d.host)
	return err == nil && (host == d.host || host == "localhost:"+port)
}

// protected refuses requests that were not made for this site, and restricts what the page can do.
func (d *dashboard) protected(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !d.isHost(r.Host) {
			fail(w, http.StatusMisdirectedRequest, "this address is not the one that kubectl everynode dashboard printed")
			return
		}
		if !isOwnRequest(r) {
			fail(w, http.StatusForbidden, "requests of other web pages are refused")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwnRequest reports whether a request is of the page, of a user who enters the address, or of no browser.
func isOwnRequest(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return false
	}
	from := r.Header.Get("Sec-Fetch-Site")
	isPage := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" && !strings.HasPrefix(r.URL.Path, "/api/")
	return isPage || slices.Contains([]string{"", "same-origin", "none"}, from)
}

// authorized requires the token.
func (d *dashboard) authorized(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || subtle.ConstantTimeCompare([]byte(token), []byte(d.token)) != 1 {
			fail(w, http.StatusUnauthorized, "the token is missing or wrong: open the address that kubectl everynode dashboard has printed")
			return
		}
		next(w, r)
	})
}

func fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message})
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(value))
}

// detailTimeout is the time within which a request for a NodeJob, a node or budgets is answered, and the client takes the answer.
const detailTimeout = 30 * time.Second

// detail limits the requests for a NodeJob, a node or budgets: each of them needs memory, most of them for a plan.
func (d *dashboard) detail(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !acquire(d.details) {
			fail(w, http.StatusTooManyRequests, fmt.Sprintf("%d requests for a NodeJob, a node or budgets are being answered already: try again", maxDetails))
			return
		}
		defer func() { <-d.details }()
		_ = http.NewResponseController(w).SetWriteDeadline(d.machine().Add(detailTimeout)) // not supported by the recorder of tests
		ctx, cancel := context.WithTimeout(r.Context(), detailTimeout-writeTimeout)
		defer cancel()
		serve(w, r.WithContext(ctx))
	}
}

// serveJob answers with a NodeJob.
func (d *dashboard) serveJob(w http.ResponseWriter, r *http.Request) {
	o := d.observe()
	job := o.find(r.URL.Query().Get("namespace"), r.URL.Query().Get("name"))
	if job == nil {
		fail(w, http.StatusNotFound, "this NodeJob does not exist, or no longer")
		return
	}
	unknown := ""
	for _, n := range o.notes {
		if n.What == podsOfTasks {
			unknown = "what runs cannot be seen: " + n.Why
		}
	}
	answer(w, o.job(job, unknown))
}

// serveNode answers with a node.
func (d *dashboard) serveNode(w http.ResponseWriter, r *http.Request) {
	o := d.observe()
	for i := range o.Nodes {
		if o.Nodes[i].Name == r.URL.Query().Get("name") {
			answer(w, o.node(i, d.withDrains(r.Context())))
			return
		}
	}
	fail(w, http.StatusNotFound, "this node does not exist, or no longer")
}

// writeTimeout is the time within which a tab must take what is sent. A tab that does not is disconnected, and connects
// again when it can.
const writeTimeout = 10 * time.Second

// lines sends JSON values, one a line, to a tab.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	machine func() time.Time
}

func (d *dashboard) newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &lines{w, http.NewResponseController(w), d.machine}
}

func (l *lines) send(value any) error { return l.put(value, true) }

// put sends a value now, or with the next one.
func (l *lines) put(value any, now bool) error {
	if err := l.control.SetWriteDeadline(l.machine().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := l.w.Write(append(encode(value), '\n')); err != nil || !now {
		return err
	}
	return l.control.Flush()
}

// acquire takes one of a limited number of streams. It reports false if there is none.
func acquire(slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// forbidden returns why a user may not read something; "" if the error is another one.
func forbidden(err error) string {
	if cmdutil.CodeOf(cmdutil.Explain(err)) == cmdutil.ExitForbidden && err != nil {
		return cmdutil.Explain(err).Error()
	}
	return ""
}
