// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/everynode/everynode/internal/outcome"
)

// maxNoteBytes limits the note of an event. The API allows 1 kB.
const maxNoteBytes = 1000

// Event sends one event with a note that is cleaned and limited. related may be nil.
func Event(to events.EventRecorder, regarding, related runtime.Object, kind, reason, action, note string) {
	to.Eventf(regarding, related, kind, reason, action, "%s", outcome.CleanHead(note, maxNoteBytes))
}

// Node returns a node with the fields that an event needs.
func Node(name string, uid types.UID) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid},
	}
}

// RecordEvent sends one event about the object, and one about the node.
func RecordEvent(to events.EventRecorder, o runtime.Object, node *corev1.Node, kind, reason, action, note string) {
	Event(to, o, node, kind, reason, action, note)
	Event(to, node, o, kind, reason, action, note)
}
