// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/everynode/everynode/test/install"
)

// What a person does with the plugin, from a shell and at a terminal.

// plugin is kubectl-everynode of this checkout, built once.
var plugin = sync.OnceValues(func() (string, error) {
	root, err := install.Root()
	if err != nil {
		return "", err
	}
	return install.Plugin(context.Background(), root, pluginDir)
})

// pluginDir is where it is built.
var pluginDir string

// said is what a command printed, and how it ended.
type said struct {
	code     int
	out, err string
}

// everynode is a command of the plugin in the test's namespace, as kubectl starts it.
func (w *world) everynode(args ...string) *exec.Cmd {
	w.T.Helper()
	path, err := plugin()
	must(w.T, err)
	if i := indexOf(args, "--"); i >= 0 {
		args = append(append(append([]string{}, args[:i]...), "-n", w.Namespace), args[i:]...)
	} else {
		args = append(append([]string{}, args...), "-n", w.Namespace)
	}
	cmd := exec.CommandContext(w.Ctx, real.Kubectl(), append([]string{"everynode"}, args...)...)
	cmd.Env = append(real.Environ(filepath.Dir(path)), "TERM=xterm-256color", "LC_ALL=C")
	return cmd
}

func indexOf(list []string, s string) int {
	for i, l := range list {
		if l == s {
			return i
		}
	}
	return -1
}

// say runs a command of the plugin to its end, without a terminal.
func (w *world) say(args ...string) said {
	w.T.Helper()
	return w.sayWith("", args...)
}

// sayWith is say with something on standard input.
func (w *world) sayWith(stdin string, args ...string) said {
	w.T.Helper()
	cmd := w.everynode(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	return said{code: exitCode(w.T, cmd.Run()), out: w.plain(out.String()), err: w.plain(errs.String())}
}

// raw is the standard output of a command that succeeds, as it is.
func (w *world) raw(stdin string, args ...string) string {
	w.T.Helper()
	cmd := w.everynode(args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	must(w.T, err)
	return string(out)
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return -1
}

var (
	clocks    = regexp.MustCompile(`\d\d:\d\d:\d\dZ`)
	durations = regexp.MustCompile(`\b(in |  )?\d+(m\d+)?s\b`)
	runNames  = regexp.MustCompile(`\brun-[a-z0-9]{5}\b`)
	stamps    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
)

// plain removes the parts of a text that differ between runs.
func (w *world) plain(s string) string {
	s = stamps.ReplaceAllString(s, "TIME")
	s = clocks.ReplaceAllString(s, "CLOCK")
	s = durations.ReplaceAllString(s, "${1}SECONDS")
	s = runNames.ReplaceAllString(s, "run-NAME")
	return strings.ReplaceAll(s, w.Namespace, "NAMESPACE")
}

// terminal is a command of the plugin at a pseudo terminal of 80 columns and 24 rows.
type terminal struct {
	w    *world
	cmd  *exec.Cmd
	tty  *os.File
	mu   sync.Mutex
	all  []byte
	seen chan struct{}
	done chan struct{}
}

func (w *world) terminal(args ...string) *terminal {
	w.T.Helper()
	cmd := w.everynode(args...)
	// Otherwise the terminal discards what was written and not yet read when Ctrl-C is pressed.
	cmd.Args = append([]string{"sh", "-c", `stty noflsh && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	must(w.T, err)
	t := &terminal{w: w, cmd: cmd, tty: tty, seen: make(chan struct{}, 1), done: make(chan struct{})}
	go t.read()
	w.T.Cleanup(func() { _ = tty.Close() })
	return t
}

func (t *terminal) read() {
	defer close(t.done)
	buffer := make([]byte, 4096)
	for {
		n, err := t.tty.Read(buffer)
		t.mu.Lock()
		t.all = append(t.all, buffer[:n]...)
		t.mu.Unlock()
		select {
		case t.seen <- struct{}{}:
		default:
		}
		if err != nil { // EIO: the other end is closed
			return
		}
	}
}

// screen is what the terminal shows, with all that has left it at the top.
func (t *terminal) screen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.plain(strings.Join(glass(t.w.T, string(t.all)), "\n"))
}

// await waits until the terminal shows a text.
func (t *terminal) await(text string) {
	t.w.T.Helper()
	timeout := time.After(60 * time.Second)
	for !strings.Contains(t.screen(), text) {
		select {
		case <-t.seen:
		case <-t.done:
			if strings.Contains(t.screen(), text) {
				return
			}
			t.w.T.Fatalf("it has ended, and never showed %q:\n%s", text, t.screen())
		case <-timeout:
			t.w.T.Fatalf("it does not show %q:\n%s", text, t.screen())
		}
	}
}

// press sends keys.
func (t *terminal) press(keys string) {
	t.w.T.Helper()
	_, err := io.WriteString(t.tty, keys)
	must(t.w.T, err)
}

const ctrlC = "\x03"

// end waits for the end of the command, and returns what is left on the terminal.
func (t *terminal) end() said {
	t.w.T.Helper()
	code := exitCode(t.w.T, t.cmd.Wait())
	select {
	case <-t.done:
	case <-time.After(10 * time.Second):
	}
	return said{code: code, out: t.screen()}
}

var escape = regexp.MustCompile(`^\x1b\[(\??)([0-9;]*)([A-Za-z])`)

// glass emulates the part of a terminal that the plugin uses. An unknown sequence fails the
// test: control sequences from a node must not reach the terminal.
func glass(t *testing.T, s string) []string {
	var lines []string
	row, column := 0, 0
	put := func(r rune) {
		for row >= len(lines) {
			lines = append(lines, "")
		}
		line := []rune(lines[row])
		for len(line) < column {
			line = append(line, ' ')
		}
		lines[row] = string(append(append([]rune{}, line[:column]...), r))
		if column+1 < len(line) {
			lines[row] += string(line[column+1:])
		}
		column++
	}
	for s != "" {
		m := escape.FindStringSubmatch(s)
		switch {
		case m != nil:
			s = s[len(m[0]):]
			switch m[1] + m[3] {
			case "A":
				up := 0
				_, _ = fmt.Sscan(m[2], &up)
				row = max(row-up, 0)
			case "K":
				if row < len(lines) {
					lines[row] = string([]rune(lines[row])[:min(column, len([]rune(lines[row])))])
				}
			case "J":
				if row < len(lines) {
					lines = lines[:row]
				}
			case "m", "?h", "?l":
			default:
				t.Errorf("the terminal was told %q", m[0])
			}
		case s[0] == '\r':
			column, s = 0, s[1:]
		case s[0] == '\n':
			row, s = row+1, s[1:]
		case s[0] == '\x1b' || s[0] == '\b' || s[0] == '\a':
			if len(s) > 12 { // otherwise the rest has not arrived yet
				t.Errorf("the terminal was told %q", s[:12])
			}
			return lines
		case !utf8.FullRuneInString(s):
			return lines // the rest has not arrived yet
		default:
			r, size := utf8.DecodeRuneInString(s)
			put(r)
			s = s[size:]
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}
