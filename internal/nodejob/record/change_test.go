// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	jsonpatch "gopkg.in/evanphx/json-patch.v4" // as the API server applies it
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeOfOthers has other entries that a careless patch would change: the same prefix, the same name in another domain,
// another NodeJob's record.
func nodeOfOthers() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: "node-uid", ResourceVersion: "42", Finalizers: []string{"other.example/keep"},
			Labels: map[string]string{
				"kubernetes.io/hostname": "n1", "ns.everynode.dev/other": "rev", "ns.everynode.dev/job-2": "rev", "job": "rev", "ns": "x",
			},
			Annotations: map[string]string{
				"node.alpha.kubernetes.io/ttl": "0", "ns.everynode.dev/other": "{}", "other.everynode.dev/job": "{}",
			},
		},
		Spec: corev1.NodeSpec{
			Unschedulable: true,
			Taints:        []corev1.Taint{{Key: "other.example/busy", Value: "yes", Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func apply(t *testing.T, node *corev1.Node, patch []byte) *corev1.Node {
	t.Helper()
	before, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		t.Fatalf("%v, applying %s", err, patch)
	}
	patched := &corev1.Node{}
	if err := json.Unmarshal(after, patched); err != nil {
		t.Fatal(err)
	}
	return patched
}

func TestPatchesChangeOnlyOwnKeys(t *testing.T) {
	const key = "ns.everynode.dev/job"
	of := func(o Outcome) Record {
		r := whole()
		r.Outcome = o
		return r
	}
	labelled := func(node *corev1.Node) { node.Labels[key] = "earlier" }
	annotated := func(node *corev1.Node) {
		node.Annotations[key], node.Labels[SealKey(key)] = "earlier", Seal("earlier")
	}
	tests := map[string]struct {
		before []func(*corev1.Node)
		patch  []byte
		want   func(*corev1.Node)
	}{
		"a success sets label and annotation": {
			patch: Change{UID: "node-uid", Key: key, Record: new(of(Succeeded)), DropLabel: false}.Patch(),
			want: func(n *corev1.Node) {
				n.Labels[key] = whole().Revision
				SetOn(n, key, of(Succeeded))
			},
		},
		"a success overwrites an earlier one": {
			before: []func(*corev1.Node){labelled, annotated},
			patch:  Change{UID: "node-uid", Key: key, Record: new(of(Succeeded)), DropLabel: false}.Patch(),
			want: func(n *corev1.Node) {
				n.Labels[key] = whole().Revision
				SetOn(n, key, of(Succeeded))
			},
		},
		"a success sets the label even if DropLabel is set": {
			before: []func(*corev1.Node){labelled},
			patch:  Change{UID: "node-uid", Key: key, Record: new(of(Succeeded)), DropLabel: true}.Patch(),
			want: func(n *corev1.Node) {
				n.Labels[key] = whole().Revision
				SetOn(n, key, of(Succeeded))
			},
		},
		"a failure removes a label that is no longer correct": {
			before: []func(*corev1.Node){labelled, annotated},
			patch:  Change{UID: "node-uid", Key: key, Record: new(of(Failed)), DropLabel: true}.Patch(),
			want:   func(n *corev1.Node) { SetOn(n, key, of(Failed)) },
		},
		"a failure without a label": {
			patch: Change{UID: "node-uid", Key: key, Record: new(of(Failed)), DropLabel: true}.Patch(),
			want:  func(n *corev1.Node) { SetOn(n, key, of(Failed)) },
		},
		"a disruption leaves the label of an earlier revision": {
			before: []func(*corev1.Node){labelled},
			patch:  Change{UID: "node-uid", Key: key, Record: new(of(Disrupted)), DropLabel: false}.Patch(),
			want: func(n *corev1.Node) {
				n.Labels[key] = "earlier"
				SetOn(n, key, of(Disrupted))
			},
		},
		"a node is cordoned with its record": {
			patch: Change{
				UID:             "node-uid",
				Key:             key,
				Record:          new(of(Failed)),
				ResourceVersion: "42",
				Cordon:          &Cordon{By: []string{key, "ns.everynode.dev/other"}},
			}.Patch(),
			want: func(n *corev1.Node) {
				SetOn(n, key, of(Failed))
				n.Annotations["everynode.dev/cordoned-by"] = "ns.everynode.dev/job,ns.everynode.dev/other"
			},
		},
		"a node is uncordoned with its record": {
			before: []func(*corev1.Node){func(n *corev1.Node) { n.Annotations["everynode.dev/cordoned-by"] = key }},
			patch:  Change{UID: "node-uid", Key: key, Record: new(of(Succeeded)), ResourceVersion: "42", Cordon: &Cordon{}}.Patch(),
			want: func(n *corev1.Node) {
				n.Labels[key] = whole().Revision
				SetOn(n, key, of(Succeeded))
				n.Spec.Unschedulable = false
			},
		},
		"a node is released while another NodeJob has cordoned it": {
			before: []func(*corev1.Node){
				func(n *corev1.Node) { n.Annotations["everynode.dev/cordoned-by"] = key + ",ns.everynode.dev/other" },
			},
			patch: Change{
				UID:             "node-uid",
				Key:             key,
				Forget:          true,
				ResourceVersion: "42",
				Cordon:          &Cordon{By: []string{"ns.everynode.dev/other"}},
			}.Patch(),
			want: func(n *corev1.Node) { n.Annotations["everynode.dev/cordoned-by"] = "ns.everynode.dev/other" },
		},
		"Forget removes label and annotation": {
			before: []func(*corev1.Node){labelled, annotated},
			patch:  Change{UID: "node-uid", Key: key, Forget: true}.Patch(),
			want:   func(*corev1.Node) {},
		},
		"Forget without a record changes nothing": {
			patch: Change{UID: "node-uid", Key: key, Forget: true}.Patch(),
			want:  func(*corev1.Node) {},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before, want := nodeOfOthers(), nodeOfOthers()
			for _, change := range tt.before {
				change(before)
			}
			tt.want(want)
			if diff := cmp.Diff(want, apply(t, before, tt.patch)); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatchesWorkWithoutLabelsAndAnnotations(t *testing.T) {
	const key = "ns.everynode.dev/job"
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}
	got := apply(t, bare, Change{UID: "node-uid", Key: key, Record: new(whole()), DropLabel: true}.Patch())
	if read := Read(got.Labels, got.Annotations, key); read.Record == nil || read.Label != "" {
		t.Errorf("labels %v, annotations %v", got.Labels, got.Annotations)
	}
	got = apply(t, bare, Change{UID: "node-uid", Key: key, Forget: true}.Patch())
	if len(got.Labels)+len(got.Annotations) != 0 {
		t.Errorf("labels %v, annotations %v, want none", got.Labels, got.Annotations)
	}
}

// The API server returns a conflict for a patch that would change a UID, so a node that was recreated with the same
// name is never written to.
func TestPatchesHaveUIDOfNode(t *testing.T) {
	for name, patch := range map[string][]byte{
		"record": Change{UID: "uid-1", Key: "key", Record: new(whole()), DropLabel: false}.Patch(),
		"forget": Change{UID: "uid-1", Key: "key", Forget: true}.Patch(),
	} {
		t.Run(name, func(t *testing.T) {
			if got := apply(t, nodeOfOthers(), patch).UID; got != "uid-1" {
				t.Errorf("UID %q, want that of the patch", got)
			}
		})
	}
}

// A cordon is decided on the observed node: the API server rejects it on a node that has changed since.
func TestCordonHasResourceVersion(t *testing.T) {
	cordon := Change{UID: "uid-1", Key: "key", ResourceVersion: "41", Cordon: &Cordon{By: []string{"key"}}}.Patch()
	if got := apply(t, nodeOfOthers(), cordon).ResourceVersion; got != "41" {
		t.Errorf("resource version %q, want that of the patch", got)
	}
	record := Change{UID: "uid-1", Key: "key", Record: new(whole())}.Patch()
	if got := apply(t, nodeOfOthers(), record).ResourceVersion; got != "42" {
		t.Errorf("resource version %q: a record alone does not conflict with other writers", got)
	}
}

func TestGuarded(t *testing.T) {
	if (Change{}).Guarded() || !(Change{ResourceVersion: "41"}).Guarded() {
		t.Error("a change does not depend on the version of its node, or one without a version does")
	}
}

func TestPatchesContainOnlyChanges(t *testing.T) {
	for want, change := range map[string]Change{
		`{"metadata":{"labels":{"a":null},"uid":"u"}}`:    {RemoveLabels: []string{"a"}},
		`{"metadata":{"uid":"u"},"spec":{"taints":[]}}`:   {Taints: &Taints{}},
		`{"metadata":{"resourceVersion":"41","uid":"u"}}`: {ResourceVersion: "41"},
	} {
		change.UID = "u"
		if got := string(change.Patch()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestCordonedBy(t *testing.T) {
	tests := map[string]struct {
		value string
		want  []string
	}{
		"no NodeJob":                        {"", nil},
		"one NodeJob":                       {"ns.everynode.dev/a", []string{"ns.everynode.dev/a"}},
		"several NodeJobs in another order": {"b,a", []string{"a", "b"}},
		"one NodeJob twice":                 {"a,a", []string{"a"}},
		"text that a user has typed":        {" a, b ,", []string{"a", "b"}},
		"a megabyte":                        {strings.Repeat("a", 1<<20), []string{strings.Repeat("a", maxCordonedBytes)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := CordonedBy(map[string]string{"everynode.dev/cordoned-by": tt.value})
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}
