// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	_ "embed" // settings.yaml
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"mvdan.cc/sh/v3/syntax"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// work is what the pods of a source do.
type work struct {
	namespace string
	contents  map[content]map[string]string
	template  *corev1.PodTemplateSpec
	pod       *corev1.PodSpec
	steps     []step
	// repeats says that the pod is restarted when it ends, so that its containers wait when they are done.
	repeats bool
}

// step is a container that does a part of the work.
type step struct {
	*corev1.Container
	program program
	// shown is what the script shows, or the program and its arguments.
	shown reading
	// text is all that the files show of what it does, also the other keys of its ConfigMaps and Secrets.
	text string
	init bool
}

func (c *converter) newWork(source *unstructured.Unstructured, template *corev1.PodTemplateSpec) *work {
	w := &work{namespace: c.namespaceOf(source), contents: c.contents, template: template, pod: &template.Spec}
	for i := range w.pod.InitContainers {
		w.steps = append(w.steps, w.newStep(&w.pod.InitContainers[i], true))
	}
	for i := range w.pod.Containers {
		w.steps = append(w.steps, w.newStep(&w.pod.Containers[i], false))
	}
	return w
}

func (w *work) newStep(c *corev1.Container, init bool) step {
	s := step{Container: c, program: w.program(c), init: init}
	script := s.program.script
	texts := append(slices.Clone(s.program.argv), script)
	for _, mount := range c.VolumeMounts {
		for _, v := range w.projections(mount.Name) {
			texts = append(texts, slices.Sorted(maps.Values(w.contents[v.content]))...)
		}
	}
	for _, env := range c.Env {
		value, _, _ := w.valueOf(env)
		texts = append(texts, value)
	}
	s.text = strings.Join(texts, "\n")
	if script == "" && len(c.Command) > 0 {
		for _, arg := range s.program.argv {
			quoted, err := syntax.Quote(arg, syntax.LangBash)
			if err != nil {
				quoted = "'$'" // a program that is not shown
			}
			script += quoted + " "
		}
	}
	s.shown = read(script)
	if strings.Contains(s.text, "PATCH") && strings.Contains(s.text, "/nodes/") {
		s.shown.labels["$"] = "$"
	}
	return s
}

// pauseImage matches the names of images whose program only waits.
var pauseImage = regexp.MustCompile(`^pause(-(amd64|arm64|arm|ppc64le|s390x))?$`)

// isIdle reports whether a container only waits.
func (s step) isIdle() bool {
	if s.init {
		return false
	}
	if len(s.Command) > 0 {
		return len(s.Ports) == 0 && !s.shown.invalid && !s.shown.work && len(s.shown.endless) > 0
	}
	name, _, _ := strings.Cut(path.Base(s.Image), ":")
	name, _, _ = strings.Cut(name, "@")
	return len(s.Args) == 0 && pauseImage.MatchString(name) || len(s.Args) > 0 && waits(s.Args)
}

// mentions reports whether the work of the pod names something, such as a label.
func (w *work) mentions(what string) bool {
	return slices.ContainsFunc(w.steps, func(s step) bool { return strings.Contains(s.text, what) })
}

// setTask writes the work: as a script or command if all of it runs on the node, and otherwise as a template, which is the pod as
// it was. It never changes a script.
func (d *draft) setTask() {
	for _, s := range d.steps {
		d.readStep(s)
	}
	reason := "the work has several containers"
	if len(d.steps) == 1 {
		reason = cmp.Or(d.steps[0].program.notOnNode(), d.hasOtherSettings(d.steps[0]))
	}
	if reason != "" {
		d.note("The task is a template, because %s.", reason)
		d.setTemplate()
	} else {
		d.setScript(d.steps[0])
	}
	if account := d.written().ServiceAccountName; account != "" && d.mentions("kubectl") {
		d.note("The task uses kubectl, with the service account %s. If it labels its node, publish does that without credentials (docs/publish.md).", account)
	}
}

// readStep says what the user must change in a script, or check in a program.
func (d *draft) readStep(s step) {
	at := "the container " + s.Name
	if s.program.source.kind != "" {
		at = fmt.Sprintf("the script of container %s (in the %s)", s.Name, s.program.source)
	}
	if line, found := reboots(s.text); found {
		d.todo("%s may reboot its node: %s\nA task that reboots its node does not end, and is repeated. Remove the reboot, set maintenance.reboot.policy: IfRequested, "+
			"and have a task.script request it: echo \"reboot=true\" >> \"$EVERYNODE_RESULTS\" (docs/maintenance.md).", at, d.quote(line))
	}
	if d.mentions("upgrade.cattle.io") || d.mentions("get plan") {
		d.todo("%s reads a Plan, which is gone after the switch: wait for the NodeJob that replaces the Plan, with dependsOn, or with kubectl wait", at)
	}
	repeats := d.repeats && !s.init
	if s.program.absent.kind != "" && !repeats {
		d.todo("the program of %s is in the %s, which is not in the file\nCheck that it does not reboot the node, and that it ends within task.timeoutSeconds.", at, s.program.absent)
	}
	for _, f := range s.shown.endless {
		d.nameEndless(f, at, repeats)
	}
	if repeats && s.program.script != "" {
		d.readRepeated(s, at)
	}
}

// nameEndless says what to do about a wait or a loop.
func (d *draft) nameEndless(f finding, at string, repeats bool) {
	switch {
	case repeats && f.isLoop:
		d.todo("%s repeats its work without end in line %d: %s\nA task ends. Remove the loop. rerun.periodSeconds repeats a task.", at, f.line, d.quote(f.text))
	case repeats:
		d.todo("%s waits without end in line %d: %s\nA task ends. Remove the wait.", at, f.line, d.quote(f.text))
	case !f.isLoop:
		d.todo("%s waits for 10 minutes or longer in line %d: %s\nSet task.timeoutSeconds, which is 600 by default.", at, f.line, d.quote(f.text))
	}
}

// readRepeated says whether a script that is restarted when it ends may not end.
func (d *draft) readRepeated(s step, at string) {
	if s.shown.unknown != "" {
		d.todo("%s runs %s, and the manifest does not show whether that ends\nIf it runs permanently, keep the DaemonSet.", at, s.shown.unknown)
	}
	if len(s.shown.endless) == 0 && d.job.Spec.Nodes.AssumeDone == nil && len(d.job.Spec.RemoveLabels) == 0 {
		d.note("The container %s ended by itself, so the kubelet repeated it all the time.", s.Name)
	}
}

// quote returns the beginning of a line of a script for a comment, without what is in a Secret.
func (w *work) quote(line string) string {
	for from, data := range w.contents {
		for _, text := range data {
			if from.kind == "Secret" && strings.Contains(text, strings.TrimSpace(line)) {
				return `"…"`
			}
		}
	}
	return fmt.Sprintf("%q", outcome.CleanHead(line, 200))
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

// ofFile matches what is different if a script is in a file.
var ofFile = regexp.MustCompile(`\$0|\$\{0|BASH_SOURCE|BASH_EXECUTION_STRING`)

// isWholeScript reports whether argv is a shell, its options, -c and a script, and the script is the same from a file.
func isWholeScript(argv []string) bool {
	return len(argv) > 2 && slices.IndexFunc(argv, isCommandFlag) == len(argv)-2 && !ofFile.MatchString(argv[len(argv)-1])
}

//go:embed settings.yaml
var settingsYAML []byte

// settings say which settings of a pod change what its program does.
var settings = table[[]struct {
	Pattern *regexp.Regexp
	Reason  string
}](settingsYAML)

var index = regexp.MustCompile(`\[[^]]*\]`)

// hasOtherSettings returns which settings of the pod may change what its program does on the node; "" if none does.
func (w *work) hasOtherSettings(s step) string {
	if c := s.SecurityContext; c == nil || c.Privileged == nil || !*c.Privileged {
		return "it is not privileged, or its security context has more"
	}
	if memory := s.Resources.Limits.Memory(); !memory.IsZero() && memory.Cmp(resource.MustParse("32Mi")) < 0 {
		return "its memory limit is below 32Mi, which a script needs"
	}
	pod := plainPod(w.pod)
	pod.Containers, pod.NodeSelector = []corev1.Container{*plainContainer(s.Container)}, w.pod.NodeSelector
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return err.Error()
	}
	for _, f := range flatten(fields) {
		setting := fmt.Sprintf("%s=%v", index.ReplaceAllString(f.path, ""), f.value)
		for _, known := range settings {
			if !known.Pattern.MatchString(setting) {
				continue
			}
			if known.Reason != "" {
				return known.Reason
			}
			break
		}
	}
	return ""
}

// plainPod returns a pod without containers, and without what a NodeJob sets itself.
func plainPod(from *corev1.PodSpec) *corev1.PodSpec {
	pod := from.DeepCopy()
	pod.ServiceAccountName, pod.DeprecatedServiceAccount = cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount), ""
	pod.NodeName, pod.NodeSelector, pod.Affinity, pod.Tolerations, pod.RestartPolicy, pod.SchedulerName = "", nil, nil, nil, "", ""
	pod.TerminationGracePeriodSeconds, pod.ActiveDeadlineSeconds, pod.TopologySpreadConstraints = nil, nil, nil
	pod.InitContainers, pod.Containers, pod.EphemeralContainers = nil, nil, nil
	return pod
}

// plainContainer returns a container without what only servers have.
func plainContainer(from *corev1.Container) *corev1.Container {
	c := from.DeepCopy()
	if c.RestartPolicy == nil {
		c.Ports, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil, nil
	}
	c.TerminationMessagePath, c.TerminationMessagePolicy = "", ""
	return c
}

// setScript writes task.script or task.command.
func (d *draft) setScript(s step) {
	t, argv := &d.job.Spec.Task, s.program.argv
	if isShell(argv[0]) {
		t.Script = argv[len(argv)-1]
		t.Interpreter = slices.Clone(argv[:len(argv)-2])
		if flags := strings.TrimSuffix(argv[len(argv)-2], "c"); flags != "-" {
			t.Interpreter = append(t.Interpreter, flags)
		}
		if len(t.Interpreter) == 1 && (argv[0] == "sh" || argv[0] == "/bin/sh") && !strings.Contains(t.Script, "#!") {
			t.Interpreter = nil // the default
		}
	} else {
		t.Command = argv
	}
	t.Env = s.variables()
	if limits, requests := s.Resources.Limits, s.Resources.Requests; len(limits)+len(requests) > 0 {
		t.Resources = &v1alpha1.TaskResources{Limits: limits, Requests: requests}
	}
	if s.program.source.kind == "Secret" {
		d.todo("the script was in the %s. Check that it contains no credentials, because everyone who may read NodeJobs can read it", s.program.source)
	}
	if s.Resources.Limits.Memory().IsZero() {
		d.note("A script has a memory limit of 512Mi unless task.resources.limits sets another one. The container %s had none.", s.Name)
	}
	d.drop("the image %s and the settings of the pod: a script runs as root in the namespaces of the node", s.Image)
}

// variables returns the variables of a container as those of a task.
func (s step) variables() (variables []v1alpha1.EnvVar) {
	for _, e := range s.Env {
		v := v1alpha1.EnvVar{Name: e.Name, Value: e.Value}
		if from := e.ValueFrom; from != nil { // settings.yaml makes the task a template with another source
			v.ValueFrom = &v1alpha1.EnvVarSource{ConfigMapKeyRef: from.ConfigMapKeyRef, SecretKeyRef: from.SecretKeyRef, FieldRef: from.FieldRef}
		}
		if e.Name != startupVariable || !isStartupScript(s.Container) {
			variables = append(variables, v)
		}
	}
	return variables
}

// setTemplate writes the pod without what a NodeJob sets itself.
func (d *draft) setTemplate() {
	pod := plainPod(d.pod)
	if d.pod.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows) {
		pod.OS = cmp.Or(pod.OS, &corev1.PodOS{Name: corev1.Windows})
	}
	for i, s := range d.steps {
		if s.init && i < len(d.steps)-1 {
			pod.InitContainers = append(pod.InitContainers, *plainContainer(s.Container))
		} else {
			pod.Containers = append(pod.Containers, *plainContainer(s.Container))
		}
		if isStartupScript(s.Container) {
			d.todo("the image %s runs its script and then waits without end, and the task is a template\nA task ends. Write the script as task.script.", s.Image)
		}
	}
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool {
		return !slices.ContainsFunc(d.steps, func(s step) bool { return mountsVolume(s.Container, v.Name) })
	})
	if pod.ServiceAccountName == "" && pod.AutomountServiceAccountToken == nil && (d.mentions("kubectl") || d.mentions("/var/run/secrets/kubernetes.io") || d.mentions("KUBERNETES_")) {
		pod.AutomountServiceAccountToken = new(true)
		d.note("The task has the credentials of the ServiceAccount default, as before, because it seems to use the API of Kubernetes.")
	}
	d.job.Spec.Task.Template = &corev1.PodTemplateSpec{Spec: *pod}
	d.job.Spec.Task.Template.Annotations, d.job.Spec.Task.Template.Labels = d.ownKeys(d.template.Annotations), d.ownKeys(d.template.Labels)
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
