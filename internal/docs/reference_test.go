// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheReferenceBeginsWithTheKinds checks what the templates of crd-ref-docs are for: other types follow the kinds, and fields that are
// optional have no remark.
func TestTheReferenceBeginsWithTheKinds(t *testing.T) {
	content, err := os.ReadFile("../../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	reference := string(content)
	want := []string{"## Kinds", "### NodeJob", "### NodeGuard", "### NodeDisruptionBudget", "## Other types"}
	if got := regexp.MustCompile(`(?m)^###? .*$`).FindAllString(reference, len(want)); !slices.Equal(got, want) {
		t.Errorf("the first headings are %q, want %q", got, want)
	}
	intro, _, _ := strings.Cut(reference, "\n\n| ")
	for _, kind := range []string{"NodeJob", "NodeGuard", "NodeDisruptionBudget"} {
		if !strings.Contains(intro, kind) {
			t.Errorf("the first sentence does not name %s: %s", kind, intro)
		}
	}
	for _, noise := range []string{"Optional:", `\{\}`} {
		if strings.Contains(reference, noise) {
			t.Errorf("the reference contains %q", noise)
		}
	}
}
