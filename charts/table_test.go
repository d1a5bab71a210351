// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the page of values into the documentation")

// value is a value of values.yaml that users set.
type value struct{ path, initial, comment string }

// schema is what the tests read of a JSON schema.
type schema struct {
	Properties           map[string]schema
	AdditionalProperties any
}

// readSchema returns the schema without what each chart has.
func readSchema(t *testing.T) schema {
	t.Helper()
	content, err := os.ReadFile("everynode/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(content, &s); err != nil {
		t.Fatal(err)
	}
	delete(s.Properties, "global")
	return s
}

// readValues returns the values of values.yaml in their order, and compares the names with the schema.
func readValues(t *testing.T) []value {
	t.Helper()
	content, err := os.ReadFile("everynode/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	return valuesOf(t, "", readSchema(t), document.Content[0])
}

func valuesOf(t *testing.T, prefix string, s schema, node *yaml.Node) []value {
	t.Helper()
	if s.AdditionalProperties != false {
		t.Errorf("the schema of %q allows unknown values", prefix)
	}
	var found []value
	var names []string
	for pair := range slices.Chunk(node.Content, 2) {
		name, content := pair[0], pair[1]
		names = append(names, name.Value)
		inner := s.Properties[name.Value]
		if content.Kind == yaml.MappingNode && inner.Properties != nil {
			found = append(found, valuesOf(t, prefix+name.Value+".", inner, content)...)
			continue
		}
		found = append(found, value{prefix + name.Value, inline(t, content), uncommented(name.HeadComment)})
	}
	slices.Sort(names)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(s.Properties)), names); diff != "" {
		t.Errorf("names below %q (-schema +values.yaml):\n%s", prefix, diff)
	}
	return found
}

// inline returns a value as YAML in one line.
func inline(t *testing.T, node *yaml.Node) string {
	t.Helper()
	node.Style |= yaml.FlowStyle
	node.HeadComment = ""
	content, err := yaml.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

var commentSign = regexp.MustCompile(`(?m)^# ?`)

func uncommented(comment string) string {
	return strings.Join(strings.Fields(commentSign.ReplaceAllString(comment, "")), " ")
}

func TestEachValueIsInTheSchemaAndHasAComment(t *testing.T) {
	values := readValues(t)
	if len(values) < 30 {
		t.Errorf("only %d values were found", len(values))
	}
	for _, v := range values {
		if !strings.HasSuffix(v.comment, ".") {
			t.Errorf("%s has no comment that is a sentence: %q", v.path, v.comment)
		}
	}
}

const valuesHead = "# Values of the Helm chart\n\n" +
	"`go -C charts test -run TestThePageOfValues -update` writes this page from the comments of `charts/everynode/values.yaml`.\n\n" +
	"| Value | Default | |\n|---|---|---|\n"

// TestThePageOfValues compares the page with values.yaml.
func TestThePageOfValues(t *testing.T) {
	const page = "../docs/reference/chart-values.md"
	want := valuesHead
	for _, v := range readValues(t) {
		want += fmt.Sprintf("| `%s` | `%s` | %s |\n", v.path, v.initial, strings.ReplaceAll(v.comment, "|", `\|`))
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(content)); diff != "" {
		t.Errorf("(-values.yaml +%s, which -update writes):\n%s", page, diff)
	}
}

// yamlBlocks are the blocks of YAML in a page.
var yamlBlocks = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// TestTheValuesInThePagesAreAccepted renders the chart with the values that the documentation shows: alone, for Flux, and
// for Argo CD.
func TestTheValuesInThePagesAreAccepted(t *testing.T) {
	var content []byte
	for _, page := range []string{"../docs/install.md", "../docs/monitoring.md", "../docs/notifications.md", "../docs/archive.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		content = append(content, text...)
	}
	found := 0
	for _, block := range yamlBlocks.FindAllSubmatch(content, -1) {
		for document := range strings.SplitSeq(string(block[1]), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			values := object
			switch object["kind"] {
			case "Namespace", "OCIRepository", "Secret", "Deployment", "Ingress", "NodeJob":
				continue
			case "HelmRelease":
				values = at(t, object, "spec", "values")
			case "Application":
				values = at(t, object, "spec", "source", "helm", "valuesObject")
			}
			rendered, err := yaml.Marshal(values)
			if err != nil {
				t.Fatal(err)
			}
			found++
			if _, err := render(t, release{values: string(rendered)}); err != nil {
				t.Errorf("%v in\n%s", err, document)
			}
		}
	}
	if found != 7 {
		t.Errorf("%d documents have values", found)
	}
}

// at returns a field of an object that is an object.
func at(t *testing.T, object map[string]any, fields ...string) map[string]any {
	t.Helper()
	for _, field := range fields {
		inner, isObject := object[field].(map[string]any)
		if !isObject {
			t.Fatalf("%s is no object in %v", field, object)
		}
		object = inner
	}
	return object
}
