// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

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
	// contents has the data of the ConfigMaps and Secrets.
	contents map[content]map[string]string
	// jobs are the groups of Jobs that do the same on different nodes.
	jobs   []*jobGroup
	drafts []*draft
	// others are the objects that are no pattern.
	others  []*unstructured.Unstructured
	refused []error
	// unknown has the paths of fields that the kind of a source does not have.
	unknown map[*unstructured.Unstructured][]string
}

// content names a ConfigMap or a Secret.
type content struct{ kind, namespace, name string }

func (c content) String() string { return c.kind + " " + c.name }

// Convert converts the objects of one or more files.
func Convert(objects []*unstructured.Unstructured, o Options) Result {
	c := &converter{options: o, contents: map[content]map[string]string{}, unknown: map[*unstructured.Unstructured][]string{}}
	for _, source := range objects {
		if kind := kindOf(source); kind == "ConfigMap" || kind == "Secret" {
			c.readContent(source)
		}
	}
	try := func(convert func() error, sources ...*unstructured.Unstructured) {
		converted := len(c.drafts)
		if err := convert(); err != nil {
			c.drafts = c.drafts[:converted]
			for _, source := range sources {
				c.refuse(source, err)
			}
		}
	}
	for _, source := range objects {
		try(func() error { return c.convert(source) }, source)
	}
	for _, group := range c.jobs {
		try(func() error { return c.convertJobs(group) }, group.sources...)
	}
	c.describeOthers()
	return c.result()
}

func (c *converter) convert(source *unstructured.Unstructured) error {
	switch kindOf(source) {
	case "DaemonSet.apps":
		return c.daemonSet(source)
	case "Job.batch":
		return c.groupJob(source)
	case "BroadcastJob.apps.kruise.io":
		return c.broadcastJob(source)
	case "Plan.upgrade.cattle.io":
		return c.plan(source)
	}
	c.others = append(c.others, source)
	return nil
}

// kindOf returns the kind and the API group of an object, of any version.
func kindOf(object *unstructured.Unstructured) string {
	return strings.Replace(object.GroupVersionKind().GroupKind().String(), ".extensions", ".apps", 1)
}

// nameOf returns the kind, namespace and name of an object for a message.
func nameOf(object *unstructured.Unstructured) string {
	name := object.GetName()
	if name == "" {
		name = object.GetGenerateName() + "…"
	}
	if object.GetNamespace() != "" {
		name = object.GetNamespace() + "/" + name
	}
	return object.GetKind() + " " + name
}

func (c *converter) refuse(source *unstructured.Unstructured, err error) {
	c.refused = append(c.refused, fmt.Errorf("%s is not converted: %w", nameOf(source), err))
}

// readContent reads a ConfigMap or Secret.
func (c *converter) readContent(source *unstructured.Unstructured) {
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
	c.contents[content{source.GetKind(), cmp.Or(source.GetNamespace(), c.options.Namespace), source.GetName()}] = data
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

// rights matches the kinds of objects that give a service account its rights.
var rights = regexp.MustCompile(`^(ServiceAccount|(Cluster)?Role(Binding)?)$`)

// describeOthers says what becomes of the other objects in the files.
func (c *converter) describeOthers() {
	for _, d := range c.drafts {
		var remain []string
		for _, o := range c.others {
			switch {
			case o.GetKind() == "Namespace":
			case rights.MatchString(o.GetKind()) && !d.usesAPI():
				d.drop("%s, unless something else uses it: the task has no API credentials", nameOf(o))
			default:
				remain = append(remain, nameOf(o))
			}
		}
		if len(remain) > 0 {
			d.note("Other objects in the file, which stay as they are: %s.", strings.Join(remain, ", "))
		}
	}
}

// usesAPI reports whether the pods of the NodeJob have credentials for the API of Kubernetes.
func (d *draft) usesAPI() bool {
	t := d.job.Spec.Task.Template
	return t != nil && (t.Spec.ServiceAccountName != "" || t.Spec.AutomountServiceAccountToken != nil && *t.Spec.AutomountServiceAccountToken)
}
