// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"os"
	"sync"

	"github.com/everynode/everynode/internal/runner/contract"
)

// noticeBytes of a spool are reserved for the notice about what was left out.
const noticeBytes = 256

// spool stores the output of an attempt in a file until it is archived: all of it, or its beginning and its end, if it is
// longer than the limit. Both streams are written to it in the order of arrival, as to a tail.
//
//	┌────────────────┬──────────────────────┬────────┐
//	│ head           │ ring: the last bytes │ notice │
//	└────────────────┴──────────────────────┴────────┘
//
// A nil spool stores nothing.
type spool struct {
	file *os.File
	// head and ring are the sizes of these parts, in bytes.
	head, ring int64

	mu      sync.Mutex
	written int64 // bytes that were added
	last    byte  // the last of them
	err     error // the first error of the file
}

// newSpool returns a spool for at most limit bytes, which must be more than noticeBytes.
func newSpool(file *os.File, limit int64) *spool {
	limit -= noticeBytes
	return &spool{file: file, head: limit / 2, ring: limit - limit/2, last: '\n'}
}

// add adds a piece of the output.
func (s *spool) add(piece []byte) {
	if s == nil || len(piece) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = piece[len(piece)-1]
	for len(piece) > 0 && s.err == nil {
		at, room := s.next()
		n := min(int64(len(piece)), room)
		if _, err := s.file.WriteAt(piece[:n], at); err != nil {
			s.err = fmt.Errorf("keeping the output until it is archived: %w", errnoOf(err))
			return
		}
		s.written += n
		piece = piece[n:]
	}
}

// note adds a line of the runner itself.
func (s *spool) note(line string) {
	if s.last != '\n' {
		line = "\neverynode-runner: " + line
	} else {
		line = "everynode-runner: " + line
	}
	s.add([]byte(line + "\n"))
}

// next returns where in the file the next byte belongs, and how many fit there.
func (s *spool) next() (at, room int64) {
	if s.written < s.head {
		return s.written, s.head - s.written
	}
	at = (s.written - s.head) % s.ring
	return s.head + at, s.ring - at
}

// content returns the sections of the file that are the output, and how many bytes of it were left out.
func (s *spool) content() (sections []contract.Section, dropped int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, 0, s.err
	}
	limit := s.head + s.ring
	if s.written <= limit {
		return []contract.Section{{Bytes: s.written}}, 0, nil
	}
	dropped = s.written - limit
	notice := fmt.Sprintf("\neverynode-runner: %d bytes of the output were left out here: at most %d bytes of an attempt are archived\n", dropped, limit+noticeBytes)
	if _, err := s.file.WriteAt([]byte(notice), limit); err != nil {
		return nil, 0, fmt.Errorf("keeping the output until it is archived: %w", errnoOf(err))
	}
	oldest := (s.written - s.head) % s.ring
	return []contract.Section{
		{Bytes: s.head},
		{Offset: limit, Bytes: int64(len(notice))},
		{Offset: s.head + oldest, Bytes: s.ring - oldest},
		{Offset: s.head, Bytes: oldest},
	}, dropped, nil
}
