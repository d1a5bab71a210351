// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// records caches what was decoded from the nodes' annotations. A pass reads every node, and nearly all of them are
// unchanged: decoding them again would be most of the cost of a pass over thousands of nodes.
//
// Each event of a node contains a copy of all its annotations. The cached strings are those of the newest copy, so that
// older copies can be freed.
type records struct {
	mu sync.Mutex
	// seen holds what was decoded, by the record's key.
	seen map[string]*decodedRecords
	// publishers holds the publishers of labels and annotations, by the node's name.
	publishers map[string]*decodedPublished
	// ids are the boot ID and machine ID of the last record of a node: most of its records have the same.
	ids map[string]*machineIDs
}

type machineIDs struct{ boot, machine string }

// decodedRecords are the records under one key.
type decodedRecords struct {
	sealKey string
	// revision is that of the last decoded record. Most records have the same.
	revision string
	// on holds the decoded values, by the node's name.
	on map[string]*decoded
}

// decodedPublished is shared by all passes and read-only.
type decodedPublished struct {
	value     string
	published record.Published
}

// decoded is what record.Read has returned for a value and its seal. The record in it is shared by all passes and read-only.
type decoded struct {
	value, seal string
	on          record.NodeRecord
}

func newRecords() records {
	return records{seen: map[string]*decodedRecords{}, publishers: map[string]*decodedPublished{}, ids: map[string]*machineIDs{}}
}

// read is record.Read with a cache.
func (r *records) read(node string, labels, annotations map[string]string, key string) record.NodeRecord {
	value, annotated := annotations[key]
	if !annotated {
		r.drop(node, key)
		return record.Read(labels, annotations, key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen[key]
	if seen == nil {
		seen = &decodedRecords{sealKey: record.SealKey(key), on: map[string]*decoded{}}
		r.seen[key] = seen
	}
	seal, sealed := labels[seen.sealKey]
	known := seen.on[node]
	if known == nil || known.value != value || known.seal != seal || known.on.Sealed != sealed {
		on := record.Read(labels, annotations, key)
		r.share(node, seen, on.Record)
		known = &decoded{on: on}
		seen.on[node] = known
	}
	known.value, known.seal = value, seal
	on := known.on
	on.Label = labels[key]
	return on
}

// share replaces strings of a newly decoded record with those of others. A hundred thousand records are a large part of
// the manager's memory.
func (r *records) share(node string, seen *decodedRecords, rec *record.Record) {
	if rec == nil {
		return
	}
	ids := r.ids[node]
	if ids == nil {
		ids = &machineIDs{}
		r.ids[node] = ids
	}
	for _, pair := range []struct{ is, shared *string }{{&rec.BootID, &ids.boot}, {&rec.MachineID, &ids.machine}, {&rec.Revision, &seen.revision}} {
		if *pair.is == *pair.shared {
			*pair.is = *pair.shared
		} else {
			*pair.shared = *pair.is
		}
	}
	for _, outcome := range []record.Outcome{record.Succeeded, record.Failed, record.Disrupted, record.Rebooting, record.Needed, record.Expired} {
		if rec.Outcome == outcome {
			rec.Outcome = outcome
		}
	}
}

// drop forgets what was decoded under a key of a node.
func (r *records) drop(node, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seen := r.seen[key]; seen != nil {
		delete(seen.on, node)
	}
}

// published is record.ReadPublished with a cache.
func (r *records) published(node *corev1.Node) record.Published {
	value := node.Annotations[v1alpha1.PublishedAnnotation]
	if value == "" {
		return record.Published{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.publishers[node.Name]
	if known == nil || known.value != value {
		known = &decodedPublished{published: record.ReadPublished(node.Annotations)}
		r.publishers[node.Name] = known
	}
	known.value = value
	return known.published
}

// forget deletes what was stored for a NodeJob.
func (r *records) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, key)
}

// forgetNode deletes what was stored for a node.
func (r *records) forgetNode(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, seen := range r.seen {
		delete(seen.on, name)
	}
	delete(r.publishers, name)
	delete(r.ids, name)
}
