// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wholefile writes files that are complete whenever they exist.
package wholefile

import "os"

// Write writes a file, which is complete also if the process is killed meanwhile.
func Write(path string, data []byte) error {
	temp := path + ".new"
	if err := os.WriteFile(temp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
