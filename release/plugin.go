// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/release/archive"
)

// krewPlugin is the manifest of a plugin for krew. Source: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/.
type krewPlugin struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

const pluginDescription = `Everynode runs a task once on every node of a Kubernetes cluster, including nodes that join later.

This plugin runs a command once on some nodes, and shows output and exit codes. It shows the progress of a NodeJob, why a
task has not run on a node, and the results. It promotes, retries and aborts rollouts.

The commands that use NodeJobs need Everynode in the cluster: ` + Repository + "\n"

// writePlugin writes the archives of the plugin, and the manifest with which krew installs them.
func writePlugin(o *Options, p *program) error {
	krew := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: krewMetadata{Name: "everynode"},
		Spec: krewSpec{
			Version: o.Version, Homepage: Repository, ShortDescription: "Run a task once on every node", Description: pluginDescription,
		},
	}
	for _, platform := range p.platforms {
		name, content, err := pluginArchive(o, p, platform)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(o.Dir, name), content, 0o644); err != nil {
			return err
		}
		hash := sha256.Sum256(content)
		krew.Spec.Platforms = append(krew.Spec.Platforms, krewPlatform{
			Selector: krewSelector{MatchLabels: map[string]string{"os": platform.OS, "arch": platform.Arch}},
			URI:      downloadURL(o.Version, name),
			SHA256:   hex.EncodeToString(hash[:]),
			Bin:      filepath.Base(p.files[platform]),
		})
	}
	content, err := yaml.Marshal(krew)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Dir, KrewFile), content, 0o644)
}

// downloadURL returns where a file of a release is published.
func downloadURL(version, name string) string {
	return Repository + "/releases/download/" + version + "/" + name
}

func pluginArchive(o *Options, p *program, platform Platform) (name string, content []byte, err error) {
	binary, err := os.ReadFile(p.files[platform])
	if err != nil {
		return "", nil, err
	}
	files := []archive.File{
		{Path: filepath.Base(p.files[platform]), Mode: 0o755, Content: binary},
		{Path: "LICENSE", Mode: 0o644, Content: p.license},
		{Path: "THIRD-PARTY-LICENSES.txt", Mode: 0o644, Content: notices(p)},
	}
	name = fmt.Sprintf("%s_%s_%s_%s", p.name, o.Version, platform.OS, platform.Arch)
	if platform.OS == "windows" {
		content, err = archive.Zip(files, o.Created)
		return name + ".zip", content, err
	}
	pages, err := manPages(o)
	if err != nil {
		return "", nil, err
	}
	files = append(files, pages...)
	content, err = archive.TarGzip(files, o.Created)
	return name + ".tar.gz", content, err
}

// manPages returns the man pages of the plugin.
func manPages(o *Options) ([]archive.File, error) {
	paths, err := filepath.Glob(filepath.Join(o.Root, "docs", "reference", "man", "*.1"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errors.New("docs/reference/man has no man page: run make generate")
	}
	files := make([]archive.File, 0, len(paths))
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, archive.File{Path: "man/man1/" + filepath.Base(path), Mode: 0o644, Content: content})
	}
	return files, nil
}
