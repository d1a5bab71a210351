// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	created = time.Date(2026, 7, 1, 12, 30, 15, 0, time.UTC)
	files   = []File{{"program.exe", 0o755, []byte("a program")}, {"LICENSE", 0o644, []byte("a license")}}
)

func TestZip(t *testing.T) {
	content, err := Zip(files, created)
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.File {
		reader, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %o %s %s", f.Name, f.Mode(), f.Modified.UTC().Format("15:04:05"), data))
	}
	if diff := cmp.Diff([]string{"LICENSE 644 12:30:15 a license", "program.exe 755 12:30:15 a program"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestTarGzip(t *testing.T) {
	inFolders := append([]File{{"folder/in/it", 0o600, []byte("below")}}, files...)
	content, err := TarGzip(inFolders, created)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(inFolders)
	again, err := TarGzip(inFolders, created.In(time.FixedZone("elsewhere", 7200)))
	if err != nil || !bytes.Equal(content, again) {
		t.Errorf("the order of the files or the time zone changes the archive: %v", err)
	}
	got, at, err := ReadTarGzip(content)
	if err != nil || !at.Equal(created) {
		t.Errorf("created at %s: %v", at, err)
	}
	want := []File{{"LICENSE", 0o644, []byte("a license")}, {"folder/in/it", 0o600, []byte("below")}, {"program.exe", 0o755, []byte("a program")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, _, err := ReadTarGzip(content[:len(content)/2]); err == nil {
		t.Error("half an archive is read")
	}
}
