// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
)

// shownCache is a cache without an API server behind it: it answers lists as the manager's cache does, with objects that are
// shared. Its client is nil, so any other request panics.
type shownCache struct {
	client.Client
	jobs  []v1alpha1.NodeJob
	nodes []corev1.Node
	pods  []corev1.Pod
}

func (c *shownCache) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetName(key.Name) // the namespace
	return nil
}

func (c *shownCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.NodeJobList:
		list.Items = append(list.Items, c.jobs...)
	case *corev1.NodeList:
		list.Items = append(list.Items, c.nodes...)
	case *corev1.PodList:
		list.Items = append(list.Items, c.pods...)
	default:
		return fmt.Errorf("unexpected list of %T", list)
	}
	return nil
}

// BenchmarkPass measures a pass over a NodeJob without its writes: observe and plan. The states are those of
// plan.BenchmarkNext.
func BenchmarkPass(b *testing.B) {
	for _, state := range []string{"empty", "half done", "all done"} {
		for _, size := range []int{100, 1000, 5000, 15000} {
			b.Run(strings.ReplaceAll(fmt.Sprintf("%s/%d", state, size), " ", "-"), func(b *testing.B) {
				r, job := benchReconciler(b, size, state)
				pass := func() {
					seen, err := r.observe(b.Context(), job, nil)
					if err != nil {
						b.Fatal(err)
					}
					plan.Next(seen.input)
				}
				pass() // decodes the records
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				passes := 0
				for b.Loop() {
					pass()
					passes++
				}
				runtime.ReadMemStats(&after)
				each := float64(passes) * float64(size)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/each, "ns/node")
				b.ReportMetric(float64(after.Mallocs-before.Mallocs)/each, "allocs/node")
				b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/each, "B/node")
			})
		}
	}
}

func benchReconciler(b *testing.B, size int, state string) (*Reconciler, *v1alpha1.NodeJob) {
	b.Helper()
	job := liveJob()
	shown := &shownCache{}
	r := New(shown, shown, &recorder{}, NewMetrics(prometheus.NewRegistry()), task.Options{RunnerImage: "registry.example/runner"})
	r.Now = func() time.Time { return noon.Add(time.Hour) }
	source, _, err := r.source(b.Context(), job)
	if err != nil {
		b.Fatal(err)
	}
	revision := task.Revision(&job.Spec, source)
	for i := range size {
		node := benchNode(i)
		switch {
		case state == "all done", state == "half done" && i < size/2:
			node.Labels["ns.everynode.dev/job"] = revision
			record.SetOn(node, "ns.everynode.dev/job", record.Record{
				Revision: revision, Outcome: record.Succeeded, Attempts: 1, StartedAt: noon, FinishedAt: noon,
				Results: map[string]string{"kernel": "6.12"}, PodUID: types.UID("gone-" + node.Name), BootID: "boot", MachineID: "machine",
			})
		case state == "half done" && i%2 == 0:
			pod := benchPod(job, source, node)
			pod.ResourceVersion = "1" // as of a pod that the API server has stored
			shown.pods = append(shown.pods, *pod)
		}
		shown.nodes = append(shown.nodes, *stripNode(node))
	}
	seen, err := r.observe(b.Context(), job, nil)
	if err != nil {
		b.Fatal(err)
	}
	job.Status = plan.Next(seen.input).Status
	shown.jobs = []v1alpha1.NodeJob{*job}
	return r, job
}

func benchNode(i int) *corev1.Node {
	name := fmt.Sprintf("node-%05d", i)
	node := watchedNode()
	node.Name, node.UID, node.CreationTimestamp = name, types.UID(name+"-uid"), at(0)
	node.Labels = map[string]string{"pool": "a", corev1.LabelHostname: name}
	for l := range 12 {
		node.Labels[fmt.Sprintf("label.example/%d", l)] = "value"
	}
	node.Annotations = map[string]string{"node.alpha.kubernetes.io/ttl": "0"}
	node.Spec.Taints = nil
	return node
}

func benchPod(job *v1alpha1.NodeJob, source task.Source, node *corev1.Node) *corev1.Pod {
	pod := task.Pod(job, source, task.Attempt{
		Phase: task.Task, Revision: task.Revision(&job.Spec, source), Number: 1, NodeName: node.Name, NodeUID: node.UID,
	}, task.Options{RunnerImage: "registry.example/runner"})
	pod.UID, pod.CreationTimestamp = types.UID(node.Name+"-pod"), metav1.NewTime(noon.Add(time.Hour-10*time.Second))
	pod.Status.Phase = corev1.PodRunning
	return stripPod(seal.Key{}, pod)
}
