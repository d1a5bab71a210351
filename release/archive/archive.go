// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archive makes archives whose bytes depend only on their content.
package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"
)

// File is a file of an archive. Its owner is root, and its time is that of the commit.
type File struct {
	Path    string // without a leading slash
	Mode    int64
	Content []byte
}

// Tar returns an archive with the files, and the folders of their paths, sorted.
func Tar(files []File, created time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range foldersOf(files) {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: created}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
	}
	for _, f := range byPath(files) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: f.Mode, Size: int64(len(f.Content)), ModTime: created}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// TarGzip returns a compressed archive. Its header has no name and no time.
func TarGzip(files []File, created time.Time) ([]byte, error) {
	content, err := Tar(files, created)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Zip returns a ZIP archive with the files, sorted.
func Zip(files []File, created time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range byPath(files) {
		header := &zip.FileHeader{Name: f.Path, Method: zip.Deflate, Modified: created}
		header.SetMode(os.FileMode(f.Mode))
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.Content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func byPath(files []File) []File {
	return slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
}

// foldersOf returns the folders that contain files, each after the one that contains it.
func foldersOf(files []File) []string {
	folders := map[string]bool{}
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(folders))
}

// ReadTarGzip returns the files of an archive that TarGzip has made, and their time.
func ReadTarGzip(content []byte) ([]File, time.Time, error) {
	var created time.Time
	uncompressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, created, err
	}
	var files []File
	for r := tar.NewReader(uncompressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, created, nil
		}
		if err != nil {
			return nil, created, err
		}
		created = header.ModTime.UTC()
		if header.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, created, err
		}
		files = append(files, File{header.Name, header.Mode, data})
	}
}
