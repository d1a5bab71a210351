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

// profile profiles the API server, and the manager with its heap if there is one, if profiles are requested. The returned function
// waits for the end. Names of idle profiles have a prefix.
func (w *world) profile(ctx context.Context, run *report.Run, prefix string, length time.Duration) (wait func()) {
	var profiles sync.WaitGroup
	if w.Profile && !run.Counted && run.Pair == 0 {
		profiles.Go(func() { w.writeProfile(ctx, run, w.client, prefix+"apiserver-cpu", length) })
	}
	if w.Profile && !run.Counted && run.Pair == 0 && w.program != nil && w.program.name == managerName {
		manager := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://" + pprofAddress})
		profiles.Go(func() {
			w.writeProfile(ctx, run, manager, prefix+"cpu", length)
			w.writeProfile(ctx, run, manager, prefix+"heap", 0) // with all that it has allocated
		})
	}
	return profiles.Wait
}

// writeProfile writes a profile of a number of seconds, or the heap. Errors are reported, and do not affect the run.
func (w *world) writeProfile(ctx context.Context, run *report.Run, server kubernetes.Interface, name string, length time.Duration) {
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
