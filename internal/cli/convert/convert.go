// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert writes the NodeJob that is equivalent to another way of running a task on every node: a DaemonSet that
// runs once, a Job for each node, a Plan of the system-upgrade-controller, or a BroadcastJob of OpenKruise. It is a
// function of the objects in a file, and needs no cluster.
//
//	objects ──► pattern (daemonset.go, job.go, plan.go) ──► draft (draft.go) ──► YAML with a comment
//	                │ step.go, shell.go: what a container runs, which is read once and never changed
//	                ▼
//	            task.go: a script or a template
//	            fields.go: which fields are not converted
//
// The tables are in fields.yaml and programs.yaml.
package convert

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/everynode/everynode/internal/nodejob/task"
)

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
	// namespace is that of objects without one. It can be empty.
	namespace string
	// contents has the data of the ConfigMaps and Secrets.
	contents map[content]map[string]string
	drafts   []*draft
	// others are the names of the objects that are no pattern.
	others []string
	// unknown has the paths of fields that the kind of a source does not have.
	unknown map[*unstructured.Unstructured][]string
}

// content names a ConfigMap or a Secret.
type content struct{ kind, namespace, name string }

func (c content) String() string { return c.kind + " " + c.name }

// Convert converts the objects of one or more files. The namespace is that of objects without one, and can be empty.
func Convert(objects []*unstructured.Unstructured, namespace string) (r Result) {
	c := &converter{namespace: namespace, contents: map[content]map[string]string{}, unknown: map[*unstructured.Unstructured][]string{}}
	for _, source := range objects {
		if kind := kindOf(source); kind == "ConfigMap" || kind == "Secret" {
			c.readContent(source)
		}
	}
	refuse := func(source *unstructured.Unstructured, err error) {
		r.Refused = append(r.Refused, fmt.Errorf("%s is not converted: %w", nameOf(source), err))
	}
	for _, source := range objects {
		converted := len(c.drafts)
		if err := c.convert(source); err != nil {
			c.drafts = c.drafts[:converted]
			refuse(source, err)
		}
	}
	var documents []string
	for _, d := range c.drafts {
		if nodes := &d.job.Spec.Nodes; nodes.Selector == nil && nodes.Names == nil {
			nodes.Selector = task.AllNodes(&d.job.Spec)
		}
		document, err := d.yaml()
		if err != nil {
			refuse(d.sources[0], err)
			continue
		}
		documents = append(documents, document)
		for _, todo := range d.todos {
			first, _, _ := strings.Cut(todo, "\n")
			r.Todos = append(r.Todos, nameOf(d.sources[0])+": "+first)
		}
	}
	r.YAML, r.NodeJobs = []byte(strings.Join(documents, "---\n")), len(documents)
	return r
}

// patterns are the kinds that can be converted.
var patterns = map[string]func(*converter, *unstructured.Unstructured) error{
	"DaemonSet.apps":              (*converter).daemonSet,
	"Job.batch":                   (*converter).job,
	"BroadcastJob.apps.kruise.io": (*converter).broadcastJob,
	"Plan.upgrade.cattle.io":      (*converter).plan,
}

func (c *converter) convert(source *unstructured.Unstructured) error {
	if pattern, is := patterns[kindOf(source)]; is {
		return pattern(c, source)
	}
	c.others = append(c.others, nameOf(source))
	return nil
}

// kindOf returns the kind and the API group of an object, of any version.
func kindOf(object *unstructured.Unstructured) string {
	return strings.Replace(object.GroupVersionKind().GroupKind().String(), ".extensions", ".apps", 1)
}

// nameOf returns the kind, namespace and name of an object for a message.
func nameOf(object *unstructured.Unstructured) string {
	name := cmp.Or(object.GetName(), object.GetGenerateName()+"…")
	if object.GetNamespace() != "" {
		name = object.GetNamespace() + "/" + name
	}
	return object.GetKind() + " " + name
}

// readContent reads a ConfigMap or Secret.
func (c *converter) readContent(source *unstructured.Unstructured) {
	data := map[string]string{}
	for _, field := range []string{"data", "stringData"} {
		values, _, _ := unstructured.NestedStringMap(source.Object, field)
		for key, text := range values {
			if field == "data" && source.GetKind() == "Secret" {
				decoded, _ := base64.StdEncoding.DecodeString(text)
				text = string(decoded)
			}
			data[key] = text
		}
	}
	c.contents[content{source.GetKind(), cmp.Or(source.GetNamespace(), c.namespace), source.GetName()}] = data
}
