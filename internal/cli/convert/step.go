// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// step is a container that does a part of the work, as far as the files show it.
type step struct {
	*corev1.Container
	init bool
	// argv are the program and its arguments, without nsenter or chroot if onNode.
	argv []string
	// onNode says that argv runs in the mount namespace of the node, so that all its programs and files are those of the node.
	onNode bool
	// ofPod says that argv is run like that, and changes IPC or mounts that its pod has for itself.
	ofPod bool
	// expanded says that Kubernetes changes argv, because it has variables or $$.
	expanded bool
	// script is the text that a shell runs; "" if there is none. source is the ConfigMap or Secret that has it, and absent the one that
	// would have it, if it is not in the files.
	script         string
	source, absent content
	// unread are the ConfigMaps and Secrets that it mounts, and that are not in the files.
	unread []string
	// text is all that the files show of what it does, also the other keys of its ConfigMaps and Secrets.
	text string
}

func (d *draft) newStep(c *corev1.Container, init bool) step {
	s := step{Container: c, init: init, argv: slices.Concat(c.Command, c.Args)}
	d.undoes = d.undoes || c.Lifecycle != nil && c.Lifecycle.PreStop != nil
	if c.RestartPolicy == nil { // only sidecars have these
		c.Ports, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil, nil
	}
	c.TerminationMessagePath, c.TerminationMessagePolicy = "", ""
	if env := s.startupScript(); env != nil {
		value, from, known := d.valueOf(*env)
		s.argv, s.source = []string{"nsenter", "-t1", "-a", "--", "/bin/bash", "-c", value}, from
		if !known {
			s.absent = from
		}
	}
	texts, whole := d.readVariables(&s), s.argv
	if s.isShown() {
		s.argv, s.onNode = d.enterNode(c, s.argv)
		texts = append(texts, d.readScript(&s)...)
	}
	if texts = slices.Concat(s.argv, []string{s.script}, texts); s.script == "" {
		texts = append(texts, strings.Join(s.argv, " "))
	}
	s.text = strings.Join(texts, "\n")
	if s.onNode && d.isOfPod(" "+strings.Join(whole[:len(whole)-len(s.argv)], " "), s.text) {
		s.argv, s.onNode, s.ofPod = whole, false, true
	}
	return s
}

// readVariables puts the values of variables into the arguments, and returns them.
func (d *draft) readVariables(s *step) (texts []string) {
	for _, env := range s.Env {
		value, from, known := d.valueOf(env)
		texts = append(texts, s.expand(env.Name, value, from, known))
		s.expanded = s.expanded || programs.Expanded.MatchString(env.Value)
		if ref := env.ValueFrom; ref != nil && ref.FieldRef != nil {
			texts = append(texts, ref.FieldRef.FieldPath)
		}
	}
	texts = append(texts, d.readEnvFrom(s)...) // variables of env replace those of the same name
	for _, arg := range s.argv {
		s.expanded = s.expanded || programs.Expanded.MatchString(arg) || strings.Contains(arg, "$(") && len(s.EnvFrom) > 0
	}
	return texts
}

// readEnvFrom does the same with the variables of whole ConfigMaps and Secrets.
func (d *draft) readEnvFrom(s *step) (texts []string) {
	for _, all := range s.EnvFrom {
		from := content{"ConfigMap", d.job.Namespace, cmp.Or(all.ConfigMapRef, &corev1.ConfigMapEnvSource{}).Name}
		if ref := all.SecretRef; ref != nil {
			from = content{"Secret", d.job.Namespace, ref.Name}
		}
		data, known := d.contents[from]
		for _, key := range slices.Sorted(maps.Keys(data)) {
			texts = append(texts, s.expand(all.Prefix+key, data[key], from, true))
		}
		if !known && slices.ContainsFunc(s.argv, programs.Variable.MatchString) {
			s.absent = cmp.Or(s.absent, from)
		}
	}
	return texts
}

// isOfPod reports whether a program that nsenter or chroot runs changes what its pod has for itself.
func (d *draft) isOfPod(entry, text string) bool {
	sharesIPC := d.template.Spec.HostIPC || strings.Contains(entry, "nsenter") && programs.EntersIPC.MatchString(entry)
	return !sharesIPC && programs.IPC.MatchString(text) || strings.Contains(entry, "chroot") && programs.Mounts.MatchString(text)
}

// isShown reports whether the manifest shows the program of a container, which is not that of the image then.
func (s step) isShown() bool { return len(s.Command) > 0 || s.startupScript() != nil }

// startupScript returns the variable whose value the image startup-script runs on the node; nil for other images.
func (s step) startupScript() *corev1.EnvVar {
	i := slices.IndexFunc(s.Env, func(e corev1.EnvVar) bool { return e.Name == "STARTUP_SCRIPT" })
	if i < 0 || len(s.Command) > 0 || !strings.Contains(path.Base(s.Image), "startup-script") {
		return nil
	}
	return &s.Env[i]
}

// isIdle reports whether a container only waits.
func (s step) isIdle() bool {
	if len(s.argv) == 0 {
		return !s.init && programs.Pause.MatchString(s.Image)
	}
	return !s.init && programs.Idle.MatchString(s.shown())
}

// shown is the script, or the program and its arguments.
func (s step) shown() string { return cmp.Or(s.script, strings.Join(s.argv, " ")) }

// waiting returns the line of a program that waits for 10 minutes or longer, and its number. If it has none, and a DaemonSet restarts the
// container, the line is one that waits or repeats anything. The number is 0 if there is none.
func (s step) waiting(restarts bool) (line string, number int) {
	if line, number = lineOf(s.shown(), programs.Long); number == 0 && restarts {
		return lineOf(s.shown(), programs.Waits)
	}
	return line, number
}

// expand puts the value of a variable into the arguments, as Kubernetes does, and returns the value.
func (s *step) expand(name, value string, from content, known bool) string {
	for i, arg := range s.argv {
		if name := "$(" + name + ")"; strings.Contains(arg, name) {
			if s.argv[i], s.source, s.expanded = strings.ReplaceAll(arg, name, value), from, true; !known {
				s.absent = from
			}
		}
	}
	return value
}

// valueOf returns the value of a variable, and the ConfigMap or Secret that has it. It reports false if the files do not show it.
func (d *draft) valueOf(env corev1.EnvVar) (value string, from content, known bool) {
	switch ref := env.ValueFrom; {
	case ref == nil:
		return env.Value, content{}, true
	case ref.ConfigMapKeyRef != nil:
		from = content{"ConfigMap", d.job.Namespace, ref.ConfigMapKeyRef.Name}
		value, known = d.contents[from][ref.ConfigMapKeyRef.Key]
	case ref.SecretKeyRef != nil:
		from = content{"Secret", d.job.Namespace, ref.SecretKeyRef.Name}
		value, known = d.contents[from][ref.SecretKeyRef.Key]
	default:
		return "$", content{}, true // a field of the pod, such as the name of the node
	}
	return value, from, known
}

// readScript finds the script that a shell runs: an argument after -c, or a file of a ConfigMap or Secret. It returns the text of all
// ConfigMaps and Secrets that are mounted.
func (d *draft) readScript(s *step) (texts []string) {
	argv := s.argv[max(0, slices.IndexFunc(s.argv, isShell)):]
	rest, isText := operands(argv)
	if isText {
		s.script = rest[0]
	}
	if len(rest) == 0 {
		rest = argv
	}
	if text, from := d.fileOf(s.Container, rest[0]); !isText && text != "" {
		s.script, s.source = text, from
	} else if !isText {
		s.absent = cmp.Or(s.absent, from)
	}
	for _, mount := range s.VolumeMounts {
		named := regexp.MustCompile(regexp.QuoteMeta(path.Clean(mount.MountPath)) + `(/\S*)?\.sh\b`)
		for _, v := range d.projections(mount.Name) {
			data, known := d.contents[v.content]
			if texts = append(texts, slices.Sorted(maps.Values(data))...); known {
				continue
			}
			if s.unread = append(s.unread, v.String()); named.MatchString(strings.Join(s.argv, " ")) {
				s.absent = cmp.Or(s.absent, v.content)
			}
		}
	}
	return texts
}

// fileOf returns the text of a file of a container, and the ConfigMap or Secret that it is in. The text is "" if that is not in the files.
func (d *draft) fileOf(c *corev1.Container, file string) (text string, from content) {
	files := []string{path.Clean(file)}
	for _, mount := range c.VolumeMounts {
		if volume := d.volumes[mount.Name].HostPath; volume != nil && volume.Path == "/" {
			files = append(files, path.Join(mount.MountPath, file)) // after chroot
		}
	}
	for _, mount := range c.VolumeMounts {
		for _, v := range d.projections(mount.Name) {
			key := ""
			for _, file := range files {
				key = cmp.Or(key, v.keyOf(file, mount))
			}
			if data, known := d.contents[v.content]; key != "" && data[key] != "" {
				return data[key], v.content
			} else if key != "" && !known {
				from = v.content
			}
		}
	}
	return "", from
}

// projection is a ConfigMap or Secret in a volume, with the keys that the volume has; all if there are none.
type projection struct {
	content
	items []corev1.KeyToPath
}

// keyOf returns which key a file is; "" if it is none.
func (p projection) keyOf(file string, mount corev1.VolumeMount) string {
	key, inside := strings.CutPrefix(file, path.Clean(mount.MountPath)+"/")
	if mount.SubPath != "" {
		key, inside = mount.SubPath, file == path.Clean(mount.MountPath)
	}
	if !inside || mount.SubPathExpr != "" {
		return ""
	}
	if i := slices.IndexFunc(p.items, func(item corev1.KeyToPath) bool { return item.Path == key }); i >= 0 {
		return p.items[i].Key
	}
	return key
}

// projections returns the ConfigMaps and Secrets in a volume.
func (d *draft) projections(volume string) (found []projection) {
	v := d.volumes[volume]
	add := func(kind, name string, items []corev1.KeyToPath) {
		found = append(found, projection{content{kind, d.job.Namespace, name}, items})
	}
	if v.ConfigMap != nil {
		add("ConfigMap", v.ConfigMap.Name, v.ConfigMap.Items)
	}
	if v.Secret != nil {
		add("Secret", v.Secret.SecretName, v.Secret.Items)
	}
	for _, source := range cmp.Or(v.Projected, &corev1.ProjectedVolumeSource{}).Sources {
		if from := source.ConfigMap; from != nil {
			add("ConfigMap", from.Name, from.Items)
		}
		if from := source.Secret; from != nil {
			add("Secret", from.Name, from.Items)
		}
	}
	return found
}

// enterNode removes a prefix that enters the mount, network and UTS namespaces of process 1, or the root directory of the node. It reports
// false for other programs, and for options that do more than that.
func (d *draft) enterNode(c *corev1.Container, argv []string) (rest []string, entered bool) {
	name := path.Base(argv[0])
	options, rest := splitOptions(argv[1:], nsenterValued)
	switch {
	case name == "nsenter" && len(rest) > 0:
		entered = d.enters(" " + strings.Join(options, " "))
	case name == "chroot" && len(options) == 0 && len(rest) > 1:
		entered, rest = d.template.Spec.HostNetwork && d.isRoot(c, path.Clean(rest[0])), rest[1:]
	}
	if !entered || !d.template.Spec.HostPID {
		return argv, false
	}
	return rest, true
}

// enters reports whether options of nsenter enter the mount, network and UTS namespaces of process 1, and do nothing else.
func (d *draft) enters(options string) bool {
	return programs.Nsenter.MatchString(options) && programs.EntersMount.MatchString(options) &&
		(d.template.Spec.HostNetwork || programs.EntersNet.MatchString(options) && programs.EntersUTS.MatchString(options))
}

// isRoot reports whether a path of a container is the root directory of the node, and nothing else is mounted below it.
func (d *draft) isRoot(c *corev1.Container, at string) bool {
	is := false
	for _, mount := range c.VolumeMounts {
		to, volume := path.Clean(mount.MountPath), d.volumes[mount.Name].HostPath
		if strings.HasPrefix(to, at+"/") {
			return false
		}
		is = is || to == at && volume != nil && path.Clean(volume.Path) == "/" && mount.SubPath+mount.SubPathExpr == "" && !mount.ReadOnly
	}
	return is
}
