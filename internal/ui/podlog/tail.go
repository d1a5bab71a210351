// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podlog reads the logs of pods while they grow.
package podlog

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// MaxLine is the length in bytes from which a line is passed on in pieces, because a log may have no newlines at all.
const MaxLine = 64 << 10

// Tail reads a growing log, and reopens it as often as necessary. It identifies what it has already passed on by the
// timestamps that the kubelet adds to lines. It does not count bytes, because a log may be rotated in the meantime.
type Tail struct {
	// Pods reads the log of the container with this name in the pod with this name.
	Pods           corev1client.PodInterface
	Pod, Container string
	// Lines is the number of last lines to read when the log is opened for the first time. A negative number means all.
	Lines int64

	// last is the timestamp of the last line that was passed on, and same is the number of lines with that timestamp.
	// While the end of the last of these lines is missing, part is the number of its bytes that were passed on.
	last time.Time
	same int
	part int

	// skip is true until a reopened log has reached the position at which it broke off. again is the number of lines with
	// the last timestamp that are still to be skipped.
	skip  bool
	again int
	// drop is the number of bytes of the current line that were already passed on.
	drop int
	// counted reports whether last and same already include the current line.
	counted bool
	// rest is the incomplete line at the end of the log. begins reports whether rest includes the beginning of that line.
	rest   string
	begins bool
}

// position is how far a log was read.
type position struct {
	last time.Time
	same int
}

func (l *Tail) position() position { return position{l.last, l.same} }

// Handler receives a line that ends in a newline, or a piece of a line that is longer than MaxLine. more reports
// whether the next piece is already available.
type Handler func(piece string, more bool)

// Read passes on new content until the log ends or breaks off. The end of a log is not an error.
func (l *Tail) Read(ctx context.Context, hand Handler) (progress bool, err error) {
	options := &corev1.PodLogOptions{Container: l.Container, Follow: true, Timestamps: true}
	if !l.last.IsZero() {
		options.SinceTime = new(metav1.NewTime(l.last)) // the API accepts whole seconds only
	} else if l.Lines >= 0 {
		options.TailLines = &l.Lines
	}
	stream, err := l.Pods.GetLogs(l.Pod, options).Stream(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = stream.Close() }()
	l.skip, l.again, l.rest, l.begins = !l.last.IsZero(), l.same, "", true
	r := bufio.NewReaderSize(stream, MaxLine)
	for {
		piece, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			l.rest = string(piece)
			return progress, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return progress, err // an incomplete line is read again
		}
		if fresh := l.fresh(string(piece)); fresh != "" {
			hand(fresh, r.Buffered() > 0)
			progress = true
		}
		l.begins = err == nil
	}
}

// Flush passes on an incomplete line at the end of the log.
func (l *Tail) Flush(hand Handler) {
	if fresh := l.fresh(l.rest); fresh != "" {
		hand(fresh, false)
	}
}

// fresh returns the part of a piece that was not passed on yet, without the timestamp.
func (l *Tail) fresh(piece string) string {
	if l.begins {
		piece = l.begin(piece)
	}
	known := min(l.drop, len(piece))
	piece = piece[known:]
	if l.drop < math.MaxInt {
		l.drop -= known
	}
	switch {
	case strings.HasSuffix(piece, "\n"):
		l.part = 0
	case l.counted:
		l.part += len(piece)
	}
	return piece
}

// begin removes the timestamp from the beginning of a line, and returns how much of the line was already passed on.
func (l *Tail) begin(stamped string) (line string) {
	stamp, line, _ := strings.Cut(stamped, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if l.drop, l.counted = 0, false; err != nil {
		return stamped
	}
	if l.skip {
		switch {
		case at.Before(l.last):
			l.drop = math.MaxInt
			return line
		case at.Equal(l.last) && l.again > 0:
			if l.again--; l.again > 0 || l.part == 0 {
				l.drop = math.MaxInt
			} else {
				l.drop, l.counted = l.part, true
			}
			return line
		}
		l.skip = false
	}
	switch at.Compare(l.last) {
	case 1:
		l.last, l.same, l.part, l.counted = at, 1, 0, true
	case 0:
		l.same++
		l.part, l.counted = 0, true
	}
	return line
}
