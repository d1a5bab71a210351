// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release makes the files of a release from a checkout, and publishes its images. The same commit, version and
// version of Go give the same bytes, on each machine and in each folder: anyone can check what was published.
package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
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
	// ImagePlatforms are the platforms of the images. Default: ImagePlatforms.
	ImagePlatforms []Platform
	// PluginPlatforms are the platforms of the plugin. Default: PluginPlatforms.
	PluginPlatforms []Platform
}

// Platform is a pair of an operating system and an architecture, as Go names them.
type Platform struct{ OS, Arch string }

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Platforms of a complete release.
var (
	ImagePlatforms  = []Platform{{"linux", "amd64"}, {"linux", "arm64"}}
	PluginPlatforms = []Platform{
		{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
	}
)

// Only restricts a release to some of its platforms, such as linux/amd64,darwin/arm64. An empty list has no effect.
func (o *Options) Only(list string) error {
	if list == "" {
		return nil
	}
	o.ImagePlatforms, o.PluginPlatforms = nil, nil
	for text := range strings.SplitSeq(list, ",") {
		goos, arch, _ := strings.Cut(text, "/")
		platform := Platform{goos, arch}
		if !slices.Contains(PluginPlatforms, platform) {
			return fmt.Errorf("the platform %q is not one of %v", text, PluginPlatforms)
		}
		o.PluginPlatforms = append(o.PluginPlatforms, platform)
		if slices.Contains(ImagePlatforms, platform) {
			o.ImagePlatforms = append(o.ImagePlatforms, platform)
		}
	}
	if len(o.ImagePlatforms) == 0 {
		return fmt.Errorf("no image is for any of the platforms %s: add one of %v", list, ImagePlatforms)
	}
	return nil
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
	if o.ImagePlatforms == nil {
		o.ImagePlatforms = ImagePlatforms
	}
	if o.PluginPlatforms == nil {
		o.PluginPlatforms = PluginPlatforms
	}
	o.Created = o.Created.UTC().Truncate(time.Second)
	var err error
	o.Root, err = filepath.Abs(o.Root)
	return err
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
	manager := &program{name: "everynode", sbom: "manager", platforms: o.ImagePlatforms}
	runner := &program{name: "everynode-runner", sbom: "runner", platforms: o.ImagePlatforms}
	archiveRunner := &program{name: "everynode-runner", sbom: "runner-archive", platforms: o.ImagePlatforms, helper: "everynode-upload"}
	dashboard := &program{name: "everynode-dashboard", sbom: "dashboard", platforms: o.ImagePlatforms}
	plugin := &program{name: "kubectl-everynode", sbom: "kubectl-everynode", platforms: o.PluginPlatforms}
	for _, p := range []*program{manager, runner, archiveRunner, dashboard, plugin} {
		if err := p.build(ctx, &o, work); err != nil {
			return fmt.Errorf("building %s: %w", p.name, err)
		}
	}
	references, err := writeImages(&o, manager, runner, archiveRunner, dashboard)
	if err != nil {
		return fmt.Errorf("writing the images: %w", err)
	}
	if err := writePlugin(&o, plugin); err != nil {
		return fmt.Errorf("writing the plugin: %w", err)
	}
	if err := writeManifests(&o, references); err != nil {
		return fmt.Errorf("writing the manifests: %w", err)
	}
	if err := writeChart(&o, references); err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	if err := writeNotes(&o, references); err != nil {
		return fmt.Errorf("writing the release notes: %w", err)
	}
	return writeChecksums(o.Dir)
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
