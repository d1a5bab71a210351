package record

import (
	"encoding/json"
	"slices"
	"strings"

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
	// Record to be written; nil leaves the one that is there. A success sets the label.
	Record *Record
	// DropLabel takes away a label that is not true any more.
	DropLabel bool
	// Forget takes label and annotation away.
	Forget bool
	// Cordon changes whom the node is cordoned for; nil leaves that as it is.
	Cordon *Cordon
	// ResourceVersion of the node that the change was made from: the write fails on another one. "" where
	// that does not matter.
	ResourceVersion string
}

// Guarded is true when the write fails on a node that has changed since it was seen.
func (c Change) Guarded() bool { return c.Cordon != nil || c.ResourceVersion != "" }

// Cordon is whom a node is cordoned for.
type Cordon struct {
	// ResourceVersion of the node that the decision was made on: the write fails on another one, since
	// somebody may have cordoned the node meanwhile.
	ResourceVersion string
	// By are the keys of the NodeJobs. With none, the node is uncordoned.
	By []string
}

// Patch is the JSON merge patch of the change.
func (c Change) Patch() []byte {
	labels, annotations := map[string]any{}, map[string]any{}
	meta := map[string]any{"uid": c.UID}
	body := map[string]any{"metadata": meta}
	switch {
	case c.Forget:
		labels[c.Key], annotations[c.Key] = nil, nil
	case c.Record != nil:
		annotations[c.Key] = Encode(*c.Record)
		if c.Record.Outcome == Succeeded {
			labels[c.Key] = c.Record.Revision
		} else if c.DropLabel {
			labels[c.Key] = nil
		}
	}
	if c.ResourceVersion != "" {
		meta["resourceVersion"] = c.ResourceVersion
	}
	if c.Cordon != nil {
		meta["resourceVersion"] = c.Cordon.ResourceVersion
		annotations[v1alpha1.CordonedAnnotation] = nil
		if len(c.Cordon.By) > 0 {
			annotations[v1alpha1.CordonedAnnotation] = strings.Join(c.Cordon.By, ",")
		}
		body["spec"] = map[string]any{"unschedulable": len(c.Cordon.By) > 0}
	}
	for name, values := range map[string]map[string]any{"labels": labels, "annotations": annotations} {
		if len(values) > 0 {
			meta[name] = values
		}
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // maps of strings always marshal
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
