// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestALineIsEscapedAndTruncated(t *testing.T) {
	tests := map[string]struct {
		line Line
		o    Options
		want string
	}{
		"text that fits is not changed":             {Of("all of it"), Options{Width: 9}, "all of it"},
		"text that does not fit is cut with a mark": {Of("all of it"), Options{Width: 8}, "all of …"},
		"without a width nothing is cut":            {Of(strings.Repeat("x", 500)), Options{}, strings.Repeat("x", 500)},
		"wide characters take two columns":          {Of("漢字漢字"), Options{Width: 6}, "漢字…"},
		"a cluster is not split":                    {Of("ab👩‍👩‍👧cd"), Options{Width: 4}, "ab…"},
		"an escape sequence is shown as text":       {Of("\x1b[2Jgone"), Options{}, `\x1b[2Jgone`},
		"a newline does not start a new line":       {Of("ok\nnode-9 done\r"), Options{}, `ok\nnode-9 done\x0d`},
		"a C1 control character is shown as text":   {Of("\u009b2J"), Options{}, `\u009b2J`},
		"a bidi override is shown as text":          {Of("\u202eexe.png"), Options{}, `\u202eexe.png`},
		"invalid UTF-8 is shown as text":            {Of("\xff\x9b"), Options{}, `\xff\x9b`},
		"a tone becomes a color": {
			Toned(Bad, "failed").With(" now"),
			Options{Colour: true},
			"\x1b[31mfailed\x1b[0m now",
		},
		"a tone without color has no effect": {Toned(Bad, "failed").With(" now"), Options{}, "failed now"},
		"the mark of a cut follows the color": {
			Toned(Bad, "failed").With(" now"),
			Options{Colour: true, Width: 5},
			"\x1b[31mfail\x1b[0m…",
		},
		"a color sequence in the text is shown as text": {Toned(Good, "\x1b[31mred"), Options{Colour: true}, "\x1b[32m\\x1b[31mred\x1b[0m"},
		"spaces at the end are left out":                {Of("a   "), Options{}, "a"},
		"neighbours of the same tone become one":        {Toned(Bad, "a").Tone(Bad, "b"), Options{Colour: true}, "\x1b[31mab\x1b[0m"},
		"a cut at the end of a span shows the cut":      {Of("abc").Tone(Bad, "def"), Options{Width: 4}, "abc…"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.line.Render(tt.o)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// FuzzALineIsOneLine uses arbitrary text: the output is one line of the width without cursor movements.
func FuzzALineIsOneLine(f *testing.F) {
	for _, s := range []string{"", "a\x1b]0;title\x07b", "\r\n\t\v\f\b", "漢\u0301\u200d\ufe0f", "\xc3\x28\x9b", "\u2028\u2029\u0085"} {
		f.Add(s, s, 7)
	}
	f.Fuzz(func(t *testing.T, a, b string, width int) {
		width = max(width%300, 0)
		got := Of(a).Tone(Bad, b).Render(Options{Width: width})
		if strings.ContainsFunc(got, func(r rune) bool {
			return r < ' ' || (0x7f <= r && r < 0xa0) || r == 0x2028 || r == 0x2029 ||
				r == utf8.RuneError && !strings.Contains(a+b, "\ufffd")
		}) {
			t.Errorf("%q has a control character", got)
		}
		if w := Width(got); width > 0 && w > width {
			t.Errorf("%q takes %d columns of %d", got, w, width)
		}
	})
}

func TestWrapBreaksBetweenWords(t *testing.T) {
	head := Toned(Dim, "Status  ")
	got := Render(Wrap(head, Plain, "a message that is\nlonger than there is room for it", 32), Options{Width: 32})
	want := []string{
		`Status  a message that`,
		`        is\nlonger than there is`,
		`        room for it`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := len(Wrap(head, Plain, "a message that is longer than there is room for", 0)); got != 1 {
		t.Errorf("without a width there are %d lines", got)
	}
}

func TestWrapBreaksAWordThatIsWiderThanALine(t *testing.T) {
	got := Render(Wrap(Of("NOTE  "), Plain, "see node-setup.everynode.dev/somaxconn-of-all-nodes now", 26), Options{Width: 26})
	want := []string{"NOTE  see", "      node-setup.everynode", "      .dev/somaxconn-of-al", "      l-nodes now"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestASentenceIsWrappedAndNeverCut(t *testing.T) {
	const wide = "everynode.node-restriction.kubernetes.io/node-setup.somaxconn"
	for name, tt := range map[string]struct {
		line  Line
		width int
		want  []string
	}{
		"without a width":           {Of("a sentence that is longer than one line"), 0, []string{"a sentence that is longer than one line"}},
		"one that fits":             {Of("two  spaces, and 30 columns....").With(""), 31, []string{"two  spaces, and 30 columns...."}},
		"too narrow for a sentence": {Of("a sentence that is longer"), 10, []string{"a sentence that is longer"}},
		"one that does not":         {Of("a sentence that  is longer than one line"), 24, []string{"a sentence that  is", "  longer than one line"}},
		"an indented one":           {Of("    a sentence that is longer than one line"), 30, []string{"    a sentence that is longer", "      than one line"}},
		"tones":                     {Of("job j: ").Tone(Strong, "suspended now, and").With(": later resumed"), 26, []string{"job j: [suspended now, and]:", "  later resumed"}},
		"a word that is too wide":   {Of("label " + wide + " is removed"), 24, []string{"label", "  " + wide, "  is removed"}},
		"an escape":                 {Of("a sentence \x1b[2J that has\nescape sequences"), 24, []string{`a sentence \x1b[2J that`, `  has\nescape sequences`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Render(WrapLine(tt.line, tt.width), Options{Colour: true})
			for i := range got {
				got[i] = strings.NewReplacer("\x1b[1m", "[", "\x1b[0m", "]").Replace(got[i])
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestABarShowsEveryPart(t *testing.T) {
	tests := map[string]struct {
		done, running, waiting, failed int
		want                           string
	}{
		"nothing":                         {0, 0, 0, 0, "[          ]"},
		"all":                             {7, 0, 0, 0, "[==========]"},
		"half":                            {5, 0, 5, 0, "[=====.....]"},
		"one failed of 3,000 shows":       {2999, 0, 0, 1, "[=========!]"},
		"one of each among 3,000":         {1, 1, 2997, 1, "[=>.......!]"},
		"all but one is not shown as all": {0, 1, 2999, 0, "[>.........]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Bar(
				10,
				Part{tt.done, '=', Good},
				Part{tt.running, '>', Active},
				Part{tt.waiting, '.', Dim},
				Part{tt.failed, '!', Bad},
			).Render(Options{})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestTheLastCellOfATableIsWrappedInItsColumn(t *testing.T) {
	rows := [][]Line{
		Cells("NODE", "SAYS"),
		Cells("node-1", "more than fits into a line"),
		Cells("node-2", "this"),
		Cells("node-3-of-the-third-zone"),
	}
	for width, want := range map[int][]string{
		0: {"NODE                      SAYS", "node-1                    more than fits into a line", "node-2                    this", "node-3-of-the-third-zone"},
		48: {
			"NODE                      SAYS", "node-1                    more than fits into a", "                          line",
			"node-2                    this", "node-3-of-the-third-zone",
		},
		32: { // the column is too narrow
			"NODE                      SAYS", "node-1                    more", "  than fits into a line", "node-2                    this", "node-3-of-the-third-zone",
		},
	} {
		got := strings.Split(strings.TrimSuffix(Print(Table(rows), Options{Width: width}), "\n"), "\n")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d columns: -want +got\n%s", width, diff)
		}
	}
}

func TestATableLinesUpWideCharacters(t *testing.T) {
	got := Render(Table([][]Line{Cells("NODE", "SAYS"), Cells("漢", "a\x1b"), {Toned(Bad, "node-1"), Of("b")}}), Options{})
	want := []string{"NODE    SAYS", "漢      a\\x1b", "node-1  b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
