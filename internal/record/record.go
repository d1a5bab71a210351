// Package record is what a Node carries for a NodeJob: a label that is there only when the node is
// done, and an annotation of the same key with the outcome of the last attempt.
//
// The record is the only lasting memory of Everynode. It dies with its Node, so nothing has to
// collect it, and a user can read it, select on it and take it away. The package is pure.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/outcome"
)

// MaxBytes bounds an encoded record. All annotations of an object together may have 256 KiB, so a
// node has room for dozens of NodeJobs.
const MaxBytes = 6144

// Outcome is how the last attempt ended.
type Outcome string

const (
	// Succeeded : the node is done with the record's revision.
	Succeeded Outcome = "Succeeded"
	// Failed : the attempt counts against retry.limit.
	Failed Outcome = "Failed"
	// Disrupted : something else ended the attempt, so it counts as none.
	Disrupted Outcome = "Disrupted"
)

// Record is the content of the annotation.
type Record struct {
	// Revision that the last attempt ran.
	Revision string `json:"revision"`
	// Outcome of the last attempt.
	Outcome Outcome `json:"outcome"`
	// Attempts of this run that count: failures, and the success.
	Attempts int32 `json:"attempts"`
	// Disruptions in a row since the last attempt that counts.
	Disruptions int32 `json:"disruptions,omitempty"`
	// StartedAt is when the last attempt began, in whole seconds.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// FinishedAt is when the last attempt ended, in whole seconds. Backoff counts from it.
	FinishedAt time.Time `json:"finishedAt"`
	// ExitCode of the last attempt; nil when it never ended by itself.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Reason in one word, "" for a success.
	Reason string `json:"reason,omitempty"`
	// Message is the end of what the last attempt printed, or why it did not end by itself.
	Message string `json:"message,omitempty"`
	// Results that the task wrote.
	Results map[string]string `json:"results,omitempty"`
	// Truncated is true when results were left out or cut.
	Truncated bool `json:"truncated,omitempty"`
	// BootID and MachineID of the node when the attempt ended.
	BootID    string `json:"bootID,omitempty"`
	MachineID string `json:"machineID,omitempty"`
	// PodUID is the pod of the last attempt. It tells a pod that is recorded from one that is not,
	// also when both have the same name because the user asked for another run.
	PodUID types.UID `json:"podUID"`
}

// Encode returns the annotation's value: JSON of at most MaxBytes, control characters escaped. What
// does not fit is dropped, the message first and then the results; the outcome never is.
func Encode(r Record) string {
	r.StartedAt, r.FinishedAt = wholeSeconds(r.StartedAt), wholeSeconds(r.FinishedAt)
	r.Reason = outcome.Clean(r.Reason, 128)
	r.Message = outcome.Clean(r.Message, outcome.MaxMessageBytes)
	for _, shorten := range []func(){
		func() {},
		func() { r.Message = outcome.Clean(r.Message, 256) },
		func() { r.Results, r.Truncated = nil, true },
	} {
		shorten()
		if encoded := marshal(r); len(encoded) <= MaxBytes {
			return encoded
		}
	}
	return marshal(Record{
		Revision: r.Revision, Outcome: r.Outcome, Attempts: r.Attempts, Disruptions: r.Disruptions,
		FinishedAt: r.FinishedAt, PodUID: r.PodUID,
	})
}

// marshal leaves <, > and & as they are: escaped, they would take six times the room, at the cost of
// results that fit, and nobody could read them on the node.
func marshal(r Record) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		panic(err) // the only fields that may fail to marshal are the times, of which wholeSeconds takes care
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// wholeSeconds is t as a record tells it. A node's clock may show a year that JSON has no form for.
func wholeSeconds(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Second)
	if t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// ErrNoRecord is returned for a value that is no record. A user may have written anything there.
var ErrNoRecord = errors.New("not a record")

// Decode reads an annotation's value. The error wraps ErrNoRecord.
func Decode(value string) (Record, error) {
	if len(value) > 4*MaxBytes {
		return Record{}, fmt.Errorf("%w: %d bytes", ErrNoRecord, len(value))
	}
	var r Record
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrNoRecord, err)
	}
	switch r.Outcome {
	case Succeeded, Failed, Disrupted:
	default:
		return Record{}, fmt.Errorf("%w: outcome %q", ErrNoRecord, outcome.Clean(string(r.Outcome), 32))
	}
	if r.Revision == "" || r.Attempts < 0 || r.Disruptions < 0 {
		return Record{}, fmt.Errorf("%w: revision %q, %d attempts", ErrNoRecord, outcome.Clean(r.Revision, 32), r.Attempts)
	}
	return r, nil
}

// OnNode is what a node carries under one key.
type OnNode struct {
	// Label is the revision that the node is done with, "" when there is no label. It is there by our
	// record of a success, or because a user says so.
	Label string
	// Record is nil when there is no annotation, or none that can be read.
	Record *Record
	// Present is true when there is anything under the key, readable or not.
	Present bool
}

// Read returns what labels and annotations of a node hold under key.
func Read(labels, annotations map[string]string, key string) OnNode {
	label, labelled := labels[key]
	value, annotated := annotations[key]
	on := OnNode{Label: label, Present: labelled || annotated}
	if r, err := Decode(value); annotated && err == nil {
		on.Record = &r
	}
	return on
}

// Patch is the JSON merge patch that writes r under key on the node with that UID. A success sets
// the label; dropLabel takes away one that is not true any more. The API server rejects the patch
// when the Node was made anew meanwhile, since its UID is another.
func Patch(uid types.UID, key string, r Record, dropLabel bool) []byte {
	meta := map[string]any{
		"uid":         uid,
		"annotations": map[string]any{key: Encode(r)},
	}
	switch {
	case r.Outcome == Succeeded:
		meta["labels"] = map[string]any{key: r.Revision}
	case dropLabel:
		meta["labels"] = map[string]any{key: nil}
	}
	return patch(meta)
}

// ForgetPatch is the JSON merge patch that takes everything under key off the node with that UID.
func ForgetPatch(uid types.UID, key string) []byte {
	return patch(map[string]any{
		"uid":         uid,
		"labels":      map[string]any{key: nil},
		"annotations": map[string]any{key: nil},
	})
}

func patch(meta map[string]any) []byte {
	b, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		panic(err) // maps of strings always marshal
	}
	return b
}
