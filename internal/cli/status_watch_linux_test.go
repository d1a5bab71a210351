// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestTheTreeThatIsWatchedIsReadWhenTheNodeJobHasChanged checks that nodes are read again, but not with each frame, and not more often
// than they can be read.
func TestTheTreeThatIsWatchedIsReadWhenTheNodeJobHasChanged(t *testing.T) {
	reads, pods, now := 0, 0, time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	server := smallServer(t)
	f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case clitest.NodesPath:
			reads++
			now = now.Add(time.Second)
		case clitest.PodsPath:
			pods++
		}
		server.ServeHTTP(w, r)
	}))
	f.Now = func() time.Time { return now }
	key, c, err := f.Target("j")
	if err != nil {
		t.Fatal(err)
	}
	job, err := cmdutil.GetJob(t.Context(), c, key)
	if err != nil {
		t.Fatal(err)
	}
	o := &statusOptions{Factory: f, key: key, client: c}
	w := o.watching(job)
	w.screen, w.last.Job, w.stale = term.NewScreen(io.Discard, f.Terminal()), job, true
	for i, step := range []struct {
		after        time.Duration
		changed, end bool
		want         int
	}{
		{0, false, false, 1},
		{time.Minute, false, false, 1}, // nothing has changed
		{time.Minute, true, false, 2},
		{time.Second, true, false, 2}, // a read takes a second
		{9 * time.Second, false, false, 3},
		{time.Second, true, true, 4}, // the last view
	} {
		now = now.Add(step.after)
		w.refresh(t.Context(), map[bool]*v1alpha1.NodeJob{true: job}[step.changed], step.end)
		if reads != step.want || len(w.last.Rows) != 1 {
			t.Errorf("step %d: nodes were read %d times, want %d; the tree has %d nodes", i, reads, step.want, len(w.last.Rows))
		}
	}
	if want := 5; pods != want { // in all steps but that in which nothing has changed
		t.Errorf("pods were listed %d times, want %d", pods, want)
	}
}
