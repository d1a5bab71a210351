// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// Output formats of the commands that read.
const (
	OutputPeople = ""
	OutputWide   = "wide"
	OutputName   = "name"
	OutputJSON   = "json"
	OutputYAML   = "yaml"
)

// AddOutputFlag adds the flag -o with the supported formats to a command, which rejects others before it runs.
func AddOutputFlag(cmd *cobra.Command, into *string, formats ...string) {
	cmd.Flags().StringVarP(into, "output", "o", "", "one of "+strings.Join(formats, ", ")+"; for people when left out")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *into == OutputPeople || slices.Contains(formats, *into) {
			return nil
		}
		return cmdutil.Failf(cmdutil.ExitUsage, "-o %s is not supported here: give one of %s", *into, strings.Join(formats, ", "))
	}
}

// PrintData writes a value that is not an object of the API, for programs.
func (f *Factory) PrintData(format string, value any) error {
	b, err := json.MarshalIndent(value, "", "  ")
	b = append(b, '\n')
	if err == nil && format == OutputYAML {
		b, err = yaml.JSONToYAML(b)
	}
	if err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	return f.WriteFormatted(format, b)
}

// PrintObject writes an object, or a list of objects, for programs.
func (f *Factory) PrintObject(format string, object runtime.Object) error {
	if format == OutputName && meta.IsListType(object) {
		return meta.EachListItem(object, func(item runtime.Object) error { return f.PrintObject(format, item) })
	}
	gvk, err := apiutil.GVKForObject(object, cmdutil.Scheme)
	if err != nil {
		return fmt.Errorf("naming the kind: %w", err)
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(gvk)
	var printer printers.ResourcePrinter = &printers.JSONPrinter{}
	switch format {
	case OutputYAML:
		printer = &printers.YAMLPrinter{}
	case OutputName:
		printer = &printers.NamePrinter{}
	}
	printer, err = printers.NewTypeSetter(cmdutil.Scheme).WrapToPrinter(&printers.OmitManagedFieldsPrinter{Delegate: printer}, nil)
	if err != nil {
		return fmt.Errorf("choosing a printer: %w", err)
	}
	var b bytes.Buffer
	if err := printer.PrintObj(object, &b); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return f.WriteFormatted(format, b.Bytes())
}

// WriteFormatted writes the text of an object without characters that would move the cursor of a terminal. JSON can
// escape these characters. YAML cannot in all places, so the text is only changed on a terminal, where it is read by
// users.
func (f *Factory) WriteFormatted(format string, b []byte) error {
	switch {
	case format == OutputJSON:
		b = []byte(EscapeJSON(string(b)))
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

// EscapeJSON escapes characters that are not printable, which only occur in strings, as JSON does.
func EscapeJSON(s string) string {
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
