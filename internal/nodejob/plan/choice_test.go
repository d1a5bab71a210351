// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
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

// rolloutOf is the rollout after the nodes were assessed and assigned to the steps.
func rolloutOf(in Input) *rollout {
	p := newPlanner(in)
	for i := range p.nodes {
		p.assessor.assessNode(&p.nodes[i])
	}
	p.rollout.countFailed()
	p.rollout.assignSteps()
	return p.rollout
}

// inStep is a NodeJob in a step that started 300 seconds ago.
func inStep(name string, changes ...func(*rolloutState)) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Status.Revision = rev
		stateOf(name, changes...).write(&j.Status)
	}
}

// stateOf is the state of a rollout in a step that started 300 seconds ago.
func stateOf(step string, changes ...func(*rolloutState)) rolloutState {
	state := rolloutState{RolloutStatus: v1alpha1.RolloutStatus{Step: step, StepStartedAt: metav1.NewTime(ago(300))}}
	for _, change := range changes {
		change(&state)
	}
	return state
}

func soakingFor(seconds int) func(*rolloutState) {
	return func(r *rolloutState) { r.SoakingSince = metav1.NewTime(ago(seconds)) }
}

// Nodes that joined since the current step started do not enlarge it, but later steps.
func TestNodesThatAPercentageRefersTo(t *testing.T) {
	nodes := []Node{newNode("a", made(900)), newNode("b", made(300)), newNode("c", made(299))}
	for name, tt := range map[string]struct {
		job  func(*v1alpha1.NodeJob)
		k    int
		want int
	}{
		"the current step":   {inStep("first"), 0, 2},
		"a later step":       {inStep("first"), 1, 3},
		"before the rollout": {func(*v1alpha1.NodeJob) {}, 0, 3},
	} {
		ro := rolloutOf(see(newJob(inSteps(first(intstr.FromInt32(1)), rest), tt.job), nodes))
		if got := (chooser{ro}).base(tt.k, []int{0, 1, 2}); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// TestNodesThatAStepMayChoose tests which nodes a step with a number of nodes may choose.
func TestNodesThatAStepMayChoose(t *testing.T) {
	soaks := first(intstr.FromInt32(2))
	soaks.SoakSeconds = 60
	second := v1alpha1.RolloutStep{Name: "second", Nodes: new(intstr.FromInt32(2))}
	skipped := func(n *Node) { recorded(record.Failed)(n); labelled(rev)(n) }
	nodes := []Node{
		newNode("ran", recorded(record.Succeeded), made(900)),
		newNode("skipped", skipped, made(900)),
		newNode("fresh", made(22)),
		newNode("joined", made(21)),
	}
	for name, tt := range map[string]struct {
		k     int
		fresh []int
	}{
		"the step that soaks": {0, []int{2}},
		"the step after it":   {1, []int{2, 3}},
	} {
		ro := rolloutOf(see(newJob(inSteps(soaks, second, rest), inStep("first", soakingFor(20))), nodes))
		ro.steps[tt.k].nodes = []int{0, 1, 2, 3}
		ran, fresh := (chooser{ro}).choices(tt.k)
		if diff := cmp.Diff([][]int{{0}, tt.fresh}, [][]int{ran, fresh}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnotherNodeTakesThePlaceOfOneWithoutProgress(t *testing.T) {
	nodes := []Node{
		newNode("a", recorded(record.Succeeded)),
		newNode("b", recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(7200) })),
		newNode("c"),
		newNode("d"),
	}
	ro := rolloutOf(see(newJob(inSteps(first(intstr.FromInt32(2)), rest)), nodes))
	if diff := cmp.Diff([]int{0, 1, 2}, ro.steps[0].nodes); diff != "" {
		t.Errorf("nodes of the step (-want +got):\n%s", diff)
	}
}

// TestNodesThatLeaveASoak tests for which nodes of a step others take their places because they are removed.
func TestNodesThatLeaveASoak(t *testing.T) {
	soaks := first(intstr.FromInt32(2))
	soaks.SoakSeconds = 60
	leaving := func(n *Node) { n.Deleting, n.Ready = true, corev1.ConditionFalse }
	due := recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(3600) })
	for name, tt := range map[string]struct {
		steps []v1alpha1.RolloutStep
		job   func(*v1alpha1.NodeJob)
		node  func(*Node)
		runs  bool
		k     int
		want  bool
	}{
		"before the soak":                 {[]v1alpha1.RolloutStep{soaks, rest}, inStep("first"), due, false, 0, true},
		"after the soak":                  {[]v1alpha1.RolloutStep{soaks, rest}, inStep("first", func(r *rolloutState) { r.SoakedAt = metav1.NewTime(ago(9)) }), due, false, 0, false},
		"without a soak":                  {[]v1alpha1.RolloutStep{first(intstr.FromInt32(2)), rest}, inStep("first"), due, false, 0, false},
		"in another step":                 {[]v1alpha1.RolloutStep{soaks, rest}, inStep("rest"), due, false, 0, false},
		"it is not done":                  {[]v1alpha1.RolloutStep{soaks, rest}, inStep("first"), recorded(record.Failed), false, 0, false},
		"the task runs again on the node": {[]v1alpha1.RolloutStep{soaks, rest}, inStep("first"), due, true, 0, false},
	} {
		node := newNode("n", tt.node, leaving)
		var pods []Pod
		if tt.runs {
			pods = []Pod{newPod(node)}
		}
		ro := rolloutOf(see(newJob(inSteps(tt.steps...), periodSeconds(60), tt.job), []Node{node}, pods...))
		if got := (chooser{ro}).leavesSoak(tt.k, 0); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestANodeJoinsInASoakFromTheSecondInWhichItStarts(t *testing.T) {
	ro := rolloutOf(
		see(
			newJob(inSteps(rest), inStep("rest", soakingFor(20))),
			[]Node{newNode("a", made(22)), newNode("b", made(21)), newNode("c", made(20))},
		),
	)
	if got := []bool{
		(chooser{ro}).joinedInSoak(0),
		(chooser{ro}).joinedInSoak(1),
		(chooser{ro}).joinedInSoak(2),
	}; !slices.Equal(
		got,
		[]bool{false, true, true},
	) {
		t.Errorf("%v", got)
	}
}

// TestRankOfCanaries tests the order in which a step selects nodes.
func TestRankOfCanaries(t *testing.T) {
	plain, failed := newNode("n"), recorded(record.Failed, attempts(2))
	reboots := rebootingAs(v1alpha1.RebootAlways)
	for name, tt := range map[string]struct {
		job              func(*v1alpha1.NodeJob)
		node             Node
		own              string
		rank, stickiness int
	}{
		"any node":                                    {reboots, plain, "", 2, 3},
		"any node without maintenance":                {func(*v1alpha1.NodeJob) {}, plain, "", 2, 0},
		"the node of the manager":                     {reboots, plain, "n", 34, 3},
		"the node of the manager without maintenance": {func(*v1alpha1.NodeJob) {}, plain, "n", 2, 0},
		"the node of the manager with a confirmation": {
			func(j *v1alpha1.NodeJob) { j.Spec.Confirm = &v1alpha1.ConfirmSpec{} }, plain, "n", 34, 0,
		},
		"a quarantined node":                     {reboots, newNode("n", failed, cordonedBy(jobKey)), "", 0, 1},
		"a quarantined node that has its seat":   {reboots, newNode("seated", failed, cordonedBy(jobKey)), "", 1, 2},
		"a quarantined node without maintenance": {func(*v1alpha1.NodeJob) {}, newNode("n", failed, cordonedBy(jobKey)), "", 2, 0},
		"a node that is done":                    {reboots, newNode("n", recorded(record.Succeeded)), "", 2, 0},
	} {
		in := see(newJob(tt.job), []Node{tt.node})
		in.Budgets = map[types.UID]NodeBudget{
			newNode("seated").UID: {Effect: hold.Effect{Limited: true}, Stance: hold.Stance{Seat: "seat"}},
		}
		in.OwnNode = tt.own
		ro := rolloutOf(in)
		if rank, stickiness := (chooser{ro}).canaryRank(
			&ro.nodes[0],
		), (chooser{ro}).stickiness(
			0,
		); rank != tt.rank ||
			stickiness != tt.stickiness {
			t.Errorf("%s: %d, %d, want %d, %d", name, rank, stickiness, tt.rank, tt.stickiness)
		}
	}
}

// A step selects the quarantined node that has lost its seat, because its NodeDisruptionBudget may not allow another one.
func TestAStepTakesTheQuarantinedNodeWithoutASeat(t *testing.T) {
	again := recorded(record.Failed, attempts(2), func(r *record.Record) { r.Cordoned, r.RetryRequested = true, true })
	in := see(
		newJob(inSteps(first(intstr.FromInt32(1)), rest), rebootingAs(v1alpha1.RebootAlways), onFailure(v1alpha1.FailureActionCordon)),
		[]Node{newNode("a", again, cordonedBy(jobKey)), newNode("b", again, cordonedBy(jobKey))},
	)
	in.Budgets = map[types.UID]NodeBudget{
		in.Nodes[0].UID: {
			Effect: hold.Effect{Limited: true},
			Stance: hold.Stance{Seat: "seat", SeatUID: "seat", Message: "b is not available, and the budget allows 1"},
		},
		in.Nodes[1].UID: {Effect: hold.Effect{Limited: true}, Stance: hold.Stance{Allowed: true}},
	}
	p := Next(in)
	if got := []string{
		p.Nodes[0].Reason,
		p.Nodes[1].Reason,
	}; !slices.Equal(
		got,
		[]string{v1alpha1.ReasonWaitingForStep, v1alpha1.ReasonWaitingForBudget},
	) {
		t.Errorf("%q, want the canary to be b, which claims: %q", got, told(p))
	}
}

// The choice of canaries is stable: if nodes join or are removed, the same nodes stay canaries as long as they exist.
func TestCanariesAreStable(t *testing.T) {
	job := newJob(inSteps(first(intstr.FromInt32(2)), rest))
	nodes := []Node{newNode("m", made(50)), newNode("n", made(40)), newNode("o", made(30)), newNode("p", made(20))}
	chosen := func(nodes []Node, pods ...Pod) string {
		t.Helper()
		var names string
		for i, st := range Next(see(job, nodes, pods...)).Nodes {
			if st.State == Running {
				names += nodes[i].Name
			}
		}
		return names
	}
	for name, tt := range map[string]struct {
		nodes []Node
		pods  []Pod
	}{
		"without changes":           {nodes: nodes},
		"other nodes were removed":  {nodes: []Node{nodes[0], nodes[1], nodes[3]}},
		"a younger node has joined": {nodes: append([]Node{newNode("a", made(1))}, nodes...)},
		"an older node appears while they run": {
			nodes: append([]Node{newNode("a", made(99))}, nodes...), pods: []Pod{newPod(nodes[0]), newPod(nodes[1])},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := chosen(tt.nodes, tt.pods...); got != "mn" {
				t.Errorf("%q run, want m and n", got)
			}
		})
	}
}

// Neither a rerun nor a retry changes the order in which a step takes its nodes.
func TestCanariesAreStableAcrossReruns(t *testing.T) {
	job := newJob(inSteps(first(intstr.FromInt32(1)), rest))
	m := newNode("m", recorded(record.Succeeded, func(r *record.Record) { r.StartedAt, r.FirstStartedAt = ago(100), ago(900) }))
	n := newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.StartedAt = ago(500) }))
	p := Next(see(job, []Node{n, m}))
	if diff := cmp.Diff([]int{1}, p.Steps[0].Nodes); diff != "" {
		t.Errorf("nodes of the first step (-want +got):\n%s", diff)
	}
	for _, outcome := range []record.Outcome{record.Succeeded, record.Failed, record.Disrupted} {
		node := newNode("m", recorded(outcome, func(r *record.Record) { r.StartedAt, r.FirstStartedAt = ago(100), ago(900) }))
		p := Next(see(job, []Node{node}, newPod(node, exited(0))))
		if got := p.Actions[0].(Record).Record; !got.BeganAt().Equal(ago(900)) || got.StartedAt.Equal(ago(900)) {
			t.Errorf("after %s: started at %v, and this attempt at %v", outcome, got.BeganAt(), got.StartedAt)
		}
	}
}
