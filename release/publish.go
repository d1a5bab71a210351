// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Publish pushes the images and the chart of a release in a folder to a registry, and returns their references. If the
// release was made for another registry, its manifests and its chart refer to this one afterwards. Credentials are those
// of docker login.
func Publish(ctx context.Context, dir, registry string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(dir, ImagesFile))
	if err != nil {
		return nil, fmt.Errorf("reading the release (make release writes it): %w", err)
	}
	registry = strings.TrimSuffix(registry, "/")
	var published []string
	var replace []string
	for reference := range strings.FieldsSeq(string(content)) {
		moved := registry + "/" + path.Base(reference)
		if err := push(ctx, dir, moved); err != nil {
			return nil, fmt.Errorf("pushing %s: %w", moved, err)
		}
		published = append(published, moved)
		replace = append(replace, reference, moved, path.Dir(reference)+"/"+chartsPath+"/", registry+"/"+chartsPath+"/")
	}
	for _, file := range []string{ImagesFile, InstallFile, InstallNoGatesFile, NotesFile} {
		if err := replaceIn(filepath.Join(dir, file), strings.NewReplacer(replace...)); err != nil {
			return nil, err
		}
	}
	reference, err := publishChart(ctx, dir, registry, strings.NewReplacer(replace...))
	if err != nil {
		return nil, err
	}
	return append(published, reference), writeChecksums(dir)
}

// push pushes an image with all its platforms. reference has a tag and a digest, and the tag is set last.
func push(ctx context.Context, dir, reference string) error {
	tagged, digest, _ := strings.Cut(reference, "@")
	tag, err := name.NewTag(tagged, name.StrictValidation)
	if err != nil {
		return err
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return err
	}
	root, err := layout.ImageIndexFromPath(filepath.Join(dir, ImagesFolder, path.Base(tag.RepositoryStr())))
	if err != nil {
		return err
	}
	index, err := root.ImageIndex(hash)
	if err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(tag.Digest(digest), index, options...); err != nil {
		return err
	}
	return remote.Tag(tag, index, options...)
}

func replaceIn(file string, r *strings.Replacer) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(r.Replace(string(content))), 0o644)
}
