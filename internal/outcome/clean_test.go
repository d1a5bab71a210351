// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	tests := map[string]struct {
		in   string
		max  int
		want string
	}{
		"plain text stays as it is":                          {"naïve 日本 ok", 100, "naïve 日本 ok"},
		"newlines and tabs stay":                             {"a\n\tb\n", 100, "a\n\tb\n"},
		"CRLF becomes a newline":                             {"a\r\nb", 100, "a\nb"},
		"a lone carriage return cannot overwrite its line":   {"50%\r100%", 100, `50%\x0d100%`},
		"an escape sequence shows":                           {"\x1b[31mred", 100, `\x1b[31mred`},
		"NUL and DEL show":                                   {"a\x00b\x7f", 100, `a\x00b\x7f`},
		"DEL shows":                                          {"a\x7f", 100, `a\x7f`},
		"the first C1 control shows":                         {"\u0080", 100, `\u0080`},
		"a character that is none shows":                     {"\uffff", 100, `\uffff`},
		"a symbol with its selector for text stays":          {"☎\ufe0e", 100, "☎\ufe0e"},
		"CRLF has the length of a newline":                   {"a\r\nb", 3, "a\nb"},
		"a length that has room only for the mark":           {"0123", 3, "…"},
		"a C1 control in UTF-8 shows":                        {"a\u009b31m", 100, `a\u009b31m`},
		"bytes that are not UTF-8 show":                      {"a\xff\xe2\x82", 100, `a\xff\xe2\x82`},
		"a bidi override shows":                              {"a\u202eb", 100, `a\u202eb`},
		"bidi isolates show":                                 {"\u2066a\u2069", 100, `\u2066a\u2069`},
		"zero-width characters and byte order marks show":    {"a\u200bb\u200dc\ufeff", 100, `a\u200bb\u200dc\ufeff`},
		"tag characters that hide text show":                 {"a\U000e0041", 100, `a\U000e0041`},
		"fillers and odd variation selectors show":           {"\u3164\u034f\U000e0100", 100, `\u3164\u034f\U000e0100`},
		"emoji with its ordinary selector stays":             {"⚠️ disk", 100, "⚠️ disk"},
		"line and paragraph separators show":                 {"a\u2028b\u2029", 100, `a\u2028b\u2029`},
		"a replacement character that was there stays":       {"a\ufffd", 100, "a\ufffd"},
		"a long text keeps its end":                          {"0123456789", 8, "…56789"},
		"a text of exactly the length stays whole":           {"0123456789", 10, "0123456789"},
		"the cut does not split a character":                 {"ééééé", 8, "…éé"},
		"the cut does not split an escape":                   {"\x1b\x1b\x1b", 10, `…\x1b`},
		"a length without room for the mark still keeps end": {"0123", 2, "23"},
		"no room gives nothing":                              {"0123", 0, ""},
		"a negative length gives nothing":                    {"0123", -1, ""},
		"nothing stays nothing":                              {"", 10, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Clean(tt.in, tt.max); got != tt.want {
				t.Errorf("Clean(%q, %d) = %q, want %q", tt.in, tt.max, got, tt.want)
			}
		})
	}
}

func TestCleanLine(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "naïve 日本 ok": "naïve 日本 ok", "a\ufffd": "a\ufffd", "a\tb\r\nc": `a\tb\x0d\nc`, "\x1b[2J": `\x1b[2J`, "a\xff": `a\xff`, "\u202e": `\u202e`,
	} {
		if got := CleanLine(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestCostOfCleanIsBounded(t *testing.T) {
	huge := strings.Repeat("\x1b\xff\u202e", 1<<20)
	start := time.Now()
	for range 1000 {
		Clean(huge, 1024)
	}
	// 1,000 calls over 7 MB each: a minute if the whole text were read, milliseconds if its end is.
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("1000 calls took %v", took)
	}
}

// checkClean asserts the properties of every cleaned text.
func checkClean(t *testing.T, what, s string, max int, lines bool) {
	t.Helper()
	if len(s) > max {
		t.Errorf("%s has %d bytes, more than %d", what, len(s), max)
	}
	if !utf8.ValidString(s) {
		t.Errorf("%s is not UTF-8: %q", what, s)
	}
	for _, r := range s {
		if !shows(r) && !(lines && (r == '\n' || r == '\t')) {
			t.Errorf("%s contains %U: %q", what, r, s)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "ok\n", "\r\r\n", "\x1b[2J\u202e", "\xff\xfe\xe2\x82", strings.Repeat("é\n", 20), "\U000e0041\ufeff"} {
		for _, max := range []int{0, 2, 3, 10, 1024} {
			f.Add(s, max)
		}
	}
	f.Fuzz(func(t *testing.T, s string, max int) {
		max %= 4096
		got := Clean(s, max)
		checkClean(t, "the text", got, atLeast0(max), true)
		if again := Clean(got, max); again != got {
			t.Errorf("Clean(Clean(%q)) = %q, want %q", s, again, got)
		}
		if whole := Clean(s, 10*len(s)+1); len(whole) <= max && got != whole {
			t.Errorf("Clean(%q, %d) = %q was cut, want %q", s, max, got, whole)
		}
		value, _ := cleanValue(s)
		checkClean(t, "the value", value, MaxValueBytes, false)
		if again, cut := cleanValue(value); again != value || cut {
			t.Errorf("cleanValue(%q) = %q, want no change", value, again)
		}
	})
}

func atLeast0(n int) int { return max(n, 0) }

func TestCleanHead(t *testing.T) {
	tests := map[string]struct {
		text string
		n    int
		want string
	}{
		"a text that fits is unchanged":         {"abc", 3, "abc"},
		"a text that does not fit is truncated": {"abcdefgh", 6, "abc..."},
		"no character is cut in two":            {"abä234", 6, "ab..."},
		"nothing is nothing":                    {"", 6, ""},
		"a text with characters of four bytes":  {"😀😀😀", 8, "😀..."},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := CleanHead(tt.text, tt.n); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
