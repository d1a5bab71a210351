// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-upload stores the output of an attempt in the archive. The runner starts it, and only if the NodeJob has
// its output archived: docs/archive.md.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/runner/upload"
	"github.com/everynode/everynode/internal/version"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(version.String())
		return
	}
	os.Exit(run(context.Background(), os.Getenv(contract.EnvUpload)))
}

func run(ctx context.Context, text string) (exitCode int) {
	var request contract.UploadRequest
	answer := contract.UploadAnswer{Error: "everynode-upload is started by everynode-runner, with a request in " + contract.EnvUpload}
	if json.Unmarshal([]byte(text), &request) == nil {
		answer = upload.Run(ctx, &request, os.Stdin)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil || !answer.Stored {
		return 1
	}
	return 0
}
