// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plantest

import "testing"

func TestDiff(t *testing.T) {
	for name, tt := range map[string]struct{ want, got, diff string }{
		"equal texts":     {"a\nb\n", "a\nb\n", ""},
		"a changed line":  {"a\nb\nc\n", "a\nx\nc\n", "  a\n- b\n+ x\n"},
		"an added line":   {"a\nb\n", "a\nx\nb\n", "  a\n+ x\n"},
		"a removed line":  {"a\nb\nc\n", "b\nc\n", "- a\n"},
		"a missing file":  {"", "a\n", "+ a\n"},
		"two groups":      {"a\nb\nc\nd\n", "x\nb\nc\ny\n", "- a\n+ x\n  c\n- d\n+ y\n"},
		"no line feed":    {"a\n", "a", "  a\n- \n"},
		"different order": {"a\nb\n", "b\na\n", "- a\n  b\n+ a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := Diff(tt.want, tt.got); diff != tt.diff {
				t.Errorf("got\n%s\nwant\n%s", diff, tt.diff)
			}
		})
	}
}
