// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubelet serves a log on the address of a node: the API server reads it there.
func kubelet(t *testing.T, node *corev1.Node, log http.HandlerFunc) {
	t.Helper()
	server := httptest.NewTLSServer(log)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.Hostname()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
}

// logging returns a pod that runs on node-1 and has this log.
func logging(t *testing.T, log http.HandlerFunc) *corev1.Pod {
	t.Helper()
	f := newFleet(t, 2)
	job := f.job("max-map-count", "true", "", nil)
	kubelet(t, f.nodes[0], log)
	f.create()
	pod := f.run(job, 0)
	f.report()
	return pod
}

const logText = "document.querySelector('.log').textContent"

func TestALogOfTenMegabytesDoesNotFreezeThePage(t *testing.T) {
	const hostile = `<img src=x onerror="window.hacked=1">` + "\x1b[2J"
	begin := make(chan struct{})
	pod := logging(t, func(w http.ResponseWriter, r *http.Request) {
		stamp := time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
		fmt.Fprintf(w, "%s first %s\n", stamp, hostile)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-begin:
		case <-r.Context().Done():
			return
		}
		for i := range 100_000 {
			fmt.Fprintf(w, "%s line %d %s\n", stamp, i, strings.Repeat("x", 90))
		}
		fmt.Fprintf(w, "%s last %s\n", stamp, hostile)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 2")
	do(t, tab, "location.hash = '#/node/node-1'")
	logButton := fmt.Sprintf("document.querySelector('[data-key=\"log:%s\"]')", pod.Name)
	see(t, tab, logButton)
	do(t, tab, logButton+".click()")
	see(t, tab, logText+".includes('first <img src=x')")
	do(
		t,
		tab,
		`{ let last = performance.now(); window.longest = 0; setInterval(() => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; }, 20); }`,
	)
	close(begin)
	// The page waits by itself: reading all of its text would take longer than drawing it.
	do(
		t,
		tab,
		`new Promise((resolve) => { const timer = setInterval(() => document.querySelector('.log').lastChild?.data.includes('last <img src=x') && resolve(clearInterval(timer)), 50); })`,
	)
	// On an idle machine, it takes almost a second. A page that draws each line by itself does not respond for more than half a minute.
	const limit = 4000
	var longest float64
	if err := tab.Evaluate("window.longest", &longest); err != nil || longest > limit {
		t.Errorf("the page did not respond for %.0f ms: %v", longest, err)
	}
	t.Logf("the page did not respond for at most %.0f ms", longest)
	see(t, tab, logText+".length <= (1 << 20) + 5000 && document.querySelector('.log').childNodes.length <= 5000")
	see(t, tab, text+".includes('95,002 earlier lines are not shown any more')")
	see(t, tab, "window.hacked === undefined && !document.querySelector('#node img') && !"+logText+`.includes('\x1b')`)
	noProblems(t, tab)
}

func TestTheLogPausesInAHiddenTabAndEndsWithItsPod(t *testing.T) {
	streams := make(chan context.Context, 10)
	end := make(chan struct{})
	pod := logging(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s hello\n", time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z07:00"))
		_ = http.NewResponseController(w).Flush()
		streams <- r.Context()
		select {
		case <-r.Context().Done():
		case <-end:
		}
	})
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 2")
	do(t, tab, "location.hash = '#/node/node-1'")
	logButton := fmt.Sprintf("document.querySelector('[data-key=\"log:%s\"]')", pod.Name)
	see(t, tab, logButton)
	do(t, tab, logButton+".click()")
	see(t, tab, logText+".includes('hello')")
	first := <-streams
	hide := func(hidden bool) {
		do(
			t,
			tab,
			fmt.Sprintf(
				"Object.defineProperty(document, 'hidden', { value: %t, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))",
				hidden,
			),
		)
	}
	hide(true)
	see(t, tab, "document.querySelector('.logs [role=status]').textContent === 'paused while the tab is hidden'")
	wait(t, "the end of the stream at the kubelet", func() error {
		if first.Err() == nil {
			return errors.New("it is still open")
		}
		return nil
	})
	hide(false)
	see(t, tab, "document.querySelector('.logs [role=status]').textContent === 'live' && "+logText+" === 'hello\\n'")
	if err := admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	see(t, tab, "!"+logButton)
	close(end)
	see(t, tab, "document.querySelector('.logs [role=status]').textContent === 'the attempt has ended, and its pod is deleted'")
	see(t, tab, logText+" === 'hello\\n'")
}

func TestHundredsOfTabsAreRefusedWithAClearMessage(t *testing.T) {
	newFleet(t, 2).create()
	address := dashboard(t, asAdmin)
	base, token, _ := strings.Cut(address, "/#token=")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	codes := map[int]int{}
	for range 300 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/stream?since=0", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		codes[answer.StatusCode]++
		if answer.StatusCode == http.StatusOK {
			defer func() { _ = answer.Body.Close() }()
			continue
		}
		said, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || !strings.Contains(string(said), "32 tabs show this dashboard already") {
			t.Fatalf("%s: %v", said, err)
		}
	}
	if codes[http.StatusOK] != 32 || codes[http.StatusServiceUnavailable] != 268 {
		t.Errorf("answers %v", codes)
	}
	tab := open(t, address, 1280, 800, false)
	see(t, tab, "document.querySelector('#connection').innerText.includes('32 tabs show this dashboard already: close one of them')")
	cancel()
	see(t, tab, "document.querySelector('#connection').innerText === 'live'")
}
