// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

// Command everynode-node is the keeper of a real node, which only Linux has.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "real nodes need Linux")
	os.Exit(1)
}
