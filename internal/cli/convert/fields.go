// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// No field of a source is dropped without a comment. All fields are visited after a conversion. A field that is neither in
// the template of the NodeJob nor in fieldrules.go is listed as not converted.

// fields are the fields of an object.
type fields struct {
	// object has the fields as they were decoded.
	object map[string]any
	// unknown are the paths of the fields that the type does not have.
	unknown []string
}

// into decodes an object into its type.
func into[T any](source *unstructured.Unstructured) (*T, *fields, error) {
	typed, found := new(T), &fields{object: maps.Clone(source.Object)}
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(source.Object, typed, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		found.unknown, err = unknownFields(strict.Errors()), nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading its fields: %w", err)
	}
	// In the decoded object, a field with the value false or 0 means that the value was given.
	body, err := json.Marshal(typed)
	if err != nil {
		return nil, nil, fmt.Errorf("reading its fields: %w", err)
	}
	var decoded map[string]any
	if err := json.Unmarshal(body, &decoded); err != nil {
		return nil, nil, fmt.Errorf("reading its fields: %w", err)
	}
	if spec, ok := decoded["spec"]; ok {
		found.object["spec"] = spec
	}
	withoutAlias(found.object)
	return typed, found, nil
}

// withoutAlias removes the deprecated name of the service account, which the API server sets beside the new one.
func withoutAlias(object map[string]any) {
	pod, ok, err := unstructured.NestedFieldNoCopy(object, "spec", "template", "spec")
	fields, isObject := pod.(map[string]any)
	if !ok || err != nil || !isObject {
		return
	}
	if account, ok := fields["serviceAccount"]; ok && fields["serviceAccountName"] == nil {
		fields["serviceAccountName"] = account
	}
	delete(fields, "serviceAccount")
}

var unknownField = regexp.MustCompile(`(?s)^unknown field "(.*)"$`)

// unknownFields returns the paths in the errors of a strict decoder. Fields outside of spec are visited as they are.
func unknownFields(errs []error) []string {
	var paths []string
	for _, err := range errs {
		if m := unknownField.FindStringSubmatch(err.Error()); m == nil {
			paths = append(paths, err.Error())
		} else if strings.HasPrefix(m[1], "spec.") {
			paths = append(paths, m[1])
		}
	}
	return paths
}

// fieldRule says what becomes of a field and all that is below it. The zero value is for a field that is converted, or that
// changes nothing.
type fieldRule struct {
	// defaults are values that change nothing. The rest of the rule is for other values.
	defaults []any
	// gone is why the field is no longer needed, or "if …" for when it is not needed.
	gone string
	// isLost says that the field is not converted, and hint is what to do instead.
	isLost bool
	hint   string
	// except are keys in a map that change nothing.
	except []string
}

// fieldRules has rules by the path of the field. The path of an item is that of its list with [].
type fieldRules map[string]fieldRule

func (r fieldRules) add(at string, rule fieldRule, names ...string) {
	for _, name := range names {
		r[at+"."+name] = rule
	}
}

// fieldWalk visits the fields of a source.
type fieldWalk struct {
	rules fieldRules
	// inner are the paths that have rules below them.
	inner map[string]bool
	// template is what the NodeJob has in the place of spec.template; nil for a script.
	template map[string]any
	// groups maps items of lists, such as "volumes/NAME", to the group that has rules of its own.
	groups map[string]string
	// gone describes the fields that are no longer needed. lost are those that are not converted.
	gone []string
	lost []lostField
}

type lostField struct{ path, hint string }

// templatePath is where DaemonSets, Jobs and BroadcastJobs have their pod.
const templatePath = "spec.template"

func newFieldWalk(rules fieldRules, groups map[string]string) *fieldWalk {
	w := &fieldWalk{rules: rules, inner: map[string]bool{"": true}, groups: groups}
	for path := range rules {
		for i, c := range path {
			if c == '.' || c == '[' {
				w.inner[path[:i]] = true
			}
		}
	}
	return w
}

// visit visits a field. pattern is its path with [] for each item of a list, and kept is what the NodeJob has in its place.
func (w *fieldWalk) visit(path, pattern string, value, kept any) {
	if pattern == templatePath && w.template != nil {
		kept = w.template
	}
	rule, hasRule := w.rules[pattern]
	switch {
	case isNothing(value):
	case hasRule && kept == nil:
		w.apply(rule, path, value)
	case !w.inner[pattern] && kept == nil:
		w.lose(path, "")
	default:
		w.visitInner(path, pattern, value, kept)
	}
}

// isNothing reports whether a value has no fields. An unknown field without a value is found by the decoder.
func isNothing(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return value == nil
}

func (w *fieldWalk) visitInner(path, pattern string, value, kept any) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			w.visit(join(path, key), join(pattern, key), value[key], keptField(kept, key))
		}
	case []any:
		w.visitList(path, pattern, value, kept)
	}
}

func (w *fieldWalk) visitList(path, pattern string, list []any, kept any) {
	for i, item := range list {
		itemPath, itemPattern := fmt.Sprintf("%s[%d]", path, i), pattern+"[]"
		if group, ok := w.groups[pattern[strings.LastIndexByte(pattern, '.')+1:]+"/"+nameIn(item)]; ok {
			itemPattern = pattern + "." + group + "[]"
		}
		w.visit(itemPath, itemPattern, item, keptItem(kept, list, i))
	}
}

// apply applies a rule to a field.
func (w *fieldWalk) apply(rule fieldRule, path string, value any) {
	if object, ok := value.(map[string]any); ok {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(object)), func(key string) bool { return !slices.Contains(rule.except, key) }) {
			return
		}
	} else if isScalar(value) && slices.Contains(rule.defaults, value) {
		return
	}
	switch {
	case rule.gone != "":
		w.gone = append(w.gone, goneField(path, value, rule.gone))
	case rule.isLost:
		w.lose(path, rule.hint)
	}
}

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// goneField describes a field that is no longer needed.
func goneField(path string, value any, reason string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(path, templatePath+".spec."), "spec.")
	if isScalar(value) {
		name = fmt.Sprintf("%s %v", name, value)
	}
	if strings.HasPrefix(reason, "if ") {
		return name + ", " + reason
	}
	return name + ": " + reason
}

func (w *fieldWalk) lose(path, hint string) {
	if field := (lostField{path, hint}); !slices.Contains(w.lost, field) {
		w.lost = append(w.lost, field)
	}
}

var index = regexp.MustCompile(`\[\d+\]`)

// loseUnknown adds a field that the type does not have, unless it has a rule or is in an object that is lost.
func (w *fieldWalk) loseUnknown(path string) {
	_, known := w.rules[index.ReplaceAllString(path, "[]")]
	if known || slices.ContainsFunc(w.lost, func(f lostField) bool { return isWithin(path, f.path) }) {
		return
	}
	w.lose(path, "")
}

// isWithin reports whether a path is that of a field or of something in it.
func isWithin(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// join returns the path of a field.
func join(path, key string) string {
	switch {
	case path == "":
		return key
	case plainKey.MatchString(key):
		return path + "." + key
	}
	return path + "[" + key + "]"
}

// keptField returns the field of an object in a template. Init containers can have become containers, and the other way round.
func keptField(kept any, key string) any {
	object, _ := kept.(map[string]any)
	if key != "containers" && key != "initContainers" {
		return object[key]
	}
	init, _ := object["initContainers"].([]any)
	containers, _ := object["containers"].([]any)
	if len(init)+len(containers) == 0 {
		return nil
	}
	return slices.Concat(init, containers)
}

// keptItem returns the item that a list in a template has in the place of another one: by its name, or by its position in a list
// without names.
func keptItem(kept any, list []any, i int) any {
	items, _ := kept.([]any)
	if name := nameIn(list[i]); name != "" && hasUniqueNames(items) {
		if at := slices.IndexFunc(items, func(item any) bool { return nameIn(item) == name }); at >= 0 {
			return items[at]
		}
		return nil
	}
	if len(items) != len(list) {
		return nil
	}
	return items[i]
}

func nameIn(item any) string {
	object, _ := item.(map[string]any)
	name, _ := object["name"].(string)
	return name
}

func hasUniqueNames(items []any) bool {
	names := map[string]bool{}
	for _, item := range items {
		names[nameIn(item)] = true
	}
	return len(names) == len(items) && !names[""]
}
