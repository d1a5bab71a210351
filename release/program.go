// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// program is one of the programs in cmd, built for its platforms.
type program struct {
	name      string
	sbom      string
	platforms []Platform
	// helper is a second program in the same image, which the first one starts; "" for none.
	helper string

	files     map[Platform]string
	helpers   map[Platform]string // files of the helper
	goVersion string
	modules   []*module // that are linked on any of the platforms, sorted by path
	license   []byte    // of Everynode
}

// build compiles the program, collects what is linked into it, and writes the SBOM.
func (p *program) build(ctx context.Context, o *Options, dir string) error {
	p.files, p.helpers = map[Platform]string{}, map[Platform]string{}
	found := newModules()
	for _, platform := range p.platforms {
		var err error
		if p.files[platform], err = p.compile(ctx, o, dir, p.name, platform, found); err != nil {
			return err
		}
		if p.helper == "" {
			continue
		}
		if p.helpers[platform], err = p.compile(ctx, o, dir, p.helper, platform, found); err != nil {
			return err
		}
	}
	var err error
	if p.modules, err = found.sorted(); err != nil {
		return err
	}
	if p.license, err = os.ReadFile(filepath.Join(o.Root, "LICENSE")); err != nil {
		return err
	}
	return writeSBOM(o, p)
}

// compile compiles a program, adds what is linked into it, and returns its file.
func (p *program) compile(ctx context.Context, o *Options, dir, name string, platform Platform, found *modules) (string, error) {
	file := filepath.Join(dir, platform.OS+"-"+platform.Arch, name)
	if platform.OS == "windows" {
		file += ".exe"
	}
	// The version control information in a binary depends on the tags of the checkout, so it is left out. Debug information is
	// not linked, so it is not compiled either, as in the Makefile.
	if _, err := run(ctx, o.Root, platform, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-dwarf=false",
		"-ldflags=-s -w -X "+modulePath+"/internal/version.version="+o.Version, "-o", file, "./cmd/"+name); err != nil {
		return "", err
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading what is linked into %s: %w", file, err)
	}
	p.goVersion = info.GoVersion
	return file, found.add(ctx, o, name, platform, info)
}

// run executes a command for a platform, and returns its output. Settings of the machine that change binaries have no
// effect.
func run(ctx context.Context, dir string, platform Platform, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = slices.Concat(os.Environ(), []string{
		"GOOS=" + platform.OS, "GOARCH=" + platform.Arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-buildvcs=false",
		"GOWORK=off", "GOFIPS140=off",
	})
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("running %s %s: %w\n%s", name, strings.Join(args, " "), err, errs.Bytes())
	}
	return out.Bytes(), nil
}
