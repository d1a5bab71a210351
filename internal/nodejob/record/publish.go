// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Published contains the publishers of labels and annotations of a node: by their keys, the record keys of NodeJobs. It
// is stored in the annotation v1alpha1.PublishedAnnotation, and outlives the records. A key that is not in it belongs
// to another client.
type Published struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// maxPublishedBytes limits what is read and written of it: enough for hundreds of results.
const maxPublishedBytes = 32 << 10

// ReadPublished returns the publishers in the annotations of a node. An unreadable value counts as empty: then existing
// labels and annotations belong to other clients and are not changed.
func ReadPublished(annotations map[string]string) Published {
	var p Published
	value := annotations[v1alpha1.PublishedAnnotation]
	if value == "" || len(value) > maxPublishedBytes || json.Unmarshal([]byte(value), &p) != nil {
		return Published{}
	}
	return p
}

// Clone returns a deep copy.
func (p Published) Clone() Published {
	return Published{Labels: cloneMap(p.Labels), Annotations: cloneMap(p.Annotations)}
}

func cloneMap(m map[string]string) map[string]string {
	if c := maps.Clone(m); c != nil {
		return c
	}
	return map[string]string{}
}

// Fits reports whether it is small enough to be written.
func (p Published) Fits() bool { return len(p.encode()) <= maxPublishedBytes }

func (p Published) encode() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// Publish is a change of what is published on a node.
type Publish struct {
	// Labels and Annotations are the new values by key; nil removes one.
	Labels, Annotations map[string]*string
	// Published contains the publishers after the change.
	Published Published
}

func (f *Publish) into(labels, annotations map[string]any) {
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

// MayPublish reports whether the API allows a NodeJob to publish a key, by the rules of spec.publish. A node can write the list of
// published keys itself, and must not be able to have labels removed that it must not write.
func MayPublish(key string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	if !prefixed || prefix == "node.kubernetes.io" || prefix == "kubelet.kubernetes.io" {
		return true
	}
	return !slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", v1alpha1.Group}, func(domain string) bool {
		return prefix == domain || strings.HasSuffix(prefix, "."+domain)
	})
}
