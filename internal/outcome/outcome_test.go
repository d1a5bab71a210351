// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEncode(t *testing.T) {
	tests := map[string]struct {
		in   Outcome
		want string
	}{
		"success is short": {Outcome{}, `{"exitCode":0}`},
		"everything has its field": {
			Outcome{
				ExitCode:  3,
				Reason:    ReasonTaskFailed,
				Message:   "no <disk> & more",
				Results:   map[string]string{"b": "2", "a": "1"},
				Truncated: true,
			},
			`{"exitCode":3,"reason":"TaskFailed","message":"no <disk> & more","results":{"a":"1","b":"2"},"truncated":true}`,
		},
		"the archive has its field": {
			Outcome{Archive: &Archive{Stored: true, Bytes: 5, Dropped: 2, Error: "gone"}},
			`{"exitCode":0,"archive":{"stored":true,"bytes":5,"dropped":2}}`,
		},
		"a digest": {
			Outcome{Archive: &Archive{Stored: true, SHA256: strings.Repeat("0a", 32)}},
			`{"exitCode":0,"archive":{"stored":true,"sha256":"` + strings.Repeat("0a", 32) + `"}}`,
		},
		"a digest that is none": {
			Outcome{Archive: &Archive{Stored: true, SHA256: strings.Repeat("0g", 32)}},
			`{"exitCode":0,"archive":{"stored":true}}`,
		},
		"a digest that is too short": {
			Outcome{Archive: &Archive{Stored: true, SHA256: strings.Repeat("0a", 31)}},
			`{"exitCode":0,"archive":{"stored":true}}`,
		},
		"a digest of an output that is not stored": {
			Outcome{Archive: &Archive{Error: "gone", SHA256: strings.Repeat("0a", 32)}},
			`{"exitCode":0,"archive":{"error":"gone"}}`,
		},
		"an output that is not stored": {
			Outcome{Archive: NotStored("403\n\x1b")},
			`{"exitCode":0,"archive":{"error":"403\\n\\x1b"}}`,
		},
		"an unknown reason is omitted":             {Outcome{ExitCode: 1, Reason: "\x1b[31m"}, `{"exitCode":1}`},
		"an impossible exit code is not a success": {Outcome{ExitCode: 256}, `{"exitCode":255}`},
		"a negative exit code is not a success":    {Outcome{ExitCode: -1}, `{"exitCode":255}`},
		"an invalid key is omitted and this is reported": {
			Outcome{Results: map[string]string{"a b": "1"}},
			`{"exitCode":0,"truncated":true}`,
		},
		"control characters are escaped": {Outcome{Message: "\x1b\n\u202e"}, `{"exitCode":0,"message":"\\x1b\n\\u202e"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, string(tt.in.Encode())); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodeTruncatesMessageBeforeResults(t *testing.T) {
	o := Outcome{Message: strings.Repeat(`"`, 1000) + "the end", Results: map[string]string{}}
	for i := range 7 {
		o.Results[fmt.Sprint("k", i)] = strings.Repeat(`"`, 200) // 2,800 bytes of JSON
	}
	got, ok := Decode(string(o.Encode()))
	if !ok || got.Truncated || len(got.Results) != 7 {
		t.Fatalf("%d results, truncated %v, want all 7", len(got.Results), got.Truncated)
	}
	if !strings.HasPrefix(got.Message, "…") || !strings.HasSuffix(got.Message, "the end") || len(got.Message) > 700 {
		t.Errorf("message of %d bytes %q, want a shorter one that keeps its end", len(got.Message), got.Message)
	}
}

// A message is truncated to the space that the results leave.
func TestEncodeFillsTheTerminationMessage(t *testing.T) {
	o := Outcome{Message: strings.Repeat("m", MaxMessageBytes), Results: map[string]string{}}
	for i := range 7 {
		o.Results[fmt.Sprint("k", i)] = strings.Repeat(`\`, 254) // 3,556 bytes of JSON
	}
	b := o.Encode()
	got, ok := Decode(string(b))
	if len(b) != MaxBytes || !ok || got.Truncated || len(got.Results) != 7 || len(got.Message) <= minMessageBytes {
		t.Errorf("%d bytes: %d results, truncated %v, a message of %d bytes", len(b), len(got.Results), got.Truncated, len(got.Message))
	}
	if got, ok := Decode(string(b) + " "); ok {
		t.Errorf("decoded %+v from more than the limit", got)
	}
}

func TestEncodeTruncatesLastResultsAndKeepsSomeMessage(t *testing.T) {
	o := Outcome{ExitCode: 1, Reason: ReasonTaskFailed, Message: strings.Repeat("m", 1000), Results: map[string]string{}}
	for i := range 8 {
		o.Results[fmt.Sprint("k", i)] = strings.Repeat(`\`, 254) // 4,064 bytes of JSON in 2,048 of text
	}
	got, ok := Decode(string(o.Encode()))
	if !ok || !got.Truncated || len(got.Message) != minMessageBytes {
		t.Fatalf("decoded %v, truncated %v, message of %d bytes", ok, got.Truncated, len(got.Message))
	}
	if _, last := got.Results["k7"]; last || len(got.Results) != 7 {
		t.Errorf("kept %v, want k0 to k6", sortedKeys(got.Results))
	}
	if len(o.Results) != 8 {
		t.Error("encoding changed the caller's results")
	}
}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		in     string
		want   Outcome
		wantNo bool
	}{
		"the runner's JSON": {
			in:   `{"exitCode":0,"results":{"a":"1"}}`,
			want: Outcome{Results: map[string]string{"a": "1"}},
		},
		"white space around it": {in: " {\"exitCode\":1}\n", want: Outcome{ExitCode: 1}},
		"results alone are an outcome": {
			in:   `{"results":{"cpus":4}}`,
			want: Outcome{Results: map[string]string{"cpus": "4"}},
		},
		"an unknown field is ignored":  {in: `{"exitCode":0,"weather":{"x":[1]}}`},
		"an unknown reason is ignored": {in: `{"exitCode":1,"reason":"Eaten"}`, want: Outcome{ExitCode: 1}},
		"the later of two equal fields counts": {
			in:   `{"exitCode":1,"exitCode":0,"results":{"a":"1"},"results":{"b":"2"}}`,
			want: Outcome{Results: map[string]string{"b": "2"}},
		},
		"another spelling is another field": {
			in:   `{"exitCode":1,"EXITCODE":0,"ExitCode":0}`,
			want: Outcome{ExitCode: 1},
		},
		"an archive": {
			in:   `{"exitCode":0,"archive":{"stored":true,"bytes":5}}`,
			want: Outcome{Archive: &Archive{Stored: true, Bytes: 5}},
		},
		"an archive without a reason": {
			in:   `{"exitCode":0,"archive":{}}`,
			want: Outcome{Archive: &Archive{Error: "it is not known why"}},
		},
		"an archive with impossible counts": {
			in:   `{"exitCode":0,"archive":{"stored":true,"bytes":-1,"dropped":9223372036854775807}}`,
			want: Outcome{Archive: &Archive{Stored: true, Dropped: 1 << 50}},
		},
		"an archive of another form is ignored": {in: `{"exitCode":0,"archive":"s3://bucket"}`},
		"an archive with a wrong type is ignored": {
			in:   `{"exitCode":3,"archive":{"stored":"yes"}}`,
			want: Outcome{ExitCode: 3},
		},
		"an archive alone is not an outcome": {in: `{"archive":{"stored":true}}`, wantNo: true},
		"null is nothing":                    {in: `{"exitCode":0,"results":null,"message":null,"archive":null}`},
		"an invalid key is omitted and this is reported": {
			in:   `{"results":{"a/b":"1","c":"2"}}`,
			want: Outcome{Results: map[string]string{"c": "2"}, Truncated: true},
		},
		"a value is cleaned": {
			in:   `{"results":{"a":"\u001b[31m\n"}}`,
			want: Outcome{Results: map[string]string{"a": `\x1b[31m\n`}},
		},
		"a message is cleaned": {
			in:   `{"exitCode":0,"message":"\u001b[31m\n\u202e"}`,
			want: Outcome{Message: "\\x1b[31m\n\\u202e"},
		},
		"plain text is not an outcome":                      {in: "disk full", wantNo: true},
		"an empty text is not an outcome":                   {in: "", wantNo: true},
		"an object without a known field is not an outcome": {in: `{"level":"info","msg":"done"}`, wantNo: true},
		"an empty object is not an outcome":                 {in: `{}`, wantNo: true},
		"an array is not an outcome":                        {in: `[{"exitCode":0}]`, wantNo: true},
		"an array with the members of an object is not one": {in: `["exitCode",0]`, wantNo: true},
		"a truncated object is not an outcome":              {in: `{"exitCode":0,"message":"a`, wantNo: true},
		"an object followed by text is not an outcome":      {in: `{"exitCode":0} done`, wantNo: true},
		"two objects are not an outcome":                    {in: `{"exitCode":0}{"exitCode":0}`, wantNo: true},
		"an exit code that is a string is not an outcome":   {in: `{"exitCode":"0"}`, wantNo: true},
		"an exit code of 256 is not an outcome":             {in: `{"exitCode":256}`, wantNo: true},
		"a negative exit code is not an outcome":            {in: `{"exitCode":-1}`, wantNo: true},
		"an exit code beyond any integer is not an outcome": {in: `{"exitCode":1e999}`, wantNo: true},
		"results that are a list are not an outcome":        {in: `{"exitCode":0,"results":["a"]}`, wantNo: true},
		"a message that is an object is not an outcome":     {in: `{"exitCode":0,"message":{}}`, wantNo: true},
		"more bytes than the kubelet delivers are not an outcome": {
			in:     `{"exitCode":0,"message":"` + strings.Repeat("m", MaxBytes) + `"}`,
			wantNo: true,
		},
		"the deepest possible nesting is harmless": {
			in: `{"exitCode":0,"x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := Decode(tt.in)
			if ok == tt.wantNo {
				t.Errorf("decoded %v, want %v", ok, !tt.wantNo)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoteIsLastAndNeverTruncated(t *testing.T) {
	o := Outcome{Message: strings.Repeat("output\n", 500)}
	o.Note("results: line 1 is odd")
	o.Results = map[string]string{}
	for i := range 8 {
		o.Results[fmt.Sprint("k", i)] = strings.Repeat(`\`, 254)
	}
	got, _ := Decode(string(o.Encode()))
	if !strings.HasSuffix(got.Message, "output\nresults: line 1 is odd") {
		t.Errorf("message %q does not end with the note", got.Message)
	}
	var empty Outcome
	if empty.Note("only this"); empty.Message != "only this" {
		t.Errorf("message %q, want only the note", empty.Message)
	}
}

func TestWithExitCode(t *testing.T) {
	tests := map[string]struct {
		in   Outcome
		code int
		want Outcome
	}{
		"a claimed success is overruled": {Outcome{}, 2, Outcome{ExitCode: 2, Reason: ReasonTaskFailed}},
		"a claimed failure is overruled": {Outcome{ExitCode: 1, Reason: ReasonTimedOut}, 0, Outcome{}},
		"a reason that explains the failure stays": {
			Outcome{ExitCode: 124, Reason: ReasonTimedOut},
			124,
			Outcome{ExitCode: 124, Reason: ReasonTimedOut},
		},
		"that nothing was to be done is kept with 0 only": {Outcome{Reason: ReasonAlreadyDone}, 0, Outcome{Reason: ReasonAlreadyDone}},
		"that nothing was to be done is overruled": {
			Outcome{Reason: ReasonAlreadyDone},
			1,
			Outcome{ExitCode: 1, Reason: ReasonTaskFailed},
		},
		"an impossible exit code remains a failure": {Outcome{}, 3221225786, Outcome{ExitCode: 255, Reason: ReasonTaskFailed}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.in.WithExitCode(tt.code)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// Every encoded outcome fits, is valid JSON, and decodes to an outcome with the same encoding.
func TestEncodeRandomOutcomes(t *testing.T) {
	const seed = 20260801
	random := rand.New(rand.NewPCG(seed, 1))
	for i := range 1000 {
		o := randomOutcome(random)
		if checkRoundTrip(t, o); t.Failed() {
			t.Fatalf("seed %d, round %d: %+v", seed, i, o)
		}
	}
}

func randomOutcome(random *rand.Rand) Outcome {
	alphabet := []string{"a", "Z9", ".", " ", "\n", "\t", `"`, `\`, "<", "é", "日", "\U0001F600", "\x00", "\x1b", "\u202e", "\xff", "\r\n"}
	text := func(limit int) string {
		var b strings.Builder
		few := alphabet[:1+random.IntN(len(alphabet))]
		for range random.IntN(limit + 1) {
			b.WriteString(few[random.IntN(len(few))])
		}
		return b.String()
	}
	o := Outcome{ExitCode: random.IntN(300) - 20, Message: text(3000), Results: map[string]string{}}
	if random.IntN(2) == 0 {
		o.Reason = reasons[random.IntN(len(reasons))]
	}
	for range random.IntN(60) {
		o.Results[strings.Trim(text(70), " .")] = text(400)
	}
	for i := range random.IntN(60) {
		o.Results[fmt.Sprintf("key-%02d", i)] = text(400)
	}
	return o
}

func checkRoundTrip(t *testing.T, o Outcome) {
	t.Helper()
	b := o.Encode()
	if len(b) > MaxBytes || !json.Valid(b) {
		t.Errorf("%d bytes, valid %v: %s", len(b), json.Valid(b), b)
	}
	got, ok := Decode(string(b))
	if !ok {
		t.Errorf("%s does not decode", b)
	}
	checkOutcome(t, got)
	if again := got.Encode(); string(again) != string(b) {
		t.Errorf("encodes differently the second time:\n%s\n%s", b, again)
	}
}

func checkOutcome(t *testing.T, o Outcome) {
	t.Helper()
	checkClean(t, "the message", o.Message, MaxMessageBytes, true)
	checkResults(t, o.Results)
	if o.ExitCode < 0 || o.ExitCode > 255 {
		t.Errorf("exit code %d", o.ExitCode)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"exitCode":0}`, `{"exitCode":1,"reason":"TimedOut","message":"a\nb","results":{"a":"1","b":[1]},"truncated":true}`,
		`{"exitCode":1e400}`, `{"results":{"\u0000":"\ud800"}}`, `{"message":"\u202e"}`, `[`, `{"exitCode":0,}`, `{"exitCode":0}]`, "plain\xff",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, ok := Decode(s)
		if !ok {
			if diff := cmp.Diff(Outcome{}, o); diff != "" {
				t.Errorf("no outcome, yet %s", diff)
			}
			return
		}
		if !json.Valid([]byte(s)) {
			t.Errorf("%q is not JSON and was decoded", s)
		}
		checkOutcome(t, o)
		checkRoundTrip(t, o)
	})
}
