// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imagesOf returns the images of a release.
func imagesOf(o *Options) []*artifact {
	const nonroot, root = "65532:65532", "0:0"
	platforms := onLinux(o.Platforms)
	return []*artifact{
		{
			name: "manager", programs: []string{"everynode"}, platforms: platforms, user: nonroot,
			title: "Everynode manager", description: "Runs tasks once on every node of a Kubernetes cluster",
		},
		{ // The manager sets the user of its pods. Scripts run as root in the namespaces of the host.
			name: "runner", programs: []string{"everynode-runner"}, platforms: platforms, user: root,
			title: "Everynode runner", description: "Runs the script of a NodeJob on the node",
		},
		{ // Nodes without archived outputs need not pull an HTTP client.
			name: "runner-archive", programs: []string{"everynode-runner", "everynode-upload"}, platforms: platforms, user: root,
			title: "Everynode runner with archive", description: "Runs the script of a NodeJob on the node, and uploads its output",
		},
	}
}

// writeImages writes the images as OCI image layouts, and their references.
func (b *build) writeImages() error {
	for _, a := range b.images {
		index, err := b.index(a)
		if err != nil {
			return err
		}
		path, err := layout.Write(filepath.Join(b.Dir, ImagesFolder, a.name), empty.Index)
		if err != nil {
			return err
		}
		if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": b.Version})); err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		b.references = append(b.references, fmt.Sprintf("%s/%s:%s@%s", b.Registry, a.name, b.Version, digest))
	}
	return b.write(ImagesFile, []byte(strings.Join(b.references, "\n")+"\n"))
}

// index returns an image for all of its platforms.
func (b *build) index(a *artifact) (v1.ImageIndex, error) {
	annotations := b.annotations(a)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range a.platforms {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return nil, err
		}
		image, err := b.image(a, platform, annotations)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: mutate.Annotations(image, annotations).(v1.Image), Descriptor: v1.Descriptor{Platform: platform},
		})
	}
	return mutate.Annotations(index, annotations).(v1.ImageIndex), nil
}

// annotations returns what an image says about itself, as the OCI image specification names it.
func (b *build) annotations(a *artifact) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":         a.title,
		prefix + "description":   a.description,
		prefix + "url":           Repository,
		prefix + "source":        Repository,
		prefix + "documentation": Repository + "/tree/" + b.Version + "/docs",
		prefix + "version":       b.Version,
		prefix + "revision":      b.Revision,
		prefix + "licenses":      "Apache-2.0",
		prefix + "created":       b.Created.Format(time.RFC3339),
	}
}

// image returns an image for one platform: the programs, their licenses, and nothing else.
func (b *build) image(a *artifact, platform *v1.Platform, labels map[string]string) (v1.Image, error) {
	files, err := b.contents(a, platform.String(), "licenses")
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	if err := writeTar(&content, files); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: b.Created}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + a.programs[0]},
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			User:       a.user,
			Labels:     labels,
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: created, CreatedBy: "everynode-release " + b.Version, Comment: a.title},
	})
}
