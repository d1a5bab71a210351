// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest reads and writes YAML files with Kubernetes objects.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// Documents returns the YAML documents of a file. An error is the last item.
func Documents(content []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) || !yield(document, err) || err != nil {
				return
			}
		}
	}
}

// Write returns an object in the form in which a user would write it: kind first, and without the fields that only its Go type has. The
// object has its apiVersion and kind.
func Write(object runtime.Object) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("writing a manifest: %w", err)
	}
	var head []byte
	for _, key := range []string{"apiVersion", "kind"} {
		head = fmt.Appendf(head, "%s: %s\n", key, fields[key])
		delete(fields, key)
	}
	prune(fields)
	body, err := sigsyaml.Marshal(fields)
	return append(head, body...), err
}

// prune removes fields that are not omitted when empty. Other empty objects have a meaning, such as drain and emptyDir.
func prune(value any) {
	switch value := value.(type) {
	case map[string]any:
		maps.DeleteFunc(value, func(key string, field any) bool {
			prune(field)
			inner, isObject := field.(map[string]any)
			return field == nil || isObject && len(inner) == 0 && slices.Contains([]string{"metadata", "resources", "status"}, key)
		})
	case []any:
		for _, item := range value {
			prune(item)
		}
	}
}
