// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command crdfinish completes a generated CustomResourceDefinition, and writes its JSON schema for editors, KIND_VERSION.json.
//
// It removes the descriptions of a pod template's fields. They are the largest part of a CRD that embeds a pod template: with them,
// `kubectl apply` fails, because the annotation with the last applied configuration has at most 256 KiB. The schema itself stays, so
// that the API server still rejects wrong fields.
//
// The JSON schema has fields in addition that an object must not have, with a message that names the right field. They are not in the CRD,
// because kubectl explain would show them.
//
//	crdfinish -misplaced FIELDS -schemas DIR FILE PROPERTY
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	misplaced := flag.String("misplaced", "", "a file with the fields that objects must not have, by kind")
	schemas := flag.String("schemas", "", "a folder for JSON schemas")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdfinish -misplaced FIELDS -schemas DIR FILE PROPERTY")
		os.Exit(2)
	}
	if err := finish(flag.Arg(0), flag.Arg(1), *misplaced, *schemas); err != nil {
		fmt.Fprintln(os.Stderr, "crdfinish:", err)
		os.Exit(1)
	}
}

func finish(path, property, misplaced, schemas string) error {
	var crd map[string]any
	if err := read(path, &crd); err != nil {
		return err
	}
	trim(crd, property)
	out, err := yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.WriteFile(path, append([]byte("---\n"), out...), 0o644); err != nil {
		return err
	}
	var fields map[string]map[string]string
	if err := read(misplaced, &fields); err != nil {
		return err
	}
	for at, instead := range fields[kind(crd)] {
		if err := reject(crd, at, instead); err != nil {
			return err
		}
	}
	return writeSchemas(crd, schemas)
}

func kind(crd map[string]any) string {
	spec, _ := crd["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	kind, _ := names["kind"].(string)
	return kind
}

func read(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// reject adds a field at a path, such as spec.steps[].a, to all versions of a CRD.
func reject(crd map[string]any, path, instead string) error {
	for _, schema := range versions(crd) {
		names := strings.Split(path, ".")
		for i, name := range names {
			properties, ok := schema["properties"].(map[string]any)
			if !ok {
				return fmt.Errorf("%s: the CRD has no object at %s", path, strings.Join(names[:i], "."))
			}
			if i == len(names)-1 {
				if _, there := properties[name]; there {
					return fmt.Errorf("%s is a field of the CRD", path)
				}
				properties[name] = rejected(instead)
				break
			}
			name, isList := strings.CutSuffix(name, "[]")
			schema, _ = properties[name].(map[string]any)
			if isList {
				schema, _ = schema["items"].(map[string]any)
			}
		}
	}
	return nil
}

// versions returns the schema of each version of a CRD.
func versions(crd map[string]any) map[string]map[string]any {
	found := map[string]map[string]any{}
	spec, _ := crd["spec"].(map[string]any)
	list, _ := spec["versions"].([]any)
	for _, v := range list {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		schemas, _ := version["schema"].(map[string]any)
		found[name], _ = schemas["openAPIV3Schema"].(map[string]any)
	}
	return found
}

const notAField = "Not a field of this kind"

// rejected is the schema of a field that no object can have. Editors print the only value of the enumeration with each error.
func rejected(instead string) map[string]any {
	return map[string]any{
		"description":                          notAField + ": " + instead + ".",
		"enum":                                 []any{"nothing, because it is not a field of this kind: " + instead},
		"x-kubernetes-preserve-unknown-fields": true,
	}
}

// trim removes the descriptions below each property with this name.
func trim(value any, property string) {
	switch v := value.(type) {
	case map[string]any:
		if properties, ok := v["properties"].(map[string]any); ok {
			if below, ok := properties[property].(map[string]any); ok {
				for key, inner := range below {
					if key != "description" {
						undescribe(inner)
					}
				}
			}
		}
		for _, inner := range v {
			trim(inner, property)
		}
	case []any:
		for _, inner := range v {
			trim(inner, property)
		}
	}
}

func undescribe(value any) {
	switch v := value.(type) {
	case map[string]any:
		// A property may itself be called description: then its value is a schema, not a text.
		if _, isText := v["description"].(string); isText {
			delete(v, "description")
		}
		for _, inner := range v {
			undescribe(inner)
		}
	case []any:
		for _, inner := range v {
			undescribe(inner)
		}
	}
}
