// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// placeholder is the registry of the images in config.
const placeholder = "everynode.invalid"

// since136 are the folders of config/default that need Kubernetes 1.36: those with MutatingAdmissionPolicies.
var since136 = []string{"../gate", "../attribution"}

// writeManifests writes what a user applies to install Everynode.
func writeManifests(o *Options, refs references) error {
	all, err := foldersOfDefault(o.Root)
	if err != nil {
		return err
	}
	var withoutGates []string
	for _, folder := range all {
		if !slices.Contains(since136, folder) {
			withoutGates = append(withoutGates, folder)
		}
	}
	if len(withoutGates) != len(all)-len(since136) {
		return fmt.Errorf("config/default does not have the folders %s, which clusters before Kubernetes 1.36 must leave out", strings.Join(since136, ", "))
	}
	for _, m := range []struct {
		name, comment string
		folders       []string
	}{
		{InstallFile, "needs Kubernetes 1.36", all},
		{InstallNoGatesFile, "for Kubernetes before 1.36: without the admission policies of the gate and of the attribution", withoutGates},
	} {
		content, err := render(o, refs, m.folders)
		if err != nil {
			return fmt.Errorf("rendering %s: %w", m.name, err)
		}
		header := fmt.Sprintf("# Everynode %s (%s).\n# Install or update: kubectl apply -f %s\n", o.Version, m.comment, downloadURL(o.Version, m.name))
		if err := os.WriteFile(filepath.Join(o.Dir, m.name), append([]byte(header), content...), 0o644); err != nil {
			return err
		}
	}
	// JSON schemas of the kinds, for editors.
	return os.CopyFS(o.Dir, os.DirFS(filepath.Join(o.Root, "config", "schemas")))
}

// foldersOfDefault returns the parts of the installation.
func foldersOfDefault(root string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(root, "config", "default", "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var k types.Kustomization
	if err := yaml.UnmarshalStrict(content, &k); err != nil {
		return nil, fmt.Errorf("reading config/default: %w", err)
	}
	return k.Resources, nil
}

// runnerPatch sets the images of the runner, as config/local does.
const runnerPatch = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: everynode-manager
  namespace: everynode-system
spec:
  template:
    spec:
      containers:
      - name: manager
        env:
        - name: EVERYNODE_RUNNER_IMAGE
          value: %s
        - name: EVERYNODE_ARCHIVE_RUNNER_IMAGE
          value: %s
`

// render returns the manifests of some folders of config, with the images and the version.
func render(o *Options, refs references, folders []string) ([]byte, error) {
	files, err := inMemory(filepath.Join(o.Root, "config"))
	if err != nil {
		return nil, err
	}
	name, digest, _ := strings.Cut(refs.manager, "@")
	sorted, err := files.ReadFile("/config/default/kustomization.yaml")
	if err != nil {
		return nil, err
	}
	var installation types.Kustomization // kustomize heeds the order only of the folder that is built
	if err := yaml.Unmarshal(sorted, &installation); err != nil {
		return nil, err
	}
	overlay := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: folders, SortOptions: installation.SortOptions,
		Images: []types.Image{{
			Name: placeholder + "/manager", NewName: strings.TrimSuffix(name, ":"+o.Version), NewTag: o.Version, Digest: digest,
		}},
		Labels:  []types.Label{{Pairs: map[string]string{"app.kubernetes.io/version": o.Version}}},
		Patches: []types.Patch{{Patch: fmt.Sprintf(runnerPatch, refs.runner, refs.archiveRunner)}},
	}
	content, err := yaml.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	if err := files.WriteFile("/config/release/kustomization.yaml", content); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	objects, err := krusty.MakeKustomizer(options).Run(files, "/config/release")
	if err != nil {
		return nil, err
	}
	content, err = objects.AsYaml()
	if err == nil && strings.Contains(string(content), placeholder) {
		err = fmt.Errorf("an image of %s is left", placeholder)
	}
	return content, err
}

// inMemory copies config, so that the overlay is not written into the checkout.
func inMemory(config string) (filesys.FileSystem, error) {
	files := filesys.MakeFsInMemory()
	source := os.DirFS(config)
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		return files.WriteFile(path.Join("/config", name), content)
	})
	return files, err
}
