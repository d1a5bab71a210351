// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/release/archive"
	"github.com/everynode/everynode/release/chart"
)

// Media types of charts in registries: https://helm.sh/docs/topics/registries/#oci-feature-deprecation-and-behavior-changes-with-v380
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chartsPath is the path of charts below the registry of the images. helm adds the name of the chart.
const chartsPath = "charts"

func writeChart(o *Options, refs references) error {
	content, err := chart.Package(o.Root, chart.Release{Version: o.Version, Manager: refs.manager, Runner: refs.runner, ArchiveRunner: refs.archiveRunner, Dashboard: refs.dashboard, Created: o.Created})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Dir, chart.FileName(o.Version)), content, 0o644)
}

// publishChart pushes the chart of a release in a folder, after replacing the images in it. It returns its reference.
func publishChart(ctx context.Context, dir, registry string, r *strings.Replacer) (string, error) {
	found, err := fs.Glob(os.DirFS(dir), chart.Name+"-*.tgz")
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("the release has %d charts, and not one: repeat make release", len(found))
	}
	artifact, err := moveChart(filepath.Join(dir, found[0]), r)
	if err != nil {
		return "", fmt.Errorf("changing %s: %w", found[0], err)
	}
	tag, err := name.NewTag(fmt.Sprintf("%s/%s/%s:%s", registry, chartsPath, chart.Name, artifact.version), name.StrictValidation)
	if err != nil {
		return "", err
	}
	image, err := partial.CompressedToImage(artifact)
	if err != nil {
		return "", err
	}
	if err := remote.Write(tag, image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", fmt.Errorf("pushing %s: %w", tag, err)
	}
	digest, err := image.Digest()
	return tag.String() + "@" + digest.String(), err
}

// moveChart replaces the images in the archive of a chart.
func moveChart(file string, r *strings.Replacer) (*chartArtifact, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	files, created, err := archive.ReadTarGzip(content)
	if err != nil {
		return nil, err
	}
	var description []byte
	for i := range files {
		if files[i].Path == chart.Name+"/Chart.yaml" {
			files[i].Content = []byte(r.Replace(string(files[i].Content)))
			description = files[i].Content
		}
	}
	if content, err = archive.TarGzip(files, created); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return nil, err
	}
	return newChartArtifact(description, content, created)
}

// chartArtifact is a chart as an artifact of a registry. It implements partial.CompressedImageCore.
type chartArtifact struct {
	version          string
	config, manifest []byte
	layer            v1.Layer
}

func newChartArtifact(description, content []byte, created time.Time) (*chartArtifact, error) {
	config, err := yaml.YAMLToJSON(description)
	if err != nil {
		return nil, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	var metadata struct{ Name, Version, Description string }
	if err := json.Unmarshal(config, &metadata); err != nil {
		return nil, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	a := &chartArtifact{version: metadata.Version, config: config, layer: static.NewLayer(content, chartContent)}
	layer, err := partial.Descriptor(a.layer)
	if err != nil {
		return nil, err
	}
	hash, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	const prefix = "org.opencontainers.image."
	a.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: chartConfig, Size: size, Digest: hash},
		Layers: []v1.Descriptor{*layer},
		Annotations: map[string]string{
			prefix + "title":       metadata.Name,
			prefix + "version":     metadata.Version,
			prefix + "description": metadata.Description,
			prefix + "url":         Repository,
			prefix + "source":      Repository,
			prefix + "created":     created.Format(time.RFC3339),
		},
	})
	return a, err
}

// RawConfigFile implements partial.CompressedImageCore.
func (a *chartArtifact) RawConfigFile() ([]byte, error) { return a.config, nil }

// MediaType implements partial.CompressedImageCore.
func (a *chartArtifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest implements partial.CompressedImageCore.
func (a *chartArtifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (a *chartArtifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	own, err := a.layer.Digest()
	if err == nil && own != digest {
		err = fmt.Errorf("the chart has no layer %s", digest)
	}
	return a.layer, err
}
