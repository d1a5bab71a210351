// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// setTask writes the work: as a script or command if all of it runs on the node, and otherwise as a template, which is the pod as
// it was. It never changes a script.
func (d *draft) setTask() {
	for _, s := range d.steps {
		d.readStep(s)
	}
	if reason := d.notOnNode(); reason != "" {
		d.note("The task is a template, because %s.%s", reason, d.asScript())
		d.setTemplate()
		return
	}
	d.setScript(d.steps[0])
}

// asScript says how to write a task that leaves its container as a script; "" for other tasks.
func (d *draft) asScript() string {
	if len(d.steps) != 1 {
		return ""
	}
	var without []string
	for _, program := range []string{"nsenter", "chroot"} {
		if strings.Contains(d.steps[0].text, program) {
			without = append(without, program)
		}
	}
	for _, mount := range d.steps[0].VolumeMounts {
		if volume := d.volumes[mount.Name].HostPath; volume != nil && path.Clean(volume.Path) == "/" && strings.Contains(d.steps[0].text, mount.MountPath) {
			without = append(without, mount.MountPath)
		}
	}
	if without == nil {
		return ""
	}
	return " If it needs nothing of its image, write it as task.script without " + strings.Join(without, " and ") + ": a script runs as root on the node itself."
}

// readStep says what the user must change in a script, or check in a program.
func (d *draft) readStep(s step) {
	at := "the container " + s.Name
	if s.source.kind != "" {
		at = fmt.Sprintf("the script of container %s (in the %s)", s.Name, s.source)
	}
	for _, advice := range programs.Advice {
		if line, number := lineOf(s.text, advice.Pattern); number > 0 {
			d.todo("%s %s: %s\n%s", at, advice.Does, d.quote(line), advice.Instead)
		}
	}
	d.nameUnread(s, at)
	// The main containers of a DaemonSet wait when they are done, so that they are not restarted.
	if line, number := s.waiting(d.kind() == "DaemonSet" && !s.init && s.startupScript() == nil); number > 0 {
		d.todo("%s waits or repeats its work in line %d: %s\n"+
			"A task ends, and what it has started in the background ends with its pod. Remove what waits without end, or set "+
			"task.timeoutSeconds if it takes more than 10 minutes. rerun.periodSeconds repeats a task.", at, number, d.quote(line))
	}
}

// nameUnread names the ConfigMaps and Secrets of a container that are not in the files.
func (d *draft) nameUnread(s step, at string) {
	if s.absent.kind != "" {
		d.todo("the program of %s is in the %s, which is not in the file\n"+
			"Check that it does not reboot the node, and that it ends within task.timeoutSeconds.", at, s.absent)
	} else if len(s.unread) > 0 {
		d.note("The files do not have the %s, which the container %s mounts. If it runs a script of it, check that it does not reboot the node, "+
			"and that it ends within task.timeoutSeconds.", strings.Join(s.unread, " and the "), s.Name)
	}
}

// quote returns the beginning of a line of a script for a comment, without what is in a Secret.
func (d *draft) quote(line string) string {
	for from, data := range d.contents {
		for _, text := range data {
			isIn := strings.Contains(text, strings.TrimSpace(line)) || slices.ContainsFunc(strings.Split(text, "\n"), func(part string) bool {
				return strings.TrimSpace(part) != "" && strings.Contains(line, strings.TrimSpace(part))
			})
			if from.kind == "Secret" && isIn {
				return `"…"`
			}
		}
	}
	return fmt.Sprintf("%q", outcome.CleanHead(line, 200))
}

// notOnNode returns why the work may not do the same if it runs on the node without its pod; "" if it does.
func (d *draft) notOnNode() string {
	if len(d.steps) != 1 {
		return "the work has several containers"
	}
	s := d.steps[0]
	switch text := strings.Join(s.argv, ""); {
	case s.ofPod:
		return "it may change IPC or mounts that only its pod has"
	case !s.onNode:
		return "the manifest does not show that all programs are those of the node"
	case s.expanded:
		return "Kubernetes expands variables in what it runs"
	case s.source.kind == "Secret":
		return "its script is in a Secret"
	case strings.TrimSpace(s.argv[len(s.argv)-1]) == "", len(text) > contract.MaxScriptBytes, strings.ContainsAny(text, "\r\ufeff"):
		return fmt.Sprintf("it has no command, more than %d bytes, a carriage return or a byte order mark", contract.MaxScriptBytes)
	case isShell(s.argv[0]) && !isWholeScript(s.argv):
		return "its shell has arguments beside the script, or a script that reads its own file"
	}
	return d.otherSetting(s)
}

// otherSetting returns which setting of the pod may change what it does on the node; "" if none does.
func (d *draft) otherSetting(s step) string {
	if c := s.SecurityContext; c == nil || c.Privileged == nil || !*c.Privileged {
		return "it is not privileged"
	}
	if memory := s.Resources.Limits.Memory(); !memory.IsZero() && memory.Cmp(resource.MustParse("32Mi")) < 0 {
		return "its memory limit is below 32Mi, which a script needs"
	}
	pod := d.plainPod()
	pod.Containers, pod.NodeSelector = []corev1.Container{*s.Container}, d.template.Spec.NodeSelector
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return err.Error()
	}
	for _, f := range flatten("", fields) {
		path := index.ReplaceAllString(f.path, "")
		if setting := path + "=" + f.value; !programs.HarmlessSettings.MatchString(setting) || programs.OtherSettings.MatchString(setting) {
			return "its pod has the setting " + path + ", which may change what it does"
		}
	}
	return ""
}

var index = regexp.MustCompile(`\[[^]]*\]`)

// plainPod returns the pod without containers, and without what a NodeJob sets itself.
func (d *draft) plainPod() *corev1.PodSpec {
	pod := d.template.Spec.DeepCopy()
	pod.ServiceAccountName, pod.DeprecatedServiceAccount = cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount), ""
	pod.NodeName, pod.NodeSelector, pod.Affinity, pod.Tolerations, pod.RestartPolicy, pod.SchedulerName = "", nil, nil, nil, "", ""
	pod.TerminationGracePeriodSeconds, pod.ActiveDeadlineSeconds, pod.TopologySpreadConstraints = nil, nil, nil
	pod.InitContainers, pod.Containers, pod.EphemeralContainers = nil, nil, nil
	return pod
}

// setScript writes task.script or task.command.
func (d *draft) setScript(s step) {
	t, argv := &d.job.Spec.Task, s.argv
	if isShell(argv[0]) {
		t.Script = argv[len(argv)-1]
		t.Interpreter = slices.Clone(argv[:len(argv)-2])
		if flags := strings.Replace(argv[len(argv)-2], "c", "", 1); flags != "-" {
			t.Interpreter = append(t.Interpreter, flags)
		}
	} else {
		t.Command = argv
	}
	for _, e := range s.Env {
		v := v1alpha1.EnvVar{Name: e.Name, Value: e.Value}
		if from := e.ValueFrom; from != nil { // harmlessSettings makes the task a template with another source
			v.ValueFrom = &v1alpha1.EnvVarSource{FieldRef: from.FieldRef, SecretKeyRef: from.SecretKeyRef}
			v.ValueFrom.ConfigMapKeyRef = from.ConfigMapKeyRef
		}
		if startup := s.startupScript(); startup == nil || startup.Name != e.Name {
			t.Env = append(t.Env, v)
		}
	}
	if limits, requests := s.Resources.Limits, s.Resources.Requests; len(limits)+len(requests) > 0 {
		t.Resources = &v1alpha1.TaskResources{Limits: limits, Requests: requests}
	}
	d.drop("the container %s with the image %s, and the settings of the pod: a script runs as root in the namespaces of the node, with a "+
		"memory limit of 512Mi unless task.resources.limits sets another one", s.Name, s.Image)
}

// setTemplate writes the pod without what a NodeJob sets itself.
func (d *draft) setTemplate() {
	pod := d.plainPod()
	if d.template.Spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows) {
		pod.OS = cmp.Or(pod.OS, &corev1.PodOS{Name: corev1.Windows})
	}
	for i, s := range d.steps {
		if s.init && i < len(d.steps)-1 {
			pod.InitContainers = append(pod.InitContainers, *s.Container)
		} else {
			pod.Containers = append(pod.Containers, *s.Container)
		}
		if s.startupScript() != nil {
			d.todo("the image %s runs its script and then waits without end, and the task is a template\n"+
				"A task ends. Write the script as task.script.", s.Image)
		}
	}
	d.setCredentials(pod)
	if pod.PriorityClassName == "" {
		d.note("priorityClassName: without one, a task has that of the installation, system-node-critical by default, and can evict other pods.")
	}
	template := d.template.DeepCopy()
	for _, keys := range []map[string]string{template.Annotations, template.Labels} {
		maps.DeleteFunc(keys, func(key, _ string) bool {
			return programs.OwnKeys.MatchString(key) || slices.Contains(byKubernetes, key)
		})
	}
	d.job.Spec.Task.Template = &corev1.PodTemplateSpec{Spec: *pod}
	d.job.Spec.Task.Template.Annotations, d.job.Spec.Task.Template.Labels = template.Annotations, template.Labels
}

// setCredentials gives the task those of the ServiceAccount default, if it seems to use them.
func (d *draft) setCredentials(pod *corev1.PodSpec) {
	usesAPI := slices.ContainsFunc(d.steps, func(s step) bool { return programs.API.MatchString(s.text) })
	switch hasDefault := pod.ServiceAccountName == "" && pod.AutomountServiceAccountToken == nil; {
	case hasDefault && usesAPI:
		pod.AutomountServiceAccountToken = new(true)
		d.note("The task has the credentials of the ServiceAccount default, as before, because it seems to use the API of Kubernetes.")
	case hasDefault && slices.ContainsFunc(d.steps, func(s step) bool { return s.script == "" && !s.onNode }):
		d.note("The task has no credentials of the ServiceAccount default. If it uses the API of Kubernetes, set " +
			"automountServiceAccountToken: true in its template.")
	}
}
