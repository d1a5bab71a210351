// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/everynode/everynode/test/bench/report"
)

// profileSeconds is the length of a profile. It is fixed at the start, and a profile that is cut off is not valid.
const profileSeconds = 20

// startProfile profiles the API server, and the manager if there is one, until the returned function is called. It does
// nothing unless profiles are requested. Errors are reported, and do not affect the run.
func (w *world) startProfile(ctx context.Context, run *report.Run) (stop func()) {
	if !w.Profile || run.Counted || run.Pair > 0 {
		return func() {}
	}
	name, ours := profileName(run), w.isManager(run)
	var profiles sync.WaitGroup
	profiles.Go(func() {
		w.fetch(name+"-apiserver-cpu.pprof", func() ([]byte, error) { return w.ofAPIServer(ctx) })
	})
	if ours {
		profiles.Go(func() {
			w.fetch(name+"-cpu.pprof", func() ([]byte, error) { return cpuOfManager(ctx, profileSeconds*time.Second) })
		})
	}
	return func() {
		profiles.Wait()
		if !ours {
			return
		}
		for _, what := range []string{"allocs", "heap"} {
			w.fetch(name+"-"+what+".pprof", func() ([]byte, error) { return ofManager(ctx, what, 0) })
		}
	}
}

// profileIdle profiles the manager for a time in which it has nothing to do. The returned function waits for the end.
func (w *world) profileIdle(ctx context.Context, run *report.Run, length time.Duration) (wait func()) {
	var profile sync.WaitGroup
	if w.Profile && !run.Counted && w.isManager(run) {
		profile.Go(func() {
			w.fetch(profileName(run)+"-idle-cpu.pprof", func() ([]byte, error) { return cpuOfManager(ctx, length) })
		})
	}
	return profile.Wait
}

// isManager reports whether the subject of a run is the manager, which has profiles.
func (w *world) isManager(run *report.Run) bool {
	_, is := w.contender(run.Subject).(*everynode)
	return is
}

// profileName is the beginning of the names of a run's profiles.
func profileName(run *report.Run) string {
	return strings.ReplaceAll(kind{run.Subject, run.Mode}.String(), "/", "-")
}

func (w *world) fetch(file string, get func() ([]byte, error)) {
	data, err := get()
	if err == nil {
		err = os.WriteFile(filepath.Join(w.Out, file), data, 0o600)
	}
	if err != nil {
		w.say("      no profile %s: %v", file, err)
	}
}

func (w *world) ofAPIServer(ctx context.Context) ([]byte, error) {
	return w.client.Discovery().RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", strconv.Itoa(profileSeconds)).DoRaw(ctx)
}

// cpuOfManager returns a profile of that length, in whole seconds.
func cpuOfManager(ctx context.Context, length time.Duration) ([]byte, error) {
	return ofManager(ctx, fmt.Sprintf("profile?seconds=%d", int(length.Seconds())), length)
}

// ofManager returns a profile that takes a time.
func ofManager(ctx context.Context, what string, takes time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, takes+time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pprofAddress+"/debug/pprof/"+what, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}
