// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
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

// writeManifests writes what a user applies to install Everynode, and the JSON schemas of the kinds, for editors.
func (b *build) writeManifests() error {
	config := filepath.Join(b.work, "config") // a copy, in which the kustomization is changed
	if err := os.CopyFS(config, os.DirFS(filepath.Join(b.Root, "config"))); err != nil {
		return err
	}
	folder := filepath.Join(config, "default")
	content, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	if err != nil {
		return err
	}
	var all types.Kustomization
	if err := yaml.UnmarshalStrict(content, &all); err != nil {
		return fmt.Errorf("reading config/default: %w", err)
	}
	all.Labels = append(all.Labels, types.Label{Pairs: map[string]string{"app.kubernetes.io/version": b.Version}})
	older := all
	older.Resources = slices.DeleteFunc(slices.Clone(all.Resources), func(folder string) bool { return slices.Contains(since136, folder) })
	if len(older.Resources) != len(all.Resources)-len(since136) {
		return fmt.Errorf("config/default does not have the folders %s, which clusters before Kubernetes 1.36 must leave out",
			strings.Join(since136, ", "))
	}
	if err := b.writeManifest(folder, InstallFile, "needs Kubernetes 1.36", &all); err != nil {
		return err
	}
	const comment = "for Kubernetes before 1.36: without the admission policies of the gate and of the attribution"
	if err := b.writeManifest(folder, InstallNoGatesFile, comment, &older); err != nil {
		return err
	}
	return os.CopyFS(b.Dir, os.DirFS(filepath.Join(config, "schemas")))
}

// writeManifest writes the objects of a kustomization in a folder, with the images of the release.
func (b *build) writeManifest(folder, file, comment string, k *types.Kustomization) error {
	content, err := yaml.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), content, 0o644); err != nil {
		return err
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified // sortOptions of the kustomization say the order; with both, kustomize warns
	objects, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return fmt.Errorf("rendering %s: %w", file, err)
	}
	if content, err = objects.AsYaml(); err != nil {
		return err
	}
	text := fmt.Sprintf("# Everynode %s (%s).\n# Install or update: kubectl apply -f %s%s\n%s",
		b.Version, comment, downloads(b.Version), file, content)
	for _, reference := range b.references {
		name, _, _ := strings.Cut(path.Base(reference), ":")
		text = strings.ReplaceAll(text, placeholder+"/"+name+"\n", reference+"\n")
	}
	if strings.Contains(text, placeholder) {
		return fmt.Errorf("rendering %s: an image of %s is left", file, placeholder)
	}
	return b.write(file, []byte(text))
}
