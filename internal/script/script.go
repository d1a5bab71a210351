// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package script reads the text of a script as an interpreter would: which interpreter it names, and what an interpreter
// would misread. The command line, the manager and the runner use it, so that they agree. It is pure.
package script

import (
	"fmt"
	"strings"
)

// byteOrderMark is what some editors on Windows write at the beginning of a file in UTF-8.
const byteOrderMark = "\ufeff"

// Problem returns what an interpreter would misread in a script, and the remedy, as the rest of a sentence about the script; ""
// if nothing is known. A shell takes the carriage return of a Windows line ending for a part of the last word of the line: it
// creates a file "x\r", or does not find the option "-e\r". It takes a byte order mark for a part of the first word. Both can end
// with exit code 0.
func Problem(text string) string {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if strings.HasPrefix(line, byteOrderMark) {
			return fmt.Sprintf(`has a byte order mark (BOM) at the beginning of line %d, which an interpreter takes for a part of the first word. Save it as UTF-8 without BOM, or remove it from the file: sed -i 's/^\xEF\xBB\xBF//' FILE`, n)
		}
		if strings.HasSuffix(strings.TrimSuffix(line, "\n"), "\r") {
			return fmt.Sprintf(`has Windows line endings (CRLF), the first in line %d: an interpreter takes the carriage return for a part of the last word of the line. Save it with Unix line endings (LF), or convert the file: sed -i 's/\r$//' FILE`, n)
		}
	}
	return ""
}

// Interpreter returns the program and the argument of the #! line, and the number of the line, from 1; 0 if there is none. The
// program is "" if the line names none.
//
// Linux reads only a #! that is the beginning of the script. If only blanks, empty lines and comments are before it, its author
// meant it nevertheless, and /bin/sh would run a script of another language, perhaps to its end. Such a line must name a path,
// because it could also be another comment. A #! line after a command is not read: it may be part of a file that the script writes.
func Interpreter(text string) (program, argument string, line int) {
	for content := range strings.Lines(text) {
		line++
		first := line == 1 && strings.HasPrefix(content, "#!")
		content = strings.TrimSpace(content)
		if named, ok := strings.CutPrefix(content, "#!"); ok {
			if program, argument = split(named); first || strings.HasPrefix(program, "/") {
				return program, argument, line
			}
		}
		if content != "" && content[0] != '#' {
			break
		}
	}
	return "", "", 0
}

// split works like Linux (fs/binfmt_script.c): the rest of the line after the interpreter is one argument, so
// "#!/usr/bin/env -S bash -eu" works as it does in a file.
func split(line string) (program, argument string) {
	line = strings.Trim(line, " \t")
	end := strings.IndexAny(line, " \t")
	if end < 0 {
		return line, ""
	}
	return line[:end], strings.Trim(line[end:], " \t")
}

// OnlyLine returns the only line of a script that is neither blank nor a comment, and its number, from 1; 0 if there are several,
// or none. Comments are those of a shell.
func OnlyLine(text string) (content string, number int) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if number != 0 {
			return "", 0
		}
		content, number = line, n
	}
	return content, number
}
