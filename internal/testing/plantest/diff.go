// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plantest

import "strings"

// Diff returns the lines that two texts do not share, with - and +, and a line without either before each group; "" if
// the texts are equal.
func Diff(want, got string) string {
	if want == got {
		return ""
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	shared := sharedLines(a, b)
	var text strings.Builder
	before, i, j := "", 0, 0
	for i < len(a) || j < len(b) {
		if i < len(a) && j < len(b) && a[i] == b[j] {
			before = "  " + a[i] + "\n"
			i, j = i+1, j+1
			continue
		}
		text.WriteString(before)
		before = ""
		if j == len(b) || (i < len(a) && shared[i+1][j] >= shared[i][j+1]) {
			text.WriteString("- " + a[i] + "\n")
			i++
		} else {
			text.WriteString("+ " + b[j] + "\n")
			j++
		}
	}
	return text.String()
}

// sharedLines returns how many lines a[i:] and b[j:] share at most, in the same order.
func sharedLines(a, b []string) [][]int {
	shared := make([][]int, len(a)+1)
	for i := len(a); i >= 0; i-- {
		shared[i] = make([]int, len(b)+1)
		for j := len(b) - 1; j >= 0 && i < len(a); j-- {
			shared[i][j] = max(shared[i+1][j], shared[i][j+1])
			if a[i] == b[j] {
				shared[i][j] = shared[i+1][j+1] + 1
			}
		}
	}
	return shared
}
