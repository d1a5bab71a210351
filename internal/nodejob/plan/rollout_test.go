// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
)

func TestMaxConcurrent(t *testing.T) {
	number, percent := intstr.FromInt32, intstr.FromString
	tests := map[string]struct {
		value   *intstr.IntOrString
		matched int
		want    int
	}{
		"a quarter without a value":                             {nil, 40, 10},
		"a number":                                              {new(number(3)), 40, 3},
		"a number larger than the cluster":                      {new(number(300)), 40, 300},
		"a percentage":                                          {new(percent("50%")), 40, 20},
		"a percentage is rounded down":                          {new(percent("50%")), 5, 2},
		"a percentage is at least one node":                     {new(percent("1%")), 5, 1},
		"a percentage is at least one node in an empty cluster": {new(percent("25%")), 0, 1},
		"all nodes":                                             {new(percent("100%")), 7, 7},
		"a value that the API rejects is one node":              {new(percent("many")), 40, 1},
		"a number below one is one":                             {new(number(0)), 40, 1},
		"a percentage below one is one":                         {new(percent("-5%")), 40, 1},
		"a percentage of 15,000 nodes":                          {new(percent("100%")), 15_000, maxSlots},
		"a number above the maximum":                            {new(number(1001)), 15_000, maxSlots},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := maxConcurrent(v1alpha1.RolloutSpec{MaxConcurrent: tt.value}, tt.matched); got != tt.want {
				t.Errorf("%d nodes at once, want %d", got, tt.want)
			}
		})
	}
}

// TestJoinedAfterStable tests which nodes take no slot.
func TestJoinedAfterStable(t *testing.T) {
	for name, tt := range map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node []func(*Node)
		want bool
	}{
		"it joined after the revision became stable":  {stableSince(600), []func(*Node){made(599)}, true},
		"it joined when the revision became stable":   {stableSince(600), []func(*Node){made(600)}, false},
		"it joined before the revision became stable": {stableSince(600), []func(*Node){made(601)}, false},
		"the revision is not stable":                  {func(*v1alpha1.NodeJob) {}, []func(*Node){made(599)}, false},
		"an attempt has failed":                       {stableSince(600), []func(*Node){made(599), recorded(record.Failed)}, true},
		"it was done":                                 {stableSince(600), []func(*Node){made(599), succeeded(60)}, false},
		"it was done, and an attempt has failed":      {stableSince(600), []func(*Node){made(599), recorded(record.Failed, func(r *record.Record) { r.Rerun = true })}, false},
		"it was done with another revision":           {stableSince(600), []func(*Node){made(599), labelled("old")}, false},
		"it has no taint of the gate":                 {stableSince(600), []func(*Node){made(599), withTaints()}, false},
	} {
		node := newNode("n", append([]func(*Node){withTaints(ownTaint)}, tt.node...)...)
		ro := rolloutOf(see(newJob(gated(v1alpha1.GateSpec{}), tt.job), []Node{node}))
		if got := ro.joinedAfterStable(&node); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// While the revision is not known, it is not known which nodes have run it, and the rollout stays where it is.
func TestARolloutWithUnknownRevisionStaysWhereItIs(t *testing.T) {
	in := see(newJob(), []Node{newNode("n")})
	in.Revision, in.Obstacle = "", &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "it is missing"}
	if got := Next(in).Steps; len(got[0].Nodes) > 0 {
		t.Errorf("steps %+v, want none with nodes", got)
	}
}

func TestAStableRolloutDoesNotWaitForADependency(t *testing.T) {
	job := newJob(stableSince(600))
	job.Status.ControllerState.Rollout.WaitingForDependencySince = metav1.NewTime(ago(60))
	if got := Next(see(job, []Node{newNode("n")})).Status.ControllerState.Rollout.WaitingForDependencySince; !got.IsZero() {
		t.Errorf("waiting since %v", got)
	}
}

// TestNodesThatHaveSoaked tests which nodes status.controllerState.rollout.soakedNodes lists.
func TestNodesThatHaveSoaked(t *testing.T) {
	done := recorded(record.Succeeded)
	notReady := func(n *Node) { n.Ready = corev1.ConditionFalse }
	job := newJob(
		inSteps(poolB(60), rest),
		mayFailNodes(1),
		promotedTo("b"),
		inStep("b", soakingFor(60), func(r *rolloutState) { r.NotReadyBefore = []types.UID{"before-uid"} }),
	)
	nodes := []Node{
		newNode("failed", inPool("b"), recorded(record.Failed, attempts(2))),
		newNode("before", inPool("b"), done, notReady),
		newNode("z"),
	}
	want := make([]types.UID, 0, maxSoakedNodes)
	for i := range maxSoakedNodes + 1 {
		nodes = append(nodes, newNode(fmt.Sprintf("n%02d", i), inPool("b"), done))
		want = append(want, nodes[len(nodes)-1].UID)
	}
	if diff := cmp.Diff(want[:maxSoakedNodes], Next(see(job, nodes)).Status.ControllerState.Rollout.SoakedNodes); diff != "" {
		t.Errorf("with one more than are listed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:2], Next(see(job, nodes[:5])).Status.ControllerState.Rollout.SoakedNodes); diff != "" {
		t.Errorf("with two (-want +got):\n%s", diff)
	}
	begins := newJob(inSteps(poolB(60), rest), inStep("b"))
	if diff := cmp.Diff(want[:2], Next(see(begins, nodes[3:5])).Status.ControllerState.Rollout.SoakedNodes); diff != "" {
		t.Errorf("when the soak begins (-want +got):\n%s", diff)
	}
}

// TestNodesThatASoakWaitsFor tests which nodes of a step that are not Ready prevent its soak, or fail in it, and whether the step is
// alive without them.
func TestNodesThatASoakWaitsFor(t *testing.T) {
	done := recorded(record.Succeeded)
	due := recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(3600) })
	soaking := soakingFor(20)
	before := func(r *rolloutState) { r.NotReadyBefore = []types.UID{"n-uid"} }
	some := first(intstr.FromInt32(1))
	for name, tt := range map[string]struct {
		step         v1alpha1.RolloutStep
		status       []func(*rolloutState)
		node         []func(*Node)
		runs         bool
		waits, alive bool
	}{
		"it was Ready before":                                  {step: rest, node: []func(*Node){done}, waits: true},
		"it turned NotReady in the soak":                       {step: rest, status: []func(*rolloutState){soaking}, node: []func(*Node){done}, waits: true},
		"it joined in the soak":                                {step: rest, status: []func(*rolloutState){soaking}, node: []func(*Node){done, made(9)}},
		"it has failed":                                        {step: rest, status: []func(*rolloutState){soaking}, node: []func(*Node){recorded(record.Failed, attempts(2))}, alive: true},
		"it runs the task again":                               {step: rest, node: []func(*Node){due}, runs: true, alive: true},
		"a user has skipped it":                                {step: rest, node: []func(*Node){labelled(rev)}},
		"it was not Ready before either":                       {step: rest, status: []func(*rolloutState){before}, node: []func(*Node){done}, waits: true},
		"it was not Ready before either, and the step soaks":   {step: rest, status: []func(*rolloutState){before, soaking}, node: []func(*Node){done}},
		"it joined in the step":                                {step: rest, status: []func(*rolloutState){before}, node: []func(*Node){done, made(9)}},
		"it joined in the step, which needs a number of nodes": {step: some, status: []func(*rolloutState){before}, node: []func(*Node){done, made(9)}, waits: true},
		"it is removed":                                        {step: rest, status: []func(*rolloutState){before}, node: []func(*Node){done, func(n *Node) { n.Deleting = true }}},
	} {
		node := newNode("n", append(tt.node, func(n *Node) { n.Ready = corev1.ConditionFalse })...)
		var pods []Pod
		if tt.runs {
			pods = []Pod{newPod(node)}
		}
		ro := rolloutOf(see(newJob(inSteps(tt.step), periodSeconds(60), inStep(tt.step.Name, tt.status...)), []Node{node}, pods...))
		ro.steps[0].nodes = []int{0}
		if waits, alive := len(ro.notReady(&ro.steps[0])) > 0, ro.isAlive(&ro.steps[0]); waits != tt.waits || alive != tt.alive {
			t.Errorf("%s: waits %t, alive %t, want %t, %t", name, waits, alive, tt.waits, tt.alive)
		}
	}
}

// Of a step without a Ready node that is done, only nodes that are done are waited for.
func TestASoakWaitsForNodesThatAreDone(t *testing.T) {
	leaving := func(n *Node) { n.Deleting, n.Ready = true, corev1.ConditionFalse }
	nodes := []Node{newNode("a", recorded(record.Succeeded), leaving), newNode("b", recorded(record.Failed, attempts(2)))}
	ro := rolloutOf(see(newJob(inSteps(rest), inStep("rest", soakingFor(20))), nodes))
	if diff := cmp.Diff([]int{0}, ro.checkReady(&ro.steps[0])); diff != "" || !ro.status.SoakingSince.IsZero() {
		t.Errorf("soaking since %v, nodes (-want +got):\n%s", ro.status.SoakingSince, diff)
	}
}

func TestStartWithinLimit(t *testing.T) {
	two := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromInt32(2)) })
	third := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromString("34%")) })
	start := func(names ...string) (words []string) {
		for _, name := range names {
			words = append(words, fmt.Sprintf("start attempt 1 of rev on %s", name))
		}
		return words
	}
	due := func(name string, seconds int) Node {
		return newNode(name, recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(seconds) }))
	}
	a, b, c, d := newNode("a"), newNode("b"), newNode("c"), newNode("d")
	tainted := newNode("t", func(n *Node) { n.Taints = []corev1.Taint{busy} })
	tests := map[string]struct {
		in          Input
		want        []string
		wantWaiting map[string]string
	}{
		"nodes start in the order of their names": {
			in:   see(two, []Node{d, b, a, c}),
			want: start("a", "b"),
			wantWaiting: map[string]string{
				"c": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time",
				"d": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time",
			},
		},
		"a running attempt has its slot": {
			in: see(two, []Node{a, b, c}, newPod(c)), want: start("a"),
			wantWaiting: map[string]string{"b": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"an ended attempt has its slot until its outcome is recorded": {
			in:   see(two, []Node{a, b, c, d}, newPod(c, exited(0)), newPod(d)),
			want: []string{"record Succeeded on c: attempts 1, disruptions 0"},
			wantWaiting: map[string]string{
				"a": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time",
				"b": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time",
			},
		},
		"a node that becomes unreachable during an attempt has its slot": {
			in: see(
				two,
				[]Node{a, b, newNode("c", func(n *Node) { n.Ready = corev1.ConditionUnknown })},
				newPod(b),
				newPod(newNode("c")),
			),
			wantWaiting: map[string]string{"a": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"a pod of an earlier revision has its slot": {
			in: see(
				two,
				[]Node{a, b, c},
				newPod(a, func(p *Pod) { p.Revision = "old" }),
				newPod(b, func(p *Pod) { p.Revision = "old" }),
			),
			wantWaiting: map[string]string{"c": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"nothing starts while more nodes run than a lowered limit": {
			in:          see(two, []Node{a, b, c, d}, newPod(a), newPod(b), newPod(c)),
			wantWaiting: map[string]string{"d": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"done and failed nodes have no slot": {
			in: see(
				two,
				[]Node{newNode("a", recorded(record.Succeeded)), newNode("b", recorded(record.Failed, attempts(2))), c, d},
			),
			want: start("c", "d"),
		},
		"a percentage refers to matching nodes": {
			in:   see(third, []Node{a, b, c, tainted, tainted, tainted}),
			want: start("a"),
			wantWaiting: map[string]string{
				"b": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time",
				"c": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time",
			},
		},
		"a node that is no longer selected has its slot while it runs": {
			in:          see(two, []Node{a, b, tainted}, newPod(tainted), newPod(b)),
			wantWaiting: map[string]string{"a": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"nodes that rerun start in the order of their last run": {
			in:   see(newJob(oneAtOnce, periodSeconds(60)), []Node{due("a", 300), due("b", 900), due("c", 600)}),
			want: start("b"),
			wantWaiting: map[string]string{
				"a": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time",
				"c": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time",
			},
		},
		"nodes with a problem that only the manager knows start in the order of their last try": {
			in: func() Input {
				in := see(newJob(oneAtOnce, periodSeconds(60)), []Node{a, due("b", 900)})
				in.NodeProblems = map[types.UID]NodeProblem{
					a.UID: {Why: hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(1)}, Since: ago(60)},
				}
				return in
			}(), want: start("b"),
			wantWaiting: map[string]string{"a": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time"},
		},
		"a single start tests whether the API server still rejects pods": {
			in: func() Input {
				in := see(two, []Node{a, b})
				in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(1)}
				return in
			}(), want: start("a"),
			wantWaiting: map[string]string{"b": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(tt.in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			var waiting map[string]string
			for _, n := range p.Nodes {
				if n.State == Waiting {
					if waiting == nil {
						waiting = map[string]string{}
					}
					waiting[n.Name] = n.Message
				}
			}
			if diff := cmp.Diff(tt.wantWaiting, waiting); diff != "" {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
		})
	}
}
