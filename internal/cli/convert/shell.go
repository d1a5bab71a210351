// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	_ "embed" // programs.yaml
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// reading is what a shell script shows: whether it ends, and which labels it changes. Scripts are never changed.
type reading struct {
	// invalid says that it is not a script of a POSIX shell or Bash.
	invalid bool
	// endless are the commands that wait without end, and the loops that may repeat their work without end.
	endless []finding
	// work reports whether it does something else.
	work bool
	// unknown is the first program that may not end; "" if all end.
	unknown string
	// labels are the labels that it sets on nodes with kubectl, with their values, and - for those that it removes. The key is $ for
	// labels that it does not show.
	labels map[string]string
}

// finding is a command or a loop of a script that may not end, with its line.
type finding struct {
	line   uint
	text   string
	isLoop bool
}

// reader reads a script.
type reader struct {
	reading

	script    string
	functions map[string]bool
	// depth is the number of scripts around it.
	depth int
	// loopEnd is where the last loop ends that was found.
	loopEnd uint
}

// read reads a script.
func read(script string) reading { return readNested(script, 0) }

func readNested(script string, depth int) reading {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil || depth > 5 {
		return reading{invalid: true}
	}
	r := &reader{script: script, depth: depth, functions: map[string]bool{}, reading: reading{labels: map[string]string{}}}
	for node := range syntax.Preorder(file) {
		if f, is := node.(*syntax.FuncDecl); is {
			r.functions[f.Name.Value] = true
		}
	}
	for node := range syntax.Preorder(file) {
		r.visit(node)
	}
	return r.reading
}

func (r *reader) visit(node syntax.Node) {
	switch node := node.(type) {
	case *syntax.WhileClause, *syntax.ForClause:
		if isEndless(node) {
			r.found(node, true)
		}
	case *syntax.Stmt:
		if call, is := node.Cmd.(*syntax.CallExpr); is && len(call.Args) > 0 {
			r.call(call, node.Redirs)
		}
	case *syntax.Redirect:
		r.work = r.work || node.Word.Lit() != "/dev/null" && node.Op != syntax.DplOut && node.Op != syntax.DplIn
	}
}

// found adds what may not end, unless it is in a loop that was found.
func (r *reader) found(node syntax.Node, isLoop bool) {
	from, to := node.Pos().Offset(), node.End().Offset()
	if from < r.loopEnd {
		return
	}
	text, _, _ := strings.Cut(r.script[from:to], "\n")
	r.endless = append(r.endless, finding{node.Pos().Line(), text, isLoop})
	if isLoop {
		r.loopEnd = to
	}
}

// call reads one command.
func (r *reader) call(call *syntax.CallExpr, redirects []*syntax.Redirect) {
	words := make([]string, len(call.Args))
	for i, word := range call.Args {
		words[i] = literal(word)
	}
	words = unwrapped(words)
	name := path.Base(words[0])
	switch script, isShown := scriptOf(words, redirects); {
	case waits(words):
		r.found(call, false)
	case isShown:
		r.nested(call, readNested(script, r.depth+1), words[0])
	case slices.Contains(programs.Idle, name):
		r.work = r.work || name == "trap" && !slices.Contains(programs.Harmless, words[min(1, len(words)-1)])
	default:
		r.work = true
		if name == "kubectl" {
			labelsIn(words, r.labels)
		}
		if !r.functions[name] && !ends(words) {
			r.unknown = cmp.Or(r.unknown, programOf(words))
		}
	}
}

// scriptOf returns the script that a shell runs: an argument, or a here-document.
func scriptOf(words []string, redirects []*syntax.Redirect) (script string, isShown bool) {
	rest, isText := operands(words)
	if isText {
		return rest[0], true
	}
	i := slices.IndexFunc(redirects, func(r *syntax.Redirect) bool { return r.Hdoc != nil })
	if !isShell(words[0]) || len(rest) > 0 || i < 0 {
		return "", false
	}
	return literal(redirects[i].Hdoc), true
}

// nested adds what a script in a command shows.
func (r *reader) nested(call *syntax.CallExpr, inner reading, shell string) {
	if inner.invalid {
		inner.unknown = shell
	}
	for _, f := range inner.endless {
		r.found(call, f.isLoop)
	}
	r.work, r.unknown = true, cmp.Or(r.unknown, inner.unknown)
	maps.Copy(r.labels, inner.labels)
}

// labelsIn adds the labels that a command of kubectl changes on nodes.
func labelsIn(words []string, changes map[string]string) {
	i := slices.Index(words, "label")
	if i < 0 || !slices.ContainsFunc(words[i:], func(word string) bool { return strings.HasPrefix(word, "no") }) {
		return
	}
	for _, word := range words[i+1:] {
		key, value, sets := strings.Cut(word, "=")
		if strings.HasPrefix(word, "-") || !sets && !strings.HasSuffix(word, "-") {
			continue
		}
		if !sets {
			key, value = strings.TrimSuffix(key, "-"), "-"
		}
		if strings.Contains(key, "$") {
			key = "$"
		}
		changes[key] = cmp.Or(value, "$")
	}
}

// programOf names the program of a command.
func programOf(words []string) string {
	switch rest, _ := operands(words); {
	case strings.Contains(words[0], "$"):
		return "what a variable names"
	case isShell(words[0]) && len(rest) == 0:
		return words[0] + " with a script from its input"
	}
	return cmp.Or(words[0], "an empty command")
}

// isEndless reports whether a loop may not end: it is no list of words, and does not read its input.
func isEndless(node syntax.Node) bool {
	switch loop := node.(type) {
	case *syntax.ForClause:
		_, asInC := loop.Loop.(*syntax.CStyleLoop)
		return asInC
	case *syntax.WhileClause:
		if len(loop.Cond) != 1 || loop.Until {
			return true
		}
		call, is := loop.Cond[0].Cmd.(*syntax.CallExpr)
		return !is || len(call.Args) == 0 || call.Args[0].Lit() != "read"
	}
	return false
}

// literal returns the text of a word, or of a part of one. What is not literal is "$".
func literal(node syntax.Node) string {
	var parts []syntax.WordPart
	switch node := node.(type) {
	case *syntax.Lit:
		return node.Value
	case *syntax.SglQuoted:
		return node.Value
	case *syntax.Word:
		parts = node.Parts
	case *syntax.DblQuoted:
		parts = node.Parts
	default:
		return "$"
	}
	var text strings.Builder
	for _, part := range parts {
		text.WriteString(literal(part))
	}
	return text.String()
}

//go:embed programs.yaml
var programsYAML []byte

// programs say what commands do.
var programs = table[struct {
	Ending, Idle, Shells      words
	Harmless                  []string
	Wrappers                  map[string]string
	Lasting, Waiting, Reboots *regexp.Regexp
}](programsYAML)

// words are separated by spaces in a table.
type words []string

// UnmarshalText splits the words.
func (w *words) UnmarshalText(text []byte) error {
	*w = strings.Fields(string(text))
	return nil
}

// waits reports whether a command waits without end: at least 10 minutes, which is the default time limit of a task.
func waits(argv []string) bool {
	if path.Base(argv[0]) != "sleep" {
		return programs.Waiting.MatchString(strings.Join(argv, "\x00"))
	}
	total := 0.0
	for _, arg := range argv[1:] {
		number := strings.TrimRight(arg, "smhd")
		unit, isKnown := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[arg[len(number):]]
		seconds, err := strconv.ParseFloat(number, 64)
		if err != nil || !isKnown || math.IsNaN(seconds) {
			return true // infinity, or a variable
		}
		total += seconds * unit
	}
	return total >= 600
}

// ends reports whether a program surely ends.
func ends(argv []string) bool {
	return slices.Contains(programs.Ending, path.Base(argv[0])) && !programs.Lasting.MatchString(strings.Join(argv, "\x00"))
}

// unwrapped returns the command that wrappers such as nsenter run.
func unwrapped(words []string) []string {
	name := path.Base(words[0])
	valued, is := programs.Wrappers[name]
	if !is {
		return words
	}
	rest := withoutOptions(words[1:], valued, name == "env")
	if name == "chroot" || name == "timeout" {
		rest = rest[min(1, len(rest)):]
	}
	if len(rest) == 0 {
		return words
	}
	return unwrapped(rest)
}

// withoutOptions removes the options of a wrapper. valued are the letters of those that have a value in the next word.
func withoutOptions(words []string, valued string, variables bool) []string {
	for len(words) > 0 && (strings.HasPrefix(words[0], "-") || variables && strings.Contains(words[0], "=")) {
		option := words[0]
		if words = words[1:]; option == "--" {
			break
		}
		if len(option) == 2 && strings.Contains(valued, option[1:]) {
			words = words[min(1, len(words)):]
		}
	}
	return words
}

func isShell(program string) bool { return slices.Contains(programs.Shells, path.Base(program)) }

// operands returns the arguments of a shell without its options, and whether the first one is the text of a script (-c). Other programs
// have none.
func operands(argv []string) (rest []string, isText bool) {
	if !isShell(argv[0]) {
		return nil, false
	}
	args := argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		isText = isText || isCommandFlag(args[0])
		if args[0] == "-o" || args[0] == "-euo" || args[0] == "-eo" {
			args = args[1:]
		}
		args = args[min(1, len(args)):]
	}
	return args, isText && len(args) > 0
}

// isCommandFlag reports whether the option of a shell is -c, such as -c, -ec and -lc.
func isCommandFlag(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && arg[1] != '-' && strings.HasSuffix(arg, "c")
}

// reboots returns the line of a text that may reboot the node.
func reboots(text string) (line string, found bool) {
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); programs.Reboots.MatchString(line) && !strings.HasPrefix(line, "#") {
			return line, true
		}
	}
	return "", false
}
