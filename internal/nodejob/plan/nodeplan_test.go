// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

func TestTheFirstTerminatingPodCounts(t *testing.T) {
	w := &nodePlan{}
	for _, at := range []time.Time{ago(5), ago(9), ago(7)} {
		w.noteTerminating(task.Task, at)
	}
	if !w.terminating || !w.terminatingSince.Equal(ago(9)) {
		t.Errorf("terminating since %v, want %v", w.terminatingSince, ago(9))
	}
}

func TestNodesThatCanStart(t *testing.T) {
	for name, tt := range map[string]struct {
		state                 State
		cause                 cause
		rollbackPending       bool
		startable, awaitsPods bool
	}{
		"it waits for a slot":     {Waiting, causeSlot, false, true, true},
		"it cannot run a task":    {Waiting, causeNode, false, false, true},
		"an attempt runs":         {Running, causeNone, false, true, true},
		"it is done":              {Done, causeNone, false, false, false},
		"it has failed":           {Failed, causeNone, false, false, false},
		"its rollback will start": {Failed, causeNone, true, false, true},
	} {
		w := &nodePlan{NodeState: &NodeState{State: tt.state}, cause: tt.cause, rollbackPending: tt.rollbackPending}
		if startable, awaitsPods := w.startable(), w.awaitsPods(); startable != tt.startable || awaitsPods != tt.awaitsPods {
			t.Errorf("%s: startable %t, awaits pods %t, want %t, %t", name, startable, awaitsPods, tt.startable, tt.awaitsPods)
		}
	}
}

func TestARollbackThatWaitsForASlotRetainsTheStateOfItsNode(t *testing.T) {
	p := Next(see(newJob(withRollback, oneAtOnce), []Node{newNode("a", exhaustedWith(nil)), newNode("b", exhaustedWith(nil))}))
	if got := p.Nodes[1]; got.State != Failed || got.Reason != v1alpha1.ReasonRollbackPending || !p.WakeAt.Equal(now.Add(recheckInterval)) {
		t.Errorf("%+v, wakes at %v, want Failed, and another plan after %v", got, p.WakeAt, recheckInterval)
	}
}

// A user has skipped the node since the rollback began, and the API server refuses its record.
func TestAProblemOfARollbackThatIsNotNeededAnyMoreIsReported(t *testing.T) {
	node := newNode("a", recorded(record.Failed, attempts(2)), labelled(rev))
	in := see(newJob(withRollback), []Node{node}, newPod(node, exited(0), func(p *Pod) { p.Runs, p.UID = task.Rollback, "rollback" }))
	in.NodeProblems = map[types.UID]NodeProblem{
		"a-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "full", Until: ago(-5)}},
	}
	if got := assessed(in).findings().problem; got == nil {
		t.Error("no problem")
	}
}

// TestProgress tests which nodes count as failed for lack of progress.
func TestProgress(t *testing.T) {
	disrupted := recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(7200) })
	ended := func(o record.Outcome, seconds int) func(*Node) {
		return func(n *Node) {
			recorded(o, func(r *record.Record) { r.FinishedAt = ago(seconds) })(n)
			n.On.Label = ""
		}
	}
	problem := map[types.UID]NodeProblem{
		"n-uid": {Why: hold.Why{Reason: v1alpha1.ReasonPodNameTaken, Message: "x", Until: ago(-5)}, Since: ago(7200), TriedAt: ago(5)},
	}
	for name, tt := range map[string]struct {
		job      func(*v1alpha1.NodeJob)
		node     []func(*Node)
		pod      func(*Pod)
		problems map[types.UID]NodeProblem
		want     bool
		state    State
	}{
		"its attempts are disrupted":                         {node: []func(*Node){disrupted}, want: true, state: Waiting},
		"its attempts are disrupted, and one runs":           {node: []func(*Node){disrupted}, pod: func(*Pod) {}, want: true, state: Running},
		"attempts of another revision were disrupted":        {node: []func(*Node){disrupted, func(n *Node) { n.On.Record.Revision = "old" }}, state: Waiting},
		"a user has requested a retry":                       {node: []func(*Node){disrupted, func(n *Node) { n.On.Record.RetryRequested = true }}, state: Waiting},
		"a user has skipped it while an attempt runs":        {node: []func(*Node){disrupted, labelled(rev)}, pod: func(*Pod) {}, state: Running},
		"it reruns the task":                                 {node: []func(*Node){disrupted, labelled(rev), func(n *Node) { n.On.Record.Rerun, n.On.Record.Label = true, rev }}, pod: func(*Pod) {}, state: Running},
		"it is excluded":                                     {node: []func(*Node){disrupted, withTaints(busy)}, state: Excluded},
		"it is unreachable since it was done":                {node: []func(*Node){ended(record.Succeeded, 7200), isLost}, want: true, state: Failed},
		"it is unreachable, and the revision is stable":      {job: stableSince(600), node: []func(*Node){ended(record.Succeeded, 7200), isLost}, state: Waiting},
		"it is deleted since a while, and was done":          {node: []func(*Node){ended(record.Succeeded, 7200), deletingSince(60)}, state: Waiting},
		"it is deleted since a while, and an attempt failed": {node: []func(*Node){ended(record.Failed, 7200), deletingSince(60)}, want: true, state: Failed},
		"it was done after its deletion began":               {node: []func(*Node){ended(record.Succeeded, 60), deletingSince(7200)}, state: Waiting},
		"it has a problem":                                   {problems: problem, want: true, state: Failed},
		"it has a problem while an attempt runs":             {problems: problem, pod: func(*Pod) {}, state: Running},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob()
			if tt.job != nil {
				tt.job(job)
			}
			node := newNode("n", tt.node...)
			in := see(job, []Node{node})
			if tt.pod != nil {
				in.Pods = []Pod{newPod(node, tt.pod)}
			}
			in.NodeProblems = tt.problems
			w := assessed(in)
			if w.progressDeadlineExceeded != tt.want || w.State != tt.state {
				t.Errorf("exceeded %t, %s, want %t, %s", w.progressDeadlineExceeded, w.State, tt.want, tt.state)
			}
			if failures := w.findings().failures; tt.want && node.On.Record != nil {
				if last := failures[len(failures)-1]; last.FinishedAt != metav1.NewTime(node.On.Record.FinishedAt) ||
					last.Attempts != node.On.Record.Attempts {
					t.Errorf("the failure is %+v, want the attempts on record", last)
				}
			}
		})
	}
}

func TestANodeWithoutProgressIsOneFailure(t *testing.T) {
	node := newNode("a", recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(7200) }))
	in := see(newJob(), []Node{node}, newPod(node, func(p *Pod) { p.Created, p.DeleteRequested = ago(8000), ago(7900) }))
	in.NodeProblems = map[types.UID]NodeProblem{
		"a-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "full", Until: ago(-5)}, Since: ago(7200), TriedAt: ago(5)},
	}
	final := 0
	for _, f := range assessed(in).findings().failures {
		if !f.Retrying {
			final++
		}
	}
	if final != 1 {
		t.Errorf("%d failures, want one", final)
	}
}

// TestObstacleOfAPhase tests what prevents the pods of reboots, checks and rollbacks.
func TestObstacleOfAPhase(t *testing.T) {
	runner := &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no runner"}
	stays, passes := &hold.Why{
		Reason: v1alpha1.ReasonConfigMapNotFound,
	}, &hold.Why{
		Reason: v1alpha1.ReasonPodForbidden,
		Until:  ago(-5),
	}
	notAllowed := &hold.Why{Reason: v1alpha1.ReasonNamespaceNotAllowed}
	input, file := &hold.Why{Reason: v1alpha1.ReasonSecretNotFound}, &hold.Why{Reason: v1alpha1.ReasonSecretNotFound, AllPhases: true}
	script := func(*v1alpha1.NodeJob) {}
	for name, tt := range map[string]struct {
		job        func(*v1alpha1.NodeJob)
		obstacle   *hold.Why
		notAllowed *hold.Why
		phase      task.Phase
		want       *hold.Why
	}{
		"none":                        {script, nil, nil, task.Rollback, runner},
		"a reboot needs no script":    {script, stays, nil, task.Reboot, runner},
		"a rollback needs its script": {script, stays, nil, task.Rollback, stays},
		"a rollback reads no Secret of task.inputs":          {script, input, nil, task.Rollback, runner},
		"a rollback mounts the Secrets of task.files":        {script, file, nil, task.Rollback, file},
		"a check for drift mounts them":                      {script, file, nil, task.CheckDrift, file},
		"a check of expires mounts them":                     {script, file, nil, task.CheckExpires, file},
		"a check after a reboot mounts them":                 {script, file, nil, task.Check, file},
		"a check before the task mounts them":                {script, file, nil, task.CheckBefore, file},
		"a reboot mounts nothing":                            {script, file, nil, task.Reboot, runner},
		"a refused pod of the same kind":                     {script, passes, nil, task.Reboot, passes},
		"a refused pod of another kind":                      {templated, passes, nil, task.Rollback, runner},
		"a missing object":                                   {templated, stays, nil, task.Rollback, stays},
		"the namespace is not allowed":                       {script, nil, notAllowed, task.Reboot, notAllowed},
		"the namespace is deleted and is not allowed":        {script, &hold.Why{Reason: v1alpha1.ReasonNamespaceTerminating, Until: ago(-5)}, notAllowed, task.Reboot, &hold.Why{Reason: v1alpha1.ReasonNamespaceTerminating, Until: ago(-5)}},
		"another obstacle, and the namespace is not allowed": {script, stays, notAllowed, task.Rollback, notAllowed},
	} {
		in := see(newJob(tt.job), nil)
		in.Obstacle, in.NotAllowed, in.RunnerRefused = tt.obstacle, tt.notAllowed, runner
		if diff := cmp.Diff(tt.want, readJob(in).obstacleFor(tt.phase)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A step that waits for a dependency for too long fails no more nodes than stop the rollout.
func TestAStalledRolloutFailsNoFurtherNodes(t *testing.T) {
	in := see(
		newJob(
			inSteps(first(intstr.FromInt32(1)), rest),
			inStep("first", func(r *rolloutState) { r.WaitingForDependencySince = metav1.NewTime(ago(3600)) }),
		),
		[]Node{newNode("a", made(9000)), newNode("b", made(9000))},
	)
	in.DependsOn = []Peer{{Name: "dep", Key: "ns.everynode.dev/dep", Revision: "d"}}
	readOnPeers(&in)
	if got := Next(in).Status.Nodes.Failed; got != 1 {
		t.Errorf("%d nodes have failed, want 1", got)
	}
}

func TestOnlyNodesWithProblemsAreListed(t *testing.T) {
	in := see(newJob(), []Node{newNode("a"), newNode("b")})
	in.NodeProblems = nameTaken(60, 5)
	if got := Next(in).Status.NodeProblems; len(got) != 1 || got[0].Node != "a" {
		t.Errorf("%+v, want one of a", got)
	}
}

// TestInvalidSelectors tests where a selector that cannot be used is an obstacle.
func TestInvalidSelectors(t *testing.T) {
	inDrain := func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Drain = &v1alpha1.DrainSpec{PodSelector: badSelector()} }
	published := func(j *v1alpha1.NodeJob) {
		inPoolA(j)
		j.Spec.Publish = []v1alpha1.PublishedResult{{Result: "pool", Label: "pool"}}
	}
	for name, tt := range map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		want bool
	}{
		"in a drain":                       {[]func(*v1alpha1.NodeJob){inDrain}, true},
		"in a drain at deletion":           {[]func(*v1alpha1.NodeJob){inDrain, deleted("")}, false},
		"of a published label":             {[]func(*v1alpha1.NodeJob){published}, true},
		"of a published label at deletion": {[]func(*v1alpha1.NodeJob){published, deleted("")}, false},
	} {
		if got := readJob(see(newJob(tt.job...), nil)).obstacle != nil; got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestPodsThatAreOver(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  Pod
		want bool
	}{
		"it has ended":                         {Pod{Phase: "Failed"}, true},
		"it runs":                              {Pod{Phase: "Running"}, false},
		"its only container has ended":         {Pod{Phase: "Running", Concluded: true}, false},
		"only added containers run":            {Pod{Phase: "Running", Concluded: true, Added: "mesh"}, true},
		"added containers run beside the task": {Pod{Phase: "Running", Added: "mesh"}, false},
	} {
		if got := tt.pod.over(); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
	if pod := (Pod{Phase: "Failed", Exit: &Exit{OwnWord: true}}); !pod.succeeded() {
		t.Error("a pod of which only the task has said that it succeeded has not succeeded")
	}
}

// TestRemovedLabelsOnRecord tests which removed labels the record of a success has.
func TestRemovedLabelsOnRecord(t *testing.T) {
	const needs, more = "example.com/needs", "example.com/more"
	job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.RemoveLabels = []string{needs, more} })
	setup, both := map[string]string{needs: "setup"}, map[string]string{needs: "setup", more: "yes"}
	for name, tt := range map[string]struct {
		before map[string]string
		node   func(*Node)
		want   map[string]string
	}{
		"the node has the label":         {nil, has(needs, "setup", ""), setup},
		"it was removed before":          {setup, func(*Node) {}, setup},
		"another one was removed before": {setup, has(more, "yes", ""), both},
		"the node never had it":          {nil, func(*Node) {}, nil},
	} {
		c := record.Change{Record: &record.Record{RemovedLabels: tt.before}}
		(&publisher{readJob(see(job, nil))}).removeLabels(new(newNode("n", tt.node)), &c)
		if diff := cmp.Diff(tt.want, c.Record.RemovedLabels); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWritesBesideARun tests what is written to nodes without a new attempt.
func TestWritesBesideARun(t *testing.T) {
	rerun := func(changes ...func(*record.Record)) func(*Node) {
		return recorded(
			record.Disrupted,
			append([]func(*record.Record){func(r *record.Record) { r.Rerun, r.Label, r.FinishedAt = true, rev, ago(1) }}, changes...)...)
	}
	for name, tt := range map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		node func(*Node)
		in   func(*Input)
		want []string
	}{
		"one write in each plan": {
			job:  []func(*v1alpha1.NodeJob){gated(v1alpha1.GateSpec{}), onFailure(v1alpha1.FailureActionCordon)},
			node: func(n *Node) { made(5)(n); isFailed(n) }, want: []string{"Cordoned n, recorded, cordoned by " + jobKey},
		},
		"nothing is published in a namespace that is not allowed": {
			job: []func(*v1alpha1.NodeJob){publishing}, node: recorded(record.Succeeded, withResults(map[string]string{"size": "8"})), in: refuseNamespace,
		},
		"a user has removed the label during a rerun":              {node: rerun(), want: []string{"Published n, recorded"}},
		"a user has removed the label, and the machine is another": {node: rerun(func(r *record.Record) { r.MachineID = "gone" }), in: func(in *Input) { in.Job.Spec.Suspend = true }},
		"the backoff has passed":                                   {node: recorded(record.Failed, func(r *record.Record) { r.FinishedAt = ago(10) }), want: []string{"start attempt 2 of rev on n"}},
	} {
		in := see(newJob(tt.job...), []Node{newNode("n", tt.node)})
		if tt.in != nil {
			tt.in(&in)
		}
		if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
			t.Errorf("%s: actions (-want +got):\n%s", name, diff)
		}
	}
}

func TestAJoiningNodeWaitsForADependencyUntilItNoLongerJoins(t *testing.T) {
	for age, want := range map[int]time.Time{5: ago(5).Add(joiningFor), 601: {}} {
		in := see(newJob(), []Node{newNode("n", made(age))})
		in.DependsOn = []Peer{{Name: "dep", Key: "ns.everynode.dev/dep", Revision: "d"}}
		readOnPeers(&in)
		if got := Next(in).Nodes[0].Until; !got.Equal(want) {
			t.Errorf("age %d: until %v, want %v", age, got, want)
		}
	}
}
