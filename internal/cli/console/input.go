// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"io"
	"os"

	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// Open opens a file of the user, or standard input for "-".
func (f *Factory) Open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(f.In), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "%w", err)
	}
	return file, nil
}

// ReadBeginning reads at most the first bytes of a file of the user, or of standard input for "-". what names it in errors.
func (f *Factory) ReadBeginning(what, path string, most int64) ([]byte, error) {
	file, err := f.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "reading %s: %w", what, err)
	}
	return content, nil
}

// ReadFile reads a file of the user, or standard input for "-". It must have between one and most bytes. what names it in errors.
func (f *Factory) ReadFile(what, path string, most int64) ([]byte, error) {
	content, err := f.ReadBeginning(what, path, most+1)
	switch {
	case err != nil:
		return nil, err
	case int64(len(content)) > most:
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "%s is too long: at most %d bytes are possible", what, most)
	case len(content) == 0:
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "%s is empty", what)
	}
	return content, nil
}
