// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// page is a browser with the dashboard of a test's namespace. What it shows is tested in test/browser.
type page struct{ base, token string }

// dashboard starts the command dashboard, which ends like after Ctrl-C.
func (w *world) dashboard() page {
	w.T.Helper()
	cmd := w.everynode("dashboard")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	must(w.T, err)
	must(w.T, cmd.Start())
	w.T.Cleanup(func() {
		must(w.T, cmd.Process.Signal(os.Interrupt))
		if code := exitCode(w.T, cmd.Wait()); code != 0 {
			w.T.Errorf("the dashboard ended with exit code %d: %s", code, errs.String())
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	must(w.T, err)
	base, token, ok := strings.Cut(strings.TrimSpace(address), "/#token=")
	if !ok {
		w.T.Fatalf("the dashboard printed %q", address)
	}
	return page{base, token}
}

// get requests a path as the page does.
func (p page) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%s answered %s: %s", path, answer.Status, said)
	}
	return answer.Body, nil
}

// logOf are the lines of a log, each when it arrives, and at last why there are no more.
func (w *world) logOf(p page, pod string) <-chan string {
	w.T.Helper()
	ctx, cancel := context.WithCancel(w.Ctx)
	w.T.Cleanup(cancel)
	body, err := p.get(ctx, "/api/log", url.Values{"namespace": {w.Namespace}, "pod": {pod}})
	must(w.T, err)
	lines := make(chan string, 10_000)
	go func() {
		defer close(lines)
		defer func() { _ = body.Close() }()
		for in := json.NewDecoder(body); ; {
			var line struct{ Line, End string }
			if err := in.Decode(&line); err != nil {
				return
			}
			if line.End != "" {
				lines <- "END: " + line.End
				return
			}
			lines <- line.Line
		}
	}()
	return lines
}

// TestTheDashboardFollowsTheLogOfATask reads the log of a task that prints for some seconds from a real kubelet.
func TestTheDashboardFollowsTheLogOfATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.dashboard()
	w.job("talks", `printf 'begin \033[2J\007 \377 <script>alert(1)</script>\tend\r\n'; `+w.mark()+`
i=0; while [ ! -e `+w.markFile()+`.go ]; do i=$((i+1)); echo "tick $i"; sleep 0.2; done; echo "last after $i"`, onNode2)
	pod := w.runningPod("node-2")
	w.Eventually("the page offers the log", func() error {
		body, err := p.get(w.Ctx, "/api/node", url.Values{"name": {"node-2"}})
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		said, err := io.ReadAll(body)
		if err == nil && !strings.Contains(string(said), `"`+pod.Name+`"`) {
			err = fmt.Errorf("%s is not in %s", pod.Name, said)
		}
		return err
	})
	lines := w.logOf(p, pod.Name)
	next := func() string {
		select {
		case line := <-lines:
			return line
		case <-time.After(time.Minute):
			t.Fatal("nothing arrives for a minute")
			return ""
		}
	}
	if got, want := next(), `begin \x1b[2J\x07 \xff <script>alert(1)</script>    end`; got != want {
		t.Errorf("the first line is %q, want %q", got, want)
	}
	var got, want []string
	tick := func() {
		got, want = append(got, next()), append(want, fmt.Sprintf("tick %d", len(want)+1))
	}
	for range 10 {
		tick()
	}
	w.letGo("node-2") // the task was running until now
	end := next()
	for ; !strings.HasPrefix(end, "END: "); end = next() {
		got = append(got, end)
	}
	if !strings.HasPrefix(end, "END: the attempt has ended") { // and perhaps its pod is deleted
		t.Errorf("the log ended because of %q", end)
	}
	for len(want) < len(got)-1 {
		want = append(want, fmt.Sprintf("tick %d", len(want)+1))
	}
	want = append(want, fmt.Sprintf("last after %d", len(want)))
	if !slices.Equal(got, want) {
		t.Errorf("the lines are %q, want %q", got, want)
	}
	w.Done("talks", "node-2")
}
