// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// indexOf returns the only index of an OCI image layout.
func indexOf(t *testing.T, dir, name string) (v1.ImageIndex, v1.Descriptor) {
	t.Helper()
	root, err := layout.ImageIndexFromPath(filepath.Join(dir, ImagesFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %d manifests, want 1", len(manifest.Manifests))
	}
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index, manifest.Manifests[0]
}

// content is a file of an image or an archive.
type content struct {
	header *tar.Header
	data   []byte
}

// untar returns the files and folders of an archive, and their order.
func untar(t *testing.T, r io.Reader) (files map[string]content, order []string) {
	t.Helper()
	files = map[string]content{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, order
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(header.Name, "/")
		files[name] = content{header, data}
		order = append(order, name)
	}
}

func TestImages(t *testing.T) {
	dir := built(t)
	tests := map[string]struct {
		title, description, user, program string
		arg                               string // that prints the version
		helper                            []string
	}{
		"manager": {
			"Everynode manager",
			"Runs tasks once on every node of a Kubernetes cluster",
			"65532:65532",
			"everynode",
			"--version",
			nil,
		},
		"runner": {"Everynode runner", "Runs the script of a NodeJob on the node", "0:0", "everynode-runner", "--version", nil},
		"runner-archive": {
			"Everynode runner with archive", "Runs the script of a NodeJob on the node, and uploads its output", "0:0",
			"everynode-runner", "--version", []string{"everynode-upload"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{
				"org.opencontainers.image.title":         tt.title,
				"org.opencontainers.image.description":   tt.description,
				"org.opencontainers.image.url":           "https://github.com/everynode/everynode",
				"org.opencontainers.image.source":        "https://github.com/everynode/everynode",
				"org.opencontainers.image.documentation": "https://github.com/everynode/everynode/tree/v0.7.3-test.1/docs",
				"org.opencontainers.image.version":       testVersion,
				"org.opencontainers.image.revision":      testRevision,
				"org.opencontainers.image.licenses":      "Apache-2.0",
				"org.opencontainers.image.created":       "2026-07-01T12:30:15Z",
			}
			index, descriptor := indexOf(t, dir, name)
			if err := validate.Index(index); err != nil {
				t.Error(err)
			}
			if descriptor.MediaType != types.OCIImageIndex || descriptor.Annotations["org.opencontainers.image.ref.name"] != testVersion {
				t.Errorf("the layout lists %+v", descriptor)
			}
			manifest, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, manifest.Annotations); diff != "" {
				t.Errorf("annotations of the index: -want +got\n%s", diff)
			}
			if len(manifest.Manifests) != 1 {
				t.Fatalf("the index has %d images, want one per platform", len(manifest.Manifests))
			}
			if got := manifest.Manifests[0].Platform; got.String() != testPlatform {
				t.Errorf("the image is for %+v", got)
			}
			image, err := index.Image(manifest.Manifests[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			checkConfig(t, image, want, v1.Config{
				Entrypoint: []string{"/" + tt.program}, User: tt.user, Labels: want,
				Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			})
			files, order := untar(t, mutate.Extract(image))
			programs := append([]string{tt.program}, tt.helper...)
			if diff := cmp.Diff(
				append(slices.Clone(programs), "licenses", "licenses/LICENSE", "licenses/THIRD-PARTY-LICENSES.txt"),
				order,
			); diff != "" {
				t.Errorf("files: -want +got\n%s", diff)
			}
			for _, name := range programs {
				program := files[name]
				if program.header.Mode != 0o755 {
					t.Errorf("the mode of %s is %o", name, program.header.Mode)
				}
				checkStatic(t, program.data)
				if got := printed(t, program.data, tt.arg); got != testVersion {
					t.Errorf("%s has the version %s", name, got)
				}
			}
			if !bytes.Equal(files["licenses/LICENSE"].data, read(t, "..", "LICENSE")) {
				t.Error("licenses/LICENSE is not the license of Everynode")
			}
			if !strings.Contains(string(files["licenses/THIRD-PARTY-LICENSES.txt"].data), "stdlib go1") {
				t.Error("the license of the standard library is missing")
			}
		})
	}
}

func checkConfig(t *testing.T, image v1.Image, annotations map[string]string, want v1.Config) {
	t.Helper()
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(annotations, manifest.Annotations); diff != "" {
		t.Errorf("annotations of the image: -want +got\n%s", diff)
	}
	if manifest.MediaType != types.OCIManifestSchema1 || manifest.Config.MediaType != types.OCIConfigJSON ||
		manifest.Layers[0].MediaType != types.OCILayer {
		t.Errorf("the types of the image are not those of OCI: %+v", manifest)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration: -want +got\n%s", diff)
	}
	if config.OS+"/"+config.Architecture != testPlatform || !config.Created.Equal(testCreated) {
		t.Errorf("the image is for %s/%s, created at %s", config.OS, config.Architecture, config.Created)
	}
}

// checkStatic expects a program that needs no other file: the image has none.
func checkStatic(t *testing.T, binary []byte) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range file.Progs {
		if header.Type == elf.PT_INTERP {
			t.Error("the program needs a dynamic linker")
		}
	}
}
