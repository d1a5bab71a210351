// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/kube"
)

func BenchmarkNext(b *testing.B) {
	for _, nodes := range []int{1000, 15000} {
		in := scene()
		in.Nodes, in.Target.Pods, in.Companions = nil, nil, nil
		in.Budgets[0].MinAvailable = int32(nodes)
		for i := range nodes {
			name := fmt.Sprint("n", i)
			in.Nodes = append(in.Nodes, kube.Node{Name: name, UID: types.UID(name), Ready: true})
			in.Target.Pods = append(in.Target.Pods, TargetPod{Node: name, Ready: true})
			in.Companions = append(
				in.Companions,
				Pod{
					Name:     name,
					Node:     name,
					Owner:    "guard",
					Revision: "r1",
					Created:  t0.Add(-time.Hour),
					Phase:    corev1.PodRunning,
					Ready:    true,
				},
			)
		}
		in.Nodes[nodes/2].Unschedulable = true
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			for b.Loop() {
				if p := Next(in); len(p.Moves) != 1 {
					b.Fatal(p.Moves)
				}
			}
		})
	}
}
