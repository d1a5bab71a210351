// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodeinit

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/everynode/everynode/local/internal/nodespec"
)

const (
	runtimeSocket = "/run/containerd/containerd.sock"
	// importedDir remembers which images this file system has; it goes with the images when the node
	// is re-imaged.
	importedDir = "/var/lib/containerd/everynode-imported"
)

// waitForRuntime returns when containerd accepts connections. It has no limit: without a runtime
// there is nothing for the waiting services to do, and containerd is restarted for ever.
func waitForRuntime() {
	for {
		conn, err := net.Dial("unix", runtimeSocket)
		if err == nil {
			conn.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// importer brings the cluster's images into this node's containerd.
type importer struct {
	mu  sync.Mutex
	run func(nodespec.Request) nodespec.Response
}

// importMissing imports every image of the cluster that this node lacks.
func (i *importer) importMissing() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	archives, err := filepath.Glob(filepath.Join(nodespec.ImagesPath, "*.tar"))
	if err != nil {
		return fmt.Errorf("listing the images: %w", err)
	}
	if err := os.MkdirAll(importedDir, 0o755); err != nil {
		return fmt.Errorf("remembering the images: %w", err)
	}
	for _, archive := range archives {
		mark := filepath.Join(importedDir, filepath.Base(archive))
		if _, err := os.Stat(mark); err == nil {
			continue
		}
		waitForRuntime()
		result := i.run(nodespec.Request{Argv: []string{"ctr", "-n", "k8s.io", "images", "import", archive}})
		if result.Error != "" || result.ExitCode != 0 {
			return fmt.Errorf("importing %s: %s%s", filepath.Base(archive), result.Error, strings.TrimSpace(string(result.Stderr)))
		}
		if err := os.WriteFile(mark, nil, 0o644); err != nil {
			return fmt.Errorf("remembering the images: %w", err)
		}
	}
	return nil
}
