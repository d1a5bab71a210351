// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

const (
	// mask replaces the value of a Secret.
	mask = "***"
	// minMaskBytes is the shortest value that is masked: shorter ones, such as "1" or "yes", occur in any output.
	minMaskBytes = len(mask) + 1
	// minLineBytes is the shortest line of a multi-line value that is masked on its own.
	minLineBytes = 8
	// minEncodedBytes is the shortest value whose base64 form is masked too.
	minEncodedBytes = 8
)

// masker replaces the values of Secrets in the scripts' output and results. A nil masker replaces nothing.
type masker struct {
	// secrets are the values to replace, by their first bytes.
	secrets map[[minMaskBytes]byte][][]byte
	all     [][]byte
	// first marks the first bytes of all secrets.
	first [256]bool
}

// newMasker returns a masker for these values; nil if none of them has to be masked.
func newMasker(values []string) *masker {
	m := &masker{secrets: map[[minMaskBytes]byte][][]byte{}}
	for _, value := range values {
		for _, form := range formsOf(value) {
			if len(form) >= minMaskBytes {
				m.all = append(m.all, []byte(form))
			}
		}
	}
	if len(m.all) == 0 {
		return nil
	}
	slices.SortFunc(m.all, bytes.Compare)
	m.all = slices.CompactFunc(m.all, bytes.Equal)
	for _, secret := range m.all {
		key := [minMaskBytes]byte(secret)
		m.secrets[key] = append(m.secrets[key], secret)
		m.first[secret[0]] = true
	}
	return m
}

// formsOf returns the forms in which the value of a Secret is expected in an output: the value, its lines, and its
// encodings in JSON, URLs and base64. Surrounding white space is ignored, because "$(cat FILE)" also removes it.
func formsOf(value string) []string {
	value = strings.TrimSpace(value)
	if len(value) < minMaskBytes {
		return nil
	}
	forms := []string{value, url.QueryEscape(value), url.PathEscape(value)}
	if quoted, err := json.Marshal(value); err == nil { // a string always marshals
		forms = append(forms, string(quoted[1:len(quoted)-1]))
	}
	if lines := strings.Split(value, "\n"); len(lines) > 1 {
		for _, line := range lines {
			if line = strings.TrimSpace(line); len(line) >= minLineBytes {
				forms = append(forms, line)
			}
		}
	}
	if len(value) >= minEncodedBytes {
		forms = append(forms, base64Forms(value)...)
	}
	return forms
}

// base64Forms returns the part of a value's base64 encoding that does not depend on the surrounding text, for each of
// the three positions where the value can start in a group of three bytes.
func base64Forms(value string) []string {
	var forms []string
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			encoded := encoding.EncodeToString(append(make([]byte, before), value...))
			forms = append(forms, encoded[(before*8+5)/6:(before+len(value))*8/6])
		}
	}
	return forms
}

// text masks a complete text.
func (m *masker) text(s string) string {
	if m == nil {
		return s
	}
	stream := maskedStream{masker: m}
	return string(stream.add([]byte(s), true))
}

// longest returns the length of the longest secret that the text starts with; 0 if there is none.
func (m *masker) longest(text []byte) int {
	if !m.first[text[0]] || len(text) < minMaskBytes {
		return 0
	}
	longest := 0
	for _, secret := range m.secrets[[minMaskBytes]byte(text)] {
		if len(secret) > longest && bytes.HasPrefix(text, secret) {
			longest = len(secret)
		}
	}
	return longest
}

// mayContinue reports whether a longer secret starts with the text.
func (m *masker) mayContinue(text []byte) bool {
	if !m.first[text[0]] {
		return false
	}
	candidates := m.all
	if len(text) >= minMaskBytes {
		candidates = m.secrets[[minMaskBytes]byte(text)]
	}
	return slices.ContainsFunc(candidates, func(secret []byte) bool {
		return len(secret) > len(text) && bytes.HasPrefix(secret, text)
	})
}

// maskedStream masks a text that arrives in pieces.
type maskedStream struct {
	*masker
	// held is the end of the received text, which may be the start of a secret.
	held []byte
	// covered counts the bytes at the start of held that belong to an already masked secret.
	covered int
}

// add takes a piece and returns what can be passed on. If last is true, nothing is held back.
func (s *maskedStream) add(piece []byte, last bool) []byte {
	text := slices.Concat(s.held, piece)
	out := make([]byte, 0, len(text))
	i := 0
	for ; i < len(text); i++ {
		if !last && s.mayContinue(text[i:]) {
			break
		}
		if n := s.longest(text[i:]); n > 0 {
			if s.covered == 0 {
				out = append(out, mask...)
			}
			s.covered = max(s.covered, n)
		}
		if s.covered > 0 {
			s.covered--
			continue
		}
		out = append(out, text[i])
	}
	s.held = slices.Clone(text[i:])
	return out
}
