// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSimilarNamesComeFirst(t *testing.T) {
	got := Nearest("max-map", []string{"zeta", "sysctl", "max-map-count", "map"})
	if diff := cmp.Diff([]string{"max-map-count", "map", "sysctl", "zeta"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestACommandIsShownWithShellQuoting(t *testing.T) {
	for want, argv := range map[string][]string{
		"uname -r":                      {"uname", "-r"},
		`echo '' 'a  b' '$x' 'it'\''s'`: {"echo", "", "a  b", "$x", "it's"},
		"a --b=c/d.e:f,g@h%i_j+k":       {"a", "--b=c/d.e:f,g@h%i_j+k"},
		"'ü'":                           {"ü"},
	} {
		if got := ShellQuoted(argv); got != want {
			t.Errorf("%q is shown as %s, want %s", argv, got, want)
		}
	}
}
