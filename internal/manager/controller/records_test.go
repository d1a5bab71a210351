// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// A decoded record is kept until the annotation, the NodeJob or the node is replaced.
func TestRecordsAreDecodedOnce(t *testing.T) {
	const key = "ns.everynode.dev/job"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Labels: map[string]string{key: "rev"},
	}}
	record.SetOn(node, key, record.Record{Revision: "rev", Outcome: record.Succeeded, Attempts: 1})
	r := newRecords()
	first := r.read(node.Name, node.Labels, node.Annotations, key)
	if again := r.read(
		node.Name,
		node.Labels,
		node.Annotations,
		key,
	); again.Record != first.Record || again.Label != "rev" ||
		!again.Present {
		t.Errorf("read again it is %+v, want the same record", again)
	}
	delete(node.Labels, key)
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record != first.Record || got.Label != "" {
		t.Errorf("without its label it is %+v", got)
	}
	record.SetOn(node, key, record.Record{Revision: "other", Outcome: record.Failed, Attempts: 2})
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record == nil || got.Record.Revision != "other" {
		t.Errorf("with another annotation it is %+v", got.Record)
	}
	seal := node.Labels[record.SealKey(key)]
	delete(node.Labels, record.SealKey(key))
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record != nil || !got.Altered {
		t.Errorf("without its seal it is %+v", got)
	}
	node.Labels[record.SealKey(key)] = seal
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record == nil || got.Altered {
		t.Errorf("with its seal again it is %+v", got)
	}
	node.Annotations[key] = "nonsense"
	for range 2 {
		if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record != nil || !got.Present {
			t.Errorf("with an invalid annotation it is %+v", got)
		}
	}
	delete(node.Annotations, key)
	delete(node.Labels, record.SealKey(key))
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Present {
		t.Errorf("without an annotation it is %+v", got)
	}
	for name, forget := range map[string]func(){"the NodeJob": func() { r.forget(key) }, "the node": func() { r.forgetNode("n") }} {
		node.Annotations[key] = "nonsense"
		r.read(node.Name, node.Labels, node.Annotations, key)
		forget()
		if seen := r.seen[key]; seen != nil && len(seen.on) != 0 {
			t.Errorf("%s is deleted, and %v is kept", name, r.seen)
		}
	}
}

// TestRecordsAreThoseOfThePureReader changes labels and annotations of nodes at random.
func TestRecordsAreThoseOfThePureReader(t *testing.T) {
	keys := []string{"ns.everynode.dev/a", "ns.everynode.dev/b"}
	for seed := range int64(200) {
		rng := rand.New(rand.NewSource(seed))
		r := newRecords()
		nodes := []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}
		for step := range 40 {
			i, key := rng.Intn(len(nodes)), keys[rng.Intn(len(keys))]
			node := nodes[i].DeepCopy()
			nodes[i] = node
			switch rng.Intn(9) {
			case 0, 1, 2:
				record.SetOn(
					node,
					key,
					record.Record{
						Revision: fmt.Sprint("r", rng.Intn(3)),
						Outcome:  record.Succeeded,
						Attempts: int32(rng.Intn(3)),
						BootID:   fmt.Sprint(rng.Intn(2)),
					},
				)
			case 3:
				metav1.SetMetaDataLabel(&node.ObjectMeta, key, fmt.Sprint("r", rng.Intn(3)))
			case 4:
				delete(node.Labels, key)
			case 5:
				delete(node.Labels, record.SealKey(key))
			case 6:
				metav1.SetMetaDataLabel(&node.ObjectMeta, record.SealKey(key), "")
			case 7:
				delete(node.Annotations, key)
			case 8:
				metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, "nonsense")
			}
			for _, key := range keys {
				want, got := record.Read(node.Labels, node.Annotations, key), r.read(node.Name, node.Labels, node.Annotations, key)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf(
						"seed %d, step %d: of %s with %v and %v (-without cache +with):\n%s",
						seed,
						step,
						key,
						node.Labels,
						node.Annotations,
						diff,
					)
				}
			}
		}
	}
}

// Each event of a node brings new strings. A decoded record must not refer to the strings of an earlier event,
// or each record would be in memory twice.
func TestDecodedRecordsHoldTheNewestStrings(t *testing.T) {
	const key = "ns.everynode.dev/job"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	record.SetOn(node, key, record.Record{Revision: "rev", Outcome: record.Succeeded, Attempts: 1})
	node.Annotations[v1alpha1.PublishedAnnotation] = `{"labels":{"x.example/a":"` + key + `"}}`
	r := newRecords()
	for range 2 {
		node = node.DeepCopy()
		for k, v := range node.Annotations {
			node.Annotations[k] = strings.Clone(v)
		}
		for k, v := range node.Labels {
			node.Labels[k] = strings.Clone(v)
		}
		r.read(node.Name, node.Labels, node.Annotations, key)
		r.published(node)
	}
	for what, pair := range map[string][2]string{
		"record":    {r.seen[key].on["n"].value, node.Annotations[key]},
		"seal":      {r.seen[key].on["n"].seal, node.Labels[record.SealKey(key)]},
		"published": {r.publishers["n"].value, node.Annotations[v1alpha1.PublishedAnnotation]},
	} {
		if unsafe.StringData(pair[0]) != unsafe.StringData(pair[1]) {
			t.Errorf("the %s is not the string of the newest event", what)
		}
	}
}

func TestRecordsShareStrings(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	rec := record.Record{Revision: "rev", Outcome: record.Failed, Attempts: 1, BootID: "boot", MachineID: "machine"}
	r := newRecords()
	read := func(node *corev1.Node, key string) *record.Record {
		record.SetOn(node, key, rec)
		return r.read(node.Name, node.Labels, node.Annotations, key).Record
	}
	first, second := read(node, "ns.everynode.dev/a"), read(node, "ns.everynode.dev/b")
	third := read(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, "ns.everynode.dev/a")
	for what, pair := range map[string][2]string{
		"boot IDs of a node":      {first.BootID, second.BootID},
		"machine IDs of a node":   {first.MachineID, second.MachineID},
		"revisions of a NodeJob":  {first.Revision, third.Revision},
		"outcomes of all records": {string(second.Outcome), string(third.Outcome)},
	} {
		if pair[0] == "" || unsafe.StringData(pair[0]) != unsafe.StringData(pair[1]) {
			t.Errorf("the %s are two strings: %q", what, pair)
		}
	}
	rec.BootID, rec.Revision = "next", "next"
	if got := read(
		node,
		"ns.everynode.dev/a",
	); got.BootID != "next" || got.Revision != "next" || second.BootID != "boot" ||
		third.Revision != "rev" {
		t.Errorf("after a change they are %+v, %+v, %+v", got, second, third)
	}
	if r.forgetNode("n"); len(r.ids) != 1 {
		t.Errorf("the IDs of %d nodes are kept, want 1", len(r.ids))
	}
}
