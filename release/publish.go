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
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/everynode/everynode/release/chart"
)

// chartsPath is the path of charts below the registry of the images. helm adds the name of the chart.
const chartsPath = "charts"

// Publish pushes the images and the chart of a release in a folder to a registry, and returns their references. If the
// release was made for another registry, its manifests and its chart refer to this one afterwards. Credentials are those
// of docker login.
func Publish(ctx context.Context, dir, registry string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(dir, ImagesFile))
	if err != nil {
		return nil, fmt.Errorf("reading the release (make release writes it): %w", err)
	}
	registry = strings.TrimSuffix(registry, "/")
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	var published, pairs []string
	for reference := range strings.FieldsSeq(string(content)) {
		moved := registry + "/" + path.Base(reference)
		if err := push(dir, moved, options); err != nil {
			return nil, fmt.Errorf("pushing %s: %w", moved, err)
		}
		published = append(published, moved)
		pairs = append(pairs, reference, moved, path.Dir(reference)+"/"+chartsPath+"/", registry+"/"+chartsPath+"/")
	}
	replacer := strings.NewReplacer(pairs...)
	if err := replaceIn(dir, replacer, ImagesFile, InstallFile, InstallNoGatesFile, NotesFile); err != nil {
		return nil, err
	}
	reference, err := publishChart(dir, registry, replacer)
	if err != nil {
		return nil, err
	}
	return append(published, reference), writeChecksums(dir)
}

// push pushes an image with all its platforms. reference has a tag and a digest, and is set when the rest is there.
func push(dir, reference string, options []remote.Option) error {
	tagged, digest, _ := strings.Cut(reference, "@")
	tag, err := name.NewTag(tagged, name.StrictValidation)
	if err != nil {
		return err
	}
	index, err := indexFrom(filepath.Join(dir, ImagesFolder, path.Base(tag.RepositoryStr())), digest)
	if err != nil {
		return err
	}
	return remote.WriteIndex(tag, index, options...)
}

// publishChart pushes the chart of a release in a folder, after replacing the images in it. It returns its reference.
func publishChart(dir, registry string, images *strings.Replacer) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, chart.Name+"-*.tgz"))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("the release has %d charts, and not one: repeat make release", len(found))
	}
	host, err := name.NewRegistry(strings.SplitN(registry, "/", 2)[0])
	if err != nil {
		return "", err
	}
	reference, err := chart.Publish(found[0], registry+"/"+chartsPath, host.Scheme() == "http", images)
	if err != nil {
		return "", fmt.Errorf("publishing %s: %w", found[0], err)
	}
	return reference, nil
}
