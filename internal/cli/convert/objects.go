// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/cli/manifest"
)

// MaxBytes is the size that a file may have. Manifests of one pattern have a few KB.
const MaxBytes = 8 << 20

// Decode returns the Kubernetes objects in a file with YAML documents or JSON. The items of a List are objects of their
// own.
func Decode(content []byte) ([]*unstructured.Unstructured, error) {
	if len(content) > MaxBytes {
		return nil, fmt.Errorf("the file has more than %d MiB", MaxBytes>>20)
	}
	// A script with Windows line endings does not run in a shell.
	content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	var objects []*unstructured.Unstructured
	for document, err := range manifest.Documents(content) {
		if err == nil {
			objects, err = appendObjects(objects, document)
		}
		if err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// mergeKey matches a merge of an anchor. A field beside it may have the same name as one in the anchor.
var mergeKey = regexp.MustCompile(`(?m)^[ \t-]*["']?<<["']?[ \t]*:`)

// toJSON converts a document. It does not accept two fields with the same name, of which one would be lost.
func toJSON(document []byte) ([]byte, error) {
	if stdjson.Valid(document) {
		return document, nil
	}
	if mergeKey.Match(document) {
		return sigsyaml.YAMLToJSON(document)
	}
	return sigsyaml.YAMLToJSONStrict(document)
}

func appendObjects(objects []*unstructured.Unstructured, document []byte) ([]*unstructured.Unstructured, error) {
	const not = "it is not a file of Kubernetes objects in YAML or JSON"
	body, err := toJSON(document)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", not, err)
	}
	if string(body) == "null" {
		return objects, nil
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &object.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", not, err)
	}
	if object.GetKind() == "" || object.GetAPIVersion() == "" {
		return nil, fmt.Errorf("%s: a document has no apiVersion or no kind", not)
	}
	items, isList := object.Object["items"].([]any)
	if !isList || !strings.HasSuffix(object.GetKind(), "List") {
		return append(objects, object), nil
	}
	for _, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: an item of the %s is not an object", not, object.GetKind())
		}
		objects = append(objects, &unstructured.Unstructured{Object: fields})
	}
	return objects, nil
}
