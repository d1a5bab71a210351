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

// into decodes an object into its type, and keeps the paths of fields that the type does not have.
func into[T any](c *converter, source *unstructured.Unstructured) (*T, error) {
	typed := new(T)
	body, err := source.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("reading its fields: %w", err)
	}
	strict, err := json.UnmarshalStrict(body, typed)
	if err != nil {
		text := wrongType.ReplaceAllString(err.Error(), "$2 is a $1, and must be $3")
		return nil, fmt.Errorf("reading its fields: %s. If it is a template, replace the placeholders first", text)
	}
	for _, err := range strict {
		if path := strings.Trim(strings.TrimPrefix(err.Error(), "unknown field "), `"`); strings.HasPrefix(path, "spec.") {
			c.unknown[source] = append(c.unknown[source], path)
		}
	}
	return typed, nil
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

// fieldRules are the fields that a NodeJob does not have, by the kind of the source.
var fieldRules = table[map[string][]fieldRule](fieldsYAML)

type fieldRule struct {
	Path, Value      *regexp.Regexp
	Gone, Note, Todo string
}

// nameFields says which fields of the sources the NodeJob does not have.
func (d *draft) nameFields() {
	rules := slices.Concat(fieldRules[d.kind()], fieldRules["all"])
	if d.job.Spec.Task.Template == nil {
		rules = slices.Concat(fieldRules["script"], rules)
	}
	for _, source := range d.sources {
		for _, f := range flatten("", source.Object) {
			if f.isPlaceholder() {
				d.todo("%s has a placeholder, which must be replaced: %s", f.path, f.value)
			}
			i := slices.IndexFunc(rules, func(r fieldRule) bool {
				return r.Path.MatchString(f.path) && (r.Value == nil || !r.Value.MatchString(f.value))
			})
			if i >= 0 {
				d.nameField(rules[i], rules[i].Path.FindString(f.path))
			}
		}
		for _, path := range d.unknown[source] {
			if !slices.ContainsFunc(rules, func(r fieldRule) bool { return r.Path.MatchString(path) }) {
				d.todo("not converted: %s (unknown)", path)
			}
		}
	}
}

func (d *draft) nameField(rule fieldRule, path string) {
	switch {
	case rule.Gone != "":
		d.drop("%s: %s", path, rule.Gone)
	case rule.Note != "":
		d.note("%s: %s.", path, rule.Note)
	default:
		d.todo("not converted: %s (%s)", path, rule.Todo)
	}
}

// byKubernetes are labels and annotations that Kubernetes and kubectl set.
var byKubernetes = []string{
	corev1.LastAppliedConfigAnnotation, "deprecated.daemonset.template.generation", "kubectl.kubernetes.io/restartedAt",
	"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-tracking",
}

var (
	word      = regexp.MustCompile(`\.(command|args)\[`)
	nodeOfJob = regexp.MustCompile(`\.(nodeName|nodeSelector\.kubernetes\.io/hostname)$`)
)

// field is a field without fields that a user has set.
type field struct{ path, value string }

// isPlaceholder reports whether the value must be replaced before the object is used. A word of a command may be a variable of a shell, and
// the node of a Job is said elsewhere.
func (f field) isPlaceholder() bool {
	switch {
	case !strings.HasPrefix(f.path, "spec."), nodeOfJob.MatchString(f.path):
		return false
	case strings.HasSuffix(f.path, ".image"):
		return strings.ContainsAny(f.value, "<${")
	}
	return programs.Placeholder.MatchString(f.value) && !(word.MatchString(f.path) && strings.HasPrefix(f.value, "$"))
}

// flatten returns the fields of an object, sorted. An item of a list has its name instead of an index.
func flatten(path string, value any) (all []field) {
	switch value := value.(type) {
	case nil:
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if !slices.Contains(byKubernetes, key) {
				all = append(all, flatten(strings.TrimPrefix(path+"."+key, "."), value[key])...)
			}
		}
	case []any:
		for _, item := range value {
			fields, _ := item.(map[string]any)
			all = append(all, flatten(fmt.Sprintf("%s[%v]", path, fields["name"]), item)...)
		}
	default:
		all = append(all, field{path, fmt.Sprint(value)})
	}
	return all
}
