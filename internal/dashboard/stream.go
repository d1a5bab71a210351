// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/podlog"
)

// aliveInterval is the interval at which a tab hears from the server even if nothing changes.
const aliveInterval = 15 * time.Second

// serveStream sends the state, and then its changes.
func (d *dashboard) serveStream(w http.ResponseWriter, r *http.Request) {
	if !acquire(d.tabs) {
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d tabs show this dashboard already: close one of them", maxTabs))
		return
	}
	defer func() { <-d.tabs }()
	version, _ := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64)
	out := d.newLines(w)
	for {
		c, changed := d.state.since(version)
		if c.Version == 0 {
			c.Reset = false // nothing is known yet
		}
		if out.send(c) != nil { // also if nothing has changed: the tab must hear from the server
			return
		}
		version = c.Version
		select {
		case <-changed:
		case <-d.After(aliveInterval):
		case <-r.Context().Done():
			return
		}
	}
}

// Limits of a log.
const (
	logLines = 500
	// logStopped is why a log ends with the session or its watches.
	logStopped = "the dashboard does not read this log any more: close it, and open it again"
)

// logLine is a line of a log, or why there are no more.
type logLine struct {
	Line string `json:"line"`
	End  string `json:"end,omitempty"`
}

// serveLog sends the end of the log of a task, and then what the task prints.
func (d *dashboard) serveLog(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	key := client.ObjectKey{Namespace: query.Get("namespace"), Name: query.Get("pod")}
	pod := d.mirrors.pod(key)
	if pod == nil {
		fail(w, http.StatusNotFound, "this pod does not exist, or no longer. What its task printed last is on record")
		return
	}
	if !acquire(d.logs) {
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d logs are open already: close one of them", maxLogs))
		return
	}
	defer func() { <-d.logs }()
	pods, err := d.Pods(key.Namespace)
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := d.newLines(w)
	hand := func(piece string, more bool) {
		line := strings.TrimSuffix(strings.TrimSuffix(piece, "\n"), "\r")
		if out.put(logLine{Line: text.Safe(strings.ReplaceAll(line, "\t", "    "))}, !more) != nil {
			cancel()
		}
	}
	look := func(context.Context) (ended, deleted bool) {
		pod := d.mirrors.pod(key)
		return pod != nil && podlog.Ended(pod), pod == nil
	}
	log := podlog.Follower{
		Tail:  podlog.Tail{Pods: pods, Pod: key.Name, Container: podlog.Container(pod), Lines: logLines},
		After: d.After, Ended: podlog.Ended(pod), Look: look,
	}
	deleted, err := log.Follow(ctx, hand)
	log.Flush(hand)
	end := logStopped
	if ctx.Err() == nil {
		end = endOfLog(deleted, err)
	}
	_ = out.send(logLine{End: end})
}

// endOfLog returns why a log has ended. deleted reports whether its pod is deleted.
func endOfLog(deleted bool, err error) string {
	switch {
	case forbidden(err) != "":
		return forbidden(err)
	case deleted:
		return "the attempt has ended, and its pod is deleted"
	case err == nil:
		return "the attempt has ended"
	case errors.Is(err, podlog.ErrEndsAgain):
		return "the log ends again and again while its container runs"
	}
	return "the log cannot be read: " + text.Safe(err.Error())
}
