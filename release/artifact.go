// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"
)

// artifact is an image or the plugin: programs for some platforms.
type artifact struct {
	name      string
	programs  []string // in cmd; an image starts the first one, which starts the others
	platforms []string

	title, description, user string // of an image

	modules []*module // that are linked into the programs on any of the platforms, sorted by path
}

// packages are the packages of the programs.
func (a *artifact) packages() []string {
	var found []string
	for _, program := range a.programs {
		found = append(found, "./cmd/"+program)
	}
	return found
}

// compile compiles the programs of all artifacts, collects what is linked into them, and writes the SBOMs.
func (b *build) compile(ctx context.Context) error {
	artifacts := append(slices.Clone(b.images), b.plugin)
	for _, platform := range b.Platforms {
		// The version control information in a binary depends on the tags of the checkout, so it is left out. Debug information is
		// not linked, so it is not compiled either, as in the Makefile.
		args := []string{
			"build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-dwarf=false",
			"-ldflags=-s -w -X " + modulePath + "/internal/version.version=" + b.Version, "-o", filepath.Join(b.work, platform) + "/",
		}
		for _, a := range artifacts {
			if slices.Contains(a.platforms, platform) {
				args = append(args, a.packages()...)
			}
		}
		if _, err := runGo(ctx, b.Root, platform, args...); err != nil {
			return err
		}
	}
	for _, a := range artifacts {
		var err error
		if a.modules, err = linkedModules(ctx, b.Root, a); err != nil {
			return fmt.Errorf("reading what is linked into %s: %w", a.name, err)
		}
		if err := b.writeSBOM(a); err != nil {
			return err
		}
	}
	return nil
}

// runGo executes go for a platform, and returns its output. Settings of the machine that change binaries have no effect.
func runGo(ctx context.Context, dir, platform string, args ...string) ([]byte, error) {
	goos, arch, _ := strings.Cut(platform, "/")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-buildvcs=false",
		"GOWORK=off", "GOFIPS140=off")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running go %s: %w\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return out, nil
}

// contents returns the programs of an artifact for a platform, and their licenses, which are in a folder.
func (b *build) contents(a *artifact, platform, licenses string) (fstest.MapFS, error) {
	license, err := os.ReadFile(filepath.Join(b.Root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files := fstest.MapFS{}
	b.add(files, path.Join(licenses, "LICENSE"), 0o644, license)
	b.add(files, path.Join(licenses, "THIRD-PARTY-LICENSES.txt"), 0o644, a.notices())
	for _, program := range a.programs {
		if strings.HasPrefix(platform, "windows/") {
			program += ".exe"
		}
		binary, err := os.ReadFile(filepath.Join(b.work, platform, program))
		if err != nil {
			return nil, err
		}
		b.add(files, program, 0o755, binary)
	}
	return files, nil
}

// add adds a file, and the folders of its path. In archives, their owner is root.
func (b *build) add(files fstest.MapFS, name string, mode fs.FileMode, content []byte) {
	files[name] = &fstest.MapFile{Data: content, Mode: mode, ModTime: b.Created}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		files[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, ModTime: b.Created}
	}
}

func writeTar(w io.Writer, files fs.FS) error {
	archive := tar.NewWriter(w)
	return errors.Join(archive.AddFS(files), archive.Close())
}
