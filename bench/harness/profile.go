package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/bench/report"
)

// startProfile profiles the manager until the returned function is called, where that was asked for. What goes
// wrong with it is said, and spoils nothing else.
func (w *world) startProfile(ctx context.Context, run *report.Run) (stop func()) {
	_, ours := w.contender(run.Subject).(*everynode)
	if !w.Profile || !ours || run.Counted || run.Pair > 0 {
		return func() {}
	}
	name := strings.ReplaceAll(kind{run.Subject, run.Mode}.String(), "/", "-")
	// The length of a profile is fixed when it begins; one that is cut off is none.
	const seconds = 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.fetch(ctx, fmt.Sprintf("profile?seconds=%d", seconds), name+"-cpu.pprof")
	}()
	return func() {
		<-done
		w.fetch(ctx, "allocs", name+"-allocs.pprof")
		w.fetch(ctx, "heap", name+"-heap.pprof")
	}
}

func (w *world) fetch(ctx context.Context, what, file string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pprofAddress+"/debug/pprof/"+what, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(w.Out, file), data, 0o600)
	}()
	if err != nil {
		w.say("      no profile %s: %v", file, err)
	}
}
