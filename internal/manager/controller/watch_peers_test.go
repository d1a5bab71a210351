// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestPeerChanges checks which other NodeJobs a change of one wakes.
func TestPeerChanges(t *testing.T) {
	edited := func(j *v1alpha1.NodeJob) { j.Generation = 2 }
	tests := map[string]struct {
		// before and after are the NodeJob a; nil if it does not exist.
		before, after *v1alpha1.NodeJob
		want          string
	}{
		"a is created": {nil, called("a"), "ns/waits"},
		"a is deleted": {called("a"), nil, "ns/waits"},
		"an unrelated annotation": {
			called("a"),
			called("a", func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{"x": "y"} }),
			"",
		},
		"its counts": {
			called("a", at1("rev")),
			called("a", at1("rev"), func(j *v1alpha1.NodeJob) { j.Status.Nodes.Done = 7 }),
			"",
		},
		"its conditions": {
			called("a"),
			called("a", func(j *v1alpha1.NodeJob) { j.Status.Conditions = []metav1.Condition{{Type: "Complete"}} }),
			"",
		},
		"its revision is known": {
			called("a"),
			called("a", func(j *v1alpha1.NodeJob) { j.Status.Revision = "rev" }),
			"ns/waits",
		},
		"its spec is observed": {
			called("a"),
			called("a", func(j *v1alpha1.NodeJob) { j.Status.ObservedGeneration = 1 }),
			"ns/waits",
		},
		"its spec":                      {called("a"), called("a", edited), "ns/waits"},
		"it is being deleted":           {called("a"), called("a", deleting), "ns/waits"},
		"it depends on something":       {called("a"), called("a", needs("x"), edited), "ns/elsewhere ns/waits"},
		"it no longer has dependencies": {called("a", needs("x")), called("a", edited), "ns/elsewhere ns/waits"},
		"it is created with a gate":     {nil, called("a", gated), "ns/elsewhere ns/plain ns/shares ns/waits other/waits"},
		"it has a gate": {
			called("a"),
			called("a", gated, edited),
			"ns/elsewhere ns/plain ns/shares ns/waits other/waits",
		},
		"its gate is removed": {
			called("a", gated),
			called("a", edited),
			"ns/elsewhere ns/plain ns/shares ns/waits other/waits",
		},
		"it is deleted with its gate": {called("a", gated), nil, "ns/elsewhere ns/plain ns/shares ns/waits other/waits"},
		"another field of its gate": {
			called("a", gatedBy("x.example/shared")),
			called("a", gatedBy("x.example/shared"), edited),
			"ns/shares ns/waits",
		},
		"its spec while it has a gate": {called("a", gated), called("a", gated, edited), "ns/waits"},
		"its gate has another key": {
			called("a", gatedBy("x.example/a")),
			called("a", gatedBy("x.example/b"), edited),
			"ns/elsewhere ns/plain ns/shares ns/waits other/waits",
		},
		"its gate is shared by another": {
			called("a", gated),
			called("a", gatedBy("x.example/shared"), edited),
			"ns/elsewhere ns/plain ns/shares ns/waits other/waits",
		},
		"the status counts of a NodeJob with a gate": {
			called("a", gated),
			called("a", gated, func(j *v1alpha1.NodeJob) { j.Status.Nodes.Done = 7 }),
			"",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(
				t,
				called("plain"),
				called("waits", needs("a")),
				called("elsewhere", needs("plain")),
				called("waits", in("other"), needs("a")),
				called("shares", gatedBy("x.example/shared")),
			)
			if tt.after != nil {
				r.create(tt.after.DeepCopy())
			}
			for _, name := range []string{"ns/elsewhere", "ns/plain", "ns/shares", "ns/waits", "other/waits"} {
				namespace, name, _ := strings.Cut(name, "/")
				r.looks.looked(client.ObjectKey{Namespace: namespace, Name: name}, noon, 4*time.Millisecond)
			}
			var q recordingQueue
			r.peerChanged(t.Context(), tt.before, tt.after, &q)
			if got := q.woken(); got != tt.want {
				t.Errorf("it wakes %q, want %q", got, tt.want)
			}
			for name, wait := range q.waits {
				if wait != 500*time.Millisecond {
					t.Errorf("%s has a pass after %v, want the time for which events are gathered", name, wait)
				}
			}
		})
	}
}

// recordingQueue records what is added to it.
type recordingQueue struct {
	queue
	waits map[string]time.Duration
}

func (q *recordingQueue) AddAfter(request reconcile.Request, wait time.Duration) {
	if q.waits == nil {
		q.waits = map[string]time.Duration{}
	}
	q.waits[request.String()] = wait
}

func (q *recordingQueue) woken() string {
	return strings.Join(slices.Sorted(maps.Keys(q.waits)), " ")
}
