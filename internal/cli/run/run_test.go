// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import "testing"

func TestACommandIsShownWithShellQuoting(t *testing.T) {
	for want, argv := range map[string][]string{
		"uname -r":                      {"uname", "-r"},
		`echo '' 'a  b' '$x' 'it'\''s'`: {"echo", "", "a  b", "$x", "it's"},
		"a --b=c/d.e:f,g@h%i_j+k":       {"a", "--b=c/d.e:f,g@h%i_j+k"},
		"'ü'":                           {"ü"},
	} {
		if got := quoted(argv); got != want {
			t.Errorf("%q is shown as %s, want %s", argv, got, want)
		}
	}
}
