// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schemas tests the JSON schemas for editors.
package schemas

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

const (
	root     = "../.."
	location = "https://raw.githubusercontent.com/everynode/everynode/main/config/schemas/"
)

// schemas compiles the schema of each kind.
func schemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	compiled := map[string]*jsonschema.Schema{}
	for _, kind := range []string{"NodeJob", "NodeGuard"} {
		content, err := os.ReadFile(filepath.Join(root, "config/schemas", fileOf(kind)))
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource(location+fileOf(kind), document); err != nil {
			t.Fatal(err)
		}
		if compiled[kind], err = compiler.Compile(location + fileOf(kind)); err != nil {
			t.Fatal(err)
		}
	}
	return compiled
}

func fileOf(kind string) string { return strings.ToLower(kind) + "_v1alpha1.json" }

var (
	// isOurs matches whole objects. A page may also show only some fields.
	isOurs = regexp.MustCompile(`(?ms)^apiVersion: everynode\.dev/v1alpha1$.*^metadata:`)
	fence  = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
)

// validate reports whether a document is an object with a schema, and what is wrong with it.
func validate(schemas map[string]*jsonschema.Schema, document string) (kind string, err error) {
	content, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		return "", err
	}
	object, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		return "", err
	}
	fields, _ := object.(map[string]any)
	kind, _ = fields["kind"].(string)
	if schemas[kind] == nil {
		return "", nil
	}
	return kind, schemas[kind].Validate(object)
}

// TestExamplesFitTheSchemas validates each NodeJob and NodeGuard of the pages, recipes, samples and conversions.
func TestExamplesFitTheSchemas(t *testing.T) {
	compiled := schemas(t)
	found := map[string]int{}
	check := func(file, document string) {
		if !isOurs.MatchString(document) {
			return
		}
		kind, err := validate(compiled, document)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		found[kind]++
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name := entry.Name(); path != root && strings.HasPrefix(name, ".") || name == "node_modules" || name == "templates" ||
				name == "dist" {
				return fs.SkipDir
			}
			return nil
		}
		content, err := os.ReadFile(path) //nolint:gosec // of the repository
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".md":
			for _, block := range fence.FindAllStringSubmatch(string(content), -1) {
				for document := range strings.SplitSeq(block[1], "\n---\n") {
					check(path, document)
				}
			}
		case ".yaml":
			for document := range strings.SplitSeq(string(content), "\n---\n") {
				check(path, document)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found["NodeJob"] < 40 || found["NodeGuard"] < 2 {
		t.Errorf("only %v were found", found)
	}
}

// TestManifestsNameTheirSchema covers the manifests that users copy, so that an editor completes their fields.
func TestManifestsNameTheirSchema(t *testing.T) {
	for _, pattern := range []string{"recipes/*.yaml", "config/samples/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file) //nolint:gosec // of the repository
			if err != nil {
				t.Fatal(err)
			}
			for document := range strings.SplitSeq("\n"+string(content), "\n---\n") {
				kind := regexp.MustCompile(`(?m)^kind: (NodeJob|NodeGuard)$`).FindStringSubmatch(document)
				if kind != nil &&
					!strings.HasPrefix(
						strings.TrimPrefix(document, "\n"),
						fmt.Sprintf("# yaml-language-server: $schema=%s%s\n", location, fileOf(kind[1])),
					) {
					t.Errorf("the %s of %s does not begin with the address of its schema", kind[1], file)
				}
			}
		}
	}
}

func TestSchemasRejectWhatTheAPIServerRejects(t *testing.T) {
	compiled := schemas(t)
	for name, tt := range map[string]struct{ spec, want string }{
		"an unknown field":              {`{task: {script: a, scrpt: b}}`, "additional properties 'scrpt' not allowed"},
		"a missing task":                {`{suspend: true}`, "missing property 'task'"},
		"a wrong type":                  {`{task: {script: 1}}`, "got number, want string"},
		"an unknown value":              {`{task: {script: a}, deletionPolicy: Keep}`, "value must be one of"},
		"a value out of bounds":         {`{task: {script: a, timeoutSeconds: 0}}`, "minimum: got 0, want 1"},
		"the field of a pod":            {`{task: {script: a}, nodeSelector: {pool: db}}`, "write spec.nodes.selector.matchLabels"},
		"a number or a percentage":      {`{task: {script: a}, rollout: {maxConcurrent: [1]}}`, "got array, want integer or string"},
		"an unknown field of a pod":     {`{task: {template: {spec: {container: []}}}}`, "additional properties 'container' not allowed"},
		"nothing: a number":             {`{task: {script: a}, rollout: {maxConcurrent: 3}}`, ""},
		"nothing: a percentage":         {`{task: {script: a}, rollout: {maxConcurrent: 10%}}`, ""},
		"nothing: a request of a pod":   {`{task: {template: {spec: {containers: [{name: a, image: b, resources: {requests: {cpu: 1}}}]}}}}`, ""},
		"nothing: labels of a selector": {`{task: {script: a}, nodes: {selector: {matchLabels: {a/b: c}}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := validate(compiled, "apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: a}\nspec: "+tt.spec)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
