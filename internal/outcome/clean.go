// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis marks where text was truncated. It is not valid in labels, so a truncated value cannot become a label by
// accident.
const ellipsis = "…"

// Clean makes text from a node safe to store and to print: valid UTF-8 in which every character is visible. Control
// characters (ESC, C1, DEL), bidi overrides, zero-width characters, byte order marks and bytes that are not UTF-8
// appear as \x1b, \u202e or \U000e0041. Newlines and tabs are kept, CRLF becomes a newline. The escapes are for people:
// a backslash itself is not escaped, so the original cannot be reconstructed.
//
// Text longer than max bytes loses its beginning, because errors are usually at the end of an output, and starts with
// "…". A character or an escape is never split. The cost is linear in max, not in len(s). Cleaning clean text changes
// nothing.
func Clean(s string, max int) string {
	if len(s) <= max && isPlain(s) {
		return s
	}
	fits, withEllipsis := len(s), len(s) // start of the longest tail, without and with the mark
	for size := 0; fits > 0; {
		width, length := lastToken(s[:fits])
		if size += length; size > max {
			return cleanTail(s, withEllipsis, fits, max)
		}
		fits -= width
		if size+len(ellipsis) <= max {
			withEllipsis = fits
		}
	}
	return escape(s)
}

// isPlain reports whether all bytes are visible ASCII characters, as in most texts. Cleaning them would only copy them.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// cleanTail renders the end of a text that did not fit.
func cleanTail(s string, withEllipsis, fits, max int) string {
	if max < len(ellipsis) {
		return escape(s[fits:])
	}
	return ellipsis + escape(s[withEllipsis:])
}

// lastToken returns the width in s of its last character and the length of what Clean makes of it.
func lastToken(s string) (width, length int) {
	if strings.HasSuffix(s, "\r\n") {
		return 2, 1
	}
	r, width := utf8.DecodeLastRuneInString(s)
	return width, len(escapeMultiline(r, s[len(s)-width:]))
}

// cleanValue is Clean for a result: one line, and truncated at the end, because the beginning of a value identifies it.
func cleanValue(s string) (value string, cut bool) { return cutValue(s, MaxValueBytes) }

// CleanLine is Clean for one line that is not truncated: a newline appears as \n, a tab as \t. Cleaning a clean line
// changes nothing.
func CleanLine(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !shows(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, width := utf8.DecodeRuneInString(s)
		b.WriteString(escapeLine(r, s[:width]))
		s = s[width:]
	}
	return b.String()
}

func cutValue(s string, max int) (value string, cut bool) {
	var b strings.Builder
	withEllipsis := 0
	for len(s) > 0 {
		r, width := utf8.DecodeRuneInString(s)
		b.WriteString(escapeLine(r, s[:width]))
		s = s[width:]
		if b.Len() > max {
			return b.String()[:withEllipsis] + ellipsis, true
		}
		if b.Len()+len(ellipsis) <= max {
			withEllipsis = b.Len()
		}
	}
	return b.String(), false
}

func escape(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for len(s) > 0 {
		r, width := utf8.DecodeRuneInString(s)
		if strings.HasPrefix(s, "\r\n") {
			s = s[1:]
			continue
		}
		b.WriteString(escapeMultiline(r, s[:width]))
		s = s[width:]
	}
	return b.String()
}

func escapeMultiline(r rune, text string) string {
	if r == '\n' || r == '\t' {
		return text
	}
	return escapeLine(r, text)
}

// escapeLine returns the character r, whose bytes are text, or its escape.
func escapeLine(r rune, text string) string {
	switch {
	case r == utf8.RuneError && len(text) == 1: // not UTF-8: the byte itself
		return fmt.Sprintf(`\x%02x`, text[0])
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case shows(r):
		return text
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// shows reports whether a character is visible. It uses an allowlist (letters, marks, numbers, punctuation, symbols,
// spaces), so that new invisible characters of Unicode are escaped too. Two kinds are in these classes although they
// are invisible: fillers, and variation selectors. Of the latter, only the two that common emoji use are allowed.
func shows(r rune) bool {
	if r < utf8.RuneSelf {
		return ' ' <= r && r < 0x7f
	}
	if r == 0xfe0e || r == 0xfe0f {
		return true
	}
	return unicode.IsGraphic(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// CleanHead cleans text of another component and keeps its beginning: messages of the API server and of a kubelet start
// with what is wrong, and then say where. Clean keeps the end, which is right for the output of a task.
func CleanHead(s string, n int) string {
	// An escape needs at most four times the space of the character.
	return head(Clean(head(s, n), 4*n), n)
}

// head returns the beginning of a text.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}
