// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	_ "embed" // tables
	"fmt"
	"iter"
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
		fields := maps.Collect(flatten(source.Object))
		for _, f := range list {
			for _, path := range f.in(fields) {
				if f.Gone != "" {
					d.drop("%s: %s", path, f.Gone)
				} else {
					lose(path, f.Todo)
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
func (f *lostField) in(fields map[string]any) []string {
	var found []string
	for _, at := range slices.Sorted(maps.Keys(fields)) {
		if path := f.Path.FindString(at); path != "" && fmt.Sprint(fields[at]) != fmt.Sprint(f.Value) {
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

// flatten returns the fields without fields that a user has set, with their paths, sorted. An item of a list has its name instead of an
// index.
func flatten(object map[string]any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
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
				if !isObject && item != nil && !yield(path, item) {
					return
				}
				for inner, value := range flatten(fields) {
					if !yield(path+"."+inner, value) {
						return
					}
				}
			}
		}
	}
}
