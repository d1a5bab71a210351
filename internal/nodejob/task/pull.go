// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/runner/contract"
)

// maintenance.prePull. The kubelet pulls the images of the volumes that a container mounts before it starts the container. So a pod with the
// images of the task as volumes ends when they are on the node, whatever programs they have. For a volume that nothing mounts, the
// kubelet only tries. Source: kubernetes/pkg/kubelet/kuberuntime (SyncPod, getImageVolumes, toKubeContainerImageVolumes).

// pullSpec returns a pod that ends when the images of a task are on the node. It has the pull secrets of the task, and no privileges but the
// network of the node, where the task has that: there may be no CNI plugin yet.
func pullSpec(job *v1alpha1.NodeJob, opts Options) corev1.PodSpec {
	t := &job.Spec.Task
	if Archives(job, Task) {
		opts.RunnerImage = opts.ArchiveRunnerImage
	}
	spec := Unprivileged(opts, ContainerName, contract.FlagPulled)
	spec.Containers[0].Resources = resources(t.Resources, opts.MemoryLimit)
	spec.HostNetwork = t.Template == nil
	for i := range t.Files {
		if t.Files[i].Image != nil {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "files-" + t.Files[i].Name, VolumeSource: volumeOf(&t.Files[i])})
		}
	}
	if t.Template != nil {
		addImages(&spec, &t.Template.Spec)
	}
	for i := range spec.Volumes {
		name := spec.Volumes[i].Name
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/images/" + name, ReadOnly: true})
	}
	return spec
}

// addImages adds the images of a template to a pod, and what is needed to pull them.
func addImages(spec, template *corev1.PodSpec) {
	spec.HostNetwork = template.HostNetwork
	spec.ServiceAccountName = template.ServiceAccountName // the API server adds its pull secrets if the pod has none
	spec.ImagePullSecrets = slices.Concat(spec.ImagePullSecrets, template.ImagePullSecrets)
	spec.Volumes = imagesOf(template)
}

// imagesOf returns the images of the containers and the volumes of a pod as volumes, each once.
func imagesOf(spec *corev1.PodSpec) []corev1.Volume {
	var sources []corev1.ImageVolumeSource
	add := func(reference string, policy corev1.PullPolicy) {
		if source := (corev1.ImageVolumeSource{Reference: reference, PullPolicy: policy}); !slices.Contains(sources, source) {
			sources = append(sources, source)
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		add(c.Image, c.ImagePullPolicy)
	}
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			add(image.Reference, image.PullPolicy)
		}
	}
	volumes := make([]corev1.Volume, 0, len(sources))
	for i := range sources {
		volumes = append(volumes, corev1.Volume{Name: "image-" + strconv.Itoa(i+1), VolumeSource: corev1.VolumeSource{Image: &sources[i]}})
	}
	return volumes
}

// TaggedImages returns the images of a template that are not named by their digests, in the order of the containers, each once.
func TaggedImages(job *v1alpha1.NodeJob) []string {
	if job.Spec.Task.Template == nil {
		return nil
	}
	var tagged []string
	for _, containers := range [][]corev1.Container{job.Spec.Task.Template.Spec.InitContainers, job.Spec.Task.Template.Spec.Containers} {
		for i := range containers {
			if image := containers[i].Image; !strings.Contains(image, "@") && !slices.Contains(tagged, image) {
				tagged = append(tagged, image)
			}
		}
	}
	return tagged
}

// Unprivileged returns a pod with one container, the runner with a flag, that passes the strictest Pod Security Standard.
func Unprivileged(opts Options, container, flag string) corev1.PodSpec {
	yes, no, user, grace := true, false, int64(65532), int64(5)
	return corev1.PodSpec{
		AutomountServiceAccountToken:  &no,
		EnableServiceLinks:            &no,
		TerminationGracePeriodSeconds: &grace,
		ImagePullSecrets:              opts.ImagePullSecrets(),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: container, Image: opts.RunnerImage, Args: []string{"--" + flag}, ImagePullPolicy: corev1.PullIfNotPresent,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}
