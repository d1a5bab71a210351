// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/plantest"
)

var update = flag.Bool("update", false, "write the golden records of the version that is not released yet")

// newest is the version whose golden records have all fields of the current code: the latest release, or the one that is
// being prepared.
const newest = "v0.1.0"

const goldenDir = "testdata/records"

// remedy says what to do if a golden record is not read as expected.
const remedy = `
Nodes of users have records like this one, and docs/api-stability.md promises how they are read.
Files and expectations of a released version never change: change the code so that it reads them as before.
If the format gets something new, set newest in golden_test.go to the next version, write its records with
  go test ./internal/nodejob/record -run TestGolden -update
and add what they mean to readings.`

// golden is what a node carries for a NodeJob: everything that Everynode has written there.
type golden struct {
	About       string            `json:"about"`
	Key         string            `json:"key"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// reading is what the code understands of a golden record.
type reading struct {
	On         record.NodeRecord
	Published  record.Published
	CordonedBy []string
}

// readings are the expected readings, by version and name of the file.
var readings = map[string]map[string]reading{"v0.1.0": readingsOfV010}

func goldenFile(version, name string) string {
	return filepath.Join(goldenDir, version, name+".json")
}

func load(t *testing.T, path string) golden {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(content, &g); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return g
}

// released reports whether the changelog has a section for a version, which docs/releasing.md adds.
func released(t *testing.T, version string) bool {
	t.Helper()
	changelog, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(changelog, []byte("\n## ["+strings.TrimPrefix(version, "v")+"]"))
}

// TestGoldenRecordsAreWritten compares the records of the version that is being prepared with what the code writes. With
// -update, it writes them.
func TestGoldenRecordsAreWritten(t *testing.T) {
	if released(t, newest) {
		if *update {
			t.Fatalf("%s is released, so its golden records must not change.%s", newest, remedy)
		}
		t.Skipf("%s is released: what the code writes now may differ in messages", newest)
	}
	for name, s := range situations {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			if err := e.Encode(written(t, s)); err != nil {
				t.Fatal(err)
			}
			path := goldenFile(newest, name)
			if *update {
				write(t, path, b.Bytes())
			}
			content, err := os.ReadFile(path)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if diff := plantest.Diff(string(content), b.String()); diff != "" {
				t.Errorf("%s differs from what the code writes (- file, + code).\n"+
					"%s is not released. If the change is intended: go test ./internal/nodejob/record -run TestGolden -update\n%s", path, newest, diff)
			}
		})
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// eachGolden calls check for each golden record of each version.
func eachGolden(t *testing.T, check func(t *testing.T, version, name string, g golden)) {
	t.Helper()
	paths, err := filepath.Glob(goldenFile("*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("there are no golden records")
	}
	for _, path := range paths {
		version, name := filepath.Base(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(version+"/"+name, func(t *testing.T) { check(t, version, name, load(t, path)) })
	}
}

// TestGoldenRecordsAreRead reads what every version has written to nodes.
func TestGoldenRecordsAreRead(t *testing.T) {
	unread := map[string]bool{}
	for version, byName := range readings {
		for name := range byName {
			unread[version+"/"+name] = true
		}
	}
	eachGolden(t, func(t *testing.T, version, name string, g golden) {
		delete(unread, version+"/"+name)
		want, ok := readings[version][name]
		if !ok {
			t.Fatalf("readings does not say what %s means", goldenFile(version, name))
		}
		got := reading{record.Read(g.Labels, g.Annotations, g.Key), record.ReadPublished(g.Annotations), record.CordonedBy(g.Annotations)}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s is read differently (-want +got):\n%s%s", goldenFile(version, name), diff, remedy)
		}
	})
	for missing := range unread {
		t.Errorf("the golden record %s is missing.%s", missing, remedy)
	}
}

// TestGoldenRecordsAreWrittenBack reads records and writes them again, as the manager does when only a part of one changes.
func TestGoldenRecordsAreWrittenBack(t *testing.T) {
	eachGolden(t, func(t *testing.T, version, name string, g golden) {
		on := record.Read(g.Labels, g.Annotations, g.Key)
		if on.Record == nil {
			t.Fatalf("%s has no record.%s", goldenFile(version, name), remedy)
		}
		got := asJSON(t, record.Encode(*on.Record))
		if diff := cmp.Diff(asJSON(t, g.Annotations[g.Key]), got); diff != "" {
			t.Errorf("a part of %s is lost (-before +after):\n%s%s", goldenFile(version, name), diff, remedy)
		}
	})
}

// TestUnknownFieldsAreIgnoredAndNotWrittenBack adds fields to the golden records, as a later version may. A manager that
// does not know them must read the record as if they were not there, and leaves them out when it writes the record.
func TestUnknownFieldsAreIgnoredAndNotWrittenBack(t *testing.T) {
	eachGolden(t, func(t *testing.T, version, name string, g golden) {
		later := asJSON(t, g.Annotations[g.Key])
		addUnknown(later)
		encoded, err := json.Marshal(later)
		if err != nil {
			t.Fatal(err)
		}
		labels, annotations := maps.Clone(g.Labels), maps.Clone(g.Annotations)
		annotations[g.Key], labels[record.SealKey(g.Key)] = string(encoded), record.Seal(string(encoded))
		got := record.Read(labels, annotations, g.Key)
		if diff := cmp.Diff(record.Read(g.Labels, g.Annotations, g.Key), got); diff != "" {
			t.Fatalf(
				"with fields of a later version, %s is read differently (-without +with):\n%s%s",
				goldenFile(version, name),
				diff,
				remedy,
			)
		}
		if diff := cmp.Diff(asJSON(t, g.Annotations[g.Key]), asJSON(t, record.Encode(*got.Record))); diff != "" {
			t.Errorf("docs/api-stability.md says that unknown fields are not written back (-known +written):\n%s", diff)
		}
	})
}

// addUnknown adds a field to an object, and to all objects in it that are not maps of results or labels.
func addUnknown(object map[string]any) {
	for name, value := range object {
		elements, isList := value.([]any)
		if !isList {
			elements = []any{value}
		}
		for _, element := range elements {
			if nested, ok := element.(map[string]any); ok && name != "results" && name != "removedLabels" {
				addUnknown(nested)
			}
		}
	}
	object["fieldOfALaterVersion"] = map[string]any{"list": []any{1.5, "x", nil}}
}

func asJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestGoldenRecordsHaveAllFields requires golden records for each field that a record can have.
func TestGoldenRecordsHaveAllFields(t *testing.T) {
	has := map[string]bool{}
	eachGolden(t, func(t *testing.T, version, _ string, g golden) {
		if version == newest {
			collect("", asJSON(t, g.Annotations[g.Key]), has)
		}
	})
	for _, field := range fieldsOf("", reflect.TypeFor[record.Record]()) {
		if !has[field] {
			t.Errorf("no golden record of %[1]s has the field %[2]s. If %[1]s is released, set newest to the next version. "+
				"Add a situation in which the field is written, and run: go test ./internal/nodejob/record -run TestGolden -update", newest, field)
		}
	}
}

func collect(prefix string, object map[string]any, has map[string]bool) {
	for name, value := range object {
		has[prefix+name] = true
		switch v := value.(type) {
		case map[string]any:
			collect(prefix+name+".", v, has)
		case []any:
			for _, element := range v {
				if o, ok := element.(map[string]any); ok {
					collect(prefix+name+".", o, has)
				}
			}
		}
	}
}

// fieldsOf returns the JSON paths of the fields of a type.
func fieldsOf(prefix string, kind reflect.Type) []string {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct || kind == reflect.TypeFor[time.Time]() {
		return nil
	}
	var all []string
	for field := range kind.Fields() {
		if field.Anonymous {
			all = append(all, fieldsOf(prefix, field.Type)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, prefix+name)
		all = append(all, fieldsOf(prefix+name+".", field.Type)...)
	}
	slices.Sort(all)
	return all
}
