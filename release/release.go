// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release makes the files of a release from a checkout, and publishes its images. The same commit, version and
// version of Go give the same bytes, on each machine and in each folder: anyone can check what was published.
package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/release/chart"
)

const (
	// Repository is where releases are published.
	Repository = "https://github.com/everynode/everynode"
	// DefaultRegistry is the registry with the images of releases.
	DefaultRegistry = "ghcr.io/everynode"

	modulePath = "github.com/everynode/everynode"
)

// Files of a release, besides the archives of the plugin and the SBOMs.
const (
	ImagesFolder       = "images" // with a folder for each image, which is an OCI image layout
	ImagesFile         = "images.txt"
	InstallFile        = "install.yaml"
	InstallNoGatesFile = "install-without-gate-policies.yaml"
	KrewFile           = "everynode.yaml"
	NotesFile          = "release-notes.md"
	ChecksumsFile      = "checksums.txt"
)

// Options say what is released.
type Options struct {
	// Root is the checkout.
	Root string
	// Dir is the folder for the files. A release in it is replaced.
	Dir string
	// Version is a semantic version with v, such as v0.1.0.
	Version string
	// Revision is the commit of the checkout.
	Revision string
	// Created is the time of the commit.
	Created time.Time
	// Registry is the prefix of the images in the manifests, such as ghcr.io/everynode.
	Registry string
	// Platforms are some of Platforms, which is the default.
	Platforms []string
}

// Platforms of a complete release, as Go names them. The images are for those with Linux.
var Platforms = []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64", "windows/amd64", "windows/arm64"}

// Only restricts a release to some of its platforms, such as linux/amd64,darwin/arm64. An empty list has no effect.
func (o *Options) Only(list string) error {
	if list == "" {
		return nil
	}
	o.Platforms = strings.Split(list, ",")
	for _, platform := range o.Platforms {
		if !slices.Contains(Platforms, platform) {
			return fmt.Errorf("the platform %q is not one of %v", platform, Platforms)
		}
	}
	if len(onLinux(o.Platforms)) == 0 {
		return fmt.Errorf("no image is for any of the platforms %s: add one of %v", list, onLinux(Platforms))
	}
	return nil
}

func onLinux(platforms []string) []string {
	return slices.DeleteFunc(slices.Clone(platforms), func(platform string) bool { return !strings.HasPrefix(platform, "linux/") })
}

// semantic matches the versions that image tags, Go modules and krew allow.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)

func (o *Options) complete() error {
	if !semantic.MatchString(o.Version) {
		return fmt.Errorf("the version %q is not a semantic version: write it as v0.1.0 or v0.1.0-rc.1", o.Version)
	}
	if o.Registry = strings.TrimSuffix(o.Registry, "/"); o.Registry == "" {
		o.Registry = DefaultRegistry
	}
	if o.Platforms == nil {
		o.Platforms = Platforms
	}
	o.Created = o.Created.UTC().Truncate(time.Second)
	var err error
	o.Root, err = filepath.Abs(o.Root)
	return err
}

// build is a release that is being made.
type build struct {
	Options
	work       string // a folder for what is not released
	images     []*artifact
	plugin     *artifact
	references []string // of the images, with tag and digest
}

// Build writes a release. It needs the Go modules of the product, and no other access to the network.
func Build(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	if err := emptyDir(o.Dir); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "everynode-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := &build{Options: o, work: work, images: imagesOf(&o), plugin: pluginOf(&o)}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"building the programs", func() error { return b.compile(ctx) }},
		{"writing the images", b.writeImages},
		{"writing the plugin", b.writePlugin},
		{"writing the manifests", b.writeManifests},
		{"writing the chart", func() error { return chart.Package(b.Root, b.Dir, b.Version, b.references, b.Created) }},
		{"writing the release notes", b.writeNotes},
		{"writing the checksums", func() error { return writeChecksums(b.Dir) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// write writes a file of the release.
func (b *build) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(b.Dir, name), content, 0o644)
}

// emptyDir makes an empty folder. It removes an earlier release, complete or not, and nothing else. A release has SBOMs,
// which are written first.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case len(entries) > 0 && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), sbomSuffix) }):
		return fmt.Errorf("the folder %s has files that are not of a release: empty it, or choose another folder", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// writeChecksums writes the checksums of the files that users download, in the format of sha256sum. The images are not
// among them: their names have digests.
func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, entry := range entries {
		if entry.IsDir() || entry.Name() == ChecksumsFile || entry.Name() == NotesFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return os.WriteFile(filepath.Join(dir, ChecksumsFile), sums.Bytes(), 0o644)
}
