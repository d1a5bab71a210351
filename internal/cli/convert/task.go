// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/runner/contract"
)

// work is what the pods of a source do.
type work struct {
	namespace string
	contents  map[content]map[string]string
	pod       *corev1.PodSpec
	template  *corev1.PodTemplateSpec
	steps     []step
	// repeats says that the pod is restarted when it ends, so that its containers wait when they are done.
	repeats bool
}

// step is a container that does a part of the work.
type step struct {
	*corev1.Container
	program program
	init    bool
}

func (c *converter) newWork(d *draft, template *corev1.PodTemplateSpec) *work {
	w := &work{namespace: d.job.Namespace, contents: c.contents, pod: &template.Spec, template: template}
	for i := range w.pod.InitContainers {
		container := &w.pod.InitContainers[i]
		w.steps = append(w.steps, step{Container: container, program: w.program(container), init: true})
	}
	for i := range w.pod.Containers {
		container := &w.pod.Containers[i]
		w.steps = append(w.steps, step{Container: container, program: w.program(container)})
	}
	return w
}

// text returns all that the files show of what a step does, also the other keys of its ConfigMaps and Secrets.
func (w *work) text(s step) string {
	texts := append(slices.Clone(s.program.argv), s.program.script)
	for _, mount := range s.VolumeMounts {
		texts = append(texts, slices.Sorted(maps.Values(w.contents[w.contentOf(mount.Name)]))...)
	}
	for _, env := range s.Env {
		value, _, _ := w.valueOf(env)
		texts = append(texts, value)
	}
	return strings.Join(texts, "\n")
}

// mentions reports whether the work of the pod names something, such as a label.
func (w *work) mentions(what string) bool {
	return slices.ContainsFunc(w.steps, func(s step) bool { return strings.Contains(w.text(s), what) })
}

// setTask writes the work: as a script or command if all of it runs on the node, and otherwise as a template, which is the pod as
// it was. It never changes a script.
func (d *draft) setTask(w *work) {
	for _, s := range w.steps {
		d.readStep(w, s)
	}
	if reason := w.notOnNode(); reason != "" {
		d.note("The task is a template, because %s.", reason)
		d.setTemplate(w)
	} else {
		d.setScript(w.steps[0])
	}
	if w.mentions("kubectl") && d.account() != "" {
		d.note("The task uses kubectl, with the service account %s. If it labels its node, publish does that without credentials (docs/publish.md).", d.account())
	}
}

// readStep says what the user must change in a script, or check in a program.
func (d *draft) readStep(w *work, s step) {
	at := s.where()
	if line, found := reboots(w.text(s)); found {
		if line = bounded(line); w.isSecret(line, s) {
			line = "…"
		}
		d.todo("%s may reboot its node: %q\nA task that reboots its node does not end, and is repeated. Remove the reboot, set maintenance.reboot.policy: IfRequested, "+
			"and have a task.script request it: echo \"reboot=true\" >> \"$EVERYNODE_RESULTS\" (docs/maintenance.md).", at, line)
	}
	if w.mentions("upgrade.cattle.io") || w.mentions("get plan") {
		d.todo("%s reads a Plan, which is gone after the switch: wait for the NodeJob that replaces the Plan, with dependsOn, or with kubectl wait", at)
	}
	repeats := w.repeats && !s.init
	if s.program.absent.kind != "" && !repeats {
		d.todo("the program of %s is in the %s, which is not in the file\nCheck that it does not reboot the node, and that it ends within task.timeoutSeconds.", at, s.program.absent)
	}
	if shown := read(s.program.script); repeats {
		d.readRepeated(s, at, shown)
	} else {
		for _, f := range shown.waits {
			d.todo("%s waits for 10 minutes or longer in line %d: %q\nSet task.timeoutSeconds, which is 600 by default.", at, f.line, f.text)
		}
	}
}

// where names the script of a step.
func (s step) where() string {
	if s.program.source.kind != "" {
		return fmt.Sprintf("the script of container %s (in the %s)", s.Name, s.program.source)
	}
	return "the container " + s.Name
}

// readRepeated says what the user must change in a script that is restarted when it ends.
func (d *draft) readRepeated(s step, at string, shown reading) {
	for _, f := range shown.waits {
		d.todo("%s waits without end in line %d: %q\nA task ends. Remove the wait.", at, f.line, f.text)
	}
	for _, f := range shown.loops {
		d.todo("%s repeats its work without end in line %d: %q\nA task ends. Remove the loop. rerun.periodSeconds repeats a task.", at, f.line, f.text)
	}
	if shown.unknown != "" {
		d.todo("%s runs %s, and the manifest does not show whether that ends\nIf it runs permanently, keep the DaemonSet.", at, shown.unknown)
	}
	if s.program.script != "" && len(shown.waits)+len(shown.loops) == 0 && d.job.Spec.Nodes.AssumeDone == nil && len(d.job.Spec.RemoveLabels) == 0 {
		d.note("The container %s ended by itself, so the kubelet repeated it all the time.", s.Name)
	}
}

// isSecret reports whether a line is in a Secret.
func (w *work) isSecret(line string, s step) bool {
	for from, data := range w.contents {
		for _, text := range data {
			if from.kind == "Secret" && strings.Contains(text, line) && s.program.source != from {
				return true
			}
		}
	}
	return false
}

func bounded(line string) string { return line[:min(len(line), 200)] }

// nodeVariables are the fields of a pod that are the same for the pod of a script.
var nodeVariables = []string{"spec.nodeName", "status.hostIP", "status.hostIPs"}

// notOnNode returns why the work is not a script or a command that runs with the programs and files of the node; "" if it is one.
func (w *work) notOnNode() string {
	if len(w.steps) != 1 {
		return "the work has several containers"
	}
	return cmp.Or(w.steps[0].program.notOnNode(), w.hasOtherSettings(w.steps[0]))
}

// notOnNode returns why a program cannot run in the same way on the node; "" if it can.
func (p *program) notOnNode() string {
	switch {
	case !p.onNode || len(p.argv) == 0:
		return "the manifest does not show that all programs are those of the node"
	case p.expanded:
		return "Kubernetes expands variables in what it runs"
	case strings.TrimSpace(p.argv[len(p.argv)-1]) == "":
		return "it has no command"
	case len(strings.Join(p.argv, "")) > contract.MaxScriptBytes:
		return fmt.Sprintf("it has more than %d bytes", contract.MaxScriptBytes)
	case slices.ContainsFunc(p.argv, func(arg string) bool { return strings.ContainsAny(arg, "\r\ufeff") }):
		return "it has a carriage return or a byte order mark"
	case isShell(p.argv[0]) && !isWholeScript(p.argv):
		return "its shell has arguments beside the script, or a script that reads its own file"
	}
	return ""
}

// hasOtherSettings returns which settings of the pod may change what its program does; "" if none does.
func (w *work) hasOtherSettings(s step) string {
	memory := s.Resources.Limits.Memory()
	switch {
	case isWindows(w.pod):
		return "it runs on nodes with Windows"
	case !isRoot(s.Container, w.pod):
		return "it is not privileged, or its security context has more"
	case slices.ContainsFunc(w.pod.Volumes, createsPath):
		return "a volume creates a file or folder of the node"
	case slices.ContainsFunc(s.Env, isOfPod):
		return "it uses variables that only its own pod has"
	case slices.ContainsFunc(slices.Collect(maps.Keys(s.Resources.Limits)), isDevice):
		return "it has a device"
	case !memory.IsZero() && memory.Cmp(resource.MustParse("32Mi")) < 0:
		return "its memory limit is below 32Mi, which a script needs"
	case !hasOnlyPlainSettings(w.pod, s.Container):
		return "its pod has settings that may change what it does"
	}
	return ""
}

// hasOnlyPlainSettings reports whether a pod and its container have no other settings than those that change nothing for a program that
// runs as root in the namespaces of the node.
func hasOnlyPlainSettings(pod *corev1.PodSpec, container *corev1.Container) bool {
	p, c := *pod, *container
	p.Containers, p.InitContainers, p.Volumes, p.NodeName, p.NodeSelector, p.Affinity, p.Tolerations = nil, nil, nil, "", nil, nil, nil
	p.HostPID, p.HostNetwork, p.HostIPC, p.SecurityContext, p.DNSPolicy, p.EnableServiceLinks = false, false, false, nil, "", nil
	p.ServiceAccountName, p.DeprecatedServiceAccount, p.AutomountServiceAccountToken, p.ImagePullSecrets = "", "", nil, nil
	p.RestartPolicy, p.SchedulerName, p.TerminationGracePeriodSeconds, p.ActiveDeadlineSeconds = "", "", nil, nil
	p.TopologySpreadConstraints, p.EphemeralContainers, p.PriorityClassName = nil, nil, ""
	c.Name, c.Image, c.ImagePullPolicy, c.Command, c.Args, c.Env, c.Resources = "", "", "", nil, nil, nil, corev1.ResourceRequirements{}
	c.Resources.Claims = container.Resources.Claims
	c.SecurityContext, c.VolumeMounts, c.TerminationMessagePath, c.TerminationMessagePolicy = nil, nil, "", ""
	c.Ports, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil, nil
	return reflect.ValueOf(p).IsZero() && reflect.ValueOf(c).IsZero()
}

func isOfPod(env corev1.EnvVar) bool {
	ref := env.ValueFrom
	return strings.HasPrefix(env.Name, "EVERYNODE_") || ref != nil &&
		(ref.ResourceFieldRef != nil || ref.FileKeyRef != nil || ref.FieldRef != nil && !slices.Contains(nodeVariables, ref.FieldRef.FieldPath))
}

// isRoot reports whether a container is privileged and has nothing else in its security context that changes what it may do.
func isRoot(c *corev1.Container, pod *corev1.PodSpec) bool {
	if c.SecurityContext == nil || pod.SecurityContext != nil && !reflect.ValueOf(*pod.SecurityContext).IsZero() {
		return false
	}
	own := *c.SecurityContext
	if own.Capabilities != nil && len(own.Capabilities.Drop) == 0 {
		own.Capabilities = nil // a privileged container has all
	}
	if own.RunAsUser == nil {
		own.RunAsUser = new(int64)
	}
	if own.AllowPrivilegeEscalation == nil {
		own.AllowPrivilegeEscalation = new(true)
	}
	return reflect.DeepEqual(own, corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64), AllowPrivilegeEscalation: new(true)})
}

func createsPath(v corev1.Volume) bool {
	return v.HostPath != nil && v.HostPath.Type != nil && strings.HasSuffix(string(*v.HostPath.Type), "OrCreate")
}

func isDevice(name corev1.ResourceName) bool {
	return !slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}, name)
}

// isWholeScript reports whether argv is a shell, its options, -c and a script, and the script is the same from a file.
func isWholeScript(argv []string) bool {
	script := argv[len(argv)-1]
	return len(argv) > 2 && slices.IndexFunc(argv, isCommandFlag) == len(argv)-2 &&
		!strings.Contains(script, "$0") && !strings.Contains(script, "${0") && !strings.Contains(script, "BASH_SOURCE") && !strings.Contains(script, "BASH_EXECUTION_STRING")
}

// setScript writes task.script or task.command.
func (d *draft) setScript(s step) {
	t, argv := &d.job.Spec.Task, s.program.argv
	if isShell(argv[0]) {
		t.Script = argv[len(argv)-1]
		t.Interpreter = append(slices.Clone(argv[:1]), argv[1:len(argv)-2]...)
		if flags := strings.TrimSuffix(argv[len(argv)-2], "c"); flags != "-" {
			t.Interpreter = append(t.Interpreter, flags)
		}
		if len(t.Interpreter) == 1 && (argv[0] == "sh" || argv[0] == "/bin/sh") && !strings.Contains(t.Script, "#!") {
			t.Interpreter = nil // the default
		}
	} else {
		t.Command = argv
	}
	t.Env = slices.DeleteFunc(slices.Clone(s.Env), func(e corev1.EnvVar) bool { return e.Name == "STARTUP_SCRIPT" && startupScript(s.Container) != nil })
	resources := s.Resources
	if len(resources.Limits)+len(resources.Requests) > 0 {
		t.Resources = &v1alpha1.TaskResources{Limits: resources.Limits, Requests: resources.Requests}
	}
	if s.program.source.kind == "Secret" {
		d.todo("the script was in the %s. Check that it contains no credentials, because everyone who may read NodeJobs can read it", s.program.source)
	}
	if resources.Limits.Memory().IsZero() {
		d.note("A script has a memory limit of 512Mi unless task.resources.limits sets another one. The container %s had none.", s.Name)
	}
	d.drop("the image %s and the settings of the pod: a script runs as root in the namespaces of the node", s.Image)
}

// plainPod returns a pod without containers, and without what a NodeJob sets itself.
func plainPod(from *corev1.PodSpec) *corev1.PodSpec {
	pod := from.DeepCopy()
	if pod.ServiceAccountName == "" {
		pod.ServiceAccountName = pod.DeprecatedServiceAccount
	}
	pod.DeprecatedServiceAccount, pod.RestartPolicy, pod.SchedulerName = "", "", ""
	pod.NodeName, pod.NodeSelector, pod.Affinity, pod.Tolerations = "", nil, nil, nil
	pod.EphemeralContainers, pod.TopologySpreadConstraints = nil, nil
	pod.TerminationGracePeriodSeconds, pod.ActiveDeadlineSeconds = nil, nil
	pod.InitContainers, pod.Containers = nil, nil
	if isWindows(from) && pod.OS == nil {
		pod.OS = &corev1.PodOS{Name: corev1.Windows}
	}
	return pod
}

// setTemplate writes the pod without what a NodeJob sets itself.
func (d *draft) setTemplate(w *work) {
	pod := plainPod(w.pod)
	for i, s := range w.steps {
		c := *s.DeepCopy()
		if s.RestartPolicy == nil {
			c.Ports, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil, nil
		}
		c.TerminationMessagePath, c.TerminationMessagePolicy = "", ""
		if s.init && i < len(w.steps)-1 {
			pod.InitContainers = append(pod.InitContainers, c)
		} else {
			pod.Containers = append(pod.Containers, c)
		}
	}
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool {
		return !slices.ContainsFunc(w.steps, func(s step) bool { return mountsVolume(s.Container, v.Name) })
	})
	d.job.Spec.Task.Template = &corev1.PodTemplateSpec{Spec: *pod}
	d.job.Spec.Task.Template.Annotations, d.job.Spec.Task.Template.Labels = d.ownKeys(w.template.Annotations), d.ownKeys(w.template.Labels)
	if pod.ServiceAccountName == "" && pod.AutomountServiceAccountToken == nil && (w.mentions("kubectl") || w.mentions("/var/run/secrets/kubernetes.io") || w.mentions("KUBERNETES_")) {
		d.job.Spec.Task.Template.Spec.AutomountServiceAccountToken = new(true)
		d.note("The task has the credentials of the ServiceAccount default, as before, because it seems to use the API of Kubernetes.")
	}
	d.readStartupScripts(w)
}

// readStartupScripts says that the image startup-script never ends.
func (d *draft) readStartupScripts(w *work) {
	for _, s := range w.steps {
		if startupScript(s.Container) != nil {
			d.todo("the image %s runs its script and then waits without end, and the task is a template\nA task ends. Write the script as task.script.", s.Image)
		}
	}
}

// ownKeys returns labels or annotations without those of Everynode, which a template must not have, and of Kubernetes.
func (d *draft) ownKeys(all map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		switch prefix, _, _ := strings.Cut(key, "/"); {
		case prefix == v1alpha1.Group || strings.HasSuffix(prefix, "."+v1alpha1.Group):
			d.todo("not converted: %s of the template, which only Everynode sets on pods", key)
		case !slices.Contains(byKubernetes, key):
			kept[key] = value
		}
	}
	return kept
}

func mountsVolume(c *corev1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) ||
		slices.ContainsFunc(c.VolumeDevices, func(m corev1.VolumeDevice) bool { return m.Name == volume })
}
