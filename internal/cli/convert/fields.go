// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	_ "embed" // tables
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// No field of a source is lost without a comment. A template is the pod as it was, so the list is short. A test sets each field.

// wrongType matches an error of encoding/json.
var wrongType = regexp.MustCompile(`cannot unmarshal (\w+) into Go (?:struct )?field \w*\.?([\w.]+) of type (\S+)`)

// into decodes an object into its type, and returns the paths of fields that the type does not have.
func into[T any](source *unstructured.Unstructured) (typed *T, unknown []string, err error) {
	typed = new(T)
	body, err := source.MarshalJSON()
	if err != nil {
		return nil, nil, fmt.Errorf("reading its fields: %w", err)
	}
	strict, err := json.UnmarshalStrict(body, typed)
	if err != nil {
		text := err.Error()
		if m := wrongType.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("%s is a %s, and must be %s", m[2], m[1], m[3])
		}
		return nil, nil, fmt.Errorf("reading its fields: %s. If it is a template, replace the placeholders first", text)
	}
	for _, err := range strict {
		if path := strings.Trim(strings.TrimPrefix(err.Error(), "unknown field "), `"`); strings.HasPrefix(path, "spec.") {
			unknown = append(unknown, path)
		}
	}
	return typed, unknown, nil
}

// table reads an embedded file, which a test of any conversion covers.
func table[T any](content []byte) (read T) {
	if err := yaml.UnmarshalStrict(content, &read); err != nil {
		panic(err)
	}
	return read
}

//go:embed fields.yaml
var fieldsYAML []byte

// lostFields are the fields that a NodeJob does not have, by the kind of the source.
var lostFields = table[map[string][]lostField](fieldsYAML)

type lostField struct {
	Path       *regexp.Regexp
	Value      any
	Gone, Todo string
}

// nameFields says which fields of the sources the NodeJob does not have. unknown are those that their kind does not have.
func (d *draft) nameFields(unknown []string) {
	list := slices.Concat(lostFields["all"], lostFields[d.kind()])
	if d.job.Spec.Task.Template == nil {
		list = append(list, lostFields["script"]...)
	}
	var names, lost []string
	lose := func(path, instead string) {
		if !slices.Contains(names, path) {
			names, lost = append(names, path), append(lost, path+" ("+instead+")")
		}
	}
	for _, source := range d.sources {
		fields := flatten(source.Object)
		for _, l := range list {
			for _, path := range l.in(fields) {
				if l.Gone != "" {
					d.drop("%s: %s", path, l.Gone)
				} else {
					lose(path, l.Todo)
				}
			}
		}
	}
	for _, path := range unknown {
		lose(path, "unknown")
	}
	if len(lost) > 0 {
		d.todo("not converted: %s\nCheck whether the task needs them:\n- %s", strings.Join(names, ", "), strings.Join(lost, "\n- "))
	}
}

// in returns the paths that match the field, unless it has the value that changes nothing.
func (l *lostField) in(fields []field) (found []string) {
	for _, f := range fields {
		if path := l.Path.FindString(f.path); path != "" && fmt.Sprint(f.value) != fmt.Sprint(l.Value) {
			found = append(found, path)
		}
	}
	return found
}

// byKubernetes are labels and annotations that Kubernetes and kubectl set.
var byKubernetes = []string{
	corev1.LastAppliedConfigAnnotation, "deprecated.daemonset.template.generation", "kubectl.kubernetes.io/restartedAt",
	"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-tracking",
}

// field is a field without fields that a user has set.
type field struct {
	path  string
	value any
}

// flatten returns the fields of an object, sorted. An item of a list has its name instead of an index.
func flatten(object map[string]any) (all []field) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if slices.Contains(byKubernetes, key) {
			continue
		}
		list, isList := object[key].([]any)
		if !isList {
			list = []any{object[key]}
		}
		for _, item := range list {
			path := key
			fields, isObject := item.(map[string]any)
			if isList {
				path += fmt.Sprintf("[%v]", fields["name"])
			}
			if !isObject && item != nil {
				all = append(all, field{path, item})
			}
			for _, inner := range flatten(fields) {
				all = append(all, field{path + "." + inner.path, inner.value})
			}
		}
	}
	return all
}
