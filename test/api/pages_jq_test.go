// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/itchyny/gojq"
)

// jq is what the pages use of jq, which is not on every machine.
func jq() int {
	if err := filter(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "jq:", err)
		return 5
	}
	return 0
}

func filter(args []string, in io.Reader, out io.Writer) error {
	raw, source := false, "."
	var names []string
	var values []any
	for ; len(args) > 0; args = args[1:] {
		switch {
		case args[0] == "-r":
			raw = true
		case args[0] == "--arg" && len(args) > 2:
			names, values, args = append(names, "$"+args[1]), append(values, args[2]), args[2:]
		case args[0][0] == '-':
			return fmt.Errorf("the option %s is not implemented in this test", args[0])
		default:
			source = args[0]
		}
	}
	query, err := gojq.Parse(source)
	if err != nil {
		return err
	}
	code, err := gojq.Compile(query, gojq.WithVariables(names))
	if err != nil {
		return err
	}
	for documents := json.NewDecoder(in); ; {
		var document any
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := printEach(code.Run(document, values...), raw, out); err != nil {
			return err
		}
	}
}

func printEach(found gojq.Iter, raw bool, out io.Writer) error {
	for {
		value, ok := found.Next()
		if !ok {
			return nil
		}
		if err, ok := value.(error); ok {
			return err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if s, ok := value.(string); ok && raw {
			text = []byte(s)
		}
		fmt.Fprintln(out, string(text))
	}
}
