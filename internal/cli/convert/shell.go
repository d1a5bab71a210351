// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	_ "embed" // programs.yaml
	"path"
	"regexp"
	"slices"
	"strings"
)

// Scripts are neither parsed nor changed. Patterns find lines that a user must look at.

//go:embed programs.yaml
var programsYAML []byte

// programs say what lines of scripts mean, and what the settings of containers mean for a program.
var programs = table[struct {
	Shells                                     []string
	Idle, Waits, Long                          *regexp.Regexp
	Expanded, OfFile                           *regexp.Regexp
	Bare, EntersIPC                            *regexp.Regexp
	Pause, Servers, API, Providers, OwnKeys    *regexp.Regexp
	Nsenter, EntersMount, EntersNet, EntersUTS *regexp.Regexp
	IPC, Mounts, Patch, Variable               *regexp.Regexp
	OfNodes, HiddenLabel, Prints               *regexp.Regexp
	Placeholder                                *regexp.Regexp
	HarmlessSettings, OtherSettings            *regexp.Regexp
	Advice                                     []struct {
		Pattern       *regexp.Regexp
		Does, Instead string
	}
}](programsYAML)

// nsenterValued are the options of nsenter with a value in the next word.
var nsenterValued = []string{"t", "S", "G", "r", "w", "target", "setuid", "setgid", "root", "wd"}

// lineOf returns the first line that matches, and its number from 1; 0 if there is none. Text that a line only prints does not count.
func lineOf(text string, pattern *regexp.Regexp) (line string, number int) {
	for i, line := range strings.Split(text, "\n") {
		if pattern.MatchString(programs.Prints.ReplaceAllString(line, ":")) {
			return strings.TrimSpace(line), i + 1
		}
	}
	return "", 0
}

// labelled returns the value to which a command of a text sets a label of nodes: "-" if it removes the label, "$" if it does not show the
// value, and "" if it does not show that it changes the label.
func labelled(text, key string) string {
	change := regexp.MustCompile(`^[^#]*\blabel[ \t]([^#]*[ \t])?["']?` + regexp.QuoteMeta(key) + `(=[\w.-]*|-)`)
	for line := range strings.SplitSeq(text, "\n") {
		m := change.FindStringSubmatch(line)
		switch {
		case m == nil || !programs.OfNodes.MatchString(line):
		case m[2] == "=":
			return "$"
		default:
			return strings.TrimPrefix(m[2], "=")
		}
	}
	return ""
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
