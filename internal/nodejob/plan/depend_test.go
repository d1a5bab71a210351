// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestDependsOn tests whether a task starts on a node, depending on what another NodeJob has done there.
func TestDependsOn(t *testing.T) {
	const depends = "ns.everynode.dev/dep"
	label := func(value string) func(*Node) {
		return func(n *Node) { n.Labels = map[string]string{"pool": "a", depends: value} }
	}
	dep := func(changes ...func(*Peer)) Peer {
		p := Peer{Name: "dep", Key: depends, Revision: "d2", OnMachineChange: true}
		for _, change := range changes {
			change(&p)
		}
		return p
	}
	was := func(machine, boot string) record.Record {
		return record.Record{Revision: "d2", Outcome: record.Succeeded, MachineID: machine, BootID: boot}
	}
	inPoolB := func(p *Peer) { p.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}} }
	suspended := func(p *Peer) { p.Suspended = true }
	onReboot := func(p *Peer) { p.OnReboot = true }
	tests := map[string]struct {
		dep  Peer
		node Node
		// on is the record of the dependency on the node; without an outcome there is none.
		on     record.Record
		starts bool
	}{
		"it is done there":                    {dep(), newNode("n", label("d2")), was("n-machine", "n-boot"), true},
		"a user has set its label":            {dep(), newNode("n", label("d2")), record.Record{}, true},
		"it has not run there":                {dep(), newNode("n"), record.Record{}, false},
		"it is done with an earlier revision": {dep(), newNode("n", label("d1")), record.Record{}, false},
		"an earlier revision is enough with rerun.onRevisionChange: false": {
			dep(func(p *Peer) { p.AnyRevision = true }),
			newNode("n", label("d1")),
			record.Record{},
			true,
		},
		"its revision is not known": {
			dep(func(p *Peer) { p.Revision = "" }),
			newNode("n", label("d1")),
			record.Record{},
			false,
		},
		"it is suspended, has never run, and does not select the node": {dep(inPoolB, suspended), newNode("n"), record.Record{}, false},
		"it is suspended and has run, and does not select the node": {
			dep(
				inPoolB,
				suspended,
			),
			newNode("n", func(n *Node) { n.Labels = map[string]string{"pool": "a"} }),
			was("n-machine", "n-boot"),
			true,
		},
		"it is suspended, and a kubelet has written its label without a record": {
			dep(inPoolB, suspended),
			newNode("n", label("d2")),
			record.Record{},
			false,
		},
		"it does not select the node": {dep(inPoolB), newNode("n"), record.Record{}, true},
		"its selector is invalid": {
			dep(func(p *Peer) { p.Selector = badSelector() }),
			newNode("n"),
			record.Record{},
			true,
		},
		"it does not tolerate a taint of the node": {dep(), newNode("n", withTaints(busy)), record.Record{}, true},
		"it does not tolerate a taint of a joining node": {
			dep(),
			newNode("n", made(5), withTaints(busy)),
			record.Record{},
			false,
		},
		"its revision is not known, and it has not run there": {
			dep(func(p *Peer) { p.Revision = "" }),
			newNode("n"),
			record.Record{},
			false,
		},
		"it has not run there, with rerun.onRevisionChange: false": {
			dep(func(p *Peer) { p.AnyRevision = true }),
			newNode("n"),
			record.Record{},
			false,
		},
		"a user has skipped it while it reran another revision": {
			dep(),
			newNode("n", label("d2")),
			record.Record{Revision: "d3", Outcome: record.Disrupted, Rerun: true},
			true,
		},
		"it reruns after a reboot, and there was none": {
			dep(onReboot),
			newNode("n", label("d2")),
			was("n-machine", "n-boot"),
			true,
		},
		"it does not tolerate a transient taint": {
			dep(),
			newNode("n", withTaints(taint(transientTaints[0], "true", "NoSchedule"))),
			record.Record{},
			false,
		},
		"it tolerates the taint of the node": {
			dep(func(p *Peer) { p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }),
			newNode("n", withTaints(busy)),
			record.Record{},
			false,
		},
		"it was done on another machine": {
			dep(),
			newNode("n", label("d2")),
			was("gone", "n-boot"),
			false,
		},
		"another machine does not matter with rerun.onMachineChange: false": {
			dep(func(p *Peer) { p.OnMachineChange = false }),
			newNode("n", label("d2")),
			was("gone", "n-boot"),
			true,
		},
		"it reruns after a reboot": {
			dep(onReboot),
			newNode("n", label("d2")),
			was("n-machine", "before"),
			false,
		},
		"it does not rerun after a reboot": {
			dep(),
			newNode("n", label("d2")),
			was("n-machine", "before"),
			true,
		},
		"its rerun continues": {
			dep(),
			newNode("n", label("d2")),
			record.Record{Revision: "d2", Outcome: record.Disrupted, Rerun: true},
			false,
		},
		"it failed and was skipped": {
			dep(),
			newNode("n", label("d2")),
			record.Record{Revision: "d2", Outcome: record.Failed},
			true,
		},
		"its record is of another revision": {
			dep(),
			newNode("n", label("d2")),
			record.Record{Revision: "d3", Outcome: record.Disrupted},
			true,
		},
	}
	tolerant := func(j *v1alpha1.NodeJob) {
		j.Spec.Nodes.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(tolerant), []Node{tt.node})
			in.DependsOn = []Peer{tt.dep}
			readOnPeers(&in)
			if tt.on.Outcome != "" {
				in.Nodes[0].OnPeers[0].Record = &tt.on
			}
			p := Next(in)
			if got := len(p.Actions) == 1; got != tt.starts {
				t.Errorf("actions %v, %+v; want a start: %v", told(p), p.Nodes[0], tt.starts)
			}
			want := "NodeJob dep (spec.dependsOn) must be done on it before"
			if tt.dep.Suspended {
				want = "NodeJob dep (spec.dependsOn) is suspended, and has never run. Resume it, or remove it from spec.dependsOn"
			}
			if st := p.Nodes[0]; !tt.starts && (st.Reason != v1alpha1.ReasonWaitingForDependency || st.Message != want) {
				t.Errorf("%+v, want %s", st, v1alpha1.ReasonWaitingForDependency)
			}
		})
	}
}

func badSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
}

// Nodes that are done, running attempts and rollbacks do not wait for a dependency.
func TestDependencyDelaysOnlyStarts(t *testing.T) {
	undo := func(j *v1alpha1.NodeJob) {
		j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	}
	runs := newNode("runs")
	in := see(
		newJob(undo),
		[]Node{newNode("done", labelled(rev)), newNode("failed", recorded(record.Failed, attempts(2))), runs},
		newPod(runs, exited(0)),
	)
	in.DependsOn = []Peer{{Name: "dep", Key: "ns.everynode.dev/dep", Revision: "d"}}
	readOnPeers(&in)
	want := []string{"record Succeeded on runs: attempts 1, disruptions 0", "start rollback 1 of rev on failed"}
	if diff := cmp.Diff(want, told(Next(in))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

func TestDependencyCycle(t *testing.T) {
	tests := map[string]struct {
		needs map[string][]string
		want  []string
	}{
		"no cycle":                         {map[string][]string{"a": {"b", "c"}, "b": {"c"}}, nil},
		"a cycle of two":                   {map[string][]string{"a": {"b"}, "b": {"a"}}, []string{"a", "b", "a"}},
		"a NodeJob that depends on itself": {map[string][]string{"a": {"a"}}, []string{"a", "a"}},
		"a cycle through the second of several dependencies": {
			map[string][]string{"a": {"x", "b"}, "x": {"y"}, "b": {"y", "c"}, "c": {"a"}},
			[]string{"a", "b", "c", "a"},
		},
		"a cycle that the NodeJob is not part of": {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}, nil},
		"a dependency that does not exist":        {map[string][]string{"a": {"gone"}}, nil},
		"two paths to the same dependency are no cycle": {
			map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": {"e"}},
			nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, FindCycle("a", tt.needs)); diff != "" {
				t.Errorf("cycle (-want +got):\n%s", diff)
			}
		})
	}
}

// A user who can write NodeJobs can make a chain of them as long as a quota allows. Each pass of each of them searches
// for a cycle.
func TestCostOfLongDependencyChain(t *testing.T) {
	chain := func(length int) map[string][]string {
		needs := map[string][]string{}
		for i := range length {
			needs[fmt.Sprint(i)] = []string{fmt.Sprint(i + 1), "0"}
		}
		return needs
	}
	// The least of several measurements, because others of the process may allocate at the same time.
	bytes := func(length int) uint64 {
		needs, least := chain(length), uint64(math.MaxUint64)
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if FindCycle(fmt.Sprint(length-1), needs) == nil {
				t.Fatal("no cycle found")
			}
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		return least
	}
	if short, long := bytes(100), bytes(1000); long > 30*short {
		t.Errorf("a chain ten times as long takes %d bytes instead of %d", long, short)
	}
}
