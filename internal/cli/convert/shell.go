// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	_ "embed" // programs.yaml
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// reading is what a shell script shows: whether it ends, and which labels it changes. Scripts are never changed.
type reading struct {
	// endless are the commands that wait without end, and the loops that may repeat their work without end.
	endless []finding
	// work reports whether it does something else.
	work bool
	// unknown is the first command that may not end; "" if all end.
	unknown string
	// absent is the ConfigMap or Secret that has a program that it runs, and that is not in the files.
	absent content
	// labels are the labels that it sets on nodes with kubectl, with their values, and - for those that it removes. The key is $ for
	// labels that it does not show.
	labels map[string]string
}

// finding is a command or a loop of a script that may not end.
type finding struct {
	line   uint
	text   string
	isLoop bool
}

// opener returns the text of a file that is in a ConfigMap or Secret, and which one that is. runs says that a command runs the file: then
// it has its text only once, and later that of a script that does nothing.
type opener func(file string, runs bool) (text string, from content)

// reader reads a script.
type reader struct {
	reading

	script    string
	functions map[string]bool
	// depth is the number of scripts around it.
	depth int
	open  opener
}

// read reads a script. depth is the number of scripts around it.
func read(script string, depth int, open opener) reading {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil || depth > 5 {
		return reading{work: true, unknown: script} // it is not one of a POSIX shell or Bash
	}
	r := &reader{script: script, depth: depth, functions: map[string]bool{}, reading: reading{labels: map[string]string{}}, open: open}
	for node := range syntax.Preorder(file) {
		if f, is := node.(*syntax.FuncDecl); is && f.Name != nil {
			r.functions[f.Name.Value] = !calls(f.Body, f.Name.Value)
		}
	}
	for node := range syntax.Preorder(file) {
		r.visit(node)
	}
	return r.reading
}

// calls reports whether a part of a script runs a program or a function of that name.
func calls(part syntax.Node, name string) bool {
	for node := range syntax.Preorder(part) {
		if call, is := node.(*syntax.CallExpr); is && len(call.Args) > 0 && call.Args[0].Lit() == name {
			return true
		}
	}
	return false
}

// readCommand reads a program and its arguments, without a shell.
func readCommand(argv []string, open opener) reading {
	r := &reader{reading: reading{labels: map[string]string{}}, open: open}
	r.command(argv, nil, finding{line: 1, text: strings.Join(argv, " ")})
	return r.reading
}

func (r *reader) visit(node syntax.Node) {
	switch node := node.(type) {
	case *syntax.WhileClause, *syntax.ForClause:
		if at := r.at(node); isEndless(node) {
			at.isLoop = true
			r.endless = append(r.endless, at)
		}
	case *syntax.Stmt:
		if call, is := node.Cmd.(*syntax.CallExpr); is && len(call.Args) > 0 {
			words := make([]string, len(call.Args))
			for i, word := range call.Args {
				words[i] = literal(word.Parts)
			}
			r.command(words, node.Redirs, r.at(call))
		}
	case *syntax.Redirect:
		r.work = r.work || node.Word.Lit() != "/dev/null" && node.Op != syntax.DplOut && node.Op != syntax.DplIn
	}
}

// at returns where a command or a loop is, and its first line.
func (r *reader) at(node syntax.Node) finding {
	text, _, _ := strings.Cut(r.script[node.Pos().Offset():node.End().Offset()], "\n")
	return finding{line: node.Pos().Line(), text: text}
}

// command reads one command.
func (r *reader) command(words []string, redirects []*syntax.Redirect, at finding) {
	if isLimited(words) {
		defer func(endless []finding) { r.endless = endless }(r.endless)
	}
	words = unwrapped(words)
	name := path.Base(words[0])
	_, rest := splitOptions(words[1:], nil)
	switch script, isShown := r.scriptOf(words, redirects); {
	case waits(words):
		r.endless = append(r.endless, at)
	case isShown:
		r.nested(read(script, r.depth+1, r.open), at)
	case name == "trap" && len(rest) > 0 && !slices.Contains(programs.Harmless, rest[0]):
		inner := read(rest[0], r.depth+1, r.open)
		inner.unknown = "" // it may call functions
		r.nested(inner, at)
	case slices.Contains(programs.Idle, name):
	default:
		r.program(name, words, at)
	}
}

// program reads a command that is neither a shell nor waits.
func (r *reader) program(name string, words []string, at finding) {
	r.work = true
	if slices.Contains([]string{"kubectl", "oc", "$"}, name) {
		labelsIn(words, r.labels)
	}
	if !r.functions[name] && !ends(words) {
		r.unknown = cmp.Or(r.unknown, at.text, "an empty command")
	}
}

// scriptOf returns the script that a command runs: an argument of a shell, a file of a ConfigMap or Secret, or a here-document.
func (r *reader) scriptOf(words []string, redirects []*syntax.Redirect) (script string, isShown bool) {
	rest, isText := operands(words)
	if isText {
		return rest[0], true
	}
	if text := r.file(words, rest); text != "" {
		return text, true
	}
	i := slices.IndexFunc(redirects, func(r *syntax.Redirect) bool { return r.Hdoc != nil })
	if !isShell(words[0]) || len(rest) > 0 || i < 0 {
		return "", false
	}
	return literal(redirects[i].Hdoc.Parts), true
}

// file returns the text of a file that a command runs, as a program or as the script of a shell.
func (r *reader) file(words, rest []string) string {
	for i, word := range words {
		runs := i == 0 || len(rest) > 0 && word == rest[0] || i == 1 && slices.Contains([]string{".", "source"}, words[0])
		text, from := r.open(word, runs)
		switch {
		case runs && text != "":
			return text
		case text == "" && (runs || strings.HasSuffix(word, ".sh")):
			r.absent = cmp.Or(r.absent, from)
		}
	}
	return ""
}

// nested adds what a script in a command shows.
func (r *reader) nested(inner reading, at finding) {
	if len(inner.endless) > 0 {
		at.isLoop = !slices.ContainsFunc(inner.endless, func(f finding) bool { return !f.isLoop })
		r.endless = append(r.endless, at)
	}
	if r.work = true; inner.unknown != "" {
		r.unknown = cmp.Or(r.unknown, at.text)
	}
	maps.Copy(r.labels, inner.labels)
	r.absent = cmp.Or(r.absent, inner.absent)
}

// changedLabel matches an argument of kubectl label, such as key=value and key-.
var changedLabel = regexp.MustCompile(`(?s)^([^-=][^=]*)(=.*|-)$`)

// labelsIn adds the labels that a command of kubectl changes on nodes.
func labelsIn(words []string, changes map[string]string) {
	i := slices.IndexFunc(words, ofNodes.MatchString)
	text := strings.Join(words, " ")
	switch {
	case i < 0:
	case slices.Contains(words, "patch") && (strings.Contains(text, "labels") || !strings.Contains(text, "{")):
		changes["$"] = "$"
	case slices.Contains(words, "label"):
		readLabelling(words[i:], changes)
	}
}

// readLabelling adds the labels of a command for nodes. The words begin with their kind.
func readLabelling(words []string, changes map[string]string) {
	words = slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word == "label" || strings.HasPrefix(word, "-") })
	hasName := strings.Contains(words[0], "/")
	for n, word := range words {
		m := changedLabel.FindStringSubmatch(word)
		switch {
		case m != nil && !strings.Contains(m[1], "$"):
			changes[m[1]] = cmp.Or(strings.TrimPrefix(m[2], "="), "$")
		case m != nil, strings.HasPrefix(word, "$") && (n > 1 || hasName):
			changes["$"] = "$"
		}
	}
}

// ofNodes matches the kind of nodes, alone or with a name.
var ofNodes = regexp.MustCompile(`^no(de|des)?(/|$)`)

// isEndless reports whether a loop may not end: it is no list of words, and does not read its input.
func isEndless(node syntax.Node) bool {
	switch loop := node.(type) {
	case *syntax.ForClause:
		_, asInC := loop.Loop.(*syntax.CStyleLoop)
		return asInC
	case *syntax.WhileClause:
		call, is := loop.Cond[len(loop.Cond)-1].Cmd.(*syntax.CallExpr)
		return loop.Until || !is || len(call.Args) == 0 || call.Args[0].Lit() != "read"
	}
	return false
}

// literal returns the text of a word. What is not literal is "$".
func literal(parts []syntax.WordPart) string {
	var text strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			text.WriteString(part.Value)
		case *syntax.SglQuoted:
			text.WriteString(part.Value)
		case *syntax.DblQuoted:
			text.WriteString(literal(part.Parts))
		default:
			text.WriteString("$")
		}
	}
	return text.String()
}

//go:embed programs.yaml
var programsYAML []byte

// programs say what commands do, and what the settings of containers mean for them.
var programs = table[struct {
	Ending, Idle, Shells, Harmless             []string
	Wrappers                                   map[string][]string
	Lasting, Waiting, Short, Expanded, OfFile  *regexp.Regexp
	Bare, EntersIPC                            *regexp.Regexp
	Pause, Servers, API, Providers, OwnKeys    *regexp.Regexp
	Nsenter, EntersMount, EntersNet, EntersUTS *regexp.Regexp
	IPC, Mounts, Patch, Variable               *regexp.Regexp
	HarmlessSettings, OtherSettings            *regexp.Regexp
	Advice                                     []struct {
		Pattern       *regexp.Regexp
		Does, Instead string
	}
}](programsYAML)

// waits reports whether a command waits without end, or for at least 10 minutes.
func waits(argv []string) bool {
	text := strings.Join(argv, "\x00")
	return programs.Waiting.MatchString(text) && !programs.Short.MatchString(text)
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
	options, rest := splitOptions(words[1:], valued)
	switch name {
	case "command":
		if len(options) > 0 {
			return words // it only looks for a program
		}
	case "find":
		rest = after(words, "-exec", "-execdir", "-ok", "-okdir")
	case "ip":
		rest = after(words, "exec")
		rest = rest[min(1, len(rest)):]
	case "chroot", "timeout":
		rest = rest[min(1, len(rest)):]
	case "env":
		rest = rest[max(0, slices.IndexFunc(rest, func(word string) bool { return !strings.Contains(word, "=") })):]
	}
	if len(rest) == 0 {
		return words
	}
	return unwrapped(rest)
}

// after returns the words after the first one of some words; nil if there is none.
func after(words []string, first ...string) []string {
	if i := slices.IndexFunc(words, func(word string) bool { return slices.Contains(first, word) }); i >= 0 {
		return words[i+1:]
	}
	return nil
}

// isLimited reports whether timeout ends a command within 10 minutes.
func isLimited(words []string) bool {
	if path.Base(words[0]) != "timeout" {
		return false
	}
	_, rest := splitOptions(words[1:], programs.Wrappers["timeout"])
	return len(rest) > 0 && strings.Trim(rest[0], "0.sm") != "" && programs.Short.MatchString("sleep\x00"+rest[0])
}

// splitOptions splits the arguments of a program into its options and the rest. valued are the options with a value in the next word,
// which is added to them: -t=1.
func splitOptions(args, valued []string) (options, rest []string) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option := args[0]
		if args = args[1:]; option == "--" {
			break
		}
		name, isLong := strings.CutPrefix(option, "--")
		if !isLong {
			name = option[len(option)-1:]
		}
		if len(args) > 0 && slices.Contains(valued, name) {
			option, args = option+"="+args[0], args[1:]
		}
		options = append(options, option)
	}
	return options, args
}

func isShell(program string) bool { return slices.Contains(programs.Shells, path.Base(program)) }

// operands returns the arguments of a shell without its options, and whether the first one is the text of a script (-c). Other programs
// have none.
func operands(argv []string) (rest []string, isText bool) {
	if !isShell(argv[0]) {
		return nil, false
	}
	options, rest := splitOptions(argv[1:], []string{"o", "O", "rcfile", "init-file"})
	return rest, len(rest) > 0 && slices.ContainsFunc(options, isCommandFlag)
}

// isCommandFlag reports whether the option of a shell is -c, such as -c, -ec and -cex.
func isCommandFlag(arg string) bool {
	arg, _, _ = strings.Cut(arg, "=") // the value of -o
	return len(arg) > 1 && arg[0] == '-' && arg[1] != '-' && strings.Contains(arg, "c")
}

// isWholeScript reports whether argv is a shell, its options, -c and a script, and the script is the same from a file.
func isWholeScript(argv []string) bool {
	rest, isText := operands(argv)
	return isText && len(rest) == 1 && slices.IndexFunc(argv, isCommandFlag) == len(argv)-2 && !programs.OfFile.MatchString(rest[0])
}
