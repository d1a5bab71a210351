// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// program is what a container runs, as far as the files show it.
type program struct {
	// argv are the program and its arguments, without nsenter or chroot if onNode.
	argv []string
	// onNode says that argv runs in the mount namespace of the node, so that all its programs and files are those of the node.
	onNode bool
	// expanded says that Kubernetes changes argv, because it has variables or $$.
	expanded bool
	// script is the text that a shell runs; "" if there is none. source is the ConfigMap or Secret that has it, and absent the one that
	// would have it, if it is not in the files.
	script         string
	source, absent content
}

// program reads what a container runs.
func (w *work) program(c *corev1.Container) program {
	var p program
	if variable := startupScript(c); variable != nil {
		text, from, known := w.valueOf(*variable)
		p = program{argv: []string{"/bin/bash", "-c", text}, onNode: true, script: text, source: from}
		if p.expanded = isExpanded(c, text); !known {
			p.absent = from
		}
		return p
	}
	if p.argv = slices.Concat(c.Command, c.Args); len(c.Command) == 0 {
		return p
	}
	for i, arg := range p.argv {
		p.expanded = p.expanded || isExpanded(c, arg)
		for _, env := range c.Env {
			if value, from, known := w.valueOf(env); strings.Contains(arg, "$("+env.Name+")") {
				if p.argv[i] = strings.ReplaceAll(p.argv[i], "$("+env.Name+")", value); !known {
					p.absent = from
				}
			}
		}
	}
	if rest, ok := w.enterNode(c, p.argv); ok {
		p.argv, p.onNode = rest, true
	}
	w.readScript(c, &p)
	return p
}

// isExpanded reports whether Kubernetes changes an argument: $(NAME) if there is the variable, and $$.
func isExpanded(c *corev1.Container, arg string) bool {
	return strings.Contains(arg, "$$") || strings.Contains(arg, "$(") && len(c.EnvFrom) > 0 ||
		slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return strings.Contains(arg, "$("+e.Name+")") })
}

// valueOf returns the value of a variable, and the ConfigMap or Secret that has it. It reports false if the files do not show it.
func (w *work) valueOf(env corev1.EnvVar) (value string, from content, known bool) {
	switch ref := env.ValueFrom; {
	case ref == nil:
		return env.Value, content{}, true
	case ref.ConfigMapKeyRef != nil:
		from = content{"ConfigMap", w.namespace, ref.ConfigMapKeyRef.Name}
		value, known = w.contents[from][ref.ConfigMapKeyRef.Key]
	case ref.SecretKeyRef != nil:
		from = content{"Secret", w.namespace, ref.SecretKeyRef.Name}
		value, known = w.contents[from][ref.SecretKeyRef.Key]
	default:
		return "$", content{}, true // a field of the pod, such as the name of the node
	}
	return value, from, known
}

// readScript finds the script that a shell runs: an argument after -c, or a file of a ConfigMap or Secret.
func (w *work) readScript(c *corev1.Container, p *program) {
	argv := p.argv
	if i := slices.IndexFunc(argv, isShell); i > 0 && slices.Contains(wrappers, path.Base(argv[0])) {
		argv = argv[i:]
	}
	if i := slices.IndexFunc(argv, isCommandFlag); i > 0 && isShell(argv[0]) {
		if i += 1 + slices.IndexFunc(argv[i+1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") }); i < len(argv) {
			p.script = argv[i]
		}
		return
	}
	for _, mount := range c.VolumeMounts {
		from := w.contentOf(mount.Name)
		i := slices.IndexFunc(argv, func(arg string) bool { return strings.HasPrefix(arg, path.Clean(mount.MountPath)) })
		if from.kind == "" || i < 0 {
			continue
		}
		if data, known := w.contents[from]; known {
			p.script, p.source = data[path.Base(argv[i])], from
		} else {
			p.absent = from
		}
	}
}

// isCommandFlag reports whether the option of a shell is -c, such as -c, -ec and -lc.
func isCommandFlag(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && arg[1] != '-' && strings.HasSuffix(arg, "c")
}

// contentOf returns the ConfigMap or Secret in a volume.
func (w *work) contentOf(volume string) content {
	for _, v := range w.pod.Volumes {
		switch {
		case v.Name == volume && v.ConfigMap != nil:
			return content{"ConfigMap", w.namespace, v.ConfigMap.Name}
		case v.Name == volume && v.Secret != nil:
			return content{"Secret", w.namespace, v.Secret.SecretName}
		}
	}
	return content{}
}

// startupScript returns the variable whose value the image startup-script runs on the node; nil for other images.
func startupScript(c *corev1.Container) *corev1.EnvVar {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "STARTUP_SCRIPT" })
	if i < 0 || len(c.Command) > 0 || !strings.Contains(path.Base(c.Image), "startup-script") {
		return nil
	}
	return &c.Env[i]
}

// enterNode removes a prefix that enters the mount namespace or the root directory of the node. It reports false for other programs,
// and for options that do more than that.
func (w *work) enterNode(c *corev1.Container, argv []string) (rest []string, ok bool) {
	switch path.Base(argv[0]) {
	case "nsenter":
		return enteredBy(argv[1:], w.pod.HostPID)
	case "chroot":
		if len(argv) > 2 && w.isRoot(c, path.Clean(argv[1])) {
			return argv[2:], true
		}
	}
	return nil, false
}

// enteredBy returns the program that nsenter runs, if it enters at least the mount namespace of process 1, and changes nothing else.
func enteredBy(args []string, hostPID bool) (rest []string, ok bool) {
	target, mount := "", false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, value, hasValue := strings.Cut(arg, "=")
		switch {
		case arg == "--" && i+1 < len(args):
			return args[i+1:], hostPID && target == "1" && mount
		case !strings.HasPrefix(arg, "-"):
			return args[i:], hostPID && target == "1" && mount
		case name == "--target" && hasValue:
			target = value
		case hasValue && strings.HasPrefix(value, "/proc/1/ns/"):
			target, mount = "1", mount || name == "--mount"
		case (arg == "-t" || arg == "--target") && i+1 < len(args):
			i++
			target = args[i]
		case strings.HasPrefix(arg, "-t"):
			target = strings.TrimSpace(arg[2:])
		case slices.Contains([]string{"--mount", "--all", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--time"}, arg):
			mount = mount || arg == "--mount" || arg == "--all"
		case !strings.HasPrefix(arg, "--") && strings.Trim(arg[1:], "amuinpCT") == "":
			mount = mount || strings.ContainsAny(arg, "am")
		default:
			return nil, false
		}
	}
	return nil, false
}

// isRoot reports whether a path of a container is the root directory of the node, and nothing else is mounted below it.
func (w *work) isRoot(c *corev1.Container, at string) bool {
	is := false
	for _, mount := range c.VolumeMounts {
		to := path.Clean(mount.MountPath)
		i := slices.IndexFunc(w.pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if strings.HasPrefix(to, at+"/") || i < 0 {
			return false
		}
		v := w.pod.Volumes[i].HostPath
		is = is || to == at && v != nil && path.Clean(v.Path) == "/" && mount.SubPath == "" && mount.SubPathExpr == "" && !mount.ReadOnly
	}
	return is
}
