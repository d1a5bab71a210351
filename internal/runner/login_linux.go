// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxPasswd is how much of /etc/passwd is read.
const maxPasswd = 1 << 20

// rootShell returns the login shell of root in a file such as /etc/passwd, or /bin/sh if there is none that a program could use.
// For that of the node, it must run on the host thread.
func rootShell(path string) string {
	// A regular file: opening a pipe would wait for its writer.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return defaultShell
	}
	f, err := os.Open(path)
	if err != nil {
		return defaultShell
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxPasswd))
	if err != nil {
		return defaultShell
	}
	const uid, shell, fields = 2, 6, 7
	for line := range strings.Lines(string(content)) {
		entry := strings.Split(strings.TrimSpace(line), ":")
		if len(entry) != fields || entry[uid] != "0" {
			continue
		}
		if !filepath.IsAbs(entry[shell]) || slices.Contains([]string{"nologin", "false"}, filepath.Base(entry[shell])) {
			break
		}
		return entry[shell]
	}
	return defaultShell
}
