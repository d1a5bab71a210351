// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/apply"
	"github.com/everynode/everynode/internal/ui/cmdutil"
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
	change, code, problem := readChange(w, r)
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
	var said messages
	err := cmdutil.Explain(d.change(ctx, &said, change))
	if err != nil && !cmdutil.IsSilent(err) {
		said = append(said, text.Safe(err.Error()))
	}
	d.tellChange(change, said)
	if err != nil {
		fail(w, statusOf(err), strings.Join(said, "\n"))
		return
	}
	answer(w, made{said})
}

// change makes a change as its command does.
func (d *dashboard) change(ctx context.Context, printer apply.Printer, change Change) error {
	s := &apply.Steering{Printer: printer, Client: d.Client, Key: change.job(), UID: change.UID, NodeUID: change.NodeUID}
	if change.Node != "" {
		nodes := []string{change.Node}
		if change.Verb == plan.VerbSkip {
			return s.Skip(ctx, nodes)
		}
		return s.Retry(ctx, nodes, true)
	}
	return s.Change(ctx, func(job *v1alpha1.NodeJob) (steer.Decision, error) {
		switch change.Verb {
		case plan.VerbPromote:
			return steer.Promote(job, change.To)
		case plan.VerbSuspend:
			return steer.Suspend(job), nil
		case plan.VerbResume:
			return steer.Resume(job, d.Now()), nil
		default:
			return steer.RetryAll(job, d.Now()), nil
		}
	})
}

// messages are what a command prints, in its order.
type messages []string

// Say adds sentences.
func (m *messages) Say(sentences ...text.Line) error {
	m.Tell(sentences...)
	return nil
}

// Tell adds sentences.
func (m *messages) Tell(sentences ...text.Line) {
	*m = append(*m, text.Render(sentences, text.Options{})...)
}

// statusOf returns the HTTP status for the error of a change.
func statusOf(err error) int {
	return cmp.Or(map[int]int{
		cmdutil.ExitForbidden: 403, cmdutil.ExitNotFound: 404, cmdutil.ExitNotInstalled: 404, cmdutil.ExitNoAnswer: 502,
	}[cmdutil.CodeOf(err)], 422)
}

// readChange reads the request of a change. Its type makes a browser ask this server first if another web page sends it, and this server
// does not allow that. Each browser sends the origin of such a request.
func readChange(w http.ResponseWriter, r *http.Request) (change Change, code int, problem string) {
	if r.Header.Get("Origin") != "http://"+r.Host {
		return change, http.StatusForbidden, "this is accepted from the page only"
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return change, http.StatusUnsupportedMediaType, "the request must be application/json"
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChangeBytes))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&change)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return change, http.StatusRequestEntityTooLarge, "the request is too large"
	case err != nil:
		return change, http.StatusBadRequest, "the request is not as expected: " + err.Error()
	}
	return change, http.StatusBadRequest, change.check()
}

// tellChange prints a change on the terminal of the command, so that there is a list of all that the page did.
func (d *dashboard) tellChange(change Change, said []string) {
	lines := []text.Line{text.Toned(text.Dim, d.Now().UTC().Format(time.RFC3339)+" from the page: ").With(change.command(""))}
	for _, line := range said {
		lines = append(lines, text.Of(line).Indent(2))
	}
	d.Tell(lines...)
}
