// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxNames limits the number of names in a message.
const MaxNames = 5

// JoinNames returns the first names, and how many more there are.
func JoinNames(names []string) string {
	if len(names) > MaxNames {
		return strings.Join(names[:MaxNames], ", ") + fmt.Sprintf(" and %d more", len(names)-MaxNames)
	}
	return strings.Join(names, ", ")
}

// ShellQuoted returns a command with shell quoting. The result is only displayed, and never executed.
func ShellQuoted(argv []string) string {
	words := make([]string, 0, len(argv))
	for _, arg := range argv {
		plain := arg != "" && !strings.ContainsFunc(arg, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("%+,-./:=@_", r))
		})
		if !plain {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// Nearest sorts the names in place, those that are most similar to the given one first.
func Nearest(name string, names []string) []string {
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(likeness(name, b), likeness(name, a)), cmp.Compare(a, b))
	})
	return names
}

// Similar returns the name that a mistyped one most likely stands for; "" if none is similar enough.
func Similar(mistyped string, names []string) string {
	if near := Nearest(mistyped, names); len(near) > 0 && 2*likeness(mistyped, near[0]) >= max(len(mistyped), len(near[0])) {
		return near[0]
	}
	return ""
}

// likeness returns how many characters two names have in common at their ends, with a bonus if one contains the other.
func likeness(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	m := 0
	for m < min(len(a), len(b))-n && a[len(a)-1-m] == b[len(b)-1-m] {
		m++
	}
	if strings.Contains(a, b) || strings.Contains(b, a) {
		n += 100
	}
	return n + m
}
