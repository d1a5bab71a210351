// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// program is what a container runs.
type program struct {
	// script is the text of a shell script; "" if the container runs something else.
	script string
	// shell is the interpreter of script or file, and options are what set takes, such as "eux" and "o pipefail".
	shell   string
	options []string
	// file is a script that the shell reads, or that is executed.
	file string
	// argv is a program and its arguments, if there is no script.
	argv []string
	// onNode says that nsenter or chroot has been removed: the program is one of the node.
	onNode bool
}

// programOf reads the command of a container. roots are the paths at which the root of the node is mounted.
func programOf(c *corev1.Container, roots []string) program {
	p := program{}
	argv := slices.Concat(c.Command, c.Args)
	if len(c.Command) == 0 && (len(argv) == 0 || !isShell(argv[0])) {
		p.argv = c.Args
		return p
	}
	p.unwrap(argv, roots)
	if p.script != "" {
		p.unwrapScript(roots)
	}
	return p
}

func isShell(name string) bool {
	return slices.Contains([]string{"sh", "bash", "ash", "dash"}, path.Base(name))
}

// unwrap removes nsenter, chroot and the shell from a command.
func (p *program) unwrap(argv, roots []string) {
	for len(argv) > 0 {
		rest, ok := intoNode(argv, roots)
		if !ok {
			break
		}
		p.onNode, argv = true, rest
	}
	switch {
	case len(argv) > 0 && isShell(argv[0]) && p.readShell(path.Base(argv[0]), argv[1:]):
		return
	case len(argv) == 1 && !p.onNode && strings.Contains(argv[0], "/"):
		p.file = argv[0]
	}
	p.argv = argv
}

// intoNode returns the command that nsenter or chroot runs on the node.
func intoNode(argv, roots []string) ([]string, bool) {
	switch path.Base(argv[0]) {
	case "nsenter":
		return afterNsenter(argv[1:])
	case "chroot":
		if len(argv) > 1 && slices.Contains(roots, path.Clean(argv[1])) {
			return argv[2:], true
		}
	}
	return nil, false
}

var (
	targetOption = regexp.MustCompile(`^(?:--target|-[a-zA-Z]*t)$`)
	targetInit   = regexp.MustCompile(`^(?:--target|-[a-zA-Z]*t)=?1$|/proc/1/`)
	entersMounts = regexp.MustCompile(`^(?:--mount|--all)(?:=|$)|^-[a-zA-Z]*[ma]`)
)

// afterNsenter returns the command of nsenter, and whether it runs in the mount namespace of the node.
func afterNsenter(args []string) ([]string, bool) {
	mounts, init := false, false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return args[i+1:], mounts && init
		}
		if !strings.HasPrefix(arg, "-") {
			return args[i:], mounts && init
		}
		if targetOption.MatchString(arg) && i+1 < len(args) {
			i++
			arg += "=" + args[i]
		}
		mounts, init = mounts || entersMounts.MatchString(arg), init || targetInit.MatchString(arg)
	}
	return nil, false
}

// readShell reads the arguments of a shell.
func (p *program) readShell(name string, args []string) bool {
	options, isScript, rest := shellOptions(args)
	if len(rest) != 1 {
		return false
	}
	if isScript {
		p.script = rest[0]
	} else {
		p.file = rest[0]
	}
	p.shell, p.options = "sh", options
	if name == "bash" {
		p.shell = name
	}
	return true
}

var notSet = regexp.MustCompile(`[^aefhuvxC]`)

// shellOptions returns the options of a shell in the form of set, whether one of them is -c, and the other arguments.
func shellOptions(args []string) (options []string, isScript bool, rest []string) {
	options = []string{}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && len(args[0]) > 1 {
		flags := strings.TrimLeft(args[0], "-")
		args = args[1:]
		isScript = isScript || strings.Contains(flags, "c")
		if set := notSet.ReplaceAllString(flags, ""); set != "" {
			options = append(options, set)
		}
		if strings.HasSuffix(flags, "o") && len(args) > 0 {
			options = append(options, "o "+args[0])
			args = args[1:]
		}
	}
	return options, isScript, args
}

var (
	// nsenterPrefix matches nsenter with its options in a script.
	nsenterPrefix = regexp.MustCompile(`(?:/\S*/)?\bnsenter\s+(?:(?:-t|--target)[\s=]*1\s+|-[a-zA-Z]+t\s+1\s+|-[a-zA-Z]+\s+|-m/proc/1/\S+\s+|--[a-z]+(?:=\S+)?\s+)*(?:--\s+)?`)
	// inInit matches the options that enter the mount namespace of the first process.
	inInit = regexp.MustCompile(`/proc/1/ns/mnt|(?:-t|--target)[\s=]*1\b|-[a-zA-Z]+t\s+1\b`)
)

// unwrapScript removes nsenter and chroot from the commands of a script.
func (p *program) unwrapScript(roots []string) {
	if lines := logicalLines(p.script); len(lines) == 1 && len(commands(lines[0].text)) == 1 {
		inner := program{}
		if inner.unwrap(words(strings.TrimPrefix(strings.TrimSpace(p.script), "exec ")), roots); inner.onNode && inner.script != "" {
			inner.options = append(p.options, inner.options...)
			*p = inner
			return
		}
	}
	p.script = nsenterPrefix.ReplaceAllStringFunc(p.script, func(prefix string) string {
		if !inInit.MatchString(prefix) {
			return prefix
		}
		p.onNode = true
		return ""
	})
	for _, root := range roots {
		chroot := regexp.MustCompile(`(?:/\S*/)?\bchroot\s+["']?` + regexp.QuoteMeta(root) + `/?["']?(\s+<<|\s+)`)
		if chroot.MatchString(p.script) {
			p.onNode = true
			p.script = chroot.ReplaceAllStringFunc(p.script, func(prefix string) string {
				if strings.HasSuffix(prefix, "<<") {
					return "sh <<"
				}
				return ""
			})
		}
	}
}

// forever matches a wait without end at the end of a script.
var forever = regexp.MustCompile(`(?s)(?:^|\n|;|&&)[ \t]*(?:exec[ \t]+)?(?:` +
	`(?:\S*/)?sleep[ \t]+(infinity|inf|\d+[smhd]?)|` +
	`(?:\S*/)?tail[ \t]+-[fF][ \t]+/dev/null|` +
	`(?:while|until)[ \t]+(?:true|false|:|\[[ \t]*1[ \t]*\]|sleep[ \t]+\w+)\s*;?\s*do\s+(?:(?:true|:|wait|sleep[ \t]+\w+)(?:[ \t]*&[ \t]*wait(?:[ \t]+\$!)?)?[;\s]*)+done` +
	`)[ \t]*(?:&[ \t]*;?\s*wait(?:[ \t]+\S+)?)?[;\s]*(?:#[^\n]*\s*)*$`)

// minSleep is the time from which a sleep at the end of a script is a wait and not a part of the work.
const minSleep = 10 * time.Minute

// dropSleep removes the wait at the end of a script, and reports whether there was one.
func dropSleep(script string) (string, bool) {
	found := false
	for {
		m := forever.FindStringSubmatchIndex(script)
		if m == nil {
			return script, found
		}
		if m[2] >= 0 {
			if d, ok := duration(script[m[2]:m[3]]); ok && d < minSleep {
				return script, found
			}
		}
		found = true
		script = strings.TrimRight(script[:m[0]], " \t\n\\")
		if script != "" {
			script += "\n"
		}
	}
}

// duration parses the argument of sleep. It reports false for one without end.
func duration(s string) (time.Duration, bool) {
	unit := time.Second
	for suffix, u := range map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = rest, u
		}
	}
	n, err := strconv.Atoi(s)
	return time.Duration(n) * unit, err == nil
}

// repeated matches a script, or its end, that repeats its work in a loop.
var repeated = regexp.MustCompile(`(?s)(?:^|\n|;)[ \t]*while[ \t]+(?:true|:|\[[ \t]*1[ \t]*\])[ \t]*;?\s*do\b(.*[\n;&])\s*sleep[ \t]+["']?(\d+[smhd]?)["']?[;\s]*done[;\s]*$`)

// dropLoop returns the script with one pass of the loop at its end, and the time between two passes.
func dropLoop(script string) (string, time.Duration, bool) {
	m := repeated.FindStringSubmatchIndex(script)
	if m == nil {
		return script, 0, false
	}
	every, ok := duration(script[m[4]:m[5]])
	if !ok {
		return script, 0, false
	}
	before := strings.TrimSpace(script[:m[0]])
	if before != "" {
		before += "\n"
	}
	body := dedent(strings.TrimRight(strings.TrimPrefix(script[m[2]:m[3]], "\n"), " \t\n;&"))
	return before + body + "\n", every, true
}

// dedent removes the indentation that all lines have in common.
func dedent(s string) string {
	lines := strings.Split(s, "\n")
	common := ""
	for i, l := range lines {
		if indent := l[:len(l)-len(strings.TrimLeft(l, " \t"))]; strings.TrimSpace(l) != "" && (i == 0 || len(indent) < len(common)) {
			common = indent
		}
	}
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], common)
	}
	return strings.Join(lines, "\n")
}

// writes matches a redirection to a file, and the command substitution of a program.
var writes = regexp.MustCompile(`>\s*[^&\s>]|\||\$\(|` + "`")

// onlyTalks reports whether a script does nothing but print.
func onlyTalks(script string) bool {
	for _, l := range logicalLines(script) {
		if l.raw {
			continue
		}
		for _, c := range commands(l.text) {
			if writes.MatchString(c.text) {
				return false
			}
			if w := words(c.text); len(w) > 0 && !slices.Contains([]string{"echo", "printf", "set", "trap", ":", "true", "exit"}, w[0]) {
				return false
			}
		}
	}
	return true
}

// pauseImage matches the images of pause containers.
var pauseImage = regexp.MustCompile(`(?:^|/)(?:[\w.-]*-)?pause(?:-[\w.]+)?(?:[:@]|$)`)

// isIdle reports whether a container does nothing but keep its pod running.
func isIdle(c *corev1.Container) bool {
	argv := slices.Concat(c.Command, c.Args)
	if len(argv) == 0 {
		return pauseImage.MatchString(c.Image)
	}
	p := programOf(c, nil)
	if p.script == "" {
		line := strings.Join(argv, " ")
		rest, waits := dropSleep(line)
		return path.Base(argv[0]) == "pause" || waits && strings.TrimSpace(rest) == ""
	}
	rest, waits := dropSleep(p.script)
	return waits && onlyTalks(rest)
}
