// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// writeSchemas writes the JSON schema of each version of a CRD.
func writeSchemas(crd map[string]any, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	spec, _ := crd["spec"].(map[string]any)
	kind := kind(crd)
	group, _ := spec["group"].(string)
	for version, openAPI := range versions(crd) {
		schema, _ := jsonSchema(openAPI).(map[string]any)
		schema["$schema"], schema["title"] = "http://json-schema.org/draft-07/schema#", kind
		schema["required"] = []string{"apiVersion", "kind", "metadata", "spec"}
		properties, _ := schema["properties"].(map[string]any)
		properties["apiVersion"], properties["kind"] = map[string]any{"const": group + "/" + version}, map[string]any{"const": kind}
		properties["metadata"] = map[string]any{"type": "object"}
		content, err := json.Marshal(schema)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, strings.ToLower(kind)+"_"+version+".json"), append(content, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// jsonSchema converts the schema of a CRD to a JSON schema. It rejects unknown fields, as kubectl does, and leaves out CEL rules, which only
// the API server evaluates.
func jsonSchema(value any) any {
	switch v := value.(type) {
	case []any:
		list := make([]any, len(v))
		for i, inner := range v {
			list[i] = jsonSchema(inner)
		}
		return list
	case map[string]any:
		schema := map[string]any{}
		for key, inner := range v {
			if !strings.HasPrefix(key, "x-kubernetes-") {
				schema[key] = keyword(key, inner)
			}
		}
		return withExtensions(schema, v)
	}
	return value
}

// keyword converts the value of a keyword of a schema.
func keyword(key string, value any) any {
	switch key {
	case "default", "enum", "required":
		return value
	case "properties":
		// The keys are names, which may be equal to keywords.
		fields, _ := value.(map[string]any)
		properties := map[string]any{}
		for name, schema := range fields {
			properties[name] = jsonSchema(schema)
		}
		return properties
	}
	return jsonSchema(value)
}

// withExtensions expresses the extensions of Kubernetes in a schema, as far as JSON schemas can.
func withExtensions(schema, from map[string]any) map[string]any {
	if from["x-kubernetes-int-or-string"] == true {
		delete(schema, "anyOf")
		schema["type"] = []string{"integer", "string"}
	}
	_, hasFields := from["properties"]
	_, hasOthers := from["additionalProperties"]
	if hasFields && !hasOthers && from["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	if isRejected(from) {
		// yaml-language-server does not complete such a field, and shows the message.
		maps.Copy(schema, map[string]any{"doNotSuggest": true, "deprecationMessage": from["description"]})
	}
	return schema
}

// isRejected reports whether a schema is of a field that no object can have.
func isRejected(schema map[string]any) bool {
	text, _ := schema["description"].(string)
	return strings.HasPrefix(text, notAField)
}
