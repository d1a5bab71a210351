// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image makes container images out of static programs, without Docker and without a
// registry: one layer, an entry point, nothing else.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Options say what is in an image besides its program.
type Options struct {
	// Path is where the program lies in the image. Default: its base name in the root folder.
	Path string
	// Args are put after the entry point unless the pod gives its own.
	Args []string
	// Env are NAME=value pairs.
	Env []string
	// User is a number, or number:number. Default: root.
	User string
	// Files are further files by absolute path, readable by all.
	Files map[string][]byte
	// Programs are further programs: absolute path in the image to file on this machine.
	Programs map[string]string
	// Labels of the image.
	Labels map[string]string
	// Architecture as Go names it. Default: that of this program.
	Architecture string
}

// FromBinary makes the image of a static program. The same input gives the same digest.
func FromBinary(file string, options Options) (v1.Image, error) {
	if options.Path == "" {
		options.Path = "/" + filepath.Base(file)
	}
	if options.Architecture == "" {
		options.Architecture = architecture
	}
	layer, err := layer(file, options)
	if err != nil {
		return nil, fmt.Errorf("making the image of %s: %w", file, err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("making the image of %s: %w", file, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("making the image of %s: %w", file, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", options.Architecture
	config.Config.Entrypoint = []string{options.Path}
	config.Config.Cmd = options.Args
	config.Config.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/"}, options.Env...)
	config.Config.User = options.User
	config.Config.Labels = options.Labels
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, fmt.Errorf("making the image of %s: %w", file, err)
	}
	return image, nil
}

// WriteTar writes the image as an archive that containerd, Docker and podman load. The reference
// must name a registry host (registry.local/…), or containerd takes it for one on Docker Hub.
func WriteTar(file, reference string, image v1.Image) error {
	tag, err := ParseReference(reference)
	if err != nil {
		return err
	}
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		return fmt.Errorf("writing the archive of %s: %w", reference, err)
	}
	return nil
}

// ParseReference checks that a reference has a registry host and a tag.
func ParseReference(reference string) (name.Tag, error) {
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("reading the image reference %q (write it as registry.local/name:tag): %w", reference, err)
	}
	host, _, found := strings.Cut(reference, "/")
	if !found || !strings.ContainsAny(host, ".:") {
		return name.Tag{}, fmt.Errorf("reading the image reference %q: it names no registry host; write it as registry.local/name:tag", reference)
	}
	return tag, nil
}

// entry is one file of the layer.
type entry struct {
	path string
	mode int64
	data []byte
}

func layer(file string, options Options) (v1.Layer, error) {
	entries := map[string]entry{}
	add := func(path string, mode int64, data []byte) {
		path = strings.TrimPrefix(filepath.ToSlash(path), "/")
		entries[path] = entry{path, mode, data}
	}
	for path, data := range options.Files {
		add(path, 0o644, data)
	}
	programs := maps.Clone(options.Programs)
	if programs == nil {
		programs = map[string]string{}
	}
	programs[options.Path] = file
	for path, source := range programs {
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		add(path, 0o755, data)
	}
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	if err := writeEntries(writer, entries); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	})
}

// writeEntries writes folders before the files in them, in a fixed order and without times.
func writeEntries(writer *tar.Writer, entries map[string]entry) error {
	folders := map[string]int64{"tmp": 0o1777}
	for p := range entries {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			if _, known := folders[dir]; !known {
				folders[dir] = 0o755
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: folders[dir]}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(entries)) {
		e := entries[p]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.path, Mode: e.mode, Size: int64(len(e.data))}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		if _, err := writer.Write(e.data); err != nil {
			return err
		}
	}
	return nil
}
