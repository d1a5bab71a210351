// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/runner/contract"
)

// Permissions of the files of task.files without others. Those of a Secret are what a copy should have.
const (
	configMapFileMode = 0o644
	secretFileMode    = 0o400
)

// Content is a ConfigMap or Secret whose content is part of the revision.
type Content struct {
	Kind v1alpha1.ContentKind
	Name string
	// File is the name of the entry of task.files; "" if the object is one of task.inputs.
	File string
	// Items are the keys of task.files.*.items, each followed by its path, with a zero byte after each of them; "" for all keys of the
	// object, under their own names.
	Items string
}

// Folder returns the files of an entry of task.files by their paths, or a key that the object does not have.
func (c Content) Folder(data map[string][]byte) (files map[string][]byte, missing string) {
	if c.Items == "" {
		return data, ""
	}
	files = map[string][]byte{}
	for words := strings.Split(c.Items, "\x00"); len(words) > 1; words = words[2:] {
		content, found := data[words[0]]
		if !found {
			return nil, words[0]
		}
		files[words[1]] = content
	}
	return files, ""
}

// Hashes identify the content of an object.
type Hashes struct {
	// Content is ContentHash of the whole object, which is part of the revision.
	Content string
	// Folder is contract.FolderHash of an entry of task.files, with Salt for a Secret. The runner compares it before it uses the files.
	Folder, Salt string
}

// Field returns the field of a NodeJob that names the object.
func (c Content) Field() string {
	if c.File == "" {
		return "spec.task.inputs"
	}
	return "spec.task.files[" + c.File + "]"
}

// Inputs returns the objects of task.inputs, whose content is part of the revision.
func Inputs(spec *v1alpha1.TaskSpec) []Content {
	var contents []Content
	for _, ref := range spec.Inputs {
		contents = append(contents, Content{Kind: ref.Kind, Name: ref.Name})
	}
	return contents
}

// FilesOf returns the objects of task.files, whose content is part of the revision too.
func FilesOf(spec *v1alpha1.TaskSpec) []Content {
	var contents []Content
	for i := range spec.Files {
		file := &spec.Files[i]
		kind, from := v1alpha1.ContentConfigMap, file.ConfigMap
		if file.Secret != nil {
			kind, from = v1alpha1.ContentSecret, file.Secret
		}
		if from == nil {
			continue
		}
		var items strings.Builder
		for _, item := range from.Items {
			items.WriteString(item.Key + "\x00" + item.Path + "\x00")
		}
		contents = append(contents, Content{kind, from.Name, file.Name, items.String()})
	}
	return contents
}

// addFiles mounts the files of the task into the container of the runner, which makes them visible on the node. hashes are those of
// FilesOf. Without one of them, the runner runs nothing.
func addFiles(spec *corev1.PodSpec, files []v1alpha1.FilesSource, hashes []Hashes) {
	if len(files) == 0 {
		return
	}
	mounted := contract.Files{Dir: contract.FilesDir}
	container := &spec.Containers[0]
	for i := range files {
		name := "files-" + files[i].Name
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: volumeOf(&files[i])})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
			Name: name, MountPath: contract.FilesDir + "/" + files[i].Name, ReadOnly: true,
		})
		folder := contract.Folder{Name: files[i].Name, Secret: files[i].Secret != nil, Image: files[i].Image != nil}
		if !folder.Image && len(hashes) > 0 {
			folder.Hash, folder.Salt = hashes[0].Folder, hashes[0].Salt
			hashes = hashes[1:]
		}
		mounted.Folders = append(mounted.Folders, folder)
	}
	container.Env = append(container.Env, escaped([]corev1.EnvVar{{Name: contract.EnvMountedFiles, Value: contract.JSON(mounted)}})...)
}

// volumeOf returns a projected volume also for a single object. The kubelet keeps it in memory, and that of a ConfigMap on the disk.
// Neither makes kubectl drain or the cluster autoscaler refuse the pod, as an emptyDir would.
// Source: kubernetes/pkg/volume/projected (wrappedVolumeSpec), kubernetes/pkg/volume/configmap.
func volumeOf(file *v1alpha1.FilesSource) corev1.VolumeSource {
	if file.Image != nil { // the digest identifies the content, so a node that has it needs no registry
		return corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: file.Image.Reference, PullPolicy: corev1.PullIfNotPresent}}
	}
	var projection corev1.VolumeProjection
	from, mode := file.ConfigMap, int32(configMapFileMode)
	if file.Secret != nil {
		from, mode = file.Secret, secretFileMode
		projection.Secret = &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: from.Name}, Items: itemsOf(from)}
	} else {
		projection.ConfigMap = &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: from.Name}, Items: itemsOf(from)}
	}
	if from.DefaultMode != nil {
		mode = *from.DefaultMode
	}
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{projection}, DefaultMode: &mode}}
}

func itemsOf(from *v1alpha1.FilesFromObject) []corev1.KeyToPath {
	var items []corev1.KeyToPath
	for _, item := range from.Items {
		items = append(items, corev1.KeyToPath{Key: item.Key, Path: item.Path, Mode: item.Mode})
	}
	return items
}
