// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"slices"
	"strings"
)

// A shell script is not parsed completely. It is split into logical lines and commands, far enough to find commands that
// a NodeJob does not need. What is not understood stays as it is.

// line is a logical line: with its continuations, and with all lines of a quoted text.
type line struct {
	text string
	// raw lines are in a here-document, or are comments or blank.
	raw bool
}

var hereDocument = regexp.MustCompile(`<<-?\s*(['"]?)([A-Za-z_]\w*)(['"]?)`)

// logicalLines splits a script.
func logicalLines(script string) []line {
	var lines []line
	rest := physicalLines{strings.TrimSuffix(script, "\n"), false}
	for !rest.done {
		text := rest.next()
		if trimmed := strings.TrimSpace(text); trimmed == "" || strings.HasPrefix(trimmed, "#") {
			lines = append(lines, line{text, true})
			continue
		}
		text = rest.extend(text)
		lines = append(lines, line{text, false})
		if m := hereDocument.FindStringSubmatch(text); m != nil {
			for !rest.done {
				text := rest.next()
				lines = append(lines, line{text, true})
				if strings.TrimLeft(text, "\t") == m[2] {
					break
				}
			}
		}
	}
	return lines
}

// physicalLines are the lines that are not read yet.
type physicalLines struct {
	text string
	done bool
}

func (p *physicalLines) next() string {
	text, rest, found := strings.Cut(p.text, "\n")
	p.text, p.done = rest, !found
	return text
}

// extend adds lines to the first line of a command until it has no open quote, open parenthesis or continuation.
func (p *physicalLines) extend(first string) string {
	var b strings.Builder
	b.WriteString(first)
	s := scanner{}
	for i := 0; ; {
		text := b.String()
		for ; i < len(text); i++ {
			s.next(text, i)
		}
		if p.done || s.quote == 0 && s.depth == 0 && !strings.HasSuffix(text, "\\") {
			return text
		}
		b.WriteByte('\n')
		b.WriteString(p.next())
	}
}

func joinLines(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text)
		b.WriteByte('\n')
	}
	return b.String()
}

// scanner tracks quotes and command substitutions.
type scanner struct {
	quote   byte
	depth   int
	escaped bool
	comment bool
}

// next moves over a byte and reports whether it is outside of quotes and parentheses.
func (s *scanner) next(text string, i int) bool {
	switch c := text[i]; {
	case s.skips(c):
	case s.quote == c:
		s.quote = 0
	case s.quote != 0:
	case strings.IndexByte("'\"`", c) >= 0:
		s.quote = c
	case s.nest(text[:i], c):
	case c == '#' && s.depth == 0:
		s.comment = isAfter(text[:i], " \t;\n")
	default:
		return s.depth == 0
	}
	return false
}

// isAfter reports whether a text is empty or ends with one of some characters.
func isAfter(text, characters string) bool {
	return text == "" || strings.ContainsAny(text[len(text)-1:], characters)
}

// nest counts the parentheses of command substitutions, and reports whether the parenthesis is one of them.
func (s *scanner) nest(before string, c byte) bool {
	switch {
	case c == ')' && s.depth > 0:
		s.depth--
	case c == '(' && (s.depth > 0 || strings.HasSuffix(before, "$")):
		s.depth++
	default:
		return false
	}
	return true
}

// skips reports whether a byte has no meaning of its own: it is escaped or in a comment, or it ends or begins this.
func (s *scanner) skips(c byte) bool {
	switch {
	case c == '\n':
		s.comment, s.escaped = false, false
	case s.comment:
	case s.escaped:
		s.escaped = false
	case c == '\\' && s.quote != '\'':
		s.escaped = true
	default:
		return false
	}
	return true
}

// isPlain reports whether the next byte is outside of quotes and command substitutions.
func (s *scanner) isPlain() bool { return s.quote == 0 && s.depth == 0 && !s.escaped }

// command is a part of a line, with the separator after it: "&&", "||", ";", "&" or "".
type command struct{ text, separator string }

// commands splits a logical line at its separators.
func commands(text string) []command {
	var found []command
	s, start := scanner{}, 0
	for i := 0; i < len(text); i++ {
		if !s.next(text, i) {
			continue
		}
		separator := ""
		for _, candidate := range []string{"&&", "||", ";;", ";"} {
			if strings.HasPrefix(text[i:], candidate) {
				separator = candidate
				break
			}
		}
		if separator == "" {
			continue
		}
		found = append(found, command{text[start:i], separator})
		i += len(separator) - 1
		start = i + 1
	}
	if rest := text[start:]; strings.TrimSpace(rest) != "" || len(found) == 0 {
		found = append(found, command{rest, ""})
	}
	return found
}

// leading are the words of the shell that can be before a command, and a continuation.
var leading = regexp.MustCompile(`^(?:\s|\\\n)*(?:(?:if|then|else|elif|do|while|until|exec|!|\{|\()\s+)*`)

// dropCommands removes the commands for which drop reports true. It leaves a script with the same syntax.
func dropCommands(script string, drop func(command string) bool) string {
	var kept []line
	for _, l := range logicalLines(script) {
		if l.raw {
			kept = append(kept, l)
			continue
		}
		if text, ok := dropFromLine(l.text, drop); ok {
			kept = append(kept, line{text: text})
		}
	}
	return joinLines(fillBlocks(kept))
}

// dropFromLine returns a line without the commands, and whether anything remains of it.
func dropFromLine(text string, drop func(string) bool) (string, bool) {
	var kept []command
	dropped, isFallback := false, false
	for _, part := range commands(text) {
		prefix := leading.FindString(part.text)
		keyword := strings.Trim(prefix, " \t\n\\")
		switch {
		case isFallback: // of a command that is dropped
		case !drop(strings.TrimSpace(part.text[len(prefix):])):
			kept = append(kept, part)
			continue
		case keyword != "" && keyword != "exec":
			part.text, dropped = prefix+"true", true
			kept = append(kept, part)
			continue
		}
		dropped, isFallback = true, part.separator == "||"
		if n := len(kept); n > 0 && part.separator != "&&" && !isFallback {
			kept[n-1].separator = part.separator
		}
	}
	if !dropped {
		return text, true
	}
	return joinCommands(kept, text), len(kept) > 0
}

// joinCommands returns commands as a line with the indentation of another one.
func joinCommands(parts []command, like string) string {
	var b strings.Builder
	b.WriteString(like[:len(like)-len(strings.TrimLeft(like, " \t"))])
	for i, part := range parts {
		b.WriteString(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(part.text), "\\\n")))
		if i == len(parts)-1 {
			if part.separator == ";;" {
				b.WriteString(part.separator)
			}
			break
		}
		if part.separator == "&&" || part.separator == "||" {
			b.WriteByte(' ')
		}
		b.WriteString(part.separator + " ")
	}
	return b.String()
}

var (
	opensBlock  = regexp.MustCompile(`(?:^|[\s;])(?:then|do|else|\{|\()\s*$`)
	closesBlock = regexp.MustCompile(`^\s*(?:fi|done|else|elif|\}|\))\b|^\s*[})]`)
)

// fillBlocks puts a command into blocks that have become empty, which a shell rejects.
func fillBlocks(lines []line) []line {
	for i := 0; i < len(lines); i++ {
		if lines[i].raw || !opensBlock.MatchString(lines[i].text) {
			continue
		}
		next := i + 1
		for next < len(lines) && lines[next].raw {
			next++
		}
		if next < len(lines) && closesBlock.MatchString(lines[next].text) {
			indent := lines[next].text[:len(lines[next].text)-len(strings.TrimLeft(lines[next].text, " \t"))]
			lines = slices.Insert(lines, next, line{text: indent + "  :"})
		}
	}
	return lines
}

// words splits a command at its blanks, and removes quotes. A command substitution is part of a word.
func words(text string) []string {
	var found []string
	var word strings.Builder
	started := false
	s := scanner{}
	for i := range len(text) {
		before, c := s, text[i]
		s.next(text, i)
		switch {
		case s.isDropped(before, c):
		case before.isPlain() && s.isPlain() && isBlank(c):
			if started {
				found = append(found, word.String())
			}
			word.Reset()
			started = false
		default:
			started = true
			word.WriteString(s.unquoted(before, c))
		}
	}
	if started {
		found = append(found, word.String())
	}
	return found
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// unquoted returns a byte, or nothing for a quote that begins or ends.
func (s *scanner) unquoted(before scanner, c byte) string {
	if s.depth > 0 || before.quote == s.quote || c == '`' {
		return string([]byte{c})
	}
	return ""
}

// isDropped reports whether a byte is part of a continuation, or the backslash of an escape.
func (s *scanner) isDropped(before scanner, c byte) bool {
	return c == '\n' && before.escaped || s.escaped && s.quote == 0 && s.depth == 0
}

// shellQuote returns a word for a shell.
func shellQuote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// mentions reports whether a script contains a word.
func mentions(script, word string) bool {
	return regexp.MustCompile(`(?:^|[^\w./-])` + regexp.QuoteMeta(word) + `(?:$|[^\w-])`).MatchString(script)
}
