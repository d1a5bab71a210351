// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/everynode/everynode/internal/cli/text"
)

// Output formats of the commands that read.
const (
	outputPeople = ""
	outputWide   = "wide"
	outputName   = "name"
	outputJSON   = "json"
	outputYAML   = "yaml"
)

// addOutput adds the flag -o with the supported formats to a command.
func addOutput(cmd *cobra.Command, into *string, formats ...string) {
	cmd.Flags().StringVarP(into, "output", "o", "", "one of "+strings.Join(formats, ", ")+"; for people when left out")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func checkOutput(output string, formats ...string) error {
	if output == outputPeople || slices.Contains(formats, output) {
		return nil
	}
	return Failf(ExitUsage, "-o %s is not supported here: give one of %s", output, strings.Join(formats, ", "))
}

// PrintObject writes an object, or a list of objects, for programs.
func (f *Factory) PrintObject(format string, object runtime.Object) error {
	if format == outputName && meta.IsListType(object) {
		return meta.EachListItem(object, func(item runtime.Object) error { return f.PrintObject(format, item) })
	}
	gvk, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return fmt.Errorf("naming the kind: %w", err)
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(gvk)
	var printer printers.ResourcePrinter = &printers.JSONPrinter{}
	switch format {
	case outputYAML:
		printer = &printers.YAMLPrinter{}
	case outputName:
		printer = &printers.NamePrinter{}
	}
	printer, err = printers.NewTypeSetter(scheme).WrapToPrinter(&printers.OmitManagedFieldsPrinter{Delegate: printer}, nil)
	if err != nil {
		return fmt.Errorf("choosing a printer: %w", err)
	}
	var b bytes.Buffer
	if err := printer.PrintObj(object, &b); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return f.write(format, b.Bytes())
}

// write removes from the text of an object what would move the cursor of a terminal. JSON can escape these characters.
// YAML cannot in all places, so the text is only changed on a terminal, where it is read by users.
func (f *Factory) write(format string, b []byte) error {
	switch {
	case format == outputJSON:
		b = []byte(escapeJSON(string(b)))
	case f.Terminal().Options().Width > 0:
		lines := strings.SplitAfter(string(b), "\n")
		for i, line := range lines {
			ended := strings.TrimSuffix(line, "\n")
			lines[i] = text.Safe(ended) + line[len(ended):]
		}
		b = []byte(strings.Join(lines, ""))
	}
	_, err := f.Out.Write(b)
	return err
}

// escapeJSON escapes characters that are not printable, which only occur in strings, as JSON does.
func escapeJSON(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch shown := text.Safe(s[:size]); {
		case r == '\n', shown == s[:size]:
			b.WriteString(s[:size])
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[size:]
	}
	return b.String()
}
