// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"maps"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Published is who has published which labels and annotations of a node: by their keys, the record keys
// of NodeJobs. It is what the annotation v1alpha1.PublishedAnnotation holds, and outlives the records: what
// is not in it belongs to somebody else.
type Published struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// maxPublishedBytes bounds what is read and written of it: room for hundreds of facts.
const maxPublishedBytes = 32 << 10

// ReadPublished returns what the annotations of a node say. What cannot be read counts as nothing: then what
// is there is somebody else's, and left alone.
func ReadPublished(annotations map[string]string) Published {
	var p Published
	value := annotations[v1alpha1.PublishedAnnotation]
	if value == "" || len(value) > maxPublishedBytes || json.Unmarshal([]byte(value), &p) != nil {
		return Published{}
	}
	return p
}

// Clone returns a copy that shares nothing.
func (p Published) Clone() Published {
	return Published{Labels: cloneMap(p.Labels), Annotations: cloneMap(p.Annotations)}
}

func cloneMap(m map[string]string) map[string]string {
	if c := maps.Clone(m); c != nil {
		return c
	}
	return map[string]string{}
}

// Fits is true when it can be written.
func (p Published) Fits() bool { return len(p.encode()) <= maxPublishedBytes }

func (p Published) encode() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// Facts are a change of what is published on a node.
type Facts struct {
	// Labels and Annotations are the new values by key; nil takes one away.
	Labels, Annotations map[string]*string
	// Published is who has published what after the change.
	Published Published
}

func (f *Facts) into(labels, annotations map[string]any) {
	for key, value := range f.Labels {
		labels[key] = value
	}
	for key, value := range f.Annotations {
		annotations[key] = value
	}
	annotations[v1alpha1.PublishedAnnotation] = nil
	if len(f.Published.Labels)+len(f.Published.Annotations) > 0 {
		annotations[v1alpha1.PublishedAnnotation] = f.Published.encode()
	}
}
