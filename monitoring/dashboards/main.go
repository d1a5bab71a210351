// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command dashboards writes the dashboards for Grafana into a folder, one file for each. make generate runs it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards FOLDER")
		os.Exit(2)
	}
	for _, b := range boards() {
		if err := write(os.Args[1], b); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func boards() []board { return []board{fleet(), nodeJob(), nodeGuards(), manager()} }

// write writes a dashboard. The name of the file is the end of its uid.
func write(folder string, b board) error {
	built, err := b.build()
	if err != nil {
		return fmt.Errorf("building %s: %w", b.uid, err)
	}
	content, err := json.MarshalIndent(built, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", b.uid, err)
	}
	file := filepath.Join(folder, strings.TrimPrefix(b.uid, "everynode-")+".json")
	return os.WriteFile(file, []byte(readable.Replace(string(content))+"\n"), 0o644)
}

// readable replaces what encoding/json escapes for HTML. The types of panels do not allow to turn this off.
var readable = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&")
