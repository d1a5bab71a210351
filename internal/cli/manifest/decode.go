// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// MaxBytes is the size that a file may have.
const MaxBytes = 8 << 20

// Decode returns the Kubernetes objects in a file with YAML documents or JSON. The items of a List are objects of their
// own.
func Decode(content []byte) (objects []*unstructured.Unstructured, err error) {
	if len(content) > MaxBytes {
		return nil, fmt.Errorf("the file has more than %d MiB", MaxBytes>>20)
	}
	// A script with Windows line endings does not run in a shell.
	content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	for document, err := range Documents(content) {
		if err == nil {
			objects, err = appendObjects(objects, document)
		}
		if err != nil {
			return nil, fmt.Errorf("it is not a file of Kubernetes objects in YAML or JSON: %w", err)
		}
	}
	return objects, nil
}

// appendObjects decodes a document. It does not accept two fields with the same name, of which one would be lost.
func appendObjects(objects []*unstructured.Unstructured, document []byte) (_ []*unstructured.Unstructured, err error) {
	if !stdjson.Valid(document) {
		document, err = sigsyaml.YAMLToJSONStrict(document)
	}
	if err != nil || string(document) == "null" {
		return objects, err
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(document, &object.Object); err != nil {
		return nil, err
	}
	if object.GetKind() == "" || object.GetAPIVersion() == "" {
		return nil, errors.New("a document has no apiVersion or no kind")
	}
	return appendItems(objects, object)
}

// appendItems appends an object, or the items of a List.
func appendItems(objects []*unstructured.Unstructured, object *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if !object.IsList() {
		return append(objects, object), nil
	}
	err := object.EachListItem(func(item runtime.Object) (err error) {
		objects, err = appendItems(objects, item.(*unstructured.Unstructured))
		return err
	})
	return objects, err
}
