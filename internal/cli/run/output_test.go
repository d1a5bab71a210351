// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOutputIsShownByLines(t *testing.T) {
	long := strings.Repeat("x", maxLineBytes+1)
	tests := map[string]struct{ pieces, want []string }{
		"lines in pieces":              {[]string{"a\nb", "c\n", "\n"}, []string{"a", "bc", ""}},
		"a last line without an end":   {[]string{"a\nb"}, []string{"a", "b"}},
		"a line without end is cut up": {[]string{long, "y\n"}, []string{long, "y"}},
		"nothing":                      {nil, nil},
		"a character in two pieces":    {[]string{"\xc3", "\xbc\n"}, []string{"ü"}},
		"cursor movement is escaped":   {[]string{"a\x1b[2A\rb\tc\u202ed\r\n"}, []string{`a\x1b[2A\x0db` + "\t" + `c\u202ed`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := newNodeOutput(0)
			var got []string
			for _, piece := range tt.pieces {
				for _, line := range o.add([]byte(piece)) {
					got = append(got, shown(line))
				}
			}
			for _, line := range o.flush() {
				got = append(got, shown(line))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestTheEndOfAnOutputIsRetained checks the size limit, the number of dropped bytes, and the hash of the whole output.
func TestTheEndOfAnOutputIsRetained(t *testing.T) {
	const room = 100
	keep := func(first string) (string, int64, string) {
		o := newNodeOutput(room)
		o.add([]byte(first))
		for range 1000 {
			o.add([]byte("0123456789\n"))
			if len(o.kept) > 3*room {
				t.Fatalf("%d bytes are kept", len(o.kept))
			}
		}
		return o.text()
	}
	end, cut, sum := keep("a\n")
	if len(end) > room || int64(len(end))+cut != 11002 || !strings.HasPrefix(end, "0123456789\n") {
		t.Errorf("%d bytes are kept, and %d cut: %q", len(end), cut, end)
	}
	if _, _, other := keep("b\n"); other == sum {
		t.Error("outputs that differ in the dropped part have the same hash")
	}
	if small, big := roomFor(3), roomFor(15000); small != maxOutputBytes || big != minOutputBytes || roomFor(1000)*1000 > maxOutputsBytes {
		t.Errorf("room for 3 nodes: %d, for 15,000: %d", small, big)
	}
}
