// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/test/browser/chromium"
)

// asCommand is the variable that makes this program the command dashboard with a kubeconfig, so that the memory of the
// command can be measured without that of the test.
const asCommand = "EVERYNODE_TEST_DASHBOARD"

func runCommand(kubeconfig string) int {
	return cli.Run(
		context.Background(),
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: os.Stdout, ErrOut: os.Stderr},
		[]string{"dashboard", "--kubeconfig", kubeconfig},
	)
}

// process starts the command dashboard as a process, and returns its address and id.
func process(t *testing.T) (address string, pid int) {
	t.Helper()
	user, err := env.AddUser(asAdmin, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0]) //nolint:noctx // it is ended below
	command.Env = append(os.Environ(), asCommand+"="+kubeconfig)
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	address, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return strings.TrimSpace(address), command.Process.Pid
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// memory returns the resident memory of a process and the heap of a page after a collection, in MiB, and the page's elements.
func memory(t *testing.T, pid int, tab *chromium.Tab) (process, heap float64, elements int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.Atoi(resident.FindStringSubmatch(string(status))[1])
	if err != nil {
		t.Fatal(err)
	}
	used, err := tab.Heap()
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Evaluate("document.querySelectorAll('*').length", &elements); err != nil {
		t.Fatal(err)
	}
	return float64(kib) / 1024, float64(used) / (1 << 20), elements
}

// TestMemory measures, with -changes, the memory of command and page while 5,000 nodes change for that time.
func TestMemory(t *testing.T) {
	if *changes == 0 {
		t.Skip("it measures only with -changes")
	}
	const n = 5000
	f := rolling(t, n)
	address, pid := process(t)
	tab := open(t, address, 1280, 800, false)
	see(t, tab, fmt.Sprintf("%s.length === %d", cells, n))
	do(t, tab, "location.hash = '#/job/default/max-map-count/node/node-2500'")
	see(t, tab, "document.querySelector('#node .card')")
	began, made, pods := time.Now(), 0, len(f.pods)
	report := func(when string) (process, heap float64) {
		process, heap, elements := memory(t, pid, tab)
		t.Logf(
			"%s, after %s and %d changes: command %.0f MiB resident, page %.1f MiB heap and %d elements",
			when,
			time.Since(began).Round(time.Second),
			made,
			process,
			heap,
			elements,
		)
		return process, heap
	}
	report("start")
	pause := time.NewTicker(20 * time.Millisecond) // at most 50 changes a second
	defer pause.Stop()
	var running *corev1.Pod
	until := func(end time.Duration) {
		for ; time.Since(began) < end; made++ {
			switch job := f.jobs[made%len(f.jobs)]; {
			case made%1000 == 999: // a new revision, and what the manager reports then
				job.Spec.Task.Script = fmt.Sprintf("echo %d", made)
				status := job.Status
				if err := admin.Update(t.Context(), job); err != nil {
					t.Fatal(err)
				}
				job.Status = status
				f.report()
			case made%10 == 9: // a pod ends, and another one starts
				if running != nil {
					if err := admin.Delete(t.Context(), running, client.GracePeriodSeconds(0)); err != nil {
						t.Fatal(err)
					}
				}
				f.pods = f.pods[:pods]
				running = f.run(f.jobs[0], made%n)
			default:
				f.finish(job, made%n)
			}
			<-pause.C
		}
	}
	until(*changes / 2)
	process, heap := report("middle")
	until(*changes)
	processAfter, heapAfter := report("end")
	if processAfter > 1.5*process+50 || heapAfter > 1.5*heap+10 {
		t.Error("the memory grows")
	}
}
