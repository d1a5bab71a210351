// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// Everything that is remembered about a NodeJob is forgotten with it, and everything about a node with the node. A map that is
// added to the memory belongs into this test.
func TestTheMemoryForgets(t *testing.T) {
	job, node := liveJob(), watchedNode()
	job.ResourceVersion = "1"
	name := client.ObjectKeyFromObject(job)
	record.SetOn(node, "ns.everynode.dev/job", record.Record{Revision: "rev", Outcome: record.Succeeded})
	node.Annotations[v1alpha1.PublishedAnnotation] = `{"labels":{"x.example/fact":"ns.everynode.dev/job"}}`
	m := newMemory()
	m.written.rememberStatus(job)
	for _, refusals := range []*loop.Refusals{m.refusals, m.runnerRefusals} {
		_, _ = refusals.Judge(job, []error{loop.AsRefusal(apierrors.NewForbidden(corev1.Resource("pods"), "p", nil))}, noon)
	}
	m.podForceDeleted(name, node.UID, "p", noon)
	m.scripts.seen[scriptField{job: name}] = fetchedScript{}
	m.contents.seen[contentKey{job: name}] = content{}
	m.drains.ask(name, []plan.DrainPodRequest{{Node: node.Name, UID: node.UID}})
	m.drains.looked(drainKey{name, node.Name}, nil, noon)
	m.budgets.identify(name, job.UID)
	m.podViews.read(name, []seenPod{{Pod: livePod()}})
	m.pace.Wrote(name, noon)
	m.looks.looked(name, noon, time.Second)
	written := node.DeepCopy()
	written.ResourceVersion = "2"
	m.written.showNode(node)
	m.written.rememberNode(written)
	m.nodeViews.read(node)
	m.records.published(node)
	m.records.read(node.Name, node.Labels, node.Annotations, "ns.everynode.dev/job")
	m.uncachedNodes.doubtful([]*corev1.Node{node}, noon)
	m.written.rememberStopped("pod-uid", noon)

	for path, size := range sizes(reflect.ValueOf(&m).Elem(), "") {
		if size == 0 {
			t.Errorf("nothing is stored in %s: add it to this test", path)
		}
	}
	m.forgetJob(name)
	checkStored(t, &m, "written.nodes", "written.pods", "written.shown", "written.statuses", "nodeViews.of",
		"records.publishers", "records.ids", "uncachedNodes.seen")
	m.forgetNode(node.Name)
	m.written.forgetStatus(job.UID)
	m.written.forgetPod("pod-uid")
	checkStored(t, &m)
}

func checkStored(t *testing.T, m *memory, want ...string) {
	t.Helper()
	stored := sizes(reflect.ValueOf(m).Elem(), "")
	maps.DeleteFunc(stored, func(_ string, size int) bool { return size == 0 })
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(stored)); !slices.Equal(got, want) {
		t.Errorf("something is stored in %v, want only %v", got, want)
	}
}

// sizes returns how much is in each map of a memory.
func sizes(v reflect.Value, path string) map[string]int {
	all := map[string]int{}
	switch v.Kind() {
	case reflect.Map:
		all[path] = v.Len()
	case reflect.Pointer:
		if !v.IsNil() {
			maps.Copy(all, sizes(v.Elem(), path))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if path != "" {
				name = path + "." + name
			}
			maps.Copy(all, sizes(v.Field(i), name))
		}
	default:
	}
	return all
}
