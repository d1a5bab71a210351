// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
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
	// YAML has the NodeJobs, and comments about the other objects. It is empty if nothing was converted.
	YAML []byte
	// NodeJobs is their number.
	NodeJobs int
	// Warnings are about differences between a NodeJob and its source. Each names the source.
	Warnings []string
	// Refused has an error for each object that could not be converted. It names the object.
	Refused []error
}

type converter struct {
	options  Options
	objects  []*unstructured.Unstructured
	contents map[string]map[string]string
	jobs     map[string]*jobGroup
	// order has the conversions of Jobs, which begin when all Jobs are known.
	order  []func() *draft
	drafts []*draft
	result Result
	// others are the objects that are not a pattern.
	others []*unstructured.Unstructured
}

// Convert converts the objects of one or more files.
func Convert(objects []*unstructured.Unstructured, o Options) Result {
	c := &converter{options: o, objects: objects, contents: map[string]map[string]string{}, jobs: map[string]*jobGroup{}}
	c.readContents()
	for _, source := range objects {
		if err := c.convert(source); err != nil {
			c.refuse(source, err)
		}
	}
	for _, convert := range c.order {
		c.drafts = append(c.drafts, convert())
	}
	c.describeOthers()
	c.write()
	return c.result
}

func (c *converter) refuse(source *unstructured.Unstructured, err error) {
	c.result.Refused = append(c.result.Refused, fmt.Errorf("%s is not converted: %w", nameOf(source), err))
}

// convert converts one object.
func (c *converter) convert(source *unstructured.Unstructured) error {
	one := func(d *draft, err error) error {
		if err == nil {
			c.drafts = append(c.drafts, d)
		}
		return err
	}
	switch {
	case isKind(source, "apps", "DaemonSet"), isKind(source, "extensions", "DaemonSet"):
		return one(c.daemonSet(source))
	case isKind(source, "batch", "Job"):
		return c.groupJob(source)
	case isKind(source, "apps.kruise.io", "BroadcastJob"):
		return one(c.broadcastJob(source))
	case isKind(source, "upgrade.cattle.io", "Plan"):
		drafts, err := c.plan(source)
		c.drafts = append(c.drafts, drafts...)
		return err
	default:
		c.others = append(c.others, source)
		return nil
	}
}

// workload returns the work of the pods of an object.
func (c *converter) workload(template *corev1.PodTemplateSpec, source *unstructured.Unstructured) *workload {
	return &workload{template: template, contents: c.contents, namespace: cmp.Or(source.GetNamespace(), c.options.Namespace)}
}

// readContents reads the ConfigMaps and Secrets.
func (c *converter) readContents() {
	for _, source := range c.objects {
		if !isKind(source, "", "ConfigMap") && !isKind(source, "", "Secret") {
			continue
		}
		content := map[string]string{}
		for _, field := range []string{"data", "stringData"} {
			data, _, _ := unstructured.NestedMap(source.Object, field)
			for key, value := range data {
				text, _ := value.(string)
				if field == "data" && source.GetKind() == "Secret" {
					decoded, _ := base64.StdEncoding.DecodeString(text)
					text = string(decoded)
				}
				content[key] = text
			}
		}
		c.contents[contentKey(source.GetKind(), cmp.Or(source.GetNamespace(), c.options.Namespace), source.GetName())] = content
	}
}

// write writes the documents.
func (c *converter) write() {
	var documents [][]byte
	for _, d := range c.drafts {
		document, err := d.yaml()
		if err != nil {
			c.refuse(d.sources[0], err)
			continue
		}
		documents = append(documents, document)
		for _, w := range d.warnings {
			c.result.Warnings = append(c.result.Warnings, nameOf(d.sources[0])+": "+w.message)
		}
	}
	c.result.NodeJobs = len(documents)
	if len(documents) == 0 {
		return
	}
	var b bytes.Buffer
	if len(c.others) > 0 {
		names := make([]string, len(c.others))
		for i, other := range c.others {
			names[i] = nameOf(other)
		}
		for _, line := range comment("Objects of other kinds, which are not converted:\n- "+strings.Join(names, "\n- "), columns) {
			b.WriteString(line + "\n")
		}
		b.WriteString("---\n")
	}
	b.Write(bytes.Join(documents, []byte("---\n")))
	c.result.YAML = b.Bytes()
}

// describeOthers says which objects beside the patterns are no longer needed, and removes them from the others.
func (c *converter) describeOthers() {
	c.others = slices.DeleteFunc(c.others, func(other *unstructured.Unstructured) bool {
		switch other.GetKind() {
		case "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding":
			return c.describeAccess(other)
		case "ConfigMap", "Secret":
			return c.describeContent(other)
		case "Namespace":
			return true
		}
		return false
	})
}
