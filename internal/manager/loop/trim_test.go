// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

func namespaceMetadata(name, label string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.EnabledLabel: label}},
	}
}

// A user of a namespace that is not allowed can create objects of a megabyte each.
func TestSpecsInNamespacesThatAreNotAllowedAreNotCached(t *testing.T) {
	trimmer := NewTrimmer()
	transform := trimmer.Transform(func(o any) (any, error) { return o, nil })
	cached := func(o client.Object) client.Object {
		t.Helper()
		is, err := transform(o)
		if err != nil {
			t.Fatal(err)
		}
		return is.(client.Object)
	}
	job := func(namespace, revision string) *v1alpha1.NodeJob {
		j := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "j"}}
		j.Spec.Task.Script = strings.Repeat("x", 1000)
		j.Status.Revision = revision
		return cached(j).(*v1alpha1.NodeJob)
	}
	guard := func(namespace string) *v1alpha1.NodeGuard {
		g := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "g"}}
		g.Spec.Target.DaemonSet, g.Spec.Release.Approval = "disks", v1alpha1.ApprovalRequired
		return cached(g).(*v1alpha1.NodeGuard)
	}
	cached(namespaceMetadata("allowed", v1alpha1.EnabledValue))
	cached(namespaceMetadata("closed", ""))
	for name, tt := range map[string]struct {
		o    metav1.Object
		has  bool
		want bool
	}{
		"a NodeJob in an allowed namespace":              {job("allowed", ""), job("allowed", "").Spec.Task.Script != "", false},
		"a NodeJob in a namespace that is not allowed":   {job("closed", ""), job("closed", "").Spec.Task.Script != "", true},
		"a NodeJob that was served before":               {job("closed", "r1"), job("closed", "r1").Spec.Task.Script != "", false},
		"a NodeJob in a namespace that is not known":     {job("new", ""), job("new", "").Spec.Task.Script != "", false},
		"a NodeGuard in an allowed namespace":            {guard("allowed"), guard("allowed").Spec.Release.Approval != "", false},
		"a NodeGuard in a namespace that is not allowed": {guard("closed"), guard("closed").Spec.Release.Approval != "", true},
	} {
		if IsTrimmed(tt.o) != tt.want || tt.has == tt.want {
			t.Errorf("%s: trimmed: %v, has its spec: %v", name, IsTrimmed(tt.o), tt.has)
		}
	}
	if guard("closed").Spec.Target.DaemonSet != "disks" {
		t.Error("the DaemonSet of a NodeGuard is not cached")
	}
	cached(namespaceMetadata("closed", v1alpha1.EnabledValue))
	if IsTrimmed(job("closed", "")) || IsTrimmed(guard("closed")) {
		t.Error("the namespace is allowed, and its objects are trimmed")
	}
}

func TestOnlySomeObjectsThatAreNotServedGetAStatus(t *testing.T) {
	n := NewNotServed("everynode_test", "")
	name := func(i int) client.ObjectKey { return client.ObjectKey{Namespace: "ns", Name: fmt.Sprint(i)} }
	for round := range 2 {
		for i := range maxReported + 5 {
			if got, want := n.Add(name(i)), i < maxReported; got != want {
				t.Fatalf("round %d: object %d gets a status: %v", round, i, got)
			}
		}
	}
	n.Remove(name(0))
	if !n.Add(name(maxReported)) || n.Add(name(maxReported+1)) {
		t.Error("a place that is free again is not used, or is used twice")
	}
	if got := len(n.known); got != maxReported+4 {
		t.Errorf("%d objects are counted", got)
	}
}

// A user of an allowed namespace can create many NodeJobs of a megabyte each, or let small ones grow.
func TestSpecsOfANamespaceAreBoundedTogether(t *testing.T) {
	trimmer := NewTrimmer()
	transform := trimmer.Transform(func(o any) (any, error) { return o, nil })
	job := func(namespace, name string, size int) *v1alpha1.NodeJob {
		t.Helper()
		j := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		j.Spec.Task.Command = []string{strings.Repeat("x", size)}
		j.Spec.Gate = &v1alpha1.GateSpec{Key: "a/b"}
		j.Status.Revision = "r"
		is, err := transform(j)
		for range 2 { // as informers do
			if err == nil {
				is, err = transform(is)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return is.(*v1alpha1.NodeJob)
	}
	var cached, full int
	for i := range 300 {
		j := job("ns", fmt.Sprint(i), 3*MaxSpecs/8)
		cached += sizeOf(j)
		if trimmer.LacksRoom(j) != IsTrimmed(j) {
			t.Fatalf("NodeJob %d is trimmed: %v", i, IsTrimmed(j))
		}
		if IsTrimmed(j) {
			full++
			if j.Spec.Gate == nil || j.Spec.Gate.Key != "a/b" {
				t.Fatal("others do not see the gate")
			}
		}
	}
	if full != 298 || cached > MaxSpecs+300*1024 {
		t.Errorf("%d bytes are cached, and %d NodeJobs are not", cached, full)
	}
	if IsTrimmed(job("other", "a", MaxSpecs/2)) {
		t.Error("another namespace has no room")
	}
	waits := job("ns", "waits", MaxSpecs/4+1024)
	trimmer.Forget(client.ObjectKey{Namespace: "ns", Name: "0"})
	if trimmer.LacksRoom(waits) {
		t.Error("a NodeJob that is gone makes no room")
	}
	if job("ns", "small", 10); !IsTrimmed(job("ns", "small", MaxSpecs)) {
		t.Error("a NodeJob that has grown is cached")
	}
	large := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "selector"}}
	large.Spec.Nodes.Names, large.Spec.Task.Command = []string{strings.Repeat("x", MaxSpecs)}, []string{"a"}
	if is, err := transform(large); err != nil || sizeOf(is) > 1024 {
		t.Errorf("%d bytes of a large selector are cached, %v", sizeOf(is), err)
	}
	var none *Trimmer
	if none.Forget(client.ObjectKey{}); none.LacksRoom(waits) {
		t.Error("without limits there is no room")
	}
}
