// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/script"
)

// lastScript is the script that an attempt has run last.
type lastScript struct {
	phase  phase
	script Script
	// printed is how many bytes of output there were before it.
	printed int
	// exitCode is 0 if it did not end by itself.
	exitCode int
}

// noteSilence says what is known about a script that failed without output, after all output was read.
//
// It does not say which line failed, except if there is only one, because no way to find out leaves the script as it is:
//
//   - An ERR trap, with BASH_ENV, is visible in the script, replaces one of its own or is replaced by it, does not see "exit 3", and
//     does not exist in other shells.
//   - set -x changes "$-". Without BASH_XTRACEFD, which only bash has, it prints to the output of the script, which may
//     parse the output of its own functions. A script that uses set -x itself would print elsewhere.
//   - The offset in the script's file is where the shell reads next. Shells read blocks, so it is usually the end of the script.
//   - ptrace prevents the script from using strace or gdb on itself, and slows it down.
//
// To run the script a second time to find out is not possible either: it has effects.
func (a *attempt) noteSilence(ended ending) {
	last := a.last
	if last.exitCode == 0 || last.exitCode != ended.code || a.NoOutput || a.printed() != last.printed {
		return
	}
	what, program, where, hint := last.phase.name, "", "", ""
	if last.script.Command != nil {
		what = "the command " + a.quoted(strings.Join(last.script.Command, " "))
	} else {
		program = " (interpreter " + outcome.CleanHead(last.script.Interpreter[0], maxProgramBytes) + ")"
		hint = ". To see which command failed, let it print what it does"
		if isShell(last.script.Interpreter[0]) {
			hint += ", for example with set -x"
			if text, line := script.OnlyLine(last.script.Text); line > 0 {
				where = " in line " + strconv.Itoa(line) + " " + a.quoted(text)
			}
		}
	}
	a.note("%s ended with exit code %d%s and printed nothing%s%s%s", what, last.exitCode, where, program, meaning(last.exitCode), hint)
}

// quoted returns what a script or command is, in parentheses, without the values of Secrets.
func (a *attempt) quoted(text string) string {
	return "(" + outcome.CleanHead(outcome.CleanLine(a.secrets.text(text)), maxQuotedBytes) + ")"
}

const (
	// maxProgramBytes limits the name of an interpreter in a note.
	maxProgramBytes = 128
	// maxQuotedBytes limits a line of a script in a note.
	maxQuotedBytes = 256
)

// isShell reports whether an interpreter is a shell, whose comments begin with "#" and whose commands end with their line.
func isShell(interpreter string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"}, filepath.Base(interpreter))
}

// meaning returns what an exit code usually means for a shell; "" if it has no common meaning.
func meaning(code int) string {
	const usually = ". Exit code "
	switch signal := syscall.Signal(code - 128); {
	case code == 126:
		return usually + "126 usually means that a command was found, but cannot be executed"
	case code == 127:
		return usually + "127 usually means that a command was not found"
	case code > 128 && unix.SignalName(signal) != "":
		return usually + strconv.Itoa(code) + " usually means that a command was killed by " + signalName(signal)
	}
	return ""
}
