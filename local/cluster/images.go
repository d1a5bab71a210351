// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/everynode/everynode/local/image"
	"github.com/everynode/everynode/local/internal/nodespec"
)

// LoadImage brings an image under a reference (registry.local/name:tag) into every real node, those
// that join later included. An image of the same reference is replaced.
func (c *Cluster) LoadImage(ctx context.Context, reference string, img v1.Image) error {
	if err := c.storeImage(reference, img); err != nil {
		return err
	}
	return c.importImages(ctx)
}

// LoadArchive is LoadImage for an archive as "docker save" or image.WriteTar write it; its references
// are those in the archive.
func (c *Cluster) LoadArchive(ctx context.Context, file string) error {
	source, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("loading an image: %w", err)
	}
	defer source.Close()
	sum := sha256.New()
	temp, err := os.CreateTemp(c.state.path("images"), ".archive-")
	if err != nil {
		return fmt.Errorf("loading an image: %w", err)
	}
	defer os.Remove(temp.Name())
	if _, err := io.Copy(io.MultiWriter(temp, sum), source); err != nil {
		return errors.Join(fmt.Errorf("copying %s: %w", file, err), temp.Close())
	}
	if err := temp.Close(); err != nil {
		return fmt.Errorf("copying %s: %w", file, err)
	}
	if err := os.Rename(temp.Name(), c.state.path("images", "archive-"+hex.EncodeToString(sum.Sum(nil))[:24]+".tar")); err != nil {
		return fmt.Errorf("copying %s: %w", file, err)
	}
	return c.importImages(ctx)
}

// storeImage puts an image among the cluster's, in place of one of the same reference. Its name
// changes with its content: that is how nodes see what they lack.
func (c *Cluster) storeImage(reference string, img v1.Image) error {
	digest, err := img.Digest()
	if err != nil {
		return fmt.Errorf("loading %s: %w", reference, err)
	}
	sum := sha256.Sum256([]byte(reference))
	prefix := "image-" + hex.EncodeToString(sum[:])[:12] + "-"
	name := prefix + digest.Hex[:24] + ".tar"
	old, err := filepath.Glob(c.state.path("images", prefix+"*.tar"))
	if err != nil {
		return fmt.Errorf("loading %s: %w", reference, err)
	}
	if _, err := os.Stat(c.state.path("images", name)); err != nil {
		temp := c.state.path("images", "."+name)
		if err := image.WriteTar(temp, reference, img); err != nil {
			return err
		}
		if err := os.Rename(temp, c.state.path("images", name)); err != nil {
			return fmt.Errorf("loading %s: %w", reference, err)
		}
	}
	for _, file := range old {
		if filepath.Base(file) == name {
			continue
		}
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("replacing %s: %w", reference, err)
		}
	}
	return nil
}

func (c *Cluster) importImages(ctx context.Context) error {
	nodes, err := c.realNodes()
	if err != nil {
		return err
	}
	return forEach(len(nodes), func(i int) error {
		_, err := c.ask(ctx, nodes[i], nodespec.InitSocket, nodespec.Request{Op: nodespec.OpImport})
		return err
	})
}

// realNodes lists the names of the real nodes.
func (c *Cluster) realNodes() ([]string, error) {
	dirs, err := os.ReadDir(c.state.path("nodes"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var names []string
	for _, dir := range dirs {
		if !strings.HasPrefix(dir.Name(), ".") && c.isReal(dir.Name()) {
			names = append(names, dir.Name())
		}
	}
	return names, nil
}

// makePauseImage makes the image that holds each pod's namespaces.
func (c *Cluster) makePauseImage() error {
	img, err := image.FromBinary(filepath.Join(c.state.Helpers, "everynode-pause"), image.Options{Path: "/pause"})
	if err != nil {
		return err
	}
	return c.storeImage(pauseImage, img)
}
