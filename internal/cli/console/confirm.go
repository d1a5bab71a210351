// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bufio"
	"context"
	"os"
	"strings"

	xterm "golang.org/x/term"

	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// Confirm asks the user at the terminal, and returns an error with cmdutil.ExitDeclined for any answer but yes. Without a
// terminal, the error names the flag that confirms.
func (f *Factory) Confirm(ctx context.Context, question, flag string) error {
	in, ok := f.In.(*os.File)
	if !ok || !xterm.IsTerminal(int(in.Fd())) {
		return cmdutil.Failf(cmdutil.ExitDeclined, "the command needs a confirmation, and standard input is not a terminal. To confirm, give %s. %s", flag, question)
	}
	o := term.Of(f.ErrOut, f.Getenv).Options()
	o.Width = 0 // a question is never cut
	_, _ = f.ErrOut.Write([]byte(text.Of(question+".").Render(o) + "\n" + text.Toned(text.Strong, "Continue? [y/N]").Render(o) + " "))
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // no answer means no
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return cmdutil.Failf(cmdutil.ExitDeclined, "nothing was done")
}
