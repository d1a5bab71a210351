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
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// standardLibrary is the name of the standard library among the modules.
const standardLibrary = "stdlib"

// allowedLicenses are the licenses of modules that may be linked into a program, as SPDX identifiers. They allow
// distribution under the Apache License 2.0, if their texts are distributed too.
var allowedLicenses = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// documentationLicenses are licenses that a module names for its documentation, which is not linked, by the path of the module.
var documentationLicenses = map[string]string{"github.com/modelcontextprotocol/go-sdk": "CC-BY-4.0"}

// module is a module that is linked into a program.
type module struct {
	path, version string
	licenses      []string          // SPDX identifiers
	texts         map[string]string // licenses and notices: path within the module to content
}

// listed is a package as go list prints it.
type listed struct {
	Dir    string
	Module *struct {
		Path, Version, Dir string
		Replace            *struct{ Path string }
	}
}

// linkedModules returns the modules that are linked into an artifact on any of its platforms, sorted by path, if all of their licenses
// are allowed.
func linkedModules(ctx context.Context, root string, a *artifact) ([]*module, error) {
	found := map[string]*module{}
	for _, platform := range a.platforms {
		out, err := runGo(ctx, root, platform, append([]string{"list", "-deps", "-json=Dir,Module"}, a.packages()...)...)
		if err != nil {
			return nil, err
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
			var p listed
			if err := decoder.Decode(&p); err != nil {
				return nil, fmt.Errorf("reading the packages: %w", err)
			}
			if err := p.addTo(found); err != nil {
				return nil, err
			}
		}
	}
	out, err := runGo(ctx, root, a.platforms[0], "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	standard := &module{path: standardLibrary, version: version, texts: map[string]string{}}
	if err := standard.readTexts(os.DirFS(goroot), "."); err != nil {
		return nil, err
	}
	found[standardLibrary] = standard
	return allowed(found)
}

// addTo adds the module of a package, with the licenses and notices for the package.
func (p *listed) addTo(found map[string]*module) error {
	m := p.Module // none in the standard library
	if m == nil || m.Path == modulePath || strings.HasPrefix(m.Path, modulePath+"/") {
		return nil
	}
	if m.Replace != nil {
		return fmt.Errorf("the module %s is replaced by %s: a release has only the modules of go.mod", m.Path, m.Replace.Path)
	}
	if found[m.Path] == nil {
		found[m.Path] = &module{path: m.Path, version: m.Version, texts: map[string]string{}}
	}
	dir, err := filepath.Rel(m.Dir, p.Dir)
	if err != nil {
		return err
	}
	return found[m.Path].readTexts(os.DirFS(m.Dir), filepath.ToSlash(dir))
}

// allowed returns the modules, sorted by path, if all of their licenses are allowed.
func allowed(found map[string]*module) ([]*module, error) {
	all := slices.SortedFunc(maps.Values(found), func(a, b *module) int { return cmp.Compare(a.path, b.path) })
	var problems []error
	for _, m := range all {
		if err := m.classify(); err != nil {
			problems = append(problems, fmt.Errorf("%s %s: %w", m.path, m.version, err))
		}
	}
	return all, errors.Join(problems...)
}

var (
	textName    = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)
	licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
)

// readTexts reads the licenses and notices in a folder of the module, and in all folders above it.
func (m *module) readTexts(root fs.FS, dir string) error {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() || !textName.MatchString(entry.Name()) || path.Ext(entry.Name()) == ".go" {
			continue
		}
		name := path.Join(dir, entry.Name())
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		m.texts[name] = strings.TrimSpace(strings.ReplaceAll(string(content), "\r\n", "\n"))
	}
	if dir == "." {
		return nil
	}
	return m.readTexts(root, path.Dir(dir))
}

// leastCoverage is the part of a license file, in percent, that must be the text of known licenses. The rest is copyright
// lines and the like.
const leastCoverage = 75

// classify determines the licenses of a module, and returns an error if one of them is unknown or not allowed.
func (m *module) classify() error {
	found := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(m.texts)) {
		if !licenseName.MatchString(path.Base(name)) {
			continue
		}
		coverage := licensecheck.Scan([]byte(m.texts[name]))
		if coverage.Percent < leastCoverage {
			return fmt.Errorf("only %.0f%% of %s is the text of a known license: read it, and do not link the module if it is another license",
				coverage.Percent, name)
		}
		for _, match := range coverage.Match {
			if documentationLicenses[m.path] == match.ID {
				continue
			}
			if !slices.Contains(allowedLicenses, match.ID) {
				return fmt.Errorf("the license %s in %s is not allowed (allowed: %s)", match.ID, name, strings.Join(allowedLicenses, ", "))
			}
			found[match.ID] = true
		}
	}
	if len(found) == 0 {
		return errors.New("the module has no license file")
	}
	m.licenses = slices.Sorted(maps.Keys(found))
	return nil
}

// notices returns the licenses and notices of all modules of an artifact. Equal texts appear once.
func (a *artifact) notices() []byte {
	users := map[string]string{} // by text
	var order []string
	for _, m := range a.modules {
		for _, name := range slices.Sorted(maps.Keys(m.texts)) {
			text := m.texts[name]
			if users[text] == "" {
				order = append(order, text)
			}
			users[text] += fmt.Sprintf("%s %s (%s)\n", m.path, m.version, name)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s contains the following third-party software.\n", a.programs[0])
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), users[text], strings.Repeat("-", 80), text)
	}
	return b.Bytes()
}
