// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

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

// logTail reads a log as it comes, however often it has to be opened for that. What was handed on is known by the times
// that the kubelet gives to lines: a log may be rotated meanwhile, so that counting bytes is no help.
type logTail struct {
	pods           corev1client.PodInterface
	pod, container string
	// lines is how many of the end are meant when it is opened first; all when it is negative.
	lines int64

	// last is the time of the last line that was handed on, and same how many lines of that time were. Of the last of
	// them part bytes were, while its end has not come.
	last time.Time
	same int
	part int

	// skip is true until a log that was opened again has come to where it had broken off; again counts the lines of
	// the last time that are still to come once more.
	skip  bool
	again int
	// drop is how many bytes of the present line were handed on already.
	drop int
	// counted is true for a line that last and same count.
	counted bool
	// rest is what the log ended with in the middle of a line, and begins is true when that is the line's beginning.
	rest   string
	begins bool
}

// handOn takes a line that ends in a newline, or a piece of one that is longer than maxLine. more is true when the next is
// there already.
type handOn func(piece string, more bool)

// read hands on what is new until the log ends, for which there is no error, or breaks off.
func (l *logTail) read(ctx context.Context, hand handOn) (progress bool, err error) {
	options := &corev1.PodLogOptions{Container: l.container, Follow: true, Timestamps: true}
	if !l.last.IsZero() {
		options.SinceTime = new(metav1.NewTime(l.last)) // which is told in whole seconds
	} else if l.lines >= 0 {
		options.TailLines = &l.lines
	}
	stream, err := l.pods.GetLogs(l.pod, options).Stream(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = stream.Close() }()
	l.skip, l.again, l.rest, l.begins = !l.last.IsZero(), l.same, "", true
	r := bufio.NewReaderSize(stream, maxLine)
	for {
		piece, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			l.rest = string(piece)
			return progress, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return progress, err // half a line comes again
		}
		if fresh := l.fresh(string(piece)); fresh != "" {
			hand(fresh, r.Buffered() > 0)
			progress = true
		}
		l.begins = err == nil
	}
}

// flush hands on what the log ended with, if that was no newline.
func (l *logTail) flush(hand handOn) {
	if fresh := l.fresh(l.rest); fresh != "" {
		hand(fresh, false)
	}
}

// fresh is what of a piece was not handed on yet, without the time.
func (l *logTail) fresh(piece string) string {
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

// begin takes the time off the beginning of a line, and says how much of the line is known.
func (l *logTail) begin(stamped string) (line string) {
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
