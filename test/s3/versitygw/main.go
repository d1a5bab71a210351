// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command versitygw is the server of github.com/versity/versitygw with objects in a folder, and without its other
// backends, which take most of the time to compile. It has a module of its own, so that no other module depends on it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "versitygw:", err)
		os.Exit(1)
	}
}

// run takes the folder of the objects, the address, and, for TLS, the files of the certificate and of its key.
func run(args []string) error {
	if len(args) != 2 && len(args) != 4 {
		return fmt.Errorf("give DIR ADDRESS [CERTIFICATE KEY], and not %q", args)
	}
	objects, metadata := args[0]+"/objects", args[0]+"/metadata"
	for _, dir := range []string{objects, metadata} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	store, err := meta.NewSideCar(metadata) // not each file system has extended attributes
	if err != nil {
		return err
	}
	backend, err := posix.New(objects, store, posix.PosixOpts{SideCarDir: metadata, ValidateBucketNames: true, Concurrency: 100})
	if err != nil {
		return err
	}
	config := &embedgw.Config{
		RootUserAccess: os.Getenv("ROOT_ACCESS_KEY"), RootUserSecret: os.Getenv("ROOT_SECRET_KEY"), Region: os.Getenv("VGW_REGION"),
		Ports: []string{args[1]}, MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10_000, Quiet: true,
	}
	if len(args) == 4 {
		config.CertFile, config.KeyFile = args[2], args[3]
	}
	return embedgw.RunVersityGW(context.Background(), backend, config)
}
