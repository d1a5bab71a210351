// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/test/bench/report"
)

const pprofAddress = "127.0.0.1:16060"

// profiling is added to the manager if profiles are requested, because it has no such endpoint.
const profiling = `package main

import (
	"net/http"
	_ "net/http/pprof"
	"os"
)

func init() { go http.ListenAndServe(os.Getenv("EVERYNODE_BENCH_PPROF"), nil) }
`

// profileTime is the length of a profile. It is fixed at the start, and a profile that is cut off is not valid.
const profileTime = 20 * time.Second

// profileRun profiles the API server, and the manager if there is one, until the returned function is called. It does
// nothing unless profiles are requested.
func (w *world) profileRun(ctx context.Context, run *report.Run) (stop func()) {
	var profiles sync.WaitGroup
	if !w.Profile || run.Counted || run.Pair > 0 || w.subject == report.Plain {
		return profiles.Wait
	}
	profiles.Go(func() { w.profile(ctx, w.client, "profile", profileTime, fileOf(run, "apiserver-cpu")) })
	if !w.hasManager() {
		return profiles.Wait
	}
	profiles.Go(func() { w.profileManager(ctx, "profile", profileTime, fileOf(run, "cpu")) })
	return func() {
		profiles.Wait()
		w.profileManager(ctx, "allocs", 0, fileOf(run, "allocs"))
		w.profileManager(ctx, "heap", 0, fileOf(run, "heap"))
	}
}

// profileIdle profiles the manager for a time in which it has nothing to do. The returned function waits for the end.
func (w *world) profileIdle(ctx context.Context, run *report.Run, length time.Duration) (wait func()) {
	var profiles sync.WaitGroup
	if w.Profile && !run.Counted && w.hasManager() {
		profiles.Go(func() { w.profileManager(ctx, "profile", length, fileOf(run, "idle-cpu")) })
	}
	return profiles.Wait
}

// hasManager reports whether the subject's own process is the manager.
func (w *world) hasManager() bool {
	switch w.subject {
	case report.Plain, report.Floor, report.Recorded, report.DaemonSet:
		return false
	default:
		return w.program != nil
	}
}

func fileOf(run *report.Run, what string) string {
	return strings.ReplaceAll(kind{run.Subject, run.Mode}.String(), "/", "-") + "-" + what + ".pprof"
}

func (w *world) profileManager(ctx context.Context, what string, length time.Duration, file string) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://" + pprofAddress})
	if err != nil {
		w.say("      no profile %s: %v", file, err)
		return
	}
	w.profile(ctx, client, what, length, file)
}

// profile writes a profile of that length, in whole seconds. Errors are reported, and do not affect the run.
func (w *world) profile(ctx context.Context, server kubernetes.Interface, what string, length time.Duration, file string) {
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	request := server.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/" + what)
	if length > 0 {
		request = request.Param("seconds", strconv.Itoa(int(length.Seconds())))
	}
	data, err := request.DoRaw(ctx)
	if err != nil {
		err = fmt.Errorf("asking for a profile: %w", err)
	} else {
		err = os.WriteFile(filepath.Join(w.Out, file), data, 0o600)
	}
	if err != nil {
		w.say("      no profile %s: %v", file, err)
	}
}
