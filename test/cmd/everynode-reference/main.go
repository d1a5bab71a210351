// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-reference writes the reference of the command line from the commands themselves: a page in Markdown, or man pages. It
// also writes the pages about records, reasons and output for programs from the comments of the code, relative to the folder test.
//
//	everynode-reference markdown FILE
//	everynode-reference man DIR
//	everynode-reference records FILE
//	everynode-reference reasons FILE
//	everynode-reference outputs FILE
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/cli/console"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: everynode-reference markdown FILE | man DIR | records FILE | reasons FILE | outputs FILE")
		os.Exit(2)
	}
	root := cli.NewCommand(console.NewFactory(genericiooptions.NewTestIOStreamsDiscard()))
	root.InitDefaultHelpCmd()
	var err error
	switch os.Args[1] {
	case "markdown":
		err = markdown(root, os.Args[2])
	case "man":
		if err = os.MkdirAll(os.Args[2], 0o755); err == nil { //nolint:gosec // others may read man pages
			err = man(root, os.Args[2])
		}
	case "records":
		err = records("..", os.Args[2])
	case "reasons":
		err = reasons("..", os.Args[2])
	case "outputs":
		err = outputs("..", os.Args[2])
	default:
		err = fmt.Errorf("%q is not markdown, man, records, reasons or outputs", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "everynode-reference:", err)
		os.Exit(1)
	}
}

// man writes a man page for the command and each of its subcommands. The pages have no date, so that they change only with a command.
func man(command *cobra.Command, dir string) error {
	if !command.IsAvailableCommand() && command.HasParent() {
		return nil
	}
	name := strings.ReplaceAll(command.CommandPath(), " ", "-")
	var page bytes.Buffer
	header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Date: &time.Time{}, Source: "Everynode", Manual: "Everynode Manual"}
	if err := doc.GenMan(command, header, &page); err != nil {
		return err
	}
	text := strings.Replace(page.String(), time.Time{}.Format("Jan 2006"), "", 1)
	if err := save(filepath.Join(dir, name+".1"), []byte(text)); err != nil {
		return err
	}
	for _, inner := range command.Commands() {
		if err := man(inner, dir); err != nil {
			return err
		}
	}
	return nil
}

// save writes a page, which ends with one newline.
func save(path string, page []byte) error {
	return os.WriteFile(path, append(bytes.TrimRight(page, "\n"), '\n'), 0o644) //nolint:gosec // others may read pages
}

const head = "# Reference of kubectl everynode\n\n" +
	"`make generate` writes this page from the commands. [cli.md](../cli.md) explains when to use which. The options of `kubectl everynode`\n" +
	"apply to all commands.\n\n"

// repeated is what cobra adds to the page of each command: the options of its parents, and links to parents and children. All of them are
// on the same page here.
var repeated = regexp.MustCompile(`(?s)### (Options inherited from parent commands|SEE ALSO)\n.*`)

// markdown writes all commands into one page.
func markdown(root *cobra.Command, path string) error {
	var page bytes.Buffer
	page.WriteString(head)
	if err := section(root, &page); err != nil {
		return err
	}
	return save(path, page.Bytes())
}

func section(command *cobra.Command, page *bytes.Buffer) error {
	if !command.IsAvailableCommand() && command.HasParent() {
		return nil
	}
	var text bytes.Buffer
	if err := doc.GenMarkdownCustom(command, &text, func(link string) string { return link }); err != nil {
		return err
	}
	page.WriteString(strings.TrimRight(repeated.ReplaceAllString(text.String(), ""), "\n") + "\n\n")
	for _, inner := range command.Commands() {
		if err := section(inner, page); err != nil {
			return err
		}
	}
	return nil
}
