// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// benchSizes range from a small cluster to the largest supported one.
var benchSizes = []int{100, 1000, 5000, 15000}

// BenchmarkNext is one plan over all nodes of a cluster. The cost per node must not grow with their number.
//
//	empty      no node has started, and a quarter may: the plan with the most starts
//	half done  half is done, and a quarter runs, of which one in ten has just ended
//	all done   idle
func BenchmarkNext(b *testing.B) {
	kinds := map[string][]func(*v1alpha1.NodeJob, *Input){
		"plain":            nil,
		"gate and publish": {gateAndPublish},
		"ten peers":        {tenPeers},
		"all of it":        {gateAndPublish, tenPeers},
		"five steps":       {fiveSteps},
	}
	for _, kind := range []string{"plain", "gate and publish", "ten peers", "all of it", "five steps"} {
		for _, state := range []string{"empty", "half done", "all done"} {
			for _, size := range benchSizes {
				b.Run(strings.ReplaceAll(fmt.Sprintf("%s/%s/%d", kind, state, size), " ", "-"), func(b *testing.B) {
					in := benchInput(size, state)
					for _, change := range kinds[kind] {
						change(in.Job, &in)
					}
					perNode(b, size, func() { Next(in) })
				})
			}
		}
	}
}

// perNode reports the cost of a function per node.
func perNode(b *testing.B, nodes int, do func()) {
	b.Helper()
	do() // one-time costs of the first call
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	passes := 0
	for b.Loop() {
		do()
		passes++
	}
	runtime.ReadMemStats(&after)
	each := float64(passes) * float64(nodes)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/each, "ns/node")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/each, "allocs/node")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/each, "B/node")
}

func benchInput(size int, state string) Input {
	job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromString("25%")) })
	in := see(job, make([]Node, 0, size))
	for i := range size {
		node := newNode(fmt.Sprintf("node-%05d", i), benchNode)
		switch {
		case state == "all done", state == "half done" && i < size/2:
			recorded(record.Succeeded)(&node)
			node.Labels["ns.everynode.dev/job"] = rev
		case state == "half done" && i%2 == 0:
			pod := newPod(node)
			if i%20 == 0 {
				exited(0)(&pod)
			}
			in.Pods = append(in.Pods, pod)
		}
		in.Nodes = append(in.Nodes, node)
	}
	// As after a pass: conditions, steps and counts are there.
	job.Status = Next(in).Status
	return in
}

// benchNode has as many labels and annotations as a node of a cloud.
func benchNode(n *Node) {
	n.Created = ago(3600)
	n.Annotations = map[string]string{"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	for i := range 12 {
		n.Labels[fmt.Sprintf("label.example/%d", i)] = "value"
	}
	n.Labels[corev1.LabelHostname] = n.Name
}

func gateAndPublish(j *v1alpha1.NodeJob, in *Input) {
	j.Spec.Gate = &v1alpha1.GateSpec{}
	j.Spec.Publish = []v1alpha1.PublishedResult{
		{Result: "kernel", Label: "x.example/kernel"},
		{Result: "found", Annotation: "x.example/found"},
	}
	in.GateKeys = []string{v1alpha1.GateKey(j)}
	gate := corev1.Taint{Key: v1alpha1.GateKey(j), Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule}
	for i := range in.Nodes {
		node := &in.Nodes[i]
		if node.On.Record == nil {
			node.Taints = []corev1.Taint{gate}
			continue
		}
		node.On.Record.Results = map[string]string{"kernel": "6.12", "found": "65530"}
		node.Labels["x.example/kernel"], node.Annotations["x.example/found"] = "6.12", "65530"
		node.Published = record.Published{
			Labels:      map[string]string{"x.example/kernel": "ns.everynode.dev/job"},
			Annotations: map[string]string{"x.example/found": "ns.everynode.dev/job"},
		}
	}
	j.Status = Next(*in).Status
}

// tenPeers are five NodeJobs that this one depends on, and five that share its gate, where it has one; all are done
// on every node.
func tenPeers(j *v1alpha1.NodeJob, in *Input) {
	for p := range 10 {
		peer := Peer{Name: fmt.Sprintf("peer-%d", p), Key: fmt.Sprintf("ns.everynode.dev/peer-%d", p), Revision: rev, OnMachineChange: true}
		if p < 5 {
			j.Spec.DependsOn = append(j.Spec.DependsOn, peer.Name)
			in.DependsOn = append(in.DependsOn, peer)
		} else if j.Spec.Gate != nil {
			in.GatePeers = append(in.GatePeers, peer)
		}
		for i := range in.Nodes {
			node := &in.Nodes[i]
			node.Labels[peer.Key] = rev
			node.OnPeers = append(node.OnPeers, record.NodeRecord{Label: rev, Present: true, Record: &record.Record{
				Revision: rev, Outcome: record.Succeeded, Attempts: 1, BootID: node.BootID, MachineID: node.MachineID,
			}})
		}
	}
	j.Status = Next(*in).Status
}

func fiveSteps(j *v1alpha1.NodeJob, in *Input) {
	share := func(name, nodes string) v1alpha1.RolloutStep {
		return v1alpha1.RolloutStep{Name: name, Nodes: new(intstr.FromString(nodes))}
	}
	j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{
		{Name: "canary", Nodes: new(intstr.FromInt32(1))}, share("few", "5%"), share("some", "20%"), share("most", "50%"), {Name: "all"},
	}
	j.Status = Next(*in).Status
}
