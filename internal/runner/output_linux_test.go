// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everynode/everynode/internal/outcome"
)

func TestLargeOutputPassesUnchanged(t *testing.T) {
	t.Parallel()
	const script = `awk 'BEGIN { for (i = 0; i < 1000000; i++) printf "line %08d\n", i; print "the end" }'`
	limits := testLimits()
	limits.Stall = patience // a short delay on a busy machine must not count as a stalled reader
	got := startRunner(t, 0, limits, "EVERYNODE_SCRIPT="+script, "EVERYNODE_TIMEOUT=20").wait()
	want := sha256.New()
	for i := range 1000000 {
		fmt.Fprintf(want, "line %08d\n", i)
	}
	fmt.Fprintln(want, "the end")
	if sum := sha256.Sum256([]byte(got.stdout)); string(sum[:]) != string(want.Sum(nil)) {
		t.Errorf("%d bytes of output, different from the input", len(got.stdout))
	}
	if got.code != 0 || !strings.HasPrefix(got.outcome.Message, "…") || !strings.HasSuffix(got.outcome.Message, "line 00999999\nthe end") {
		t.Errorf("ended with %d, message %q", got.code, got.outcome.Message)
	}
}

func TestTheMessageHasBothStreams(t *testing.T) {
	t.Parallel()
	got := runToEnd(t, "EVERYNODE_SCRIPT=echo one; sleep 0.1; echo two >&2; sleep 0.1; echo three; printf '\\033[31mred\\377'; exit 1")
	if want := "one\ntwo\nthree\n\\x1b[31mred\\xff"; got.outcome.Message != want {
		t.Errorf("message %q, want %q", got.outcome.Message, want)
	}
	if got.stdout != "one\nthree\n\x1b[31mred\xff" || got.stderr != "two\n" {
		t.Errorf("stdout %q and stderr %q, want them apart and unchanged", got.stdout, got.stderr)
	}
}

func TestOutputWithoutReader(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*testing.T, *os.File){
		"the reader does not read": func(*testing.T, *os.File) {},
		"the reader is closed": func(t *testing.T, read *os.File) {
			if err := read.Close(); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = read.Close(); _ = write.Close() })
			do(t, read)
			r := prepareRunner(
				t,
				0,
				testLimits(),
				"EVERYNODE_SCRIPT=head -c 5000000 /dev/zero | tr '\\0' x && echo finished",
				"EVERYNODE_TIMEOUT=20",
			)
			r.cmd.Stdout = write
			r.start()
			if got := r.wait(); got.code != 0 || got.outcome.Reason != "" || !strings.HasSuffix(got.outcome.Message, "xfinished") {
				t.Errorf("ended with %d %q, message ends with %q", got.code, got.outcome.Reason, outcome.Clean(got.outcome.Message, 40))
			}
		})
	}
}

// TestPumpWaitsForASlowReader covers a busy node: in all, the reader takes longer than the wait for its next step.
func TestPumpWaitsForASlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tests := map[string]struct {
			pause, inAll time.Duration
			want         int
		}{
			"it always takes the next chunk in time": {time.Second, time.Minute, queueChunks},
			"it takes nothing for too long":          {3 * time.Second, time.Minute, 0},
			"it takes too long in all":               {time.Second, 4500 * time.Millisecond, 4},
		}
		for name, tt := range tests {
			read, write := io.Pipe()
			p := &pump{
				to:      write,
				tail:    &tail{},
				queue:   make(chan []byte, queueChunks),
				read:    make(chan struct{}),
				written: make(chan struct{}),
				moves:   make(chan struct{}, 1),
			}
			var err error
			if p.from, err = os.Open(os.DevNull); err != nil {
				t.Fatal(err)
			}
			for range queueChunks {
				p.queue <- make([]byte, chunkBytes)
			}
			close(p.read)
			taken, ended := 0, make(chan struct{})
			go func() {
				defer close(ended)
				for chunk := make([]byte, chunkBytes); ; taken++ {
					time.Sleep(tt.pause)
					if _, err := io.ReadFull(read, chunk); err != nil {
						return
					}
				}
			}()
			go p.writeAll()
			p.finish(2*time.Second, tt.inAll)
			synctest.Wait()
			if taken != tt.want {
				t.Errorf("%s: %d chunks are taken, want %d", name, taken, tt.want)
			}
			_ = read.Close()
			<-ended
			<-p.written
		}
	})
}

func TestPumpReportsDroppedBytes(t *testing.T) {
	t.Parallel()
	read, write, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader := &gate{open: make(chan struct{}), out: newWatched()}
	p := startPump(read, reader, &tail{}, nil, 1, nil)
	chunk := strings.Repeat("x", chunkBytes)
	for range 4 * queueChunks { // returns although there is no reader
		if _, err := write.WriteString(chunk); err != nil {
			t.Fatal(err)
		}
	}
	close(reader.open)
	for !strings.Contains(reader.out.String(), "bytes of output were dropped here") {
		if _, err := write.WriteString("more\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	p.finish(patience, patience)
}

func TestPumpDoesNotWaitForOtherHoldersOfPipe(t *testing.T) {
	t.Parallel()
	read, write, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = write.Close() })
	out := newWatched()
	p := startPump(read, out, &tail{}, nil, patience, nil)
	if _, err := write.WriteString("last words"); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "last words")
	finished := make(chan struct{})
	go func() { defer close(finished); p.finish(1, 1) }()
	select {
	case <-finished:
	case <-time.After(patience):
		t.Fatal("still waiting for the end of a pipe that another process holds")
	}
}

// gate is a writer that blocks until it is opened.
type gate struct {
	open chan struct{}
	out  *watched
}

func (g *gate) Write(p []byte) (int, error) { <-g.open; return g.out.Write(p) }

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 7, tailBytes - 1, tailBytes, tailBytes + 1, 5 * tailBytes} {
		var kept tail
		var all []byte
		for i := range 6 * tailBytes / size {
			piece := []byte(strings.Repeat(string(rune('a'+i%26)), size))
			kept.add(piece)
			all = append(all, piece...)
		}
		if want := string(all[max(0, len(all)-tailBytes):]); kept.String() != want {
			t.Errorf("pieces of %d: %d bytes %.20q…, want %d bytes %.20q…", size, len(kept.String()), kept.String(), len(want), want)
		}
		if cap(kept.buf) > 4*tailBytes {
			t.Errorf("pieces of %d: %d bytes of memory", size, cap(kept.buf))
		}
	}
}
