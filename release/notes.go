// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/everynode/everynode/release/chart"
)

// writeNotes writes the text of the release: what has changed, how to install it, and its images.
func writeNotes(o *Options, refs references) error {
	changelog, err := os.ReadFile(filepath.Join(o.Root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	changes, err := changesOf(string(changelog), o.Version)
	if err != nil {
		return err
	}
	notes := fmt.Sprintf(`## Install

`+"```sh\nkubectl apply -f %s\n```"+`

Before Kubernetes 1.36, apply [%s](%s) instead.

With [Helm](%s):

`+"```sh\nhelm install everynode oci://%s/%s/%s --version %s --namespace everynode-system --create-namespace\n```"+`

Images:

- `+"`%s`\n- `%s`\n- `%s`\n- `%s`"+`

%s
`, downloadURL(o.Version, InstallFile), InstallNoGatesFile, downloadURL(o.Version, InstallNoGatesFile),
		Repository+"/blob/"+o.Version+"/docs/install.md", o.Registry, chartsPath, chart.Name, chart.Version(o.Version), refs.manager, refs.runner, refs.archiveRunner, refs.dashboard, changes)
	return os.WriteFile(filepath.Join(o.Dir, NotesFile), []byte(notes), 0o644)
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
