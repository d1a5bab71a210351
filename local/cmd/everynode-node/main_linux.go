// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-node is the keeper of a real node and, inside it, its process 1. It is started
// by the library, never by hand.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/everynode/everynode/local/internal/keeper"
	"github.com/everynode/everynode/local/internal/nodeinit"
)

func main() {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	if len(os.Args) != 3 {
		log.Fatal("usage: everynode-node keep|init <the node's folder>")
	}
	var err error
	switch os.Args[1] {
	case "keep":
		err = keeper.Run(os.Args[2])
	case "init":
		err = nodeinit.Run(os.Args[2])
	default:
		err = fmt.Errorf("unknown role %q", os.Args[1])
	}
	if err != nil {
		log.Fatalf("%s: %v", os.Args[1], err)
	}
}
