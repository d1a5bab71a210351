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

	files     map[Platform]string
	goVersion string
	modules   []*module // that are linked on any of the platforms, sorted by path
	license   []byte    // of Everynode
}

// build compiles the program, collects what is linked into it, and writes the SBOM.
func (p *program) build(ctx context.Context, o *Options, dir string) error {
	p.files = map[Platform]string{}
	found := newModules()
	for _, platform := range p.platforms {
		file := filepath.Join(dir, platform.OS+"-"+platform.Arch, p.name)
		if platform.OS == "windows" {
			file += ".exe"
		}
		// The version control information in a binary depends on the tags of the checkout, so it is left out. Debug information is
		// not linked, so it is not compiled either, as in the Makefile.
		if _, err := run(ctx, o.Root, platform, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-dwarf=false",
			"-ldflags=-s -w -X "+modulePath+"/internal/version.version="+o.Version, "-o", file, "./cmd/"+p.name); err != nil {
			return err
		}
		p.files[platform] = file
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading what is linked into %s: %w", file, err)
		}
		p.goVersion = info.GoVersion
		if err := found.add(ctx, o, p.name, platform, info); err != nil {
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
