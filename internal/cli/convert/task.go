// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// workload is what the pods of a source do.
type workload struct {
	template *corev1.PodTemplateSpec
	steps    []*step
	// contents has the data of ConfigMaps and Secrets of the file, by contentKey.
	contents  map[string]map[string]string
	namespace string
	// always says that the pod is restarted when it ends, so that scripts end with a wait.
	always bool
	// placeholder is a variable for the name of the node that is not in the environment.
	placeholder string
	// changes is what the containers change on the Node object.
	changes []nodeChange
}

// step is a container that does a part of the work.
type step struct {
	container *corev1.Container
	init      bool
	program   program
	// from is the ConfigMap with the script, if it is not in the file.
	from    *v1alpha1.ScriptSource
	changes []nodeChange
	// every is the number of seconds after which the script repeats its work.
	every int
	waits bool
	// reboots says that the script rebooted its node.
	reboots bool
	// content is the ConfigMap or Secret in which the script was, by contentKey, and secret is the name of the Secret.
	content, secret string
}

func contentKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// addStep adds a container to the work.
func (w *workload) addStep(c *corev1.Container, init bool) {
	s := &step{container: c, init: init}
	roots := w.roots(c)
	s.program = programOf(c, roots)
	if s.program.file != "" {
		w.readFile(s)
		s.program.unwrapScript(roots)
	}
	if argv := s.program.argv; len(c.Command) > 0 && len(argv) > 1 && isPrivileged(c) && slices.Contains(nodePrograms, path.Base(argv[0])) {
		s.program.onNode = true
	}
	s.requestReboot()
	if s.program.script != "" {
		s.program.script, s.changes = dropNodeChanges(s.program.script)
		w.changes = append(w.changes, s.changes...)
	}
	if s.program.script != "" && w.always && !init {
		s.dropWait()
	}
	w.steps = append(w.steps, s)
}

// nodePrograms are programs that every node has.
var nodePrograms = []string{"sysctl", "modprobe"}

// dropWait removes the wait at the end of the script, or the loop that repeats it.
func (s *step) dropWait() {
	if s.program.script, s.waits = dropSleep(s.program.script); s.waits {
		return
	}
	if rest, every, ok := dropLoop(s.program.script); ok {
		s.program.script, s.every, s.waits = rest, int(every.Seconds()), true
	}
}

// mounts calls f for each volume of a container.
func (w *workload) mounts(c *corev1.Container, f func(corev1.VolumeMount, corev1.Volume)) {
	for _, mount := range c.VolumeMounts {
		for _, volume := range w.template.Spec.Volumes {
			if volume.Name == mount.Name {
				f(mount, volume)
			}
		}
	}
}

// roots returns the paths at which a container has the root directory of the node.
func (w *workload) roots(c *corev1.Container) []string {
	var roots []string
	w.mounts(c, func(mount corev1.VolumeMount, volume corev1.Volume) {
		if volume.HostPath != nil && path.Clean(volume.HostPath.Path) == "/" && mount.SubPath == "" && mount.SubPathExpr == "" {
			roots = append(roots, path.Clean(mount.MountPath))
		}
	})
	for _, env := range c.Env {
		if slices.Contains(roots, path.Clean(env.Value)) && env.Value != "" {
			roots = append(roots, "$"+env.Name, "${"+env.Name+"}")
		}
	}
	return roots
}

// readFile finds the script of a step in a ConfigMap or Secret that is mounted.
func (w *workload) readFile(s *step) {
	w.mounts(s.container, func(mount corev1.VolumeMount, volume corev1.Volume) {
		for _, file := range append(w.underRoots(s.container, s.program.file), s.program.file) {
			key, kind, name := keyOf(file, mount, volume)
			if key == "" {
				continue
			}
			data, known := w.contents[contentKey(kind, w.namespace, name)]
			switch script, ok := data[key]; {
			case ok:
				s.program.script, s.program.argv, s.content = script, nil, contentKey(kind, w.namespace, name)
				if kind == "Secret" {
					s.secret = name
				}
				if s.program.shell == "" {
					s.program.shell = "sh"
				}
			case !known && kind == "ConfigMap":
				s.from = &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: name, Key: key}}
			}
			return
		}
	})
}

// underRoots returns a path on the node as a path in the container.
func (w *workload) underRoots(c *corev1.Container, file string) []string {
	var files []string
	for _, root := range w.roots(c) {
		files = append(files, path.Join(root, file))
	}
	return files
}

// keyOf returns which key of which ConfigMap or Secret a file is; "" if it is none.
func keyOf(file string, mount corev1.VolumeMount, volume corev1.Volume) (key, kind, name string) {
	var items []corev1.KeyToPath
	switch {
	case volume.ConfigMap != nil:
		kind, name, items = "ConfigMap", volume.ConfigMap.Name, volume.ConfigMap.Items
	case volume.Secret != nil:
		kind, name, items = "Secret", volume.Secret.SecretName, volume.Secret.Items
	default:
		return "", "", ""
	}
	if mount.SubPathExpr != "" {
		return "", "", "" // the path is only known in the pod
	}
	relative, inside := strings.CutPrefix(path.Clean(file), path.Clean(mount.MountPath)+"/")
	if mount.SubPath != "" {
		relative, inside = mount.SubPath, path.Clean(file) == path.Clean(mount.MountPath)
	}
	if !inside {
		return "", "", ""
	}
	for _, item := range items {
		if item.Path == relative {
			return item.Key, kind, name
		}
	}
	if len(items) > 0 || strings.Contains(relative, "/") {
		return "", "", ""
	}
	return relative, kind, name
}

// mergeChanges removes containers that only change the Node object, because the results of a task do that. If there is
// no other container, it reports the changes as results and returns true.
func (d *draft) mergeChanges(w *workload) bool {
	work := slices.DeleteFunc(slices.Clone(w.steps), onlyChanges)
	if len(work) > 0 || len(w.steps) == 0 {
		for _, s := range w.steps {
			if onlyChanges(s) {
				d.dropContainer(s.container, "only changes the Node object")
			}
		}
		w.steps = work
		return false
	}
	var b strings.Builder
	for _, s := range w.steps {
		for _, change := range s.changes {
			if !change.remove && change.kind != "taint" {
				b.WriteString(change.report() + "\n")
			}
		}
	}
	for _, s := range w.steps[1:] {
		d.dropContainer(s.container, "only changes the Node object")
	}
	w.steps = w.steps[:1]
	w.steps[0].program.script, w.steps[0].program.argv = b.String(), nil
	return b.Len() > 0
}

// setTask writes the work as a script if it can run in the namespaces of the node, and otherwise as a template.
func (d *draft) setTask(w *workload) {
	for _, s := range w.steps {
		d.scripts = append(d.scripts, s.content)
		w.mounts(s.container, func(_ corev1.VolumeMount, volume corev1.Volume) {
			d.mounted = append(d.mounted, w.mountedContents(volume)...)
		})
	}
	if reason := w.notOnNode(); reason != "" {
		d.spec.note("task", "This is a template, because "+reason+".")
		d.setTemplate(w)
		d.setReboot(w)
		return
	}
	d.setReboot(w)
	d.setScript(w)
	d.setEnv(w)
	d.setLimits(w)
	d.dropForScript(w)
}

// setScript writes task.script, task.scriptFrom or task.command.
func (d *draft) setScript(w *workload) {
	t := d.spec.in("task")
	names := w.nodeNameVariables()
	if len(w.steps) == 1 {
		s := w.steps[0]
		switch {
		case s.from != nil:
			d.spec.todo("task", "check the script in the ConfigMap %[1]s: commands that label the node, or that wait for ever at the end, are not needed, and would fail or time out. Then let NodeJobs run it: kubectl label configmap %[1]s%[2]s %[3]s=%[4]s",
				s.from.ConfigMapKeyRef.Name, inNamespace(w.namespace), v1alpha1.ScriptLabel, v1alpha1.ScriptLabelValue)
			t.set("scriptFrom", generic(s.from))
			if s.program.shell == "bash" {
				t.set("interpreter", []any{"bash"})
			}
			return
		case s.program.script == "" && !slices.ContainsFunc(s.program.argv, func(arg string) bool { return strings.Contains(arg, "$(") }):
			t.set("command", generic(s.program.argv))
			return
		}
		t.set("script", setFlags(s.text(names), s.program.options))
		if s.program.shell == "bash" && !strings.HasPrefix(s.program.script, "#!") {
			t.set("interpreter", []any{"bash"})
		}
		return
	}
	var b strings.Builder
	for i, s := range w.steps {
		if i > 0 {
			b.WriteString("[ $? -eq 0 ] || exit 1\n")
		}
		script := setFlags(s.text(names), s.program.options)
		fmt.Fprintf(&b, "( # container %s\n%s\n)\n", s.container.Name, strings.TrimSuffix(script, "\n"))
		if s.program.shell == "bash" {
			t.set("interpreter", []any{"bash"})
		}
	}
	t.set("script", b.String())
}

// text returns the script of a step, with the variables of Everynode.
func (s *step) text(nodeNames []string) string {
	script := s.program.script
	if script == "" {
		quotedWords := make([]string, len(s.program.argv))
		for i, arg := range s.program.argv {
			quotedWords[i] = shellQuote(arg)
		}
		script = strings.Join(quotedWords, " ")
	}
	for _, env := range s.container.Env {
		script = strings.ReplaceAll(script, "$("+env.Name+")", "${"+env.Name+"}")
	}
	for _, name := range nodeNames {
		script = nodeNameUse(name).ReplaceAllString(script, "$${${1}EVERYNODE_NODE_NAME${2}")
		script = regexp.MustCompile(`\$`+regexp.QuoteMeta(name)+`\b`).ReplaceAllString(script, "$$EVERYNODE_NODE_NAME")
	}
	return strings.TrimRight(script, " \t\n") + "\n"
}

func nodeNameUse(name string) *regexp.Regexp {
	return regexp.MustCompile(`\$\{(#?)` + regexp.QuoteMeta(name) + `([}:%#/+?-])`)
}

// setFlags writes the options of a shell as commands.
func setFlags(script string, options []string) string {
	if len(options) == 0 {
		return script
	}
	head := ""
	if strings.HasPrefix(script, "#!") {
		first, rest, _ := strings.Cut(script, "\n")
		head, script = first+"\n", rest
	}
	return head + "set -" + strings.Join(options, "\nset -") + "\n" + script
}

// dropForScript says what a script in the namespaces of the node does not need.
func (d *draft) dropForScript(w *workload) {
	images := map[string]bool{}
	for _, s := range w.steps {
		images[s.container.Image] = true
		if s.secret != "" {
			d.spec.todo("task", "the script was in the Secret %s. Check that it contains no credentials, because everyone who may read NodeJobs can read it.", s.secret)
		}
		if !s.program.onNode {
			d.spec.note("task", "The script ran in the image "+s.container.Image+". It now runs with the programs of the node: check that the node has them.")
		}
		if user := w.userOf(s.container); user != 0 {
			d.spec.note("task", fmt.Sprintf("The container %s ran as user %d. A script runs as root.", s.container.Name, user))
		}
	}
	d.drop("the image %s", strings.Join(slices.Sorted(maps.Keys(images)), ", "))
	pod := &w.template.Spec
	settings := []string{}
	for name, set := range map[string]bool{"hostPID": pod.HostPID, "hostNetwork": pod.HostNetwork, "hostIPC": pod.HostIPC} {
		if set {
			settings = append(settings, name)
		}
	}
	slices.Sort(settings)
	for _, s := range w.steps {
		if isPrivileged(s.container) {
			settings = append(settings, "privileged")
			break
		}
	}
	if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) {
		settings = append(settings, "hostPath volumes")
	}
	if len(settings) > 0 {
		d.drop("%s: a script runs as root in the namespaces of the node", strings.Join(settings, ", "))
	}
}

// userOf returns the user of a container; 0 if it is root or that of the image.
func (w *workload) userOf(c *corev1.Container) int64 {
	if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
		return *c.SecurityContext.RunAsUser
	}
	if pod := w.template.Spec.SecurityContext; pod != nil && pod.RunAsUser != nil {
		return *pod.RunAsUser
	}
	return 0
}

func isPrivileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}
