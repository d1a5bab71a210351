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

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/everynode/everynode/local/image"
)

// LoadImage brings an image under a reference (registry.local/name:tag) into every real node, those
// that join later included. An image of the same reference is replaced.
func (c *Cluster) LoadImage(ctx context.Context, reference string, img v1.Image) error {
	if err := c.state.images().add(reference, img); err != nil {
		return err
	}
	return c.nodes.importImages(ctx)
}

// LoadArchive is LoadImage for an archive as "docker save" or image.WriteTar write it; its references
// are those in the archive.
func (c *Cluster) LoadArchive(ctx context.Context, file string) error {
	if err := c.state.images().addArchive(file); err != nil {
		return err
	}
	return c.nodes.importImages(ctx)
}

// images is the folder with the images of a cluster, which its nodes import.
type images string

func (i images) file(name string) string { return filepath.Join(string(i), name) }

func (i images) addArchive(file string) error {
	source, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("loading an image: %w", err)
	}
	defer source.Close()
	sum := sha256.New()
	temp, err := os.CreateTemp(string(i), ".archive-")
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
	if err := os.Rename(temp.Name(), i.file("archive-"+hex.EncodeToString(sum.Sum(nil))[:24]+".tar")); err != nil {
		return fmt.Errorf("copying %s: %w", file, err)
	}
	return nil
}

// add puts an image among the cluster's, in place of one of the same reference. Its name
// changes with its content: that is how nodes see what they lack.
func (i images) add(reference string, img v1.Image) error {
	digest, err := img.Digest()
	if err != nil {
		return fmt.Errorf("loading %s: %w", reference, err)
	}
	sum := sha256.Sum256([]byte(reference))
	prefix := "image-" + hex.EncodeToString(sum[:])[:12] + "-"
	name := prefix + digest.Hex[:24] + ".tar"
	old, err := filepath.Glob(i.file(prefix + "*.tar"))
	if err != nil {
		return fmt.Errorf("loading %s: %w", reference, err)
	}
	if _, err := os.Stat(i.file(name)); err != nil {
		temp := i.file("." + name)
		if err := image.WriteTar(temp, reference, img); err != nil {
			return err
		}
		if err := os.Rename(temp, i.file(name)); err != nil {
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
