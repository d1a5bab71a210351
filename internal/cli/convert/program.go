// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"path"
	"regexp"
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

// ofServices matches variables that Kubernetes sets for the Services of a namespace.
var ofServices = regexp.MustCompile(`\b(KUBERNETES_|\w+_SERVICE_(HOST|PORT)|\w+_PORT_\d)`)

// isExpanded reports whether Kubernetes changes an argument, $(NAME) if there is the variable, and $$, or whether it uses a variable of
// a Service.
func isExpanded(c *corev1.Container, arg string) bool {
	return strings.Contains(arg, "$$") || ofServices.MatchString(arg) || strings.Contains(arg, "$(") && len(c.EnvFrom) > 0 ||
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
	if i := slices.IndexFunc(argv, isShell); i > 0 && len(unwrapped(argv)) < len(argv) {
		argv = argv[i:]
	}
	if i := slices.IndexFunc(argv, isCommandFlag); i > 0 && isShell(argv[0]) {
		if i += 1 + slices.IndexFunc(argv[i+1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") }); i < len(argv) {
			p.script = argv[i]
		}
		return
	}
	if len(argv) > 1 && isShell(argv[0]) {
		argv = slices.DeleteFunc(slices.Clone(argv[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-") })
	}
	if len(argv) == 0 {
		return
	}
	for _, mount := range c.VolumeMounts {
		from, key := w.keyOf(argv[0], mount)
		if key == "" {
			continue
		}
		if data, known := w.contents[from]; known {
			p.script, p.source = data[key], from
		} else {
			p.absent = from
		}
	}
}

// keyOf returns which key of which ConfigMap or Secret a file is; "" if it is none.
func (w *work) keyOf(file string, mount corev1.VolumeMount) (from content, key string) {
	i := slices.IndexFunc(w.pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
	if i < 0 || mount.SubPathExpr != "" {
		return content{}, ""
	}
	var items []corev1.KeyToPath
	switch v := w.pod.Volumes[i]; {
	case v.ConfigMap != nil:
		items = v.ConfigMap.Items
	case v.Secret != nil:
		items = v.Secret.Items
	default:
		return content{}, ""
	}
	key, inside := strings.CutPrefix(path.Clean(file), path.Clean(mount.MountPath)+"/")
	if mount.SubPath != "" {
		key, inside = mount.SubPath, path.Clean(file) == path.Clean(mount.MountPath)
	}
	if i := slices.IndexFunc(items, func(item corev1.KeyToPath) bool { return item.Path == key }); i >= 0 {
		key = items[i].Key
	} else if len(items) > 0 {
		inside = false
	}
	if !inside || strings.Contains(key, "/") {
		return content{}, ""
	}
	return w.contentOf(mount.Name), key
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
		return w.enteredBy(argv[1:])
	case "chroot":
		if len(argv) > 2 && w.pod.HostPID && w.pod.HostNetwork && w.isRoot(c, path.Clean(argv[1])) {
			return argv[2:], true
		}
	}
	return nil, false
}

// enteredBy returns the program that nsenter runs, if it then runs in the mount, network and UTS namespaces of process 1, and nsenter
// changes nothing else.
func (w *work) enteredBy(args []string) (rest []string, ok bool) {
	target, entered := "", ""
	long := map[string]string{"--mount": "m", "--all": "mnu", "--uts": "u", "--ipc": "", "--net": "n", "--pid": "", "--cgroup": "", "--time": ""}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, value, hasValue := strings.Cut(arg, "=")
		letters, isLong := long[name]
		switch {
		case arg == "--" || !strings.HasPrefix(arg, "-"):
			if arg == "--" {
				i++
			}
			inNode := strings.Contains(entered, "m") && (w.pod.HostNetwork || strings.Contains(entered, "n") && strings.Contains(entered, "u"))
			return args[i:], i < len(args) && w.pod.HostPID && target == "1" && inNode
		case name == "--target" && hasValue:
			target = value
		case isLong && (!hasValue || strings.HasPrefix(value, "/proc/1/ns/")):
			entered += letters
			if hasValue {
				target = "1"
			}
		case (arg == "-t" || arg == "--target") && i+1 < len(args):
			i++
			target = args[i]
		case strings.HasPrefix(arg, "-t"):
			target = strings.TrimSpace(arg[2:])
		case !strings.HasPrefix(arg, "--") && strings.Trim(arg[1:], "amuinpCT") == "":
			entered += strings.ReplaceAll(arg[1:], "a", "mnu")
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
