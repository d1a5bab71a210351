// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// archived is the registry of images that are loaded into nodes. No node can pull from it.
const archived = "localhost/everynode"

// Archive writes the images of a release in a folder for one platform, such as linux/amd64, to a file in the format of docker save.
// The manifests of the release refer to these images afterwards. Their tags have the digest, because a loaded image keeps no
// reference to it: another image has another tag, and a node with the older one does not use it.
func Archive(dir, platform, file string) error {
	content, err := os.ReadFile(filepath.Join(dir, ImagesFile))
	if err != nil {
		return fmt.Errorf("reading the release: %w", err)
	}
	wanted, err := v1.ParsePlatform(platform)
	if err != nil {
		return err
	}
	images := map[name.Tag]v1.Image{}
	var pairs []string
	for reference := range strings.FieldsSeq(string(content)) {
		tagged, digest, _ := strings.Cut(path.Base(reference), "@")
		short, _, _ := strings.Cut(tagged, ":")
		image, err := imageFor(filepath.Join(dir, ImagesFolder, short), digest, *wanted)
		if err != nil {
			return fmt.Errorf("reading the image %s for %s: %w", short, platform, err)
		}
		tag, err := name.NewTag(fmt.Sprintf("%s/%s-%.12s", archived, tagged, strings.TrimPrefix(digest, "sha256:")))
		if err != nil {
			return err
		}
		images[tag] = image
		pairs = append(pairs, reference, tag.String())
	}
	if err := tarball.MultiWriteToFile(file, images); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return replaceIn(dir, strings.NewReplacer(pairs...), InstallFile, InstallNoGatesFile)
}

// indexFrom returns the index with a digest from the folder of an image.
func indexFrom(folder, digest string) (v1.ImageIndex, error) {
	root, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, err
	}
	return root.ImageIndex(hash)
}

// imageFor returns the image for a platform from the index with a digest.
func imageFor(folder, digest string, platform v1.Platform) (v1.Image, error) {
	index, err := indexFrom(folder, digest)
	if err != nil {
		return nil, err
	}
	found, err := partial.FindImages(index, match.Platforms(platform))
	if err == nil && len(found) != 1 {
		err = errors.New("the release was not made for this platform")
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// replaceIn replaces references to images in files of a release.
func replaceIn(dir string, replacer *strings.Replacer, files ...string) error {
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(replacer.Replace(string(content))), 0o644); err != nil {
			return err
		}
	}
	return nil
}
