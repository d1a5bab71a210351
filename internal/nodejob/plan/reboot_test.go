// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// rebootingAs gives a NodeJob a policy, 300 seconds for a reboot and 20 for the node to be Ready.
func rebootingAs(policy v1alpha1.RebootPolicy) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Spec.Maintenance = v1alpha1.MaintenanceSpec{
			Reboot: v1alpha1.RebootSpec{Policy: policy, TimeoutSeconds: new(int32(300)), MinReadySeconds: new(int32(20))},
		}
	}
}

func checking(j *v1alpha1.NodeJob) {
	j.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
}

// TestSuccessIsFollowedByReboot tests whether a node is rebooted after a success.
func TestSuccessIsFollowedByReboot(t *testing.T) {
	asks := results(map[string]string{outcome.RebootKey: outcome.RebootValue})
	madeFor := func(policy v1alpha1.RebootPolicy) func(*Pod) { return func(p *Pod) { p.Reboot = policy } }
	const done, goesOn = "record Succeeded on n: attempts 1, disruptions 0", "record Rebooting on n: attempts 1, disruptions 0"
	tests := map[string]struct {
		pod  func(*Pod)
		exit []func(*Exit)
		node func(*Node)
		spec v1alpha1.RebootPolicy
		want string
	}{
		"the pod was created for a reboot that the spec does not ask for": {
			pod:  madeFor(v1alpha1.RebootAlways),
			spec: v1alpha1.RebootNever,
			want: done,
		},
		"no reboot is requested":                            {pod: madeFor(""), want: done},
		"a request of the task is ignored without a policy": {pod: madeFor(""), exit: []func(*Exit){asks}, want: done},
		"a failure": {pod: func(p *Pod) {
			p.Reboot, p.Phase, p.Exit = v1alpha1.RebootAlways, corev1.PodFailed, &Exit{Code: 1, Message: "no"}
		}, want: "record Failed on n: attempts 1, disruptions 0, TaskFailed: no"},
		"if requested, and how the container ended is not known": {
			pod:  func(p *Pod) { madeFor(v1alpha1.RebootIfRequested)(p); p.Exit = nil },
			want: done,
		},
		"always":                                 {pod: madeFor(v1alpha1.RebootAlways), want: goesOn},
		"if requested, and the task requests it": {pod: madeFor(v1alpha1.RebootIfRequested), exit: []func(*Exit){asks}, want: goesOn},
		"if requested, and the task does not request it": {pod: madeFor(v1alpha1.RebootIfRequested), want: done},
		"a node without a boot ID cannot be rebooted": {
			pod:  func(p *Pod) { p.Reboot, p.Machine = v1alpha1.RebootAlways, "n-machine/" },
			node: func(n *Node) { n.BootID = "" },
			want: "record Failed on n: attempts 1, disruptions 0, RebootFailed: the node does not report a boot ID, so a reboot cannot be confirmed",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.node == nil {
				tt.node = func(*Node) {}
			}
			node := newNode("n", tt.node)
			if tt.spec == "" {
				tt.spec = v1alpha1.RebootAlways
			}
			// The policy for which the pod was created counts, as long as the spec asks for a reboot at all.
			p := Next(see(newJob(rebootingAs(tt.spec)), []Node{node}, newPod(node, exited(0, tt.exit...), tt.pod)))
			if diff := cmp.Diff([]string{tt.want}, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// A pod may be created for a boot that the node has left before the pod runs. The boot in which the node was last seen
// counts. Otherwise the node would count as rebooted without a reboot.
func TestBootToLeaveIsLastObservedBoot(t *testing.T) {
	node := newNode("n", func(n *Node) { n.BootID = "second" })
	pod := newPod(node, exited(0), func(p *Pod) { p.Reboot, p.Machine = v1alpha1.RebootAlways, task.Machine("n-machine", "first") })
	p := Next(see(newJob(rebootingAs(v1alpha1.RebootAlways)), []Node{node}, pod))
	want := &record.Reboot{StartedAt: now, FromBootID: "second"}
	if diff := cmp.Diff(want, p.Actions[0].(Record).Record.Reboot); diff != "" {
		t.Errorf("reboot (-want +got):\n%s", diff)
	}
}

// TestReboot tests a node whose task succeeded a minute ago in the boot "first".
func TestReboot(t *testing.T) {
	inBoot := func(boot string) func(*Node) { return func(n *Node) { n.BootID = boot } }
	since := func(seconds int) func(*Node) { return func(n *Node) { n.ReadySince = ago(seconds) } }
	notReady := func(n *Node) { n.Ready, n.ReadySince = corev1.ConditionFalse, time.Time{} }
	lost := func(n *Node) { n.Ready, n.ReadySince = corev1.ConditionUnknown, time.Time{} }
	goesOn := func(changes ...func(*record.Record)) func(*Node) {
		return recorded(
			record.Rebooting,
			append([]func(*record.Record){func(r *record.Record) { r.Reboot.FromBootID = "first" }}, changes...)...)
	}
	back := func(seconds int) func(*record.Record) {
		return func(r *record.Record) { r.Reboot.BackAt, r.Reboot.ReadySince = ago(seconds), ago(30) }
	}
	disrupted := func(seconds int) func(*record.Record) {
		return func(r *record.Record) { r.Disruptions, r.FinishedAt = 1, ago(seconds) }
	}
	late := func(r *record.Record) { r.Reboot.StartedAt = ago(300) }
	rebootPod := func(changes ...func(*Pod)) []func(*Pod) {
		return append([]func(*Pod){func(p *Pod) { p.Runs = task.Reboot }}, changes...)
	}
	checkPod := func(changes ...func(*Pod)) []func(*Pod) {
		return append([]func(*Pod){func(p *Pod) { p.Runs = task.Check }}, changes...)
	}
	tests := map[string]struct {
		job    []func(*v1alpha1.NodeJob)
		node   []func(*Node)
		pod    []func(*Pod)
		want   []string
		reason string
		wake   time.Duration
	}{
		"it is rebooted": {
			node: []func(*Node){
				goesOn(),
				inBoot("first"),
			},
			want:   []string{"start reboot 1 of rev on n"},
			reason: v1alpha1.ReasonRebooting,
			wake:   240 * time.Second,
		},
		"a pod of another revision that reboots it is released": {
			node: []func(*Node){
				goesOn(),
				inBoot("first"),
			},
			pod:    rebootPod(func(p *Pod) { p.Revision = "old" }),
			want:   []string{"release n-pod"},
			reason: v1alpha1.ReasonRebooting,
			wake:   240 * time.Second,
		},
		"a pod that reboots it is released when the run has ended": {
			node: []func(*Node){recorded(record.Succeeded)}, pod: rebootPod(), want: []string{"release n-pod"}, reason: v1alpha1.ReasonDone,
		},
		"it is Ready again for an unknown time": {
			node: []func(*Node){
				goesOn(),
				inBoot("second"),
			},
			want:   []string{"Settling n, recorded"},
			reason: v1alpha1.ReasonSettling,
			wake:   240 * time.Second,
		},
		"it is no longer Ready": {
			node: []func(*Node){
				goesOn(back(10)),
				inBoot("second"),
				notReady,
			},
			want:   []string{"Settling n, recorded"},
			reason: v1alpha1.ReasonSettling,
			wake:   240 * time.Second,
		},
		"its check waits after a disruption": {
			job: []func(*v1alpha1.NodeJob){
				checking,
			},
			node:   []func(*Node){goesOn(back(25), disrupted(4)), inBoot("second"), since(30)},
			reason: v1alpha1.ReasonSettling,
			wake:   6 * time.Second,
		},
		"it is rebooted while suspended, because the run has started": {
			job: []func(*v1alpha1.NodeJob){
				onHold,
			},
			node:   []func(*Node){goesOn(), inBoot("first")},
			want:   []string{"start reboot 1 of rev on n"},
			reason: v1alpha1.ReasonRebooting,
			wake:   240 * time.Second,
		},
		"it is rebooted when it is no longer selected": {
			job: []func(*v1alpha1.NodeJob){
				inPoolA,
			},
			node:   []func(*Node){goesOn(), inBoot("first"), inPool("b")},
			want:   []string{"start reboot 1 of rev on n"},
			reason: v1alpha1.ReasonRebooting,
			wake:   240 * time.Second,
		},
		"the spec does not ask for the reboot any more": {
			job: []func(*v1alpha1.NodeJob){
				rebootingAs(v1alpha1.RebootNever),
			},
			node:   []func(*Node){goesOn(back(20)), inBoot("first"), since(30)},
			want:   []string{"record Succeeded on n: attempts 1, disruptions 0"},
			reason: v1alpha1.ReasonSettling,
			wake:   240 * time.Second,
		},
		"it gets no pod while it is unreachable": {
			node:   []func(*Node){goesOn(), inBoot("first"), lost},
			reason: v1alpha1.ReasonRebooting,
			wake:   240 * time.Second,
		},
		"the pod that reboots it runs": {
			node:   []func(*Node){goesOn(), inBoot("first")},
			pod:    rebootPod(),
			reason: v1alpha1.ReasonRebooting,
			wake:   240 * time.Second,
		},
		"the pod ran in another boot, which the node does not report yet": {
			node: []func(*Node){goesOn(), inBoot("first")}, pod: rebootPod(exited(0)), reason: v1alpha1.ReasonRebooting,
			want: []string{"record Rebooting on n: attempts 1, disruptions 1"},
		},
		"a disrupted pod is recreated later": {
			node: []func(*Node){goesOn(disrupted(4)), inBoot("first")}, reason: v1alpha1.ReasonRebooting, wake: 6 * time.Second,
		},
		"a disrupted pod is recreated after the backoff": {
			node: []func(*Node){
				goesOn(disrupted(10)),
				inBoot("first"),
			},
			want:   []string{"start reboot 1 of rev on n"},
			reason: v1alpha1.ReasonRebooting,
			wake:   240 * time.Second,
		},
		"the pod could not reboot it": {
			node: []func(*Node){
				goesOn(),
				inBoot("first"),
			},
			pod:    rebootPod(exited(1, reported(outcome.ReasonRebootFailed))),
			reason: v1alpha1.ReasonRebooting,
			want:   []string{"record Failed on n: attempts 1, disruptions 0, RebootFailed: the end"},
		},
		"it is not in another boot before the deadline": {
			node:   []func(*Node){goesOn(late), inBoot("first"), lost},
			reason: v1alpha1.ReasonRebooting,
			want: []string{
				"record Failed on n: attempts 1, disruptions 0, RebootTimedOut: the node did not come back in another boot within 300 s of the end of the task (maintenance.reboot.timeoutSeconds)",
			},
		},
		"it is not in another boot before the deadline, and its pod has not ended": {
			node:   []func(*Node){goesOn(late), inBoot("first"), lost},
			pod:    rebootPod(),
			reason: v1alpha1.ReasonRebooting,
			want: []string{
				"record Failed on n: attempts 1, disruptions 0, RebootTimedOut: the node did not come back in another boot within 300 s of the end of the task (maintenance.reboot.timeoutSeconds)",
			},
		},
		"it is in another boot, and its pod is released": {
			node: []func(*Node){
				goesOn(),
				inBoot("second"),
				notReady,
			},
			pod:    rebootPod(exited(255)),
			reason: v1alpha1.ReasonSettling,
			want:   []string{"release n-pod"},
			wake:   240 * time.Second,
		},
		"it is in another boot and not Ready": {
			node:   []func(*Node){goesOn(), inBoot("second"), notReady},
			reason: v1alpha1.ReasonSettling,
			wake:   240 * time.Second,
		},
		"it is Ready, which is recorded": {
			node: []func(*Node){
				goesOn(),
				inBoot("second"),
				since(1),
			},
			reason: v1alpha1.ReasonSettling,
			want:   []string{"Settling n, recorded"},
			wake:   240 * time.Second,
		},
		"it is not Ready for long enough": {
			node: []func(*Node){goesOn(back(15)), inBoot("second"), since(30)}, reason: v1alpha1.ReasonSettling, wake: 5 * time.Second,
		},
		"it was not Ready once more": {
			node: []func(*Node){
				goesOn(back(50)),
				inBoot("second"),
				since(12),
			},
			reason: v1alpha1.ReasonSettling,
			want:   []string{"Settling n, recorded"},
			wake:   240 * time.Second,
		},
		"it has rebooted once more": {
			node: []func(*Node){
				goesOn(back(50), func(r *record.Record) { r.Reboot.BootID = "second" }),
				inBoot("third"),
				since(30),
			},
			reason: v1alpha1.ReasonSettling,
			want:   []string{"Settling n, recorded"},
			wake:   240 * time.Second,
		},
		"it is done without spec.task.check": {
			node: []func(*Node){
				goesOn(back(20)),
				inBoot("second"),
				since(30),
			},
			reason: v1alpha1.ReasonSettling,
			want:   []string{"record Succeeded on n: attempts 1, disruptions 0"},
			wake:   240 * time.Second,
		},
		"it is checked with spec.task.check": {
			job: []func(*v1alpha1.NodeJob){
				checking,
			},
			node:   []func(*Node){goesOn(back(20)), inBoot("second"), since(30)},
			reason: v1alpha1.ReasonChecking,
			want:   []string{"start check 1 of rev on n"},
			wake:   240 * time.Second,
		},
		"the check passes": {
			job: []func(*v1alpha1.NodeJob){
				checking,
			},
			node:   []func(*Node){goesOn(back(20)), inBoot("second"), since(30)},
			pod:    checkPod(exited(0)),
			reason: v1alpha1.ReasonChecking,
			want:   []string{"record Succeeded on n: attempts 1, disruptions 0"},
		},
		"the check fails": {
			job: []func(*v1alpha1.NodeJob){
				checking,
			},
			node:   []func(*Node){goesOn(back(20)), inBoot("second"), since(30)},
			pod:    checkPod(exited(3)),
			reason: v1alpha1.ReasonChecking,
			want:   []string{"record Failed on n: attempts 1, disruptions 0, CheckFailed: the end"},
		},
		"the check is disrupted": {
			job: []func(*v1alpha1.NodeJob){
				checking,
			},
			node:   []func(*Node){goesOn(back(20)), inBoot("second"), since(30)},
			pod:    checkPod(func(p *Pod) { p.Phase = corev1.PodFailed }),
			reason: v1alpha1.ReasonChecking,
			want:   []string{"record Rebooting on n: attempts 1, disruptions 1"},
		},
		"it does not stay Ready before the deadline": {
			node:   []func(*Node){goesOn(late, back(100)), inBoot("second"), since(5)},
			reason: v1alpha1.ReasonRebooting,
			want: []string{
				"record Failed on n: attempts 1, disruptions 0, RebootTimedOut: the node came back in another boot and did not stay Ready, or was not checked, within 300 s of the end of the task (maintenance.reboot.timeoutSeconds)",
			},
		},
		"the pod of a check is released when a user has removed the record of the run": {
			job: []func(*v1alpha1.NodeJob){
				checking,
			},
			node:   []func(*Node){inBoot("second")},
			pod:    checkPod(exited(0)),
			reason: v1alpha1.ReasonPodTerminating,
			want:   []string{"release n-pod"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", tt.node...)
			node.ResourceVersion = "7"
			var pods []Pod
			if tt.pod != nil {
				pods = append(pods, newPod(node, tt.pod...))
			}
			p := Next(
				see(newJob(append([]func(*v1alpha1.NodeJob){rebootingAs(v1alpha1.RebootAlways)}, tt.job...)...), []Node{node}, pods...),
			)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if p.Nodes[0].Reason != tt.reason {
				t.Errorf("%+v, want %s", p.Nodes[0], tt.reason)
			}
			want := time.Time{}
			if tt.wake != 0 {
				want = now.Add(tt.wake)
			}
			if wake := p.WakeAt.Sub(now); !wakes(p, want) {
				t.Errorf("wakes in %v, want %v", wake, tt.wake)
			}
		})
	}
}

// TestEndOfThePodThatReboots tests what the end of the pod means while the node is in the old boot.
func TestEndOfThePodThatReboots(t *testing.T) {
	node := newNode("n", recorded(record.Rebooting))
	late := func(p *Pod) { p.Phase, p.PastDeadline = corev1.PodFailed, true }
	for name, tt := range map[string]struct {
		pod    func(*Pod)
		failed bool
	}{
		"it reports a failure":             {exited(1, reported("TaskFailed")), true},
		"it reports nothing":               {exited(1), false},
		"its container was never seen":     {late, false},
		"it reports a success":             {exited(0, reported("")), false},
		"it reports that it was disrupted": {exited(143, reported(outcome.ReasonDisrupted)), false},
	} {
		pod := newPod(node, func(p *Pod) { p.Runs = task.Reboot }, tt.pod)
		r := (&attemptReader{job: &job{policy: policy{in: Input{Job: newJob(), Now: now}}}}).rebootEnded(&pod, &node)
		if (r.Outcome == record.Failed) != tt.failed || (r.Reboot == nil) != tt.failed || (r.Disruptions == 1) == tt.failed {
			t.Errorf("%s: %+v, want a failure: %t", name, r, tt.failed)
		}
	}
}

// TestRecordOfACheck tests what a check adds to the record of the run.
func TestRecordOfACheck(t *testing.T) {
	large := map[string]string{}
	for i := range 200 {
		large[fmt.Sprintf("key-%03d", i)] = strings.Repeat("x", 200)
	}
	a, ab := map[string]string{"a": "1"}, map[string]string{"a": "1", "b": "1"}
	for name, tt := range map[string]struct {
		results    map[string]string // of the task
		truncated  bool
		end        record.Record
		want       map[string]string
		wantCut    bool
		wantReason string
	}{
		"it has no results":                           {results: ab, end: record.Record{Outcome: record.Succeeded}, want: ab},
		"neither has results":                         {end: record.Record{Outcome: record.Succeeded}},
		"it has the only results":                     {end: record.Record{Outcome: record.Succeeded, Results: a}, want: a},
		"it adds to the results":                      {results: ab, end: record.Record{Outcome: record.Succeeded, Results: map[string]string{"b": "2", "c": "2"}}, want: map[string]string{"a": "1", "b": "2", "c": "2"}},
		"the results of the task were cut":            {results: a, truncated: true, end: record.Record{Outcome: record.Succeeded, Results: a}, want: a, wantCut: true},
		"those of the task were cut, and it has none": {results: a, truncated: true, end: record.Record{Outcome: record.Succeeded}, want: a, wantCut: true},
		"its results were cut":                        {results: a, end: record.Record{Outcome: record.Succeeded, Results: a, Truncated: true}, want: a, wantCut: true},
		"both are too large":                          {results: a, end: record.Record{Outcome: record.Succeeded, Results: large}, wantCut: true},
		"it fails":                                    {end: record.Record{Outcome: record.Failed, Reason: outcome.ReasonTaskFailed}, wantReason: outcome.ReasonCheckFailed},
		"it takes too long":                           {end: record.Record{Outcome: record.Failed, Reason: v1alpha1.ReasonDeadlineExceeded}, wantReason: v1alpha1.ReasonDeadlineExceeded},
	} {
		node := newNode("n", recorded(record.Rebooting, func(r *record.Record) { r.Results, r.Truncated = tt.results, tt.truncated }))
		got := (&attemptReader{job: &job{policy: policy{in: Input{Job: newJob(), Now: now}}}}).checked(new(newPod(node)), &node, tt.end)
		if diff := cmp.Diff(tt.want, got.Results); diff != "" && tt.want != nil {
			t.Errorf("%s: results (-want +got):\n%s", name, diff)
		}
		if got.Truncated != tt.wantCut || got.Reason != tt.wantReason {
			t.Errorf("%s: truncated %t, %q, want %t, %q", name, got.Truncated, got.Reason, tt.wantCut, tt.wantReason)
		}
	}
}

// TestWhatTheNextPodOfARunWaitsFor tests it for the pod of a check.
func TestWhatTheNextPodOfARunWaitsFor(t *testing.T) {
	refused := func(retryIn int) *hold.Why {
		return &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(-retryIn)}
	}
	stays := &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "it is missing"}
	for name, tt := range map[string]struct {
		obstacle *hold.Why
		problems map[types.UID]NodeProblem
		ended    time.Time
		noProbe  bool
		want     cause
		until    time.Time
	}{
		"for nothing": {want: causeNone},
		"for nothing when its pod has ended without a disruption": {ended: now, want: causeNone},
		"for the retry of a problem of the node":                  {problems: nameTaken(60, 5), want: causeNodeProblem, until: ago(-5)},
		"for nothing when the problem may be retried":             {problems: nameTaken(60, -5), want: causeNone},
		"for a user":                                    {obstacle: stays, want: causeObstacle},
		"for the retry of a refusal":                    {obstacle: refused(5), want: causeObstacle, until: ago(-5)},
		"for nothing when a refusal may be retried":     {obstacle: refused(-5), want: causeNone},
		"for nothing when a refusal may be retried now": {obstacle: refused(0), want: causeNone},
		"for another start that shows it":               {obstacle: refused(-5), noProbe: true, want: causeObstacle},
		"for another start that shows it now":           {obstacle: refused(0), noProbe: true, want: causeObstacle},
	} {
		node := newNode("a", recorded(record.Rebooting, func(r *record.Record) { r.FinishedAt = tt.ended }))
		j := &job{policy: policy{in: Input{Job: newJob(), Now: now, NodeProblems: tt.problems}}, obstacle: tt.obstacle}
		if got := j.runBlock(
			startRequest{phase: task.Check, node: &node},
			!tt.noProbe,
		); got.cause != tt.want ||
			!got.Until.Equal(tt.until) {
			t.Errorf("%s: cause %d until %v, want %d until %v", name, got.cause, got.Until, tt.want, tt.until)
		}
	}
}

func TestWhyANodeSettles(t *testing.T) {
	for boot, want := range map[string]string{"n-boot-before": "the node need not reboot any more (maintenance.reboot)", "next": "the node has rebooted"} {
		if got := settling(new(newNode("n", recorded(record.Rebooting), func(n *Node) { n.BootID = boot }))); got != want {
			t.Errorf("in boot %s: %q, want %q", boot, got, want)
		}
	}
}

// The pods of a run with a reboot refer to the recorded run.
func TestPodsOfRunWithReboot(t *testing.T) {
	node := newNode(
		"n",
		recorded(record.Rebooting, func(r *record.Record) { r.Attempts = 2 }),
		func(n *Node) { n.BootID = "n-boot-before" },
	)
	start := Next(see(newJob(rebootingAs(v1alpha1.RebootAlways)), []Node{node})).Actions[0].(Start).Attempt
	if start.BootID != "n-boot-before" || start.Number != 2 || start.Checks != nil {
		t.Errorf("reboot %d leaves %q, want 2 to leave the boot on record", start.Number, start.BootID)
	}
	node.BootID, node.ReadySince, node.On.Record.Reboot.BackAt = "next", ago(100), ago(50)
	node.On.Record.Reboot.ReadySince = ago(100)
	start = Next(see(newJob(rebootingAs(v1alpha1.RebootAlways), checking), []Node{node})).Actions[0].(Start).Attempt
	if start.Checks != node.On.Record || start.BootID != "next" {
		t.Errorf("the check refers to %+v in %q", start.Checks, start.BootID)
	}
}

// The run is done in the boot in which it was checked. The node may have rebooted since, which rerun.onReboot handles.
func TestSuccessHasBootOfCheck(t *testing.T) {
	node := newNode("n", recorded(record.Rebooting), func(n *Node) { n.BootID = "third" })
	pod := newPod(node, exited(0), func(p *Pod) { p.Runs, p.Machine = task.Check, task.Machine("n-machine", "second") })
	p := Next(see(newJob(rebootingAs(v1alpha1.RebootAlways), checking), []Node{node}, pod))
	if got := p.Actions[0].(Record).Record.BootID; got != "second" {
		t.Errorf("done in boot %q, want that of the check", got)
	}
}

// A pod that is on record stays on record when time ends the run. Otherwise, if it were not released yet, it would be
// recorded once more.
func TestPodStaysRecordedWhenTimeEndsRun(t *testing.T) {
	for name, node := range map[string]Node{
		"a reboot that timed out": newNode("n", recorded(record.Rebooting, func(r *record.Record) { r.Reboot.StartedAt = ago(300) })),
		"a reboot that is over":   newNode("n", recorded(record.Rebooting, func(r *record.Record) { r.Reboot.BackAt, r.Reboot.ReadySince = ago(50), ago(50) }), func(n *Node) { n.ReadySince = ago(50) }),
	} {
		t.Run(name, func(t *testing.T) {
			task := newPod(node, exited(0), func(p *Pod) { p.UID = "earlier-pod" })
			p := Next(see(newJob(rebootingAs(v1alpha1.RebootAlways)), []Node{node}, task))
			a, ok := p.Actions[0].(Record)
			if !ok || a.Record.PodUID != "earlier-pod" || a.Pod.UID != "" {
				t.Errorf("actions %v, want a record of the pod that is on record", told(p))
			}
		})
	}
}

// TestANewRevisionTakesThePlaceOfARun tests that a node whose run was left for another revision waits for its place if its revision comes back.
func TestANewRevisionTakesThePlaceOfARun(t *testing.T) {
	ofOld := func(r *record.Record) { r.Revision = "old" }
	left := newNode("a", recorded(record.Rebooting, ofOld))
	job := func() *v1alpha1.NodeJob { return newJob(rebootingAs(v1alpha1.RebootAlways), oneAtOnce) }
	ended := writeOf(t, see(job(), []Node{left, newNode("b")}))
	want := "record Disrupted on a: attempts 0, disruptions 1, Disrupted: the revision was changed before the node was back from its reboot"
	if got := told(Plan{Actions: []Action{ended}}); !slices.Equal(got, []string{want}) || ended.Record.Revision != "old" {
		t.Errorf("%v of %s, want %s of old", got, ended.Record.Revision, want)
	}
	if got := told(Next(see(job(), []Node{left, newNode("b")}))); len(got) != 1 {
		t.Errorf("actions %v: another node starts before that is on record", got)
	}
	left.On.Record = ended.Record
	if diff := cmp.Diff([]string{"start attempt 1 of rev on a"}, told(Next(see(job(), []Node{left})))); diff != "" {
		t.Errorf("the new revision (-want +got):\n%s", diff)
	}
	in := see(job(), []Node{left, newNode("b")}, newPod(newNode("b"), func(p *Pod) { p.Created = now }))
	in.Revision, in.Now = "old", in.Now.Add(time.Minute)
	p := Next(in)
	if diff := cmp.Diff([]string(nil), told(p)); diff != "" || p.Nodes[0].State != Waiting {
		t.Errorf("%s; the earlier revision again (-want +got):\n%s", p.Nodes[0].State, diff)
	}
	for name, node := range map[string]Node{
		"a run of another machine": newNode("a", recorded(record.Rebooting, ofOld, func(r *record.Record) { r.MachineID = "gone" })),
		"a run that has ended":     newNode("a", recorded(record.Failed, ofOld)),
	} {
		if got := told(Next(see(job(), []Node{node}))); !slices.Equal(got, []string{"start attempt 1 of rev on a"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestARunWhoseEndIsRejected : the record that ends a run during its reboot is rejected, such as for a node that fills its annotations. The
// node keeps its slot, but not forever.
func TestARunWhoseEndIsRejected(t *testing.T) {
	rebooting := func(r *record.Record) { r.Reboot = &record.Reboot{StartedAt: ago(9000), FromBootID: "n-boot"} }
	for name, tt := range map[string]struct {
		record []func(*record.Record)
		since  int
		want   []string
	}{
		"of another revision":           {[]func(*record.Record){rebooting, func(r *record.Record) { r.Revision = "old" }}, 60, nil},
		"of another revision, for long": {[]func(*record.Record){rebooting, func(r *record.Record) { r.Revision = "old" }}, 8000, []string{"start attempt 1 of rev on b"}},
		"out of time":                   {[]func(*record.Record){rebooting}, 60, nil},
		"out of time, for long":         {[]func(*record.Record){rebooting}, 8000, []string{"start attempt 1 of rev on b"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(rebootingAs(v1alpha1.RebootAlways), oneAtOnce, func(j *v1alpha1.NodeJob) {
				j.Spec.Rollout.MaxFailures = new(intstr.FromString("100%"))
			})
			in := see(job, []Node{newNode("n", recorded(record.Rebooting, tt.record...)), newNode("b")})
			in.NodeProblems = map[types.UID]NodeProblem{"n-uid": {
				Why:     hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "too long", Until: ago(-30)},
				Since:   ago(tt.since),
				TriedAt: ago(1),
			}}
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if len(p.Status.NodeProblems) != 1 {
				t.Errorf("the status has the problems %v", p.Status.NodeProblems)
			}
		})
	}
}
