// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJSONEscapesCharactersThatMoveTheCursor(t *testing.T) {
	tests := map[string]string{
		`{"a": "plain ä 漢"}` + "\n": `{"a": "plain ä 漢"}` + "\n",
		"{\"a\": \"\u009b2J\"}":     `{"a": "\u009b2J"}`,
		"{\"a\": \"\u202eexe\"}":    `{"a": "\u202eexe"}`,
		"{\"a\": \"\U000e0041\"}":   `{"a": "\udb40\udc41"}`,
		"{\n  \"a\": \"\x7f\"}":     "{\n  \"a\": \"" + `\u007f` + "\"}",
	}
	for in, want := range tests {
		if diff := cmp.Diff(want, EscapeJSON(in)); diff != "" {
			t.Errorf("%q: -want +got\n%s", in, diff)
		}
	}
}
