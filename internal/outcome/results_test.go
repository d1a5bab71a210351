// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseResults(t *testing.T) {
	tests := map[string]struct {
		in            string
		want          map[string]string
		wantTruncated bool
		wantErr       string // a part of the text; "" for none
	}{
		"an empty file has no results":              {in: ""},
		"white space has no results":                {in: " \n\t\r\n"},
		"lines give results":                        {in: "kernel=6.8\ncpus=4\n", want: map[string]string{"kernel": "6.8", "cpus": "4"}},
		"the last line needs no newline":            {in: "a=1", want: map[string]string{"a": "1"}},
		"blank lines and comments are skipped":      {in: "# about\n\n a = 1 \n", want: map[string]string{"a": "1"}},
		"Windows line ends are not part of a value": {in: "a=1\r\nb=2\r\n", want: map[string]string{"a": "1", "b": "2"}},
		"a byte order mark is skipped":              {in: "\ufeffa=1", want: map[string]string{"a": "1"}},
		"the later of two equal keys counts":        {in: "a=1\na=2", want: map[string]string{"a": "2"}},
		"a value may contain an equals sign":        {in: "args=a=b", want: map[string]string{"args": "a=b"}},
		"a value may be empty":                      {in: "a=", want: map[string]string{"a": ""}},
		"quotes are part of a value":                {in: `a="x y"`, want: map[string]string{"a": `"x y"`}},
		"control characters in a value are escaped": {in: "a=\x1b[31m\x00\u202e", want: map[string]string{"a": `\x1b[31m\x00\u202e`}},
		"a line without an equals sign is reported": {in: "a=1\nhello\nb=2", want: map[string]string{"a": "1", "b": "2"},
			wantErr: `line 2: "hello" is not key=value`},
		"an invalid key is reported and the rest kept": {
			in:      "x y=1\n-a=2\n=3\nb=4",
			want:    map[string]string{"b": "4"},
			wantErr: `line 1: "x y" is no key: use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends (and 2 more)`,
		},
		"a hostile bad line cannot fill the message": {in: "\x1b" + strings.Repeat("z", 1000), wantErr: `line 1: "\x1bz`},
		"a key of 63 bytes is kept": {
			in:   strings.Repeat("k", 63) + "=1",
			want: map[string]string{strings.Repeat("k", 63): "1"},
		},
		"a key of 64 bytes is not": {in: strings.Repeat("k", 64) + "=1", wantErr: "is no key"},
		"a long value keeps its beginning": {in: "a=" + strings.Repeat("v", 257), wantTruncated: true,
			want: map[string]string{"a": strings.Repeat("v", 253) + "…"}},
		"a long value before another": {in: "a=" + strings.Repeat("v", 257) + "\nb=1", wantTruncated: true,
			want: map[string]string{"a": strings.Repeat("v", 253) + "…", "b": "1"}},
		"a file of the maximum length is whole": {
			in:   strings.Repeat("#\n", MaxInputBytes/2-2) + "a=1\n",
			want: map[string]string{"a": "1"},
		},
		"a value of 256 bytes is whole": {
			in:   "a=" + strings.Repeat("v", 256),
			want: map[string]string{"a": strings.Repeat("v", 256)},
		},

		"a JSON object gives results":         {in: ` {"kernel":"6.8"} `, want: map[string]string{"kernel": "6.8"}},
		"an empty JSON object has no results": {in: "{}"},
		"JSON values that are not strings stay JSON": {in: `{"n": 1e999, "t": true, "z": null, "o": { "a": [ 1, 2 ] }}`,
			want: map[string]string{"n": "1e999", "t": "true", "z": "null", "o": `{"a":[1,2]}`}},
		"newlines in a JSON string are escaped": {in: `{"a":"x\ny\tz"}`, want: map[string]string{"a": `x\ny\tz`}},
		"a NUL in a JSON string is escaped":     {in: `{"a":"\u0000"}`, want: map[string]string{"a": `\x00`}},
		"half a surrogate pair is replaced":     {in: `{"a":"\ud800"}`, want: map[string]string{"a": "\ufffd"}},
		"the later of two equal JSON keys counts": {in: `{"a":"1","a":"2"}`,
			want: map[string]string{"a": "2"}},
		"an invalid JSON key is reported and the rest kept": {
			in:      `{"":1,"b":2}`,
			want:    map[string]string{"b": "2"},
			wantErr: `"" is no key`,
		},
		"truncated JSON keeps the results before its end": {in: `{"a":"1","b":"2`, want: map[string]string{"a": "1"},
			wantErr: "reading a JSON object: it ends in the middle"},
		"JSON that ends after a value keeps the results": {in: `{"a":"1"`, want: map[string]string{"a": "1"},
			wantErr: "reading a JSON object: it ends in the middle"},
		"JSON that ends in a key keeps the results before it": {in: `{"a":"1","b`, want: map[string]string{"a": "1"},
			wantErr: "reading a JSON object: it ends in the middle"},
		"JSON with a key that is no string keeps the results before it": {in: `{"a":"1",2:3}`, want: map[string]string{"a": "1"},
			wantErr: "reading a JSON object: invalid character '2'"},
		"JSON with an error keeps the results before it": {in: `{"a":"1","b":oops}`, want: map[string]string{"a": "1"},
			wantErr: "reading a JSON object: invalid character 'o'"},
		"a second JSON object is reported": {in: "{\"a\":1}\n{\"b\":2}\n", want: map[string]string{"a": "1"},
			wantErr: "reading a JSON object: something follows the object"},
		"a JSON array is reported": {in: `["a"]`, wantErr: `line 1: "["a"]" is not key=value`},
		"deep nesting is refused":  {in: `{"a":` + strings.Repeat("[", 20000), wantErr: "exceeded max depth"},
		"a huge number is cut": {
			in:            `{"a":` + strings.Repeat("9", 1000) + `}`,
			want:          map[string]string{"a": strings.Repeat("9", 253) + "…"},
			wantTruncated: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, truncated, err := ParseResults([]byte(tt.in))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if truncated != tt.wantTruncated {
				t.Errorf("truncated = %v, want %v", truncated, tt.wantTruncated)
			}
			checkError(t, err, tt.wantErr)
		})
	}
}

func TestKeysOfResults(t *testing.T) {
	for _, key := range []string{"a", "z", "A", "Z", "0", "9", "a-b", "a_b", "a.b", "Kernel-6.8_x", strings.Repeat("k", MaxKeyBytes)} {
		if !validKey(key) {
			t.Errorf("%q is no key", key)
		}
	}
	for _, key := range []string{"", "-", "-a", "a-", "_a", "a_", ".a", "a.", "a b", "a/b", "a:", "@", "[", "`", "{", "ä", strings.Repeat("k", MaxKeyBytes+1)} {
		if validKey(key) {
			t.Errorf("%q is a key", key)
		}
	}
}

func TestTheRequestOfARebootIsTheFirstKey(t *testing.T) {
	for range 20 { // the order of a map is random
		if diff := cmp.Diff([]string{RebootKey, "a", "z"}, sortedKeys(map[string]string{"a": "", "z": "", RebootKey: ""})); diff != "" {
			t.Fatalf("keys (-want +got):\n%s", diff)
		}
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if (want == "") != (text == "") || !strings.Contains(text, want) {
		t.Errorf("error = %q, want %q in it", text, want)
	}
	checkClean(t, "the error", text, 400, false)
}

func TestParseResultsKeepsTheFirstKeysOfTooMany(t *testing.T) {
	lines, object, want := "", map[string]int{}, map[string]string{}
	for i := 99; i >= 0; i-- {
		key := fmt.Sprintf("k%02d", i)
		lines += key + "=" + fmt.Sprint(i) + "\n"
		object[key] = i
		if i < MaxResults {
			want[key] = fmt.Sprint(i)
		}
	}
	asJSON, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string][]byte{"lines": []byte(lines), "JSON": asJSON} {
		got, truncated, err := ParseResults(in)
		if diff := cmp.Diff(want, got); diff != "" || !truncated || err != nil {
			t.Errorf("%s: truncated %v, error %v, results (-want +got):\n%s", name, truncated, err, diff)
		}
	}
}

func TestParseResultsBoundsTheTotal(t *testing.T) {
	in := ""
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		in += key + "=" + strings.Repeat(key, 256) + "\n"
	}
	got, truncated, err := ParseResults([]byte(in + "i=1\n"))
	if len(got) != 7 || got["i"] != "" || !truncated || err != nil { // 8 * 257 > 2048
		t.Errorf("got %d results, truncated %v, error %v; want the first 7", len(got), truncated, err)
	}
}

func TestParseResultsReadsBoundedPart(t *testing.T) {
	half := strings.Repeat("#\n", MaxInputBytes/2-1) + "a="
	got, truncated, err := ParseResults([]byte(half + "12345\n"))
	if got != nil || !truncated || err != nil {
		t.Errorf("lines: got %v, %v, %v; want half a line left out and no error", got, truncated, err)
	}
	got, truncated, err = ParseResults([]byte(`{"a":"1","b":"` + strings.Repeat("x", MaxInputBytes) + `"}`))
	if diff := cmp.Diff(map[string]string{"a": "1"}, got); diff != "" || !truncated || err != nil {
		t.Errorf("JSON: truncated %v, error %v, results (-want +got):\n%s", truncated, err, diff)
	}
}

func TestParseResultsIsNotSlowerThanLinear(t *testing.T) {
	start := time.Now()
	for name, in := range map[string]string{
		"one endless line":    strings.Repeat("a", 10<<20),
		"newlines only":       strings.Repeat("\n", MaxInputBytes),
		"bad lines only":      strings.Repeat("?\n", MaxInputBytes/2),
		"small lines":         strings.Repeat("a=\n", MaxInputBytes/3),
		"a large JSON object": "{" + strings.Repeat(`"a":1,`, MaxInputBytes/6),
		"open brackets":       strings.Repeat(`{"a":`, MaxInputBytes/5),
	} {
		if got, _, _ := ParseResults([]byte(in)); len(got) > MaxResults {
			t.Errorf("%s: %d results", name, len(got))
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzParseResults(f *testing.F) {
	for _, s := range []string{"", "a=1\nb=2", "{\"a\":1,\"b\":{\"c\":[null]}}", `{"a":"1"`, "a=\xff\x00\n=\n#", "\ufeff{}", "{}{}", `{"a":1}]`, `{,"a":1}`, `{"a":1,}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		results, truncated, err := ParseResults(b)
		checkResults(t, results)
		if err != nil {
			checkClean(t, "the error", err.Error(), 400, false)
		}
		again, truncatedAgain, _ := ParseResults(b)
		if diff := cmp.Diff(results, again); diff != "" || truncated != truncatedAgain {
			t.Errorf("the same file returns other results (-first +second):\n%s", diff)
		}
		trimmed := strings.TrimSpace(strings.TrimPrefix(string(b), "\ufeff"))
		if strings.HasPrefix(trimmed, "{") && len(b) <= MaxInputBytes && err == nil && !json.Valid([]byte(trimmed)) {
			t.Errorf("%q is not JSON and returned no error", b)
		}
	})
}

func checkResults(t *testing.T, results map[string]string) {
	t.Helper()
	total := 0
	for key, value := range results {
		if !validKey(key) {
			t.Errorf("bad key %q", key)
		}
		checkClean(t, "the value of "+key, value, MaxValueBytes, false)
		total += len(key) + len(value)
	}
	if len(results) > MaxResults || total > MaxResultsBytes {
		t.Errorf("%d results of %d bytes", len(results), total)
	}
}
