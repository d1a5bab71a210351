// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// FilesSource is a folder with files. Exactly one of configMap, secret and image must be set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.configMap) ? 1 : 0) + (has(self.secret) ? 1 : 0) + (has(self.image) ? 1 : 0) == 1",message="set exactly one of configMap, secret and image in each entry of task.files: for files of two objects, add another entry"
// +kubebuilder:validation:XValidation:rule="!has(self.secret) || !has(self.secret.defaultMode) || self.secret.defaultMode / 64 % 2 + self.secret.defaultMode / 8 % 2 + self.secret.defaultMode % 2 == 0",message="task.files.secret.defaultMode must not make files executable: put programs into a ConfigMap or an image"
// +kubebuilder:validation:XValidation:rule="!has(self.secret) || !has(self.secret.items) || self.secret.items.all(i, !has(i.mode) || i.mode / 64 % 2 + i.mode / 8 % 2 + i.mode % 2 == 0)",message="task.files.secret.items.mode must not make a file executable: put programs into a ConfigMap or an image"
type FilesSource struct {
	// name is the name of the folder: its path is $EVERYNODE_FILES/NAME. It consists of lower case letters, digits and dashes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="task.files.name must consist of lower case letters, digits and inner dashes, such as agent-config: use items.path for other names of files"
	Name string `json:"name,omitempty"`

	// configMap is a ConfigMap of the namespace. It needs the label everynode.dev/script=true, because a task can run its content as
	// root.
	//
	// Example: {name: agent, items: [{key: install.sh, path: bin/install, mode: 0755}]}
	// +optional
	ConfigMap *FilesFromObject `json:"configMap,omitempty"`

	// secret is a Secret of the namespace. The manager needs the right to get it: see docs/reruns.md. The contents of its files are
	// masked in the output.
	//
	// Example: {name: agent-tls}
	// +optional
	Secret *FilesFromObject `json:"secret,omitempty"`

	// image is a container image: its file system is the folder, and it is read-only. It needs image volumes, which Kubernetes has
	// by default since 1.35, and a container runtime that supports them, such as containerd 2.1. Without them, nothing runs.
	//
	// Example: {reference: "registry.example.com/tools@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
	// +optional
	Image *FilesFromImage `json:"image,omitempty"`
}

// FilesFromImage are the files of a container image.
type FilesFromImage struct {
	// reference is the name of the image with its digest. It is pulled with the pull secrets of the runner if the node does not have it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][-._:/a-zA-Z0-9]*@sha256:[a-f0-9]{64}$')",message="task.files.image.reference must name the image by its digest, since a tag can get other content without a new revision: write NAME@sha256:DIGEST, with the digest from the registry, for example from crane digest NAME:TAG"
	Reference string `json:"reference,omitempty"`
}

// FilesFromObject are the files of a ConfigMap or Secret.
type FilesFromObject struct {
	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// items are the keys that become files. Without items, each key becomes a file with its name. While a key does not exist, the
	// NodeJob is Stalled.
	//
	// Example: [{key: install.sh, path: bin/install, mode: 0755}]
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Items []FileItem `json:"items,omitempty"`

	// defaultMode are the permissions of files without a mode of their own: 0 to 0777, or 511 as a decimal number. The default is 0644
	// for a ConfigMap, and 0400 for a Secret.
	//
	// Example: 0755
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=511
	DefaultMode *int32 `json:"defaultMode,omitempty"`
}

// FileItem is a key of an object that becomes a file.
type FileItem struct {
	// key is the key of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="task.files items.key must consist of letters, digits, dashes, underscores and dots, as the keys of ConfigMaps and Secrets do"
	Key string `json:"key,omitempty"`

	// path is the path of the file in the folder.
	//
	// Example: bin/install
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+(/[-._a-zA-Z0-9]+)*$') && !self.matches('^[.][.]|/[.][.](/|$)')",message="task.files items.path must be relative, without .., and consist of letters, digits, dashes, underscores, dots and slashes, such as bin/install"
	Path string `json:"path,omitempty"`

	// mode are the permissions of the file: 0 to 0777, or 511 as a decimal number. The default is defaultMode.
	//
	// Example: 0755
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=511
	Mode *int32 `json:"mode,omitempty"`
}
