// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plural writes counts of things as English text.
package plural

import "strconv"

// Count returns the number with its noun, such as "1 node" or "2 nodes". The plural of the noun is the noun with an s.
func Count[N ~int | ~int32](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(int(n)) + " " + noun
}

// CountAre returns the number with its noun and verb, such as "1 node is" or "2 nodes are".
func CountAre[N ~int | ~int32](n N, noun string) string {
	if n == 1 {
		return Count(n, noun) + " is"
	}
	return Count(n, noun) + " are"
}
