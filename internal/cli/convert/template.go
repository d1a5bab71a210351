// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// setTemplate writes the work as a pod with its own image.
func (d *draft) setTemplate(w *workload) {
	pod := w.template.Spec.DeepCopy()
	dropFromPod(pod)
	pod.InitContainers, pod.Containers = nil, nil
	for i, s := range w.steps {
		c := templateContainer(s)
		if s.init && i < len(w.steps)-1 {
			pod.InitContainers = append(pod.InitContainers, c)
			continue
		}
		c.RestartPolicy = nil
		pod.Containers = append(pod.Containers, c)
	}
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(volume corev1.Volume) bool { return !isMounted(pod, volume.Name) })
	template := &corev1.PodTemplateSpec{Spec: *pod}
	if len(w.template.Annotations) > 0 {
		template.ObjectMeta = metav1.ObjectMeta{Annotations: w.template.Annotations}
	}
	fields, _ := generic(template).(map[string]any)
	delete(fields, "status")
	t := d.spec.in("task")
	t.set("template", fields)
	if pod.ServiceAccountName != "" {
		d.needsAccount = true
		t.note("template", "The service account "+pod.ServiceAccountName+" is needed only if the program uses the API of Kubernetes. Otherwise remove serviceAccountName.")
	}
	if isWindows(&w.template.Spec) && pod.OS == nil {
		t.todo("template", "set spec.os: {name: windows}.")
	}
}

// dropFromPod removes the fields that a NodeJob sets, or has in other places.
func dropFromPod(pod *corev1.PodSpec) {
	if pod.ServiceAccountName == "" {
		pod.ServiceAccountName = pod.DeprecatedServiceAccount
	}
	pod.DeprecatedServiceAccount, pod.RestartPolicy, pod.SchedulerName = "", "", ""
	pod.NodeName, pod.NodeSelector, pod.Affinity, pod.Tolerations = "", nil, nil, nil
	pod.EphemeralContainers = nil // no pod can be created with them
	pod.TopologySpreadConstraints, pod.TerminationGracePeriodSeconds, pod.ActiveDeadlineSeconds = nil, nil, nil
}

// templateContainer returns a container without the commands that a NodeJob does not need, and without what is for
// servers.
func templateContainer(s *step) corev1.Container {
	c := *s.container.DeepCopy()
	if !s.isSidecar() {
		c.Ports, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil, nil
	}
	c.TerminationMessagePath, c.TerminationMessagePolicy = "", ""
	for _, argv := range [][]string{c.Command, c.Args} {
		for i, arg := range argv {
			if strings.ContainsAny(arg, " \n") {
				argv[i] = s.cleaned(arg)
			}
		}
	}
	return c
}

// cleaned returns a script of a container, or another argument unchanged.
func (s *step) cleaned(arg string) string {
	script := arg
	if len(s.changes) > 0 {
		script, _ = dropNodeChanges(script)
	}
	if s.waits {
		script, _ = dropSleep(script)
		if rest, _, ok := dropLoop(script); ok && s.every > 0 {
			script = rest
		}
	}
	if !strings.Contains(arg, "\n") {
		script = strings.TrimSuffix(script, "\n")
	}
	if strings.TrimSpace(script) == "" {
		return "true"
	}
	return script
}

func isMounted(pod *corev1.PodSpec, volume string) bool {
	return slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), func(c corev1.Container) bool { return mountsVolume(&c, volume) })
}

func mountsVolume(c *corev1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) ||
		slices.ContainsFunc(c.VolumeDevices, func(m corev1.VolumeDevice) bool { return m.Name == volume })
}
