// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/everynode/everynode/release/chart"
)

//go:embed templates
var templates embed.FS

// render writes a file of the release from a template. The values are added to those that all templates have.
func (b *build) render(file, name string, values map[string]any) error {
	t, err := template.New(name).Option("missingkey=error").ParseFS(templates, "templates/"+name)
	if err != nil {
		return err
	}
	maps.Copy(values, map[string]any{"Repository": Repository, "Version": b.Version, "Downloads": downloads(b.Version)})
	var rendered bytes.Buffer
	if err := t.Execute(&rendered, values); err != nil {
		return err
	}
	return b.write(file, rendered.Bytes())
}

// downloads returns where the files of a release are published.
func downloads(version string) string { return Repository + "/releases/download/" + version + "/" }

// writeNotes writes the text of the release: what has changed, how to install it, and its images.
func (b *build) writeNotes() error {
	changelog, err := os.ReadFile(filepath.Join(b.Root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	changes, err := changesOf(string(changelog), b.Version)
	if err != nil {
		return err
	}
	return b.render(NotesFile, "release-notes.md", map[string]any{
		"Install": InstallFile, "InstallNoGates": InstallNoGatesFile, "Registry": b.Registry, "Chart": chartsPath + "/" + chart.Name,
		"ChartVersion": chart.Version(b.Version), "Images": b.references, "Changes": changes,
	})
}

var (
	relativeLink = regexp.MustCompile(`\]\(([^):#][^):]*)\)`)
	emptyLines   = regexp.MustCompile(`\n{3,}`)
)

// changesOf returns the section of a version in the changelog, or else of what is not released yet. Links lead to the
// files of this version.
func changesOf(changelog, version string) (string, error) {
	bare := strings.TrimPrefix(version, "v")
	for _, title := range []string{bare, version, "Unreleased"} {
		section, found := sectionOf(changelog, title)
		if !found {
			continue
		}
		if section == "" {
			return "", fmt.Errorf("the section %s of CHANGELOG.md is empty: describe the changes", title)
		}
		section = relativeLink.ReplaceAllString(section, "]("+Repository+"/blob/"+version+"/$1)")
		return emptyLines.ReplaceAllString(section, "\n\n"), nil
	}
	return "", errors.New("CHANGELOG.md has no section " + bare + " and no section Unreleased: add one")
}

// sectionOf returns what is below a heading such as "## [0.1.0] - 2026-01-31", up to the next one.
func sectionOf(changelog, title string) (section string, found bool) {
	heading := regexp.MustCompile(`(?m)^## \[?` + regexp.QuoteMeta(title) + `\]?( .*)?$`)
	at := heading.FindStringIndex(changelog)
	if at == nil {
		return "", false
	}
	section, _, _ = strings.Cut(changelog[at[1]:], "\n## ")
	return strings.TrimSpace(section), true
}
