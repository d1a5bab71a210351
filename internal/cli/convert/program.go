// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
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
	p := program{argv: slices.Concat(c.Command, c.Args)}
	startup := isStartupScript(c)
	if startup {
		p.argv, p.onNode = []string{"/bin/bash", "-c", "$(" + startupVariable + ")"}, true
	} else if len(c.Command) == 0 {
		return p
	}
	for i, arg := range p.argv {
		p.expanded = p.expanded || isExpanded(c, arg)
		for _, env := range c.Env {
			if strings.Contains(arg, "$("+env.Name+")") {
				value, from, known := w.valueOf(env)
				if p.argv[i], p.source = strings.ReplaceAll(p.argv[i], "$("+env.Name+")", value), from; !known {
					p.absent = from
				}
			}
		}
	}
	if startup {
		p.expanded = isExpanded(c, p.argv[2])
	} else if rest, ok := w.enterNode(c, p.argv); ok {
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

// startupVariable is the variable whose value the image startup-script runs on the node.
const startupVariable = "STARTUP_SCRIPT"

// isStartupScript reports whether a container has the image startup-script.
func isStartupScript(c *corev1.Container) bool {
	return len(c.Command) == 0 && strings.Contains(path.Base(c.Image), "startup-script") &&
		slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == startupVariable })
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
	rest, isText := operands(argv)
	switch {
	case isText:
		p.script = rest[0]
		return
	case isShell(argv[0]):
		argv = rest
	}
	if len(argv) == 0 {
		return
	}
	for _, mount := range c.VolumeMounts {
		for _, v := range w.projections(mount.Name) {
			if key := v.keyOf(argv[0], mount); key == "" {
				continue
			} else if data, known := w.contents[v.content]; !known {
				p.absent = v.content
			} else if text, is := data[key]; is {
				p.script, p.source, p.absent = text, v.content, content{}
				return
			}
		}
	}
}

// projection is a ConfigMap or Secret in a volume, with the keys that the volume has; all if there are none.
type projection struct {
	content
	items []corev1.KeyToPath
}

// projections returns the ConfigMaps and Secrets in a volume.
func (w *work) projections(volume string) (found []projection) {
	v := w.volume(volume)
	sources := cmp.Or(v.Projected, &corev1.ProjectedVolumeSource{}).Sources
	if v.ConfigMap != nil {
		sources = append(sources, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items}})
	}
	if v.Secret != nil {
		found = append(found, projection{content{"Secret", w.namespace, v.Secret.SecretName}, v.Secret.Items})
	}
	for _, source := range sources {
		if from := source.ConfigMap; from != nil {
			found = append(found, projection{content{"ConfigMap", w.namespace, from.Name}, from.Items})
		}
		if from := source.Secret; from != nil {
			found = append(found, projection{content{"Secret", w.namespace, from.Name}, from.Items})
		}
	}
	return found
}

// volume returns a volume of the pod; an empty one if there is none of the name.
func (w *work) volume(name string) corev1.Volume {
	for _, v := range w.pod.Volumes {
		if v.Name == name {
			return v
		}
	}
	return corev1.Volume{}
}

// keyOf returns which key a file is; "" if it is none.
func (p projection) keyOf(file string, mount corev1.VolumeMount) string {
	key, inside := strings.CutPrefix(path.Clean(file), path.Clean(mount.MountPath)+"/")
	if mount.SubPath != "" {
		key, inside = mount.SubPath, path.Clean(file) == path.Clean(mount.MountPath)
	}
	i := slices.IndexFunc(p.items, func(item corev1.KeyToPath) bool { return item.Path == key })
	switch {
	case !inside || mount.SubPathExpr != "" || i < 0 && (len(p.items) > 0 || strings.Contains(key, "/")):
		return ""
	case i >= 0:
		return p.items[i].Key
	}
	return key
}

// enterNode removes a prefix that enters the mount namespace or the root directory of the node. It reports false for other programs,
// and for options that do more than that.
func (w *work) enterNode(c *corev1.Container, argv []string) (rest []string, ok bool) {
	switch name := path.Base(argv[0]); {
	case !w.pod.HostPID:
	case name == "nsenter":
		return w.enteredBy(argv[1:])
	case name == "chroot":
		if len(argv) > 2 && w.pod.HostNetwork && w.isRoot(c, path.Clean(argv[1])) {
			return argv[2:], true
		}
	}
	return nil, false
}

// namespaces are the options of nsenter that enter a namespace. Other options do more.
var namespaces = map[string]string{"all": "a", "mount": "m", "uts": "u", "ipc": "i", "net": "n", "pid": "p", "cgroup": "C", "time": "T"}

// enteredBy returns the program that nsenter runs, if it then runs in the mount, network and UTS namespaces of process 1, and nsenter
// changes nothing else.
func (w *work) enteredBy(args []string) (rest []string, ok bool) {
	const ofTarget = "of the target"
	options := pflag.NewFlagSet("nsenter", pflag.ContinueOnError)
	options.Usage = func() {}
	options.SetInterspersed(false)
	target := options.StringP("target", "t", "", "")
	for name, letter := range namespaces {
		options.StringP(name, letter, "", "")
		options.Lookup(name).NoOptDefVal = ofTarget
	}
	if options.Parse(args) != nil || options.NArg() == 0 {
		return nil, false
	}
	entered := map[string]bool{"net": w.pod.HostNetwork, "uts": w.pod.HostNetwork}
	for name := range namespaces {
		switch file := options.Lookup(name).Value.String(); {
		case file == ofTarget && strings.TrimSpace(*target) == "1", strings.HasPrefix(file, "/proc/1/ns/"):
			entered[name] = true
		case file != "":
			return nil, false
		}
	}
	return options.Args(), entered["all"] || entered["mount"] && entered["net"] && entered["uts"]
}

// isRoot reports whether a path of a container is the root directory of the node, and nothing else is mounted below it.
func (w *work) isRoot(c *corev1.Container, at string) bool {
	is := false
	for _, mount := range c.VolumeMounts {
		to, volume := path.Clean(mount.MountPath), w.volume(mount.Name).HostPath
		if strings.HasPrefix(to, at+"/") {
			return false
		}
		is = is || to == at && volume != nil && path.Clean(volume.Path) == "/" && mount.SubPath == "" && mount.SubPathExpr == "" && !mount.ReadOnly
	}
	return is
}
