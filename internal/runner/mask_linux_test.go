// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestMask(t *testing.T) {
	const (
		token = "s3cr3t-token/with+signs"
		key   = "-----BEGIN KEY-----\nMIIBlDCCATmgAwIBAgIU\nDRNRd1pD\nabc\n-----END KEY-----\n"
	)
	inBase64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	tests := map[string]struct {
		secrets []string
		text    string
		want    string
	}{
		"a value":                                {[]string{token}, "curl -H " + token + " x", "curl -H *** x"},
		"a value with its end of line":           {[]string{token + "\n"}, token, "***"},
		"every time":                             {[]string{token}, token + token + ".", "******."},
		"two values":                             {[]string{"first", "second"}, "second first", "*** ***"},
		"two values that overlap":                {[]string{"abcdef", "defghi"}, "-abcdefghi-", "-***-"},
		"one value within another":               {[]string{"pass", "my-password"}, "my-password pass", "*** ***"},
		"one value that begins another":          {[]string{"pass", "password"}, "password passw", "*** ***w"},
		"the beginning of a value is not masked": {[]string{token}, token[:len(token)-1], token[:len(token)-1]},
		"a value that repeats itself":            {[]string{"ababac"}, "abababac", "ab***"},
		"no values":                              {nil, "anything", "anything"},
		"an empty value masks nothing":           {[]string{"", "\n"}, "anything\n", "anything\n"},
		"three bytes are too few":                {[]string{"abc"}, "abc", "abc"},
		"four bytes are enough":                  {[]string{"abcd"}, "abcd", "***"},
		"all lines of a key":                     {[]string{key}, "k=" + key, "k=***\n"},
		"one line of a key":                      {[]string{key}, "x MIIBlDCCATmgAwIBAgIU y", "x *** y"},
		"a short line of a key stays":            {[]string{key}, "x abc y", "x abc y"},
		"in JSON":                                {[]string{`quote"and\slash`}, `{"a":"quote\"and\\slash"}`, `{"a":"***"}`},
		"in a URL":                               {[]string{token}, "https://x/?t=s3cr3t-token%2Fwith%2Bsigns&a", "https://x/?t=***&a"},
		"in base64":                              {[]string{token}, inBase64(token), "***" + inBase64(token)[len(token)*8/6:]},
		"in base64, with an end of line":         {[]string{"s3cr3t-token"}, inBase64("s3cr3t-token\n"), "***Cg=="},
		"in base64, one byte before it":          {[]string{"s3cr3t-token"}, inBase64(":s3cr3t-token"), "On***g=="},
		"in base64, two bytes before it":         {[]string{"s3cr3t-token"}, inBase64("u:s3cr3t-token"), "dTp***4="},
		"seven bytes, not in base64":             {[]string{"1234567"}, inBase64("1234567"), inBase64("1234567")},
		"bytes that are not text":                {[]string{"\xff\xfe\x01\x02"}, "a\xff\xfe\x01\x02b", "a***b"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMasker(tt.secrets)
			if got := m.text(tt.text); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if m == nil {
				return
			}
			for cut := range len(tt.text) {
				s := maskedStream{masker: m}
				got := string(s.add([]byte(tt.text[:cut]), false)) + string(s.add([]byte(tt.text[cut:]), false)) + string(s.add(nil, true))
				if got != tt.want {
					t.Errorf("cut at %d: %q, want %q", cut, got, tt.want)
				}
			}
		})
	}
}

// TestMaskingDoesNotDependOnChunks : the output is the same for any pieces of the input, without secrets.
func TestMaskingDoesNotDependOnChunks(t *testing.T) {
	const letters = "ab"
	word := func(r *rand.Rand, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		return string(b)
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		secrets := []string{word(r, 4+r.IntN(8)), word(r, 4+r.IntN(3))}
		text := word(r, r.IntN(200))
		m := newMasker(secrets)
		want := m.text(text)
		s, got := maskedStream{masker: m}, ""
		for rest := text; rest != ""; {
			n := 1 + r.IntN(len(rest))
			got += string(s.add([]byte(rest[:n]), false))
			rest = rest[n:]
		}
		got += string(s.add(nil, true))
		if got != want {
			t.Fatalf("seed %d: %q in pieces, %q as a whole", seed, got, want)
		}
		for _, secret := range secrets {
			if strings.Contains(got, secret) {
				t.Fatalf("seed %d: %q is in %q", seed, secret, got)
			}
		}
	}
}

// A prompt of a script that waits for an answer must be visible.
func TestOnlyPossibleSecretsAreDelayed(t *testing.T) {
	s := maskedStream{masker: newMasker([]string{"password"})}
	for _, step := range []struct{ in, want string }{
		{"ready? ", "ready? "}, {"pass", ""}, {"ing\n", "passing\n"}, {"the pass", "the "}, {"word", "***"},
	} {
		if got := string(s.add([]byte(step.in), false)); got != step.want {
			t.Errorf("after %q: %q, want %q", step.in, got, step.want)
		}
	}
}

func BenchmarkMask(b *testing.B) {
	m := newMasker([]string{"s3cr3t-token/with+signs", strings.Repeat("a line of a key 0123456789\n", 30)})
	chunk := []byte(strings.Repeat("an ordinary line of output, with nothing in it\n", chunkBytes/47))
	s := maskedStream{masker: m}
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		s.add(chunk, false)
	}
}
