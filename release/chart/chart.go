// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart packages the Helm chart of a checkout as helm package does, with fixed times, and publishes it as helm push does.
package chart

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/registry"
)

// Name is the name of the chart, and of the folder in its archive.
const Name = "everynode"

const (
	// placeholder is the prefix of the images in the checkout, and placeholderTag their tag.
	placeholder, placeholderTag = "ghcr.io/everynode/", ":v0.0.0-dev\n"
	// imagesAnnotation has the images. The templates read it.
	imagesAnnotation = "artifacthub.io/images"
)

// FileName returns the name of the archive of a version, as helm names it.
func FileName(version string) string { return Name + "-" + Version(version) + ".tgz" }

// Version returns the version of the chart, which has no v.
func Version(version string) string { return strings.TrimPrefix(version, "v") }

// Package writes the archive of the chart in a checkout to a folder. The version begins with v. The images are references with tag
// and digest. All files in the archive have the time created.
func Package(root, dir, version string, images []string, created time.Time) error {
	c, err := loader.LoadDir(filepath.Join(root, "charts", Name))
	if err != nil {
		return err
	}
	c.Metadata.Version, c.Metadata.AppVersion = Version(version), version
	text := c.Metadata.Annotations[imagesAnnotation]
	for _, image := range images {
		name, _, _ := strings.Cut(path.Base(image), ":")
		before := placeholder + name + placeholderTag
		if strings.Count(text, before) != 1 {
			return fmt.Errorf("the image %q is not in the annotation %s of Chart.yaml exactly once", strings.TrimSpace(before), imagesAnnotation)
		}
		text = strings.Replace(text, before, image+"\n", 1)
	}
	c.Metadata.Annotations[imagesAnnotation] = text
	c.ModTime, c.SchemaModTime = created, created
	for _, file := range slices.Concat(c.Raw, c.Templates, c.Files) {
		file.ModTime = created
	}
	_, err = util.Save(c, dir)
	return err
}

// Publish replaces images in an archive that Package has written, and pushes it below a prefix in a registry, with the credentials of
// docker login. It returns the reference of the chart, with tag and digest. The registry may be one without a certificate.
func Publish(file, prefix string, insecure bool, images *strings.Replacer) (string, error) {
	c, err := loader.LoadFile(file)
	if err != nil {
		return "", err
	}
	c.Metadata.Annotations[imagesAnnotation] = images.Replace(c.Metadata.Annotations[imagesAnnotation])
	if _, err := util.Save(c, filepath.Dir(file)); err != nil {
		return "", err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	reference := prefix + "/" + Name + ":" + c.Metadata.Version
	push := func(options ...registry.ClientOption) (*registry.PushResult, error) {
		client, err := registry.NewClient(options...)
		if err != nil {
			return nil, err
		}
		return client.Push(content, reference, registry.PushOptCreationTime(c.ModTime.UTC().Format(time.RFC3339)))
	}
	pushed, err := push()
	if err != nil && insecure {
		pushed, err = push(registry.ClientOptPlainHTTP())
	}
	if err != nil {
		return "", err
	}
	return reference + "@" + pushed.Manifest.Digest, nil
}
