// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Change is one write to a node. Related changes are written together, so that a manager that crashes leaves no partial
// change.
type Change struct {
	// UID of the Node. The API server rejects the write if the Node was recreated meanwhile.
	UID types.UID
	// Key of the NodeJob.
	Key string
	// Record to write, with its seal; nil keeps the existing one. A success, and an expiry, set the label.
	Record *Record
	// DropLabel removes a label that is no longer valid.
	DropLabel bool
	// KeepLabel does not change the label although the record is of a success: it skips a later revision.
	KeepLabel bool
	// Forget removes the label, the annotation and its seal.
	Forget bool
	// RemoveLabels are other labels to remove.
	RemoveLabels []string
	// Cordon changes the NodeJobs that the node is cordoned for; nil does not change them.
	Cordon *Cordon
	// Taints are all taints that the node should have; nil does not change them.
	Taints *Taints
	// Publish are labels and annotations that are published; nil does not change them.
	Publish *Publish
	// ResourceVersion of the node that the change is based on: the write fails on another one. "" if the version does
	// not matter. What other clients also write (cordon, taints, published results) must not be changed without it.
	ResourceVersion string
}

// Guarded reports whether the write fails if the node has changed since it was observed.
func (c Change) Guarded() bool { return c.ResourceVersion != "" }

// Shared reports whether other clients also write what is changed.
func (c Change) Shared() bool { return c.Cordon != nil || c.Taints != nil || c.Publish != nil }

// Cordon lists the NodeJobs that a node is cordoned for.
type Cordon struct {
	// By are the keys of the NodeJobs. With none, the node is uncordoned.
	By []string
}

// Taints are all taints of a node: the API cannot write a single one.
type Taints struct {
	All []corev1.Taint
}

// Patch returns the JSON merge patch of the change.
func (c Change) Patch() []byte {
	labels, annotations, spec := map[string]any{}, map[string]any{}, map[string]any{}
	meta := map[string]any{"uid": c.UID}
	for _, key := range c.RemoveLabels {
		labels[key] = nil
	}
	c.recordInto(labels, annotations)
	if c.Publish != nil {
		c.Publish.into(labels, annotations)
	}
	if c.ResourceVersion != "" {
		meta["resourceVersion"] = c.ResourceVersion
	}
	if c.Cordon != nil {
		annotations[v1alpha1.CordonedAnnotation] = nil
		if len(c.Cordon.By) > 0 {
			annotations[v1alpha1.CordonedAnnotation] = strings.Join(c.Cordon.By, ",")
		}
		spec["unschedulable"] = len(c.Cordon.By) > 0
	}
	if c.Taints != nil {
		// An empty list instead of null, because a client cannot append to null with a JSON patch.
		spec["taints"] = append([]corev1.Taint{}, c.Taints.All...)
	}
	return patchOf(meta, map[string]map[string]any{"labels": labels, "annotations": annotations}, spec)
}

// recordInto adds the record, its seal and the label to a patch.
func (c Change) recordInto(labels, annotations map[string]any) {
	if c.Forget {
		labels[c.Key], labels[SealKey(c.Key)], annotations[c.Key] = nil, nil, nil
		return
	}
	if c.Record == nil {
		return
	}
	encoded := Encode(*c.Record)
	annotations[c.Key], labels[SealKey(c.Key)] = encoded, Seal(encoded)
	switch {
	case c.KeepLabel:
	case c.Record.Outcome.Done():
		labels[c.Key] = c.Record.Revision
	case c.DropLabel:
		labels[c.Key] = nil
	}
}

func patchOf(meta map[string]any, lists map[string]map[string]any, spec map[string]any) []byte {
	for name, values := range lists {
		if len(values) > 0 {
			meta[name] = values
		}
	}
	body := map[string]any{"metadata": meta}
	if len(spec) > 0 {
		body["spec"] = spec
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings and taints always marshal
	}
	return b
}

// maxCordonedBytes limits how much of the annotation is read: enough for more than a hundred NodeJobs.
const maxCordonedBytes = 16384

// CordonedBy returns the keys of the NodeJobs that a node is cordoned for.
func CordonedBy(annotations map[string]string) []string {
	value := annotations[v1alpha1.CordonedAnnotation]
	if value == "" {
		return nil
	}
	keys := strings.FieldsFunc(value[:min(len(value), maxCordonedBytes)], func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(keys)
	return slices.Compact(keys)
}
