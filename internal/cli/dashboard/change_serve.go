// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/text"
)

const (
	// maxChanges limits the changes that are made at the same time.
	maxChanges = 4
	// maxChangeBytes limits the request of a change.
	maxChangeBytes = 4 << 10
	// changeTimeout is the time after which a change is given up.
	changeTimeout = 30 * time.Second
)

// made is the answer to a change: what the command printed.
type made struct {
	Messages []string `json:"messages"`
}

// serveChange makes a change, as the command does, with the permissions of the user.
func (d *dashboard) serveChange(w http.ResponseWriter, r *http.Request) {
	change, code, problem := d.readChange(w, r)
	if problem != "" {
		fail(w, code, problem)
		return
	}
	if !acquire(d.making) {
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d changes are being made at the moment: try again", maxChanges))
		return
	}
	defer func() { <-d.making }()
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	var out bytes.Buffer
	f := *d.Factory
	f.Out, f.ErrOut = &out, &out
	err := cmdutil.Explain(d.changes.Make(ctx, &f, d.client, change))
	said := sentences(out.String())
	if err != nil && !cmdutil.IsSilent(err) {
		said = append(said, text.Safe(err.Error()))
	}
	d.tellChange(change, said)
	if err != nil {
		fail(w, status(err), strings.Join(said, "\n"))
		return
	}
	answer(w, made{said})
}

// readChange reads the request of a change.
func (d *dashboard) readChange(w http.ResponseWriter, r *http.Request) (change Change, code int, problem string) {
	if code, problem := d.site().read(w, r, maxChangeBytes, &change); problem != "" {
		return change, code, problem
	}
	return change, http.StatusBadRequest, change.check()
}

// read reads the content of a request that the page posts. Its type makes a browser ask this server first if another web page
// sends it, and this server does not allow that. Each browser sends the origin of such a request.
func (s site) read(w http.ResponseWriter, r *http.Request, limit int64, value any) (code int, problem string) {
	if !s.isOrigin(r.Header.Get("Origin"), r.Host) {
		return http.StatusForbidden, "this is accepted from the page only"
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, "the request must be application/json"
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(value)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, "the request is too large"
	case err != nil:
		return http.StatusBadRequest, "the request is not as expected: " + err.Error()
	}
	return http.StatusOK, ""
}

// tellChange prints a change on the terminal of the command, so that there is a list of all that the page did.
func (d *dashboard) tellChange(change Change, said []string) {
	lines := []text.Line{text.Toned(text.Dim, d.Now().UTC().Format(time.RFC3339)+" from the page: ").With(change.command(""))}
	for _, line := range said {
		lines = append(lines, text.Of(line).Indent(2))
	}
	d.Tell(lines...)
}
