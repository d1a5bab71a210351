// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command crdtrim drops the descriptions below one property of a CustomResourceDefinition.
//
// A pod template's own documentation is the largest part of a CRD that embeds one: with it,
// `kubectl apply` fails, since its last-applied annotation may have 256 KiB. The schema itself stays,
// so a wrong field is still refused.
//
//	crdtrim FILE PROPERTY
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: crdtrim FILE PROPERTY")
		os.Exit(2)
	}
	if err := trim(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "crdtrim:", err)
		os.Exit(1)
	}
}

func trim(path, property string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	find(crd, property)
	out, err := yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.WriteFile(path, append([]byte("---\n"), out...), 0o644)
}

// find walks to every schema property with that name and drops what is described below it.
func find(value any, property string) {
	switch v := value.(type) {
	case map[string]any:
		if properties, ok := v["properties"].(map[string]any); ok {
			if below, ok := properties[property].(map[string]any); ok {
				for key, inner := range below {
					if key != "description" {
						drop(inner)
					}
				}
			}
		}
		for _, inner := range v {
			find(inner, property)
		}
	case []any:
		for _, inner := range v {
			find(inner, property)
		}
	}
}

func drop(value any) {
	switch v := value.(type) {
	case map[string]any:
		// A property may itself be called description: then its value is a schema, not a text.
		if _, isText := v["description"].(string); isText {
			delete(v, "description")
		}
		for _, inner := range v {
			drop(inner)
		}
	case []any:
		for _, inner := range v {
			drop(inner)
		}
	}
}
