// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Options are the choices of the user.
type Options struct {
	// Namespace is that of objects without one. It can be empty.
	Namespace string
}

// Result is the output.
type Result struct {
	// YAML has the NodeJobs. It is empty if nothing was converted.
	YAML []byte
	// NodeJobs is their number.
	NodeJobs int
	// Todos are what a user must decide or change before a NodeJob is resumed. Each names the source. The comments of the NodeJobs have
	// them too.
	Todos []string
	// Refused has an error for each object that could not be converted. It names the object.
	Refused []error
}

type converter struct {
	options Options
	objects []*unstructured.Unstructured
	// contents has the data of the ConfigMaps and Secrets.
	contents map[content]map[string]string
	// jobs are the groups of Jobs that do the same on different nodes, and keys what they have in common.
	jobs   []*jobGroup
	keys   map[string]*jobGroup
	drafts []*draft
	// others are the objects that are no pattern.
	others  []*unstructured.Unstructured
	refused []error
}

// Convert converts the objects of one or more files.
func Convert(objects []*unstructured.Unstructured, o Options) Result {
	c := &converter{options: o, objects: objects, contents: map[content]map[string]string{}, keys: map[string]*jobGroup{}}
	c.readContents()
	for _, source := range objects {
		if err := c.convert(source); err != nil {
			c.refuse(source, err)
		}
	}
	for _, group := range c.jobs {
		c.drafts = append(c.drafts, c.convertJobs(group))
	}
	names := map[string]int{}
	for _, d := range c.drafts {
		key := d.job.Namespace + "/" + d.job.Name
		if names[key]++; names[key] > 1 {
			d.rename(fmt.Sprintf("%s-%d", d.job.Name, names[key]))
			d.todo("another NodeJob has the same name: choose names that say what each does")
		}
	}
	c.describeOthers()
	return c.result()
}

func (c *converter) refuse(source *unstructured.Unstructured, err error) {
	c.refused = append(c.refused, fmt.Errorf("%s is not converted: %w", nameOf(source), err))
}

func (c *converter) convert(source *unstructured.Unstructured) error {
	var drafts []*draft
	var err error
	switch {
	case isKind(source, "apps", "DaemonSet"), isKind(source, "extensions", "DaemonSet"):
		drafts, err = c.daemonSet(source)
	case isKind(source, "batch", "Job"):
		err = c.groupJob(source)
	case isKind(source, "apps.kruise.io", "BroadcastJob"):
		drafts, err = c.broadcastJob(source)
	case isKind(source, "upgrade.cattle.io", "Plan"):
		drafts, err = c.plan(source)
	default:
		c.others = append(c.others, source)
	}
	c.drafts = append(c.drafts, drafts...)
	return err
}

// content names a ConfigMap or a Secret.
type content struct{ kind, namespace, name string }

func (c content) String() string { return c.kind + " " + c.name }

// readContents reads the ConfigMaps and Secrets.
func (c *converter) readContents() {
	for _, source := range c.objects {
		if !isKind(source, "", "ConfigMap") && !isKind(source, "", "Secret") {
			continue
		}
		data := map[string]string{}
		for _, field := range []string{"data", "stringData"} {
			values, _, _ := unstructured.NestedMap(source.Object, field)
			for key, value := range values {
				text, _ := value.(string)
				if field == "data" && source.GetKind() == "Secret" {
					decoded, _ := base64.StdEncoding.DecodeString(text)
					text = string(decoded)
				}
				data[key] = text
			}
		}
		c.contents[content{source.GetKind(), c.namespaceOf(source), source.GetName()}] = data
	}
}

func (c *converter) namespaceOf(source *unstructured.Unstructured) string {
	return cmp.Or(source.GetNamespace(), c.options.Namespace)
}

// result writes the documents.
func (c *converter) result() Result {
	var r Result
	var documents []string
	for _, d := range c.drafts {
		document, err := d.yaml()
		if err != nil {
			c.refuse(d.sources[0], err)
			continue
		}
		documents = append(documents, document)
		for _, todo := range d.todos {
			first, _, _ := strings.Cut(todo, "\n")
			r.Todos = append(r.Todos, nameOf(d.sources[0])+": "+first)
		}
	}
	r.Refused, r.NodeJobs = c.refused, len(documents)
	r.YAML = []byte(strings.Join(documents, "---\n"))
	return r
}

// accounts are the kinds of objects that give a service account its rights.
var accounts = []string{"ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"}

// describeOthers says what becomes of the other objects in the files.
func (c *converter) describeOthers() {
	var remain, rights []string
	for _, o := range c.others {
		switch {
		case o.GetKind() == "Namespace":
		case slices.Contains(accounts, o.GetKind()):
			rights = append(rights, nameOf(o))
		default:
			remain = append(remain, nameOf(o))
		}
	}
	for _, d := range c.drafts {
		if len(remain) > 0 {
			d.note("Other objects in the file, which stay as they are: %s.", strings.Join(remain, ", "))
		}
		switch account := d.account(); {
		case len(rights) == 0:
		case account != "":
			d.note("The service account %s and its rights (%s) are needed only if the task uses the API of Kubernetes. Otherwise remove serviceAccountName.", account, strings.Join(rights, ", "))
		case d.hasToken():
			// setTemplate says that the task has the credentials of the ServiceAccount default.
		default:
			d.drop("%s, unless something else uses them: the task has no API credentials", strings.Join(rights, ", "))
		}
	}
}

// account returns the service account of the task.
func (d *draft) account() string {
	if d.job.Spec.Task.Template == nil {
		return ""
	}
	return d.job.Spec.Task.Template.Spec.ServiceAccountName
}

// hasToken reports whether the task has the credentials of a service account that it does not name.
func (d *draft) hasToken() bool {
	t := d.job.Spec.Task.Template
	return t != nil && t.Spec.AutomountServiceAccountToken != nil && *t.Spec.AutomountServiceAccountToken
}

// isWindows reports whether a pod runs on nodes with Windows.
func isWindows(pod *corev1.PodSpec) bool {
	return pod.OS != nil && pod.OS.Name == corev1.Windows || pod.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows)
}
