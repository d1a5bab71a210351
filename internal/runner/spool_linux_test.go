// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/runner/contract"
)

func readSections(t *testing.T, file io.ReaderAt, sections []contract.Section) []byte {
	t.Helper()
	var readers []io.Reader
	for _, s := range sections {
		readers = append(readers, io.NewSectionReader(file, s.Offset, s.Bytes))
	}
	content, err := io.ReadAll(io.MultiReader(readers...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestSpool adds outputs of all lengths around the limit, in pieces of random lengths.
func TestSpool(t *testing.T) {
	t.Parallel()
	const limit = noticeBytes + 101 // 50 bytes at the beginning and 51 at the end
	for length := range 400 {
		file, err := newSpoolFile(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s := newSpool(file, limit)
		var output []byte
		for i := range length {
			output = append(output, byte('a'+i%26))
		}
		for rest := output; len(rest) > 0; {
			n := 1 + rand.IntN(min(len(rest), 70))
			s.add(rest[:n])
			rest = rest[n:]
		}
		sections, dropped, err := s.content()
		if err != nil {
			t.Fatal(err)
		}
		want := output
		if length > 101 {
			notice := fmt.Sprintf(
				"\neverynode-runner: %d bytes of the output were left out here: at most %d bytes of an attempt are archived\n",
				length-101,
				limit,
			)
			want = bytes.Join([][]byte{output[:50], output[length-51:]}, []byte(notice))
		}
		got := readSections(t, file, sections)
		if !bytes.Equal(got, want) || dropped != int64(max(length-101, 0)) || len(got) > limit {
			t.Fatalf("of %d bytes, %d are dropped and these are kept:\n%s\nwant:\n%s", length, dropped, got, want)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpoolNotesBeginOnALineOfTheirOwn(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"":      "everynode-runner: late\n",
		"a\n":   "a\neverynode-runner: late\n",
		"a\nbc": "a\nbc\neverynode-runner: late\n",
	} {
		file, err := newSpoolFile(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s := newSpool(file, 4096)
		s.add([]byte(output))
		s.note("late")
		sections, _, err := s.content()
		if got := string(readSections(t, file, sections)); err != nil || got != want {
			t.Errorf("after %q, the spool has %q, %v", output, got, err)
		}
	}
}

func TestSpoolReportsAnErrorOfItsFile(t *testing.T) {
	t.Parallel()
	file, err := os.Open(os.DevNull) // for reading only
	if err != nil {
		t.Fatal(err)
	}
	s := newSpool(file, 4096)
	s.add([]byte("a"))
	s.add([]byte("b"))
	if _, _, err := s.content(); err == nil || !strings.Contains(err.Error(), "keeping the output until it is archived") ||
		strings.Contains(err.Error(), os.DevNull) {
		t.Errorf("the error is %v", err)
	}
}

func TestASpoolFileHasNoName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, err := newSpoolFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if _, err := newSpoolFile(dir + "/missing"); err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("without the folder, the error is %v", err)
	}
}
