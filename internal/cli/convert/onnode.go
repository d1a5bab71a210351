// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Whether a container can become a script that runs on the node.

// notOnNode returns why the work needs its image; "" if it can run as a script in the namespaces of the node.
func (w *workload) notOnNode() string {
	if isWindows(&w.template.Spec) {
		return "scripts run on Linux nodes only"
	}
	values := map[string]string{}
	for _, s := range w.steps {
		for _, check := range []func(*step) string{w.needsPod, w.needsProgram, w.needsAccess, w.needsVolume} {
			if reason := check(s); reason != "" {
				return reason
			}
		}
		if s.from != nil && len(w.steps) > 1 {
			return "several containers, one with a script in a ConfigMap that is not in the file"
		}
		for _, env := range s.container.Env {
			value := fmt.Sprint(generic(env))
			if other, ok := values[env.Name]; ok && other != value {
				return "its containers have different values of the variable " + env.Name
			}
			values[env.Name] = value
		}
	}
	return ""
}

func isWindows(pod *corev1.PodSpec) bool {
	return pod.OS != nil && pod.OS.Name == corev1.Windows || pod.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows)
}

// needsPod reports whether the container runs beside the others.
func (w *workload) needsPod(s *step) string {
	if s.isSidecar() {
		return "the init container " + s.container.Name + " is a sidecar"
	}
	return ""
}

// needsProgram reports whether the container runs a program of its image.
func (w *workload) needsProgram(s *step) string {
	name, script := s.container.Name, s.program.script
	switch {
	case s.from != nil:
		return ""
	case script == "" && (!s.program.onNode || len(s.program.argv) == 0):
		return "the container " + name + " runs a program of its image"
	case len(s.container.EnvFrom) > 0:
		return "the container " + name + " has envFrom, which task.env does not have"
	case mentions(script, "kubectl"):
		return "the container " + name + " uses kubectl, which a node usually does not have"
	case s.program.onNode:
		return ""
	case mentions(script, "apk") || mentions(script, "pip"):
		return "the container " + name + " installs packages into its image"
	case runsFileOfImage(script):
		return "the container " + name + " runs a file of its image"
	}
	return ""
}

// isSidecar reports whether the container runs beside the others until they have ended.
func (s *step) isSidecar() bool { return s.init && s.container.RestartPolicy != nil }

// nodeDirs are directories that nodes and images have in common.
var nodeDirs = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/etc/init.d"}

// runsFileOfImage reports whether a command of a script is a file that the node probably does not have.
func runsFileOfImage(script string) bool {
	return slices.ContainsFunc(logicalLines(script), func(l line) bool {
		return !l.raw && slices.ContainsFunc(commands(l.text), func(c command) bool {
			w := words(strings.TrimSpace(c.text[len(leading.FindString(c.text)):]))
			if len(w) > 1 && isShell(w[0]) {
				w = w[1:]
			}
			if len(w) == 0 || !strings.Contains(w[0], "/") || strings.ContainsAny(w[0], "$=`") {
				return false
			}
			return !slices.Contains(nodeDirs, path.Dir(w[0]))
		})
	})
}

// needsAccess reports whether the container does its work without access to the node, such as pulling an image.
func (w *workload) needsAccess(s *step) string {
	pod := &w.template.Spec
	if s.program.onNode || s.from != nil || isPrivileged(s.container) || pod.HostPID || pod.HostNetwork || isReport(s) {
		return ""
	}
	access := false
	w.mounts(s.container, func(_ corev1.VolumeMount, volume corev1.Volume) { access = access || volume.HostPath != nil })
	if !access {
		return "the container " + s.container.Name + " has no access to the node, so its work may depend on the image"
	}
	return ""
}

// isReport reports whether the script only writes results for the Node object.
func isReport(s *step) bool {
	return len(s.changes) > 0 && strings.HasPrefix(s.program.script, "echo ") && strings.Contains(s.program.script, "$EVERYNODE_RESULTS")
}

// onlyChanges reports whether the work of a step is to change the Node object.
func onlyChanges(s *step) bool {
	return len(s.changes) > 0 && (s.program.script == "" || onlyTalks(s.program.script))
}

// needsVolume reports whether the script uses a volume at a path where the node has something else.
func (w *workload) needsVolume(s *step) string {
	reason := ""
	w.mounts(s.container, func(mount corev1.VolumeMount, volume corev1.Volume) {
		at := path.Clean(mount.MountPath)
		switch {
		case s.from != nil && s.from.ConfigMapKeyRef.Name == volumeObject(volume):
		case volume.HostPath != nil && mount.SubPathExpr == "" && path.Join(volume.HostPath.Path, mount.SubPath) == at:
		case usesPath(s, at):
			reason = fmt.Sprintf("the container %s uses the volume %s at %s", s.container.Name, volume.Name, at)
		}
	})
	return reason
}

func volumeObject(volume corev1.Volume) string {
	if volume.ConfigMap != nil {
		return volume.ConfigMap.Name
	}
	return ""
}

// usesPath reports whether a script or a variable names a path or a file below it. A variable with the root of the node
// gets another value.
func usesPath(s *step, at string) bool {
	text := s.program.script + "\n" + strings.Join(s.program.argv, "\n")
	if strings.Contains(text+"\n", at+"/") {
		return true
	}
	for _, end := range []string{" ", "\n", "\"", "'", ";", ")"} {
		if strings.Contains(text+"\n", at+end) {
			return true
		}
	}
	return slices.ContainsFunc(s.container.Env, func(env corev1.EnvVar) bool { return strings.HasPrefix(env.Value, at+"/") })
}
