// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newestGolden is the version whose golden objects have all fields of the types: the latest release, or the one that is being
// prepared.
const newestGolden = "v0.1.0"

// goldenRemedy says what to do if a golden object is not read as expected.
const goldenRemedy = `
Clusters of users have objects like this one, and docs/api-stability.md promises that they stay valid.
Files of a released version never change: keep the field, its JSON name and its type as they were.
For a new field, set newestGolden and add a folder for the next version with objects that have it.`

// eachGolden calls check for each golden object: an object as the API server of a cluster with that version returns it.
// test/api checks that the API server still accepts and returns all of them.
func eachGolden(t *testing.T, check func(t *testing.T, version string, content []byte, into any)) {
	t.Helper()
	paths, err := filepath.Glob("testdata/objects/*/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 6 {
		t.Fatalf("%d golden objects were found: where are the others?%s", len(paths), goldenRemedy)
	}
	for _, path := range paths {
		version := filepath.Base(filepath.Dir(path))
		t.Run(version+"/"+filepath.Base(path), func(t *testing.T) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var kind metav1.TypeMeta
			if err := json.Unmarshal(content, &kind); err != nil {
				t.Fatal(err)
			}
			into := map[string]any{"NodeJob": &NodeJob{}, "NodeGuard": &NodeGuard{}, "NodeDisruptionBudget": &NodeDisruptionBudget{}}[kind.Kind]
			if into == nil || kind.APIVersion != GroupVersion.String() {
				t.Fatalf("the types have no %s of %s.%s", kind.Kind, kind.APIVersion, goldenRemedy)
			}
			check(t, version, content, into)
		})
	}
}

func TestGoldenObjectsAreRead(t *testing.T) {
	eachGolden(t, func(t *testing.T, _ string, content []byte, into any) {
		strict := json.NewDecoder(bytes.NewReader(content))
		strict.DisallowUnknownFields()
		if err := strict.Decode(into); err != nil {
			t.Fatalf("%v%s", err, goldenRemedy)
		}
		encoded, err := json.Marshal(into)
		if err != nil {
			t.Fatal(err)
		}
		before, after := leaves(t, content), leaves(t, encoded)
		for path, value := range before {
			if after[path] != value {
				t.Errorf("%s is %s, and %q after it was read and written.%s", path, value, after[path], goldenRemedy)
			}
		}
		for path, value := range after {
			if _, ok := before[path]; !ok && !slices.Contains(alwaysWritten, withoutIndexes(path)) {
				t.Errorf("%s is not in the file, and %s after it was read and written.%s", path, value, goldenRemedy)
			}
		}
	})
}

// alwaysWritten are the fields that the types write even if they are empty.
var alwaysWritten = []string{
	"status.nodes.total",
	"status.nodes.done",
	"status.nodes.running",
	"status.nodes.waiting",
	"status.nodes.failed",
	"status.nodes.rollbackPending",
	"status.nodes.rolledBack",
	"status.nodes.rollbackFailed",
	"status.nodes.excluded",
	"status.nodes.nonCompliant",
	"status.nodes.checkErrors",
	"status.nodes.ready",
	"status.nodes.updated",
	"status.nodes.released",
	"status.nodes.unavailable",
	"status.nodes.exempt",
	"status.nodes.seats",
	"status.nodes.exceeding",
	"status.disruptionsAllowed",
	"spec.task.template.spec.containers[].resources",
	"spec.template.spec.containers[].resources",
}

// leaves returns the values of a JSON text that are no objects or lists, and empty ones of these, by their paths.
func leaves(t *testing.T, text []byte) map[string]string {
	t.Helper()
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			if len(v) == 0 {
				found[path] = "{}"
			}
			for name, field := range v {
				walk(strings.TrimPrefix(path+"."+name, "."), field)
			}
		case []any:
			if len(v) == 0 {
				found[path] = "[]"
			}
			for i, element := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), element)
			}
		default:
			found[path] = fmt.Sprintf("%#v", v)
		}
	}
	walk("", root)
	return found
}

// withoutIndexes returns a path such as status.drains[].node for status.drains[3].node.
func withoutIndexes(path string) string {
	var b strings.Builder
	for i, part := range strings.Split(path, "[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "]")
			part = "[]" + part
		}
		b.WriteString(part)
	}
	return b.String()
}

// TestGoldenObjectsHaveAllFields requires golden objects for each field of the types.
func TestGoldenObjectsHaveAllFields(t *testing.T) {
	has := map[string]bool{}
	eachGolden(t, func(t *testing.T, version string, content []byte, into any) {
		if version != newestGolden {
			return
		}
		kind := reflect.TypeOf(into).Elem().Name()
		for path := range leaves(t, content) {
			path = withoutIndexes(path)
			for ; path != ""; path = path[:max(strings.LastIndexByte(path, '.'), 0)] {
				has[kind+"."+strings.ReplaceAll(path, "[]", "")] = true
			}
		}
	})
	for _, kind := range []reflect.Type{reflect.TypeFor[NodeJob](), reflect.TypeFor[NodeGuard](), reflect.TypeFor[NodeDisruptionBudget]()} {
		fields := map[string]bool{}
		fieldsOf(kind.Name(), kind, fields)
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			if !has[field] {
				t.Errorf(
					"no golden object of %[1]s has %[2]s: add it in testdata/objects/%[1]s, or, if %[1]s is released, set newestGolden and add a folder for the next version",
					newestGolden,
					field,
				)
			}
		}
	}
}

// fieldsOf adds the paths of the fields of a type of this package. Types of Kubernetes are one field.
func fieldsOf(path string, kind reflect.Type, fields map[string]bool) {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct || kind.PkgPath() != reflect.TypeFor[NodeJob]().PkgPath() {
		return
	}
	for field := range kind.Fields() {
		if name, options, _ := strings.Cut(field.Tag.Get("json"), ","); options != "inline" {
			fields[path+"."+name] = true
			fieldsOf(path+"."+name, field.Type, fields)
		}
	}
}
