// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart packages the Helm chart of a checkout. A chart is an archive of a folder, so this needs no helm.
package chart

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/release/archive"
)

// Name is the name of the chart, and of the folder in its archive.
const Name = "everynode"

// The versions and the registry in the checkout.
const (
	version  = "0.0.0-dev"
	registry = "ghcr.io/everynode"
)

// Release says what belongs to a version of the chart.
type Release struct {
	// Version begins with v.
	Version string
	// Manager, Runner, ArchiveRunner and Dashboard are references of images, with tag and digest.
	Manager, Runner, ArchiveRunner, Dashboard string
	// Created is the time of all files.
	Created time.Time
}

// FileName returns the name of the archive of a version, as helm names it.
func FileName(version string) string { return Name + "-" + Version(version) + ".tgz" }

// Version returns the version of the chart, which has no v.
func Version(version string) string { return strings.TrimPrefix(version, "v") }

// Package returns the archive of the chart in a checkout, with the versions and the images of a release.
func Package(root string, r Release) ([]byte, error) {
	files, err := read(filepath.Join(root, "charts", Name))
	if err != nil {
		return nil, err
	}
	for i := range files {
		if files[i].Path != Name+"/Chart.yaml" {
			continue
		}
		if files[i].Content, err = stamp(files[i].Content, r); err != nil {
			return nil, err
		}
		return archive.TarGzip(files, r.Created)
	}
	return nil, fmt.Errorf("the chart has no Chart.yaml among its %d files", len(files))
}

// read returns the files of a folder.
func read(dir string) ([]archive.File, error) {
	var files []archive.File
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, name)
		files = append(files, archive.File{Path: path.Join(Name, filepath.ToSlash(below)), Mode: 0o644, Content: content})
		return err
	})
	return files, err
}

// stamp returns Chart.yaml with the versions and the images of a release.
func stamp(content []byte, r Release) ([]byte, error) {
	text := string(content)
	for _, change := range [][2]string{
		{"\nversion: " + version + "\n", "\nversion: " + Version(r.Version) + "\n"},
		{"\nappVersion: v" + version + "\n", "\nappVersion: " + r.Version + "\n"},
		{"image: " + registry + "/manager:v" + version + "\n", "image: " + r.Manager + "\n"},
		{"image: " + registry + "/runner:v" + version + "\n", "image: " + r.Runner + "\n"},
		{"image: " + registry + "/runner-archive:v" + version + "\n", "image: " + r.ArchiveRunner + "\n"},
		{"image: " + registry + "/dashboard:v" + version + "\n", "image: " + r.Dashboard + "\n"},
	} {
		if strings.Count(text, change[0]) != 1 {
			return nil, fmt.Errorf("the line %q is not in Chart.yaml exactly once", strings.TrimSpace(change[0]))
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	return []byte(text), nil
}
