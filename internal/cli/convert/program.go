// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
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
	if isShell(argv[0]) {
		var isText bool
		if argv, isText = operands(argv[1:]); isText && len(argv) > 0 {
			p.script = argv[0]
			return
		}
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

// operands returns the arguments of a shell without its options, and whether the first one is the text of a script (-c).
func operands(args []string) (rest []string, isText bool) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		isText = isText || isCommandFlag(args[0])
		if args[0] == "-o" || args[0] == "-euo" || args[0] == "-eo" {
			args = args[1:]
		}
		args = args[min(1, len(args)):]
	}
	return args, isText
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

// namespaces are the letters of the namespaces that an option of nsenter enters. Those that change nothing here have none.
var namespaces = map[string]string{"--mount": "m", "--all": "mnu", "--uts": "u", "--ipc": "", "--net": "n", "--pid": "", "--cgroup": "", "--time": ""}

// enteredBy returns the program that nsenter runs, if it then runs in the mount, network and UTS namespaces of process 1, and nsenter
// changes nothing else.
func (w *work) enteredBy(args []string) (rest []string, ok bool) {
	target, entered := "", ""
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if args[0] == "--" {
			args = args[1:]
			break
		}
		letters, to, n := optionOf(args)
		if n == 0 {
			return nil, false
		}
		target, entered, args = cmp.Or(to, target), entered+letters, args[min(n, len(args)):]
	}
	if w.pod.HostNetwork {
		entered += "nu"
	}
	return args, len(args) > 0 && w.pod.HostPID && target == "1" && enters(entered, "m") && enters(entered, "n") && enters(entered, "u")
}

func enters(entered, namespace string) bool { return strings.Contains(entered, namespace) }

// optionOf reads an option of nsenter: the letters of the namespaces that it enters, the process of which they are, and of how many
// arguments it consists; 0 if it is another option.
func optionOf(args []string) (letters, target string, n int) {
	name, value, _ := strings.Cut(args[0], "=")
	if letters, isLong := namespaces[name]; isLong && value == "" {
		return letters, "", 1
	} else if isLong && strings.HasPrefix(value, "/proc/1/ns/") {
		return letters, "1", 1
	}
	if to, is := strings.CutPrefix(name, "-t"); is && to != "" {
		return "", strings.TrimSpace(to), 1
	}
	if name == "-t" || name == "--target" {
		return "", cmp.Or(value, args[min(1, len(args)-1)]), 2 - min(1, len(value))
	}
	if strings.Trim(name, "-amuinpCT") == "" && strings.LastIndex(name, "-") == 0 {
		return strings.ReplaceAll(name[1:], "a", "mnu"), "", 1
	}
	return "", "", 0
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
