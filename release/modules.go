// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// standardLibrary is the name of the standard library among the modules.
const standardLibrary = "stdlib"

// allowedLicenses are the licenses of modules that may be linked into a program, as SPDX identifiers. They allow
// distribution under the Apache License 2.0, if their texts are distributed too.
var allowedLicenses = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// module is a module that is linked into a program.
type module struct {
	path, version string
	licenses      []string          // SPDX identifiers
	texts         map[string]string // licenses and notices: path within the module to content
}

// modules collects the modules of a program.
type modules struct {
	found map[string]*module
}

func newModules() *modules { return &modules{found: map[string]*module{}} }

// listed is a package as go list prints it.
type listed struct {
	Dir      string
	Standard bool
	Module   *struct{ Path, Version, Dir string }
}

// add adds the modules of a binary, with the license files of the packages that are linked.
func (m *modules) add(ctx context.Context, o *Options, name string, platform Platform, info *debug.BuildInfo) error {
	for _, dep := range info.Deps {
		if own(dep.Path) {
			continue
		}
		if dep.Replace != nil {
			return fmt.Errorf("the module %s is replaced by %s: a release has only the modules of go.mod", dep.Path, dep.Replace.Path)
		}
		m.module(dep.Path, dep.Version)
	}
	goroot, err := run(ctx, o.Root, platform, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	root := strings.TrimSpace(string(goroot))
	if err := m.module(standardLibrary, info.GoVersion).readTexts(root, root); err != nil {
		return err
	}
	return m.addTexts(ctx, o, name, platform)
}

// addTexts adds the licenses and notices of all packages of a program.
func (m *modules) addTexts(ctx context.Context, o *Options, name string, platform Platform) error {
	out, err := run(ctx, o.Root, platform, "go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/"+name)
	if err != nil {
		return err
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the packages: %w", err)
		case p.Standard || own(p.Module.Path):
			continue
		}
		if err := m.module(p.Module.Path, p.Module.Version).readTexts(p.Module.Dir, p.Dir); err != nil {
			return err
		}
	}
}

// own reports whether a module is in this repository, under its license.
func own(path string) bool { return path == modulePath || strings.HasPrefix(path, modulePath+"/") }

func (m *modules) module(path, version string) *module {
	if m.found[path] == nil {
		m.found[path] = &module{path: path, version: version, texts: map[string]string{}}
	}
	return m.found[path]
}

// sorted returns the modules if all of their licenses are allowed.
func (m *modules) sorted() ([]*module, error) {
	all := slices.SortedFunc(maps.Values(m.found), func(a, b *module) int { return cmp.Compare(a.path, b.path) })
	var problems []error
	for _, module := range all {
		problems = append(problems, module.classify())
	}
	return all, errors.Join(problems...)
}

var (
	textName    = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)
	licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)
)

// readTexts reads the licenses and notices of a package: those in its folder, and in all folders above it in its module.
func (m *module) readTexts(root, dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if entry.IsDir() || !textName.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
				continue
			}
			file := filepath.Join(dir, entry.Name())
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			m.texts[filepath.ToSlash(relative)] = strings.TrimSpace(strings.ReplaceAll(string(content), "\r\n", "\n"))
		}
		if dir == root || len(dir) < len(root) {
			return nil
		}
	}
}

// leastCoverage is the part of a license file, in percent, that must be the text of known licenses. The rest is copyright
// lines and the like.
const leastCoverage = 75

// classify determines the licenses of a module, and returns an error if one of them is unknown or not allowed.
func (m *module) classify() error {
	found := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(m.texts)) {
		if !licenseName.MatchString(filepath.Base(name)) {
			continue
		}
		coverage := licensecheck.Scan([]byte(m.texts[name]))
		if coverage.Percent < leastCoverage {
			return fmt.Errorf("%s %s: only %.0f%% of %s is the text of a known license: read it, and do not link the module if it is another license",
				m.path, m.version, coverage.Percent, name)
		}
		for _, match := range coverage.Match {
			if !slices.Contains(allowedLicenses, match.ID) {
				return fmt.Errorf("%s %s: the license %s in %s is not allowed (allowed: %s)",
					m.path, m.version, match.ID, name, strings.Join(allowedLicenses, ", "))
			}
			found[match.ID] = true
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("%s %s: the module has no license file", m.path, m.version)
	}
	m.licenses = slices.Sorted(maps.Keys(found))
	return nil
}

// notices returns the licenses and notices of all modules of a program. Equal texts appear once.
func notices(p *program) []byte {
	users := map[string][]string{} // by text
	var order []string
	for _, module := range p.modules {
		for _, name := range slices.Sorted(maps.Keys(module.texts)) {
			text := module.texts[name]
			if users[text] == nil {
				order = append(order, text)
			}
			users[text] = append(users[text], fmt.Sprintf("%s %s (%s)", module.path, module.version, name))
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s contains the following third-party software.\n", p.name)
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n\n", strings.Repeat("=", 80))
		for _, user := range users[text] {
			fmt.Fprintf(&b, "%s\n", user)
		}
		fmt.Fprintf(&b, "\n%s\n\n%s\n", strings.Repeat("-", 80), text)
	}
	return b.Bytes()
}
