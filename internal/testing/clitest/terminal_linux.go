// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// OnTerminal returns what do writes to a terminal of this width.
func OnTerminal(t *testing.T, columns uint16, do func(terminal *os.File)) string {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = control.Close() }()
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: columns}); err != nil {
		t.Fatal(err)
	}
	written := make(chan string)
	go func() {
		all, _ := io.ReadAll(control) // ends with an error when the terminal is closed
		written <- string(all)
	}()
	do(terminal)
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(<-written, "\r\n", "\n")
}
