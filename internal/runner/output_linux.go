// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// tailBytes of the output are kept for the message: twice the size of a message, because escapes and the cut at a
	// character boundary need some.
	tailBytes = 2 << 10
	// chunkBytes times queueChunks is the maximum that waits for a slow reader of the container's output.
	chunkBytes  = 32 << 10
	queueChunks = 8
)

// tail stores the last bytes that several writers wrote to it, in the order of arrival.
type tail struct {
	mu  sync.Mutex
	buf []byte // at most 2*tailBytes, of which the end is used
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p = p[max(0, len(p)-tailBytes):]
	if len(t.buf)+len(p) > 2*tailBytes {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	t.buf = append(t.buf, p...)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf[max(0, len(t.buf)-tailBytes):])
}

// pump passes one output stream of the scripts to the container.
//
// A task may stop the container runtime, for example to restart containerd. Then no process reads the container's
// output, and a script that continues to print would block on a full pipe, perhaps before the line that starts the
// runtime again. So output waits in a bounded queue. If the reader takes nothing for the stall time, output is dropped,
// with a notice, until the reader continues.
type pump struct {
	from  *os.File
	to    io.Writer
	tail  *tail
	spool *spool // nil: the output is not archived
	stall time.Duration
	mask  *maskedStream // nil: nothing is masked

	// received is how many bytes were read. It changes together with the content of the pipe, so that printed can add both.
	receiving sync.Mutex
	received  int

	queue   chan []byte
	dropped int // bytes; above 0 while dropping
	read    chan struct{}
	written chan struct{}
	// moves has an element if a chunk was written since the last look.
	moves chan struct{}
}

func startPump(from *os.File, to io.Writer, tail *tail, spool *spool, stall time.Duration, secrets *masker) *pump {
	p := &pump{
		from: from, to: to, tail: tail, spool: spool, stall: stall,
		queue: make(chan []byte, queueChunks), read: make(chan struct{}), written: make(chan struct{}), moves: make(chan struct{}, 1),
	}
	if secrets != nil {
		p.mask = &maskedStream{masker: secrets}
	}
	go p.readAll()
	go p.writeAll()
	return p
}

func (p *pump) readAll() {
	defer close(p.read)
	for {
		chunk := make([]byte, chunkBytes)
		n, err := p.receive(chunk)
		chunk = chunk[:n]
		if p.mask != nil {
			chunk = p.mask.add(chunk, err != nil)
		}
		if len(chunk) > 0 {
			p.tail.add(chunk)
			p.spool.add(chunk)
			p.forward(chunk)
		}
		if err != nil { // end of file, or the deadline that finish has set
			return
		}
	}
}

func (p *pump) forward(chunk []byte) {
	if p.dropped > 0 {
		notice := fmt.Appendf(nil, "\neverynode-runner: %d bytes of output were dropped here: nothing read the container's output\n", p.dropped)
		select {
		case p.queue <- append(notice, chunk...):
			p.dropped = 0
		default:
			p.dropped += len(chunk)
		}
		return
	}
	select {
	case p.queue <- chunk:
		return
	default:
	}
	wait := time.NewTimer(p.stall)
	defer wait.Stop()
	select {
	case p.queue <- chunk:
	case <-wait.C:
		p.dropped = len(chunk)
	}
}

// writeAll continues to take chunks after a failed write: the script must not notice that its reader is gone.
func (p *pump) writeAll() {
	defer close(p.written)
	var err error
	for chunk := range p.queue {
		if err == nil {
			_, err = p.to.Write(chunk)
		}
		select {
		case p.moves <- struct{}{}:
		default:
		}
	}
}

// finish waits for the end of the stream: at most patience for reading (another process may still have the other end
// open), and then as long as the reader of the output takes a chunk within patience, but at most in all. A busy node may need
// more than patience for all chunks. Nothing may be written to the pump afterwards.
func (p *pump) finish(patience, inAll time.Duration) {
	// A pipe always supports a deadline. Otherwise the wait below would never end, so the pipe is closed.
	if err := p.from.SetReadDeadline(time.Now().Add(patience)); err != nil {
		_ = p.from.Close()
	}
	<-p.read
	close(p.queue)
	still, end := time.NewTimer(patience), time.NewTimer(inAll)
	defer still.Stop()
	defer end.Stop()
	for {
		select {
		case <-p.written:
			return
		case <-p.moves:
			still.Reset(patience)
		case <-still.C:
			return
		case <-end.C:
			return
		}
	}
}
