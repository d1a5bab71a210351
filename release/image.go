// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcrtarball "github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/everynode/everynode/release/archive"
)

// imageSpec describes an image.
type imageSpec struct {
	name        string
	title       string
	description string
	user        string
	program     *program
}

// references are the names of the images in a registry, with tag and digest.
type references struct{ manager, runner, archiveRunner, dashboard string }

// writeImages writes the images as OCI image layouts, and returns how manifests refer to them.
func writeImages(o *Options, manager, runner, archiveRunner, dashboard *program) (references, error) {
	var refs references
	for _, s := range []struct {
		imageSpec
		ref *string
	}{
		{imageSpec{"manager", "Everynode manager", "Runs tasks once on every node of a Kubernetes cluster", "65532:65532", manager}, &refs.manager},
		// The manager sets the user of its pods. Scripts run as root in the namespaces of the host.
		{imageSpec{"runner", "Everynode runner", "Runs the script of a NodeJob on the node", "0:0", runner}, &refs.runner},
		// Nodes without archived outputs need not pull an HTTP client.
		{imageSpec{"runner-archive", "Everynode runner with archive", "Runs the script of a NodeJob on the node, and uploads its output", "0:0", archiveRunner}, &refs.archiveRunner},
		{imageSpec{"dashboard", "Everynode dashboard", "Shows the nodes of a cluster and their tasks to each user with the user's own permissions", "65532:65532", dashboard}, &refs.dashboard},
	} {
		digest, err := writeImage(o, &s.imageSpec)
		if err != nil {
			return refs, err
		}
		*s.ref = fmt.Sprintf("%s/%s:%s@%s", o.Registry, s.name, o.Version, digest)
	}
	return refs, os.WriteFile(filepath.Join(o.Dir, ImagesFile), []byte(strings.Join([]string{refs.manager, refs.runner, refs.archiveRunner, refs.dashboard, ""}, "\n")), 0o644)
}

func writeImage(o *Options, s *imageSpec) (v1.Hash, error) {
	annotations := s.annotations(o)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range s.program.platforms {
		image, err := s.image(o, platform, annotations)
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: platform.OS, Architecture: platform.Arch}},
		})
	}
	index, ok := mutate.Annotations(index, annotations).(v1.ImageIndex)
	if !ok {
		return v1.Hash{}, fmt.Errorf("the annotated index of %s is not an index", s.name)
	}
	path, err := layout.Write(filepath.Join(o.Dir, ImagesFolder, s.name), empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": o.Version})); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// annotations returns what the image says about itself, as the OCI image specification names it.
func (s *imageSpec) annotations(o *Options) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":         s.title,
		prefix + "description":   s.description,
		prefix + "url":           Repository,
		prefix + "source":        Repository,
		prefix + "documentation": Repository + "/tree/" + o.Version + "/docs",
		prefix + "version":       o.Version,
		prefix + "revision":      o.Revision,
		prefix + "licenses":      "Apache-2.0",
		prefix + "created":       o.Created.Format(time.RFC3339),
	}
}

// image returns the image for one platform: the program, its helper, their licenses, and nothing else.
func (s *imageSpec) image(o *Options, platform Platform, annotations map[string]string) (v1.Image, error) {
	binary, err := os.ReadFile(s.program.files[platform])
	if err != nil {
		return nil, err
	}
	files := []archive.File{{Path: s.program.name, Mode: 0o755, Content: binary}}
	if s.program.helper != "" {
		helper, err := os.ReadFile(s.program.helpers[platform])
		if err != nil {
			return nil, err
		}
		files = append(files, archive.File{Path: s.program.helper, Mode: 0o755, Content: helper})
	}
	content, err := archive.Tar(append(files,
		archive.File{Path: "licenses/LICENSE", Mode: 0o644, Content: s.program.license},
		archive.File{Path: "licenses/THIRD-PARTY-LICENSES.txt", Mode: 0o644, Content: notices(s.program)},
	), o.Created)
	if err != nil {
		return nil, err
	}
	layer, err := ggcrtarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		ggcrtarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: o.Created}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "everynode-release " + o.Version, Comment: s.title}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Arch, created
	config.Config = v1.Config{
		Entrypoint: []string{"/" + s.program.name},
		Env:        []string{"PATH=" + strings.Join([]string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}, ":")},
		User:       s.user,
		Labels:     annotations,
	}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, annotations).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("the annotated image of %s is not an image", s.name)
	}
	return annotated, nil
}
