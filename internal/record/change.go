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

// Change is one write to a node: what belongs together is written together, so that a manager that
// dies leaves no half of it.
type Change struct {
	// UID of the Node. The API server rejects the write when the Node was made anew meanwhile.
	UID types.UID
	// Key of the NodeJob.
	Key string
	// Record to be written, with its seal; nil leaves the one that is there. A success sets the label.
	Record *Record
	// DropLabel takes away a label that is not true any more.
	DropLabel bool
	// KeepLabel leaves the label as it is although the record is of a success: it skips a later revision.
	KeepLabel bool
	// Forget removes the label, the annotation and its seal.
	Forget bool
	// RemoveLabels are other labels to be taken away.
	RemoveLabels []string
	// Cordon changes whom the node is cordoned for; nil leaves that as it is.
	Cordon *Cordon
	// Taints are all that the node is to have; nil leaves those that it has.
	Taints *Taints
	// Facts are labels and annotations that are published; nil leaves them as they are.
	Facts *Facts
	// ResourceVersion of the node that the change was made from: the write fails on another one. "" where
	// that does not matter. What others write too (cordon, taints, facts) must not be changed without it.
	ResourceVersion string
}

// Guarded is true when the write fails on a node that has changed since it was seen.
func (c Change) Guarded() bool { return c.ResourceVersion != "" }

// Shared is true when the change is of something that others write, too.
func (c Change) Shared() bool { return c.Cordon != nil || c.Taints != nil || c.Facts != nil }

// Cordon is whom a node is cordoned for.
type Cordon struct {
	// By are the keys of the NodeJobs. With none, the node is uncordoned.
	By []string
}

// Taints are all taints of a node: the API has no write for one of them.
type Taints struct {
	All []corev1.Taint
}

// Patch is the JSON merge patch of the change.
func (c Change) Patch() []byte {
	labels, annotations, spec := map[string]any{}, map[string]any{}, map[string]any{}
	meta := map[string]any{"uid": c.UID}
	for _, key := range c.RemoveLabels {
		labels[key] = nil
	}
	c.recordInto(labels, annotations)
	if c.Facts != nil {
		c.Facts.into(labels, annotations)
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
		// An empty list and not null, which would be no list for whoever adds to it by a JSON patch.
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
	case c.Record.Outcome == Succeeded:
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

// maxCordonedBytes bounds what is read of the annotation: room for more than a hundred NodeJobs.
const maxCordonedBytes = 16384

// CordonedBy returns the keys of the NodeJobs that a node is cordoned for.
func CordonedBy(annotations map[string]string) []string {
	value := annotations[v1alpha1.CordonedAnnotation]
	if len(value) > maxCordonedBytes {
		value = value[:maxCordonedBytes]
	}
	keys := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(keys)
	return slices.Compact(keys)
}
