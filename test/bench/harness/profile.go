// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
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

// profileTime is the length of a profile. It is fixed at the start, and a profile that is cut off is not valid.
const profileTime = 20 * time.Second

// profileRun profiles the API server, and the manager if there is one, if profiles are requested. The returned function waits for
// the end.
func (w *world) profileRun(ctx context.Context, run *report.Run) (wait func()) {
	var profiles sync.WaitGroup
	if w.Profile && !run.Counted && run.Pair == 0 {
		profiles.Go(func() { w.profile(ctx, run, w.client, "apiserver-cpu", profileTime) })
		profiles.Go(func() { w.profileManager(ctx, run, "cpu", profileTime) })
	}
	return profiles.Wait
}

// profileIdle profiles the manager for a time in which it has nothing to do. The returned function waits for the end.
func (w *world) profileIdle(ctx context.Context, run *report.Run, length time.Duration) (wait func()) {
	var profile sync.WaitGroup
	if w.Profile && !run.Counted {
		profile.Go(func() { w.profileManager(ctx, run, "idle-cpu", length) })
	}
	return profile.Wait
}

// profileManager profiles what the manager does in a time, and then its heap, with all that it has allocated.
func (w *world) profileManager(ctx context.Context, run *report.Run, name string, length time.Duration) {
	switch w.subject {
	case report.Plain, report.Floor, report.Recorded, report.DaemonSet:
		return
	default:
	}
	manager, err := kubernetes.NewForConfig(&rest.Config{Host: "http://" + pprofAddress})
	if err != nil {
		w.say("      no profile %s: %v", name, err)
		return
	}
	w.profile(ctx, run, manager, name, length)
	w.profile(ctx, run, manager, strings.Replace(name, "cpu", "heap", 1), 0)
}

// profile writes a profile of a number of seconds, or the heap. Errors are reported, and do not affect the run.
func (w *world) profile(ctx context.Context, run *report.Run, server kubernetes.Interface, name string, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	request := server.CoreV1().RESTClient().Get()
	if length > 0 {
		request = request.AbsPath("/debug/pprof/profile").Param("seconds", strconv.Itoa(int(length.Seconds())))
	} else {
		request = request.AbsPath("/debug/pprof/heap")
	}
	data, err := request.DoRaw(ctx)
	if err == nil {
		file := strings.ReplaceAll(kind{run.Subject, run.Mode}.String(), "/", "-") + "-" + name + ".pprof"
		err = os.WriteFile(filepath.Join(w.Out, file), data, 0o600)
	}
	if err != nil {
		w.say("      no profile %s: %v", name, err)
	}
}
