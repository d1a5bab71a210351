// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/everynode/everynode/local/image"
)

func program(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "runner")
	if err := os.WriteFile(file, []byte("a static program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAnImageHoldsItsProgramAndFiles(t *testing.T) {
	options := image.Options{
		Path: "/usr/bin/runner", Args: []string{"run"}, User: "65532", Files: map[string][]byte{"/etc/motd": []byte("hello")},
	}
	img, err := image.FromBinary(program(t), options)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config; !slices.Equal(got.Entrypoint, []string{"/usr/bin/runner"}) || !slices.Equal(got.Cmd, []string{"run"}) ||
		got.User != "65532" {
		t.Errorf("the configuration is %+v", got)
	}
	modes := map[string]int64{}
	var order []string
	reader := tar.NewReader(mutate.Extract(img))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[filepath.Clean(header.Name)] = header.Mode
		order = append(order, filepath.Clean(header.Name))
	}
	for path, want := range map[string]int64{"usr/bin/runner": 0o755, "etc/motd": 0o644, "etc": 0o755, "tmp": 0o1777} {
		if modes[path] != want {
			t.Errorf("%s has mode %o, want %o", path, modes[path], want)
		}
	}
	if slices.Index(order, "usr") > slices.Index(order, "usr/bin") ||
		slices.Index(order, "usr/bin") > slices.Index(order, "usr/bin/runner") {
		t.Errorf("a file comes before its folder: %v", order)
	}
}

func TestTheSameProgramGivesTheSameDigest(t *testing.T) {
	file := program(t)
	var digests []string
	for range 2 {
		img, err := image.FromBinary(file, image.Options{})
		if err != nil {
			t.Fatal(err)
		}
		digest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("digests differ: %v", digests)
	}
}

func TestAnArchiveIsFoundUnderItsReference(t *testing.T) {
	img, err := image.FromBinary(program(t), image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const reference = "registry.local/everynode/runner:dev"
	archive := filepath.Join(t.TempDir(), "runner.tar")
	if err := image.WriteTar(archive, reference, img); err != nil {
		t.Fatal(err)
	}
	tag, err := image.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tarball.ImageFromPath(archive, &tag); err != nil {
		t.Error(err)
	}
}

func TestReferencesThatContainerdReadsAsDockerHub(t *testing.T) {
	for _, reference := range []string{"runner", "runner:dev", "everynode/runner:dev", "registry.local/everynode/runner", "Registry.local/X:y"} {
		if _, err := image.ParseReference(reference); err == nil {
			t.Errorf("%q was accepted", reference)
		}
	}
}
