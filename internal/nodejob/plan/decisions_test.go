// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// These tests find mistakes that make mutants generates and that no other test finds.

// recordOf returns the record that a plan writes of the end of a pod.
func recordOf(t *testing.T, job *v1alpha1.NodeJob, node Node, pod Pod) record.Record {
	t.Helper()
	p := Next(see(job, []Node{node}, pod))
	for _, action := range p.Actions {
		if r, is := action.(Record); is {
			return *r.Record
		}
	}
	t.Fatalf("actions %v, want a record", told(p))
	return record.Record{}
}

func TestFailuresBeforeAnAttempt(t *testing.T) {
	onMachineChange := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnMachineChange = new(true) }
	for name, tt := range map[string]struct {
		attempt int32
		outcome record.Outcome
		before  func(*record.Record)
		want    int32
	}{
		"the record counts them":            {attempt: 3, outcome: record.Failed, before: func(r *record.Record) { r.Attempts = 2 }, want: 3},
		"the record counts fewer":           {attempt: 4, outcome: record.Failed, before: func(r *record.Record) { r.Attempts = 1 }, want: 2},
		"the record counts more":            {attempt: 2, outcome: record.Failed, before: func(r *record.Record) { r.Attempts = 5 }, want: 2},
		"a retry was requested since":       {attempt: 3, outcome: record.Failed, before: func(r *record.Record) { r.Attempts, r.RetryRequested = 2, true }, want: 1},
		"the record is of another retry":    {attempt: 3, outcome: record.Failed, before: func(r *record.Record) { r.Attempts, r.Retry = 2, "earlier" }, want: 1},
		"the record is of another revision": {attempt: 3, outcome: record.Failed, before: func(r *record.Record) { r.Attempts, r.Revision = 2, "other" }, want: 1},
		"the record is of another machine":  {attempt: 3, outcome: record.Failed, before: func(r *record.Record) { r.Attempts, r.MachineID = 2, "other" }, want: 1},
		"the record is of a success":        {attempt: 3, outcome: record.Succeeded, before: func(r *record.Record) { r.Attempts = 2 }, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", recorded(tt.outcome, tt.before))
			if r := recordOf(
				t,
				newJob(onMachineChange),
				node,
				newPod(node, exited(1), func(p *Pod) { p.Attempt = tt.attempt }),
			); r.Attempts != tt.want {
				t.Errorf("attempts %d, want %d", r.Attempts, tt.want)
			}
		})
	}
}

func TestFirstStartOfARevision(t *testing.T) {
	onMachineChange := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnMachineChange = new(true) }
	for name, tt := range map[string]struct {
		before func(*record.Record)
		want   time.Time
	}{
		"an attempt is on record":           {before: func(r *record.Record) {}, want: ago(61)},
		"the record is of another revision": {before: func(r *record.Record) { r.Revision = "other" }},
		"the record is of another machine":  {before: func(r *record.Record) { r.MachineID = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", recorded(record.Failed, tt.before))
			if r := recordOf(t, newJob(onMachineChange), node, newPod(node, exited(1))); !r.FirstStartedAt.Equal(tt.want) {
				t.Errorf("first started at %v, want %v", r.FirstStartedAt, tt.want)
			}
		})
	}
}

func TestDisruptedSince(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(*record.Record)
		want   time.Time
	}{
		"the disruption before is of another retry":  {before: func(r *record.Record) { r.DisruptedSince, r.Retry = ago(900), "earlier" }, want: now},
		"a retry was requested since then":           {before: func(r *record.Record) { r.DisruptedSince, r.RetryRequested = ago(900), true }, want: now},
		"the record does not say when the first was": {before: func(r *record.Record) {}, want: now},
		"the disruption before is of the same retry": {
			before: func(r *record.Record) { r.DisruptedSince, r.RecordedAt = ago(900), ago(15) }, want: ago(900),
		},
		"nothing ran for a while after the backoff": {
			before: func(r *record.Record) { r.DisruptedSince, r.RecordedAt = ago(900), ago(620) }, want: ago(300),
		},
		"the disruption before is of another content": {before: func(r *record.Record) { r.DisruptedSince, r.Revision = ago(900), "other" }, want: now},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", recorded(record.Disrupted, tt.before))
			pod := newPod(node, func(p *Pod) { p.Phase, p.Disrupted, p.DisruptedReason = corev1.PodFailed, ago(2), "Evicted" })
			if r := recordOf(t, newJob(), node, pod); r.Outcome != record.Disrupted || !r.DisruptedSince.Equal(tt.want) {
				t.Errorf("%s since %v, want %v", r.Outcome, r.DisruptedSince, tt.want)
			}
		})
	}
}

func TestReasonOfAFailure(t *testing.T) {
	node := newNode("n")
	unknown := newNode("n", func(n *Node) { n.BootID = "" })
	for name, tt := range map[string]struct {
		node    Node
		pod     Pod
		outcome record.Outcome
		reason  string
	}{
		"the container runtime says what only the runner may say": {node, newPod(node, exited(1, func(e *Exit) { e.Reason = "TimedOut" })), record.Failed, "TaskFailed"},
		"the runner gives no reason":                              {node, newPod(node, exited(1, reported(""))), record.Failed, "TaskFailed"},
		"the files are not those that were read":                  {node, newPod(node, exited(125, reported(outcome.ReasonFilesChanged))), record.Disrupted, v1alpha1.ReasonDisrupted},
		"the boot of the node is not known":                       {unknown, newPod(node, exited(1)), record.Failed, "TaskFailed"},
		"the deletion was requested at the end of the time limit": {node, newPod(node, exited(1), func(p *Pod) { p.Created, p.DeleteRequested = ago(limit+5), ago(5) }), record.Failed, v1alpha1.ReasonDeadlineExceeded},
		"it failed after it was disrupted":                        {node, newPod(node, exited(1, reported("TaskFailed")), func(p *Pod) { p.Disrupted = ago(5) }), record.Disrupted, v1alpha1.ReasonDisrupted},
		"it failed when it was disrupted":                         {node, newPod(node, exited(1, reported("TaskFailed")), func(p *Pod) { p.Disrupted = ago(2) }), record.Disrupted, v1alpha1.ReasonDisrupted},
		"it failed before it was disrupted":                       {node, newPod(node, exited(1, reported("TaskFailed")), func(p *Pod) { p.Disrupted = ago(1) }), record.Failed, "TaskFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := recordOf(t, newJob(), tt.node, tt.pod); r.Outcome != tt.outcome || r.Reason != tt.reason {
				t.Errorf("%s, %s, want %s, %s", r.Outcome, r.Reason, tt.outcome, tt.reason)
			}
		})
	}
}

// TestMessageOfAnEnd tests which of the messages about the end of an attempt is recorded.
func TestMessageOfAnEnd(t *testing.T) {
	node := newNode("n")
	overdue := func(exit *Exit, waiting string) Pod {
		return newPod(node, func(p *Pod) { p.Phase, p.PastDeadline, p.Exit, p.Waiting = corev1.PodFailed, true, exit, waiting })
	}
	rejected := func(reason, message string) Pod {
		return newPod(node, func(p *Pod) { p.Phase, p.StatusReason, p.StatusMessage = corev1.PodFailed, reason, message })
	}
	for name, tt := range map[string]struct {
		pod  Pod
		want string
	}{
		"the task comes before the container runtime":    {overdue(&Exit{Message: "own words"}, "CrashLoopBackOff"), "own words"},
		"what is not from the task comes after":          {overdue(&Exit{Lost: true, Message: "no container"}, "CrashLoopBackOff"), "CrashLoopBackOff"},
		"what is not from the task comes before nothing": {overdue(&Exit{Lost: true, Message: "no container"}, ""), "no container"},
		"nothing is known":                               {overdue(nil, ""), "the attempt took longer than its time limit"},
		"a reason with a message":                        {rejected("OutOfcpu", "too few"), "OutOfcpu: too few"},
		"a reason without a message":                     {rejected("OutOfcpu", ""), "OutOfcpu"},
		"a message without a reason":                     {rejected("", "too few"), "the pod ended before its container reported how"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := recordOf(t, newJob(), node, tt.pod); r.Message != tt.want {
				t.Errorf("%q, want %q", r.Message, tt.want)
			}
		})
	}
}

// Only a retained pod is trusted to say that its end was recorded.
func TestAPodThatSaysItIsRecorded(t *testing.T) {
	node := newNode("n")
	for name, tt := range map[string]struct {
		retain int32
		pod    func(*Pod)
		want   bool
	}{
		"no pods are retained":              {0, func(p *Pod) { p.Recorded, p.Finalized = true, false }, true},
		"the pod has its finalizer":         {60, func(p *Pod) { p.Recorded = true }, true},
		"the pod was released, and says so": {60, func(p *Pod) { p.Recorded, p.Finalized = true, false }, false},
		"the pod was released, but was not": {60, func(p *Pod) { p.Finalized = false }, true},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.RetainPodsSeconds = tt.retain })
			is := false
			for _, action := range Next(see(job, []Node{node}, newPod(node, exited(1), tt.pod))).Actions {
				_, records := action.(Record)
				is = is || records
			}
			if is != tt.want {
				t.Errorf("recorded: %t, want %t", is, tt.want)
			}
		})
	}
}

func TestAnEndRetainsWhatTheTaskDidToItsNode(t *testing.T) {
	for name, tt := range map[string]struct {
		node     func(*Node)
		cordoned bool
		want     bool
	}{
		"the cordon is still there":     {cordonedBy(jobKey), true, true},
		"the node was uncordoned":       {func(*Node) {}, true, false},
		"the record knows of no cordon": {cordonedBy(jobKey), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", recorded(record.Failed, func(r *record.Record) {
				r.Cordoned, r.RemovedLabels = tt.cordoned, map[string]string{"example.com/a": "b"}
			}), tt.node)
			r := recordOf(t, newJob(), node, newPod(node, exited(1), func(p *Pod) { p.Attempt = 2 }))
			if r.Cordoned != tt.want || len(r.RemovedLabels) != 1 {
				t.Errorf("cordoned %t, removed labels %v, want %t, and one", r.Cordoned, r.RemovedLabels, tt.want)
			}
		})
	}
}

// adoptPolicy of a key is that of the entry of spec.publish with the same kind and key.
func TestAdoptPolicyIsThatOfTheKey(t *testing.T) {
	publishes := publisher{&job{policy: policy{in: Input{Job: newJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Publish = []v1alpha1.PublishedResult{
			{Result: "a", Label: "x.example/a", Adopt: v1alpha1.AdoptAlways},
			{Result: "a", Annotation: "x.example/b", Adopt: v1alpha1.AdoptAlways},
			{Result: "a", Annotation: "x.example/a", Adopt: v1alpha1.AdoptSameValue},
			{Result: "a", Label: "x.example/b", Adopt: v1alpha1.AdoptSameValue},
		}
	})}}}}
	for _, tt := range []struct {
		kind, key string
		want      v1alpha1.AdoptPolicy
	}{
		{kindLabel, "x.example/a", v1alpha1.AdoptAlways},
		{kindAnnotation, "x.example/a", v1alpha1.AdoptSameValue},
		{kindLabel, "x.example/b", v1alpha1.AdoptSameValue},
		{kindAnnotation, "x.example/b", v1alpha1.AdoptAlways},
		{kindLabel, "x.example/c", v1alpha1.AdoptNever},
		{kindAnnotation, "x.example/c", v1alpha1.AdoptNever},
	} {
		if got := publishes.adoptPolicy(tt.kind, tt.key); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.kind, tt.key, got, tt.want)
		}
	}
}

func TestStaysAssumed(t *testing.T) {
	for name, tt := range map[string]struct {
		prev *record.Record
		next record.Record
		want bool
	}{
		"a disruption":    {&record.Record{Assumed: true, Revision: rev}, record.Record{Outcome: record.Disrupted, Revision: rev}, true},
		"a reboot":        {&record.Record{Assumed: true, Revision: rev}, record.Record{Outcome: record.Rebooting, Revision: rev}, true},
		"a success":       {&record.Record{Assumed: true, Revision: rev}, record.Record{Outcome: record.Succeeded, Revision: rev}, false},
		"a failure":       {&record.Record{Assumed: true, Revision: rev}, record.Record{Outcome: record.Failed, Revision: rev}, false},
		"a new revision":  {&record.Record{Assumed: true, Revision: "earlier"}, record.Record{Outcome: record.Disrupted, Revision: rev}, false},
		"a run before":    {&record.Record{Revision: rev}, record.Record{Outcome: record.Disrupted, Revision: rev}, false},
		"another machine": {&record.Record{Assumed: true, Revision: rev, MachineID: "other"}, record.Record{Outcome: record.Disrupted, Revision: rev}, false},
		"no record":       {nil, record.Record{Outcome: record.Disrupted, Revision: rev}, false},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", func(n *Node) { n.On.Record = tt.prev })
			j := &job{policy: policy{in: Input{Job: newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnMachineChange = new(true) })}}}
			if got := j.staysAssumed(&node, &tt.next); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
		})
	}
}

func TestNothingIsAssumedWithUnknownRevision(t *testing.T) {
	in := see(newJob(assuming), []Node{newNode("n", configured)})
	in.Revision, in.Obstacle = "", &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "it is missing"}
	if got := told(Next(in)); len(got) > 0 {
		t.Errorf("actions %v, want none", got)
	}
}

// A gate whose status has no time is new: nodes that joined before are not closed.
func TestAGateWithoutATimeIsNew(t *testing.T) {
	job := newJob(gated(v1alpha1.GateSpec{}), onHold)
	job.Status.Gate.Since = metav1.Time{}
	if got := told(Next(see(job, []Node{newNode("n", made(5))}))); len(got) > 0 {
		t.Errorf("actions %v, want none", got)
	}
}

func TestTaintsThatAreGates(t *testing.T) {
	for name, tt := range map[string]struct {
		taint corev1.Taint
		want  bool
	}{
		"the value of Everynode":                            {taint("x.example/y", v1alpha1.GateValue, corev1.TaintEffectNoSchedule), true},
		"the default key of any NodeJob":                    {taint("other.everynode.dev/job", "", corev1.TaintEffectNoSchedule), true},
		"a user's key":                                      {taint("x.example/known", "", corev1.TaintEffectNoSchedule), true},
		"the value of Everynode, and a key without a slash": {taint("y", v1alpha1.GateValue, corev1.TaintEffectNoSchedule), false},
		"the value of Everynode, and a weak effect":         {taint("x.example/y", v1alpha1.GateValue, corev1.TaintEffectPreferNoSchedule), false},
		"another taint":                                     {taint("x.example/y", "", corev1.TaintEffectNoSchedule), false},
		"a similar key":                                     {taint("noteverynode.dev/y", "", corev1.TaintEffectNoSchedule), false},
	} {
		if got := (&job{policy: policy{in: Input{GateKeys: []string{"x.example/known"}}}}).isGate(&tt.taint); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestATaskToleratesTheGateOfItsNodeJob(t *testing.T) {
	in := see(
		newJob(gated(v1alpha1.GateSpec{})),
		[]Node{
			newNode(
				"n",
				made(7200),
				withTaints(
					taint("z.everynode.dev/removed", "", corev1.TaintEffectNoSchedule),
					taint("x.example/other", "", corev1.TaintEffectNoSchedule),
				),
			),
		},
	)
	in.GateKeys = []string{"x.example/other"}
	for _, action := range Next(in).Actions {
		if s, is := action.(Start); is {
			if diff := cmp.Diff(
				[]string{"ns.everynode.dev/job", "x.example/other", "z.everynode.dev/removed"},
				s.Attempt.Gates,
			); diff != "" {
				t.Errorf("gates (-want +got):\n%s", diff)
			}
			return
		}
	}
	t.Error("no task starts")
}

// A gate with NoExecute must not end the manager, nor a task that does not tolerate it.
func TestPodsThatTheGateWouldEnd(t *testing.T) {
	node := newNode("n")
	rebooting := newNode("n", recorded(record.Rebooting))
	for name, tt := range map[string]struct {
		effect corev1.TaintEffect
		own    string
		node   Node
		pods   map[string][]*Pod
		want   bool
	}{
		"no pod":                          {corev1.TaintEffectNoExecute, "", node, nil, false},
		"the manager":                     {corev1.TaintEffectNoExecute, "n", node, nil, true},
		"the manager on another node":     {corev1.TaintEffectNoExecute, "m", node, nil, false},
		"a pod of a task":                 {corev1.TaintEffectNoExecute, "", node, map[string][]*Pod{"n": {{}}}, true},
		"a pod of a task on another node": {corev1.TaintEffectNoExecute, "", node, map[string][]*Pod{"m": {{}}}, false},
		"a run between its pods":          {corev1.TaintEffectNoExecute, "", rebooting, nil, true},
		"an effect that ends no pods":     {corev1.TaintEffectNoSchedule, "n", rebooting, map[string][]*Pod{"n": {{}}}, false},
	} {
		g := &gate{
			job:   &job{policy: policy{in: Input{Job: newJob(), OwnNode: tt.own, Revision: rev}}, podsOn: tt.pods},
			Taint: corev1.Taint{Effect: tt.effect},
		}
		if got := g.endsPods(&tt.node); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// One node at a time is unavailable unless the user says more, whatever maxConcurrent is.
func TestOneNodeAtATimeIsUnavailableByDefault(t *testing.T) {
	job := newJob(cordoning, func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromString("100%")) })
	job.Spec.Maintenance.MaxUnavailable = nil
	p := Next(see(job, []Node{newNode("a"), newNode("b"), newNode("c")}))
	if want := []string{"Preparing a, cordoned by ns.everynode.dev/job"}; !slices.Equal(told(p), want) {
		t.Errorf("actions %v, want %v", told(p), want)
	}
	if got := p.Nodes[1].Message; got != "1 node is not Ready, cordoned or at work (a), and maintenance.maxUnavailable allows 1" {
		t.Errorf("the next node: %s", got)
	}
	if got := AtOnce(job, 3); got != 1 {
		t.Errorf("%d nodes at once", got)
	}
}

// A percentage of maxUnavailable is rounded down, and is at least one node.
func TestMaxUnavailableIsRoundedDown(t *testing.T) {
	for matched, want := range map[int]int{1: 1, 3: 1, 4: 2, 5: 2} {
		nodeJob := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.MaxUnavailable = new(intstr.FromString("50%")) })
		if got := (&capacity{job: &job{policy: policy{in: Input{Job: nodeJob}}}}).maxUnavailable(matched); got != want {
			t.Errorf("50%% of %d nodes: %d, want %d", matched, got, want)
		}
	}
}

// TestTheBootOfAnEviction : a pod can be for an older boot than that in which something has evicted it. In doubt, the node has not rebooted
// since then.
func TestTheBootOfAnEviction(t *testing.T) {
	node := newNode("n")
	pod := newPod(node, exited(143, reported(outcome.ReasonDisrupted)), func(p *Pod) {
		p.Disrupted, p.DisruptedReason = ago(5), "EvictionByEvictionAPI"
		p.Machine = task.Machine(node.MachineID, "boot-before")
	})
	r := Next(see(newJob(), []Node{node}, pod)).Actions[0].(Record).Record
	if r.Reason != v1alpha1.ReasonEvicted || r.BootID != node.BootID {
		t.Errorf("it was %s in boot %q, want %q", r.Reason, r.BootID, node.BootID)
	}
}
