// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// checkedFirst asks the check before a node is cordoned for the task.
func checkedFirst(j *v1alpha1.NodeJob) {
	j.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, Before: true}
	j.Spec.Maintenance.Cordon = true
}

// checks is the pod of such a check, and asksItself that of a task that runs the check first.
func checks(p *Pod)     { p.Runs = task.CheckBefore }
func asksItself(p *Pod) { p.ChecksBefore = true }

// rolledBack rolls the task back after a failure, and when the NodeJob is deleted.
func rolledBack(j *v1alpha1.NodeJob) {
	j.Spec.Rollback, j.Spec.DeletionPolicy = &v1alpha1.RollbackSpec{
		ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"},
	}, v1alpha1.DeletionRollback
}

// answeredBy is the end of such a check on record, for the first time a minute ago.
func answeredBy(o record.Outcome, answer record.Answer, changes ...func(*record.Record)) func(*Node) {
	return recorded(o, append([]func(*record.Record){func(r *record.Record) {
		r.CheckBefore, r.Attempts, r.NeverStarted, r.DisruptedSince = answer, 0, true, ago(60)
	}}, changes...)...)
}

// TestCheckBefore tests a NodeJob with nodes a and b that cordons nodes, and checks them before.
func TestCheckBefore(t *testing.T) {
	const (
		checkA, checkB = "start check-before 1 of rev on a", "start check-before 1 of rev on b"
		cordonA        = "Preparing a, cordoned by ns.everynode.dev/job"
	)
	no := reported(outcome.ReasonTaskFailed)
	tests := map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		a    []func(*Node)
		pods []func(*Pod) // of the pod on a, if any
		// want are the actions, and reason is that of node a.
		want   []string
		reason string
		holds  []types.UID
	}{
		"all nodes are checked at once, and take no slot": {
			job: []func(*v1alpha1.NodeJob){oneAtOnce}, want: []string{checkA, checkB}, reason: v1alpha1.ReasonCheckingBefore,
		},
		"a node that is checked waits": {pods: []func(*Pod){checks}, want: []string{checkB}, reason: v1alpha1.ReasonCheckingBefore},
		"a suspended NodeJob checks no node": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }}, reason: v1alpha1.ReasonSuspended,
		},
		"yes: the node is done": {
			pods: []func(*Pod){checks, exited(0, reported(""))}, reason: v1alpha1.ReasonCheckingBefore,
			want: []string{"record Succeeded on a: attempts 0, disruptions 0, AlreadyDone: the end", checkB},
		},
		"no: the task is needed": {
			pods: []func(*Pod){checks, exited(1, no)}, reason: v1alpha1.ReasonCheckingBefore,
			want: []string{"record Needed on a: attempts 0, disruptions 0", checkB},
		},
		"the node is prepared after a no": {
			a: []func(*Node){answeredBy(record.Needed, record.AnswerNo)}, want: []string{cordonA, checkB}, reason: v1alpha1.ReasonPreparing,
			holds: []types.UID{"a-uid"},
		},
		"a no of an earlier revision does not count": {
			a:    []func(*Node){answeredBy(record.Needed, record.AnswerNo, func(r *record.Record) { r.Revision = "old" })},
			want: []string{checkA, checkB}, reason: v1alpha1.ReasonCheckingBefore,
		},
		"a user requests a retry after the no": {
			job: []func(*v1alpha1.NodeJob){askAgain}, a: []func(*Node){answeredBy(record.Needed, record.AnswerNo)},
			want: []string{checkA, checkB}, reason: v1alpha1.ReasonCheckingBefore,
		},
		"another exit code is no answer": {
			pods: []func(*Pod){checks, exited(75, no)}, reason: v1alpha1.ReasonCheckingBefore,
			want: []string{"record Disrupted on a: attempts 0, disruptions 1, CheckError: the end", checkB},
		},
		"a missing file is a no of grep": {
			pods: []func(*Pod){checks, exited(2, no)}, reason: v1alpha1.ReasonCheckingBefore,
			want: []string{"record Needed on a: attempts 0, disruptions 0", checkB},
		},
		"a missing command is a no": {
			pods: []func(*Pod){checks, exited(127, no)}, reason: v1alpha1.ReasonCheckingBefore,
			want: []string{"record Needed on a: attempts 0, disruptions 0", checkB},
		},
		"a signal to a program of the check is no answer": {
			pods: []func(*Pod){checks, exited(137, no)}, reason: v1alpha1.ReasonCheckingBefore,
			want: []string{"record Disrupted on a: attempts 0, disruptions 1, CheckError: the end", checkB},
		},
		"an exit code that the runner did not report is no answer": {
			pods: []func(*Pod){checks, exited(1)}, reason: v1alpha1.ReasonCheckingBefore,
			want: []string{"record Disrupted on a: attempts 0, disruptions 1, CheckError: the end", checkB},
		},
		"a timeout is no answer": {
			pods: []func(*Pod){
				checks,
				exited(124, reported(outcome.ReasonTimedOut), func(e *Exit) { e.Message = "it took too long" }),
			},
			reason: v1alpha1.ReasonCheckingBefore,
			want:   []string{"record Disrupted on a: attempts 0, disruptions 1, CheckError: it took too long", checkB},
		},
		"its kubelet does not respond before the deadline": {
			a: []func(*Node){
				func(n *Node) { n.Ready = corev1.ConditionUnknown },
			},
			pods:   []func(*Pod){checks, func(p *Pod) { p.Created = ago(80) }},
			reason: v1alpha1.ReasonCheckingBefore,
			want: []string{
				"record Disrupted on a: attempts 0, disruptions 1, CheckError: the node became unreachable during the attempt and was not reachable again before the deadline of the attempt",
				checkB,
			},
		},
		"an eviction is no answer": {
			pods:   []func(*Pod){checks, exited(143, reported(outcome.ReasonDisrupted))},
			reason: v1alpha1.ReasonCheckingBefore,
			want: []string{
				"record Disrupted on a: attempts 0, disruptions 1, Disrupted: the task was interrupted by a signal from outside",
				checkB,
			},
		},
		"an error is repeated after the backoff": {
			a: []func(*Node){
				answeredBy(record.Disrupted, record.AnswerError),
			},
			want:   []string{checkA, checkB},
			reason: v1alpha1.ReasonCheckingBefore,
		},
		"an error is not repeated in the backoff": {
			a:    []func(*Node){answeredBy(record.Disrupted, record.AnswerError, func(r *record.Record) { r.RecordedAt = ago(9) })},
			want: []string{checkB}, reason: v1alpha1.ReasonBackingOff,
		},
		"a retry of the task is not checked before": {
			a: []func(*Node){
				recorded(record.Failed),
			},
			want:   []string{cordonA, checkB},
			reason: v1alpha1.ReasonPreparing,
			holds:  []types.UID{"a-uid"},
		},
		"a disrupted attempt of the task is not checked before": {
			a: []func(*Node){
				recorded(record.Disrupted),
			},
			want:   []string{cordonA, checkB},
			reason: v1alpha1.ReasonPreparing,
			holds:  []types.UID{"a-uid"},
		},
		"a node reruns the task after a yes only": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnReboot = true }},
			a: []func(*Node){
				recorded(record.Succeeded, func(r *record.Record) { r.BootID = "earlier" }),
			},
			want:   []string{checkB, checkA},
			reason: v1alpha1.ReasonCheckingBefore,
		},
		"a terminating check holds no seat": {
			pods: []func(*Pod){
				checks,
				func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) },
			},
			want:   []string{checkB},
			reason: v1alpha1.ReasonPodTerminating,
		},
		"a check ends with the NodeJob": {
			job:  []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = &metav1.Time{Time: ago(1)} }, rolledBack},
			pods: []func(*Pod){checks}, want: []string{"release a-pod"}, reason: v1alpha1.ReasonNothingToRollback,
		},
		"a failed attempt is not rolled back beside a check of another revision": {
			job: []func(*v1alpha1.NodeJob){rolledBack}, a: []func(*Node){recorded(record.Failed, attempts(2))},
			pods: []func(*Pod){checks, func(p *Pod) { p.Revision = "old" }}, want: []string{checkB}, reason: v1alpha1.ReasonRollbackPending,
			holds: []types.UID{"a-uid"},
		},
		"without maintenance, the pod of the task asks": {
			job:  []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon = false }},
			want: []string{"start attempt 1 of rev on a", "start attempt 1 of rev on b"}, reason: v1alpha1.ReasonStarting,
		},
		"the pod of the task answers yes": {
			pods: []func(*Pod){asksItself, exited(0, reported(outcome.ReasonAlreadyDone))}, reason: v1alpha1.ReasonRunning,
			want: []string{"record Succeeded on a: attempts 0, disruptions 0, AlreadyDone: the end", checkB}, holds: []types.UID{"a-uid"},
		},
		"a pod that was not asked cannot answer yes": {
			pods: []func(*Pod){exited(0, reported(outcome.ReasonAlreadyDone))}, reason: v1alpha1.ReasonRunning,
			want: []string{"record Succeeded on a: attempts 1, disruptions 0", checkB}, holds: []types.UID{"a-uid"},
		},
		"the check in the pod of the task fails itself": {
			pods: []func(*Pod){asksItself, exited(3, reported(outcome.ReasonCheckError))}, reason: v1alpha1.ReasonRunning,
			want: []string{"record Disrupted on a: attempts 0, disruptions 1, CheckError: the end", checkB}, holds: []types.UID{"a-uid"},
		},
		"a pod that was not asked has failed": {
			pods: []func(*Pod){exited(3, reported(outcome.ReasonCheckError))}, reason: v1alpha1.ReasonRunning,
			want: []string{"record Failed on a: attempts 1, disruptions 0, CheckError: the end", checkB}, holds: []types.UID{"a-uid"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(append([]func(*v1alpha1.NodeJob){checkedFirst}, tt.job...)...)
			nodes := []Node{newNode("a", tt.a...), newNode("b")}
			in := see(job, nodes)
			if tt.pods != nil {
				in.Pods = []Pod{newPod(nodes[0], tt.pods...)}
			}
			in.Budgets = map[types.UID]NodeBudget{"a-uid": limited(isClaimed)}
			p := Next(in)
			var holds []types.UID
			for uid := range p.Holds {
				holds = append(holds, uid)
			}
			if diff := cmp.Diff(tt.want, told(p)); diff != "" || p.Nodes[0].Reason != tt.reason || !slices.Equal(holds, tt.holds) {
				t.Errorf("a is %s (%s), and %v are held, want %s and %v; actions (-want +got):\n%s",
					p.Nodes[0].State, p.Nodes[0].Reason, holds, tt.reason, tt.holds, diff)
			}
		})
	}
}

// A node on which the check answered yes does not show that the task works: another node is the canary.
func TestAlreadyDoneIsNoCanary(t *testing.T) {
	done := answeredBy(record.Succeeded, record.AnswerYes, func(r *record.Record) { r.Assumed = true })
	job := newJob(checkedFirst, inSteps(first(intstr.FromInt32(1)), rest))
	p := Next(see(job, []Node{newNode("a", done), newNode("b"), newNode("c")}))
	if diff := cmp.Diff([]string{"start check-before 1 of rev on b"}, told(p)); diff != "" || p.Nodes[0].State != Done {
		t.Errorf("a is %s; actions (-want +got):\n%s", p.Nodes[0].State, diff)
	}
}

// The check of many nodes runs in groups.
func TestChecksAtTheSameTime(t *testing.T) {
	var nodes []Node
	for i := range maxChecksBefore + 5 {
		nodes = append(nodes, newNode("n"+strings.Repeat("x", i)))
	}
	in := see(newJob(checkedFirst), nodes, newPod(nodes[0], checks))
	if got := len(Next(in).Actions); got != maxChecksBefore-1 {
		t.Errorf("%d checks start beside one, want %d in all", got, maxChecksBefore)
	}
	in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(1)}
	if got := len(Next(in).Actions); got != 1 {
		t.Errorf("%d checks start to see whether the obstacle still exists, want 1", got)
	}
}

// A check that fails itself is reported at once, makes the NodeJob Stalled after checkErrorPatience if nothing else continues, and
// never counts as a failure.
func TestCheckErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		since   int
		others  []Node
		stalled bool
	}{
		"at first":                      {since: 60},
		"for long":                      {since: 300, stalled: true},
		"for long, and others continue": {since: 300, others: []Node{newNode("b")}},
		"past the progress deadline":    {since: 9000, stalled: true},
	} {
		t.Run(name, func(t *testing.T) {
			fails := answeredBy(record.Disrupted, record.AnswerError, func(r *record.Record) {
				r.Reason, r.Message, r.DisruptedSince, r.RecordedAt, r.Disruptions = v1alpha1.ReasonCheckError, "no database", ago(
					tt.since,
				), ago(
					9,
				), 9
			})
			job := newJob(checkedFirst, mayFailNodes(0))
			p := Next(see(job, append([]Node{newNode("a", fails)}, tt.others...)))
			at := 1
			if tt.stalled {
				at = 2
			}
			c := p.Status.Conditions[at]
			if c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonCheckError ||
				!strings.Contains(c.Message, "a: no database") ||
				p.Status.Nodes.Failed > 0 {
				t.Errorf("%d failed, and %s is %s (%s): %s", p.Status.Nodes.Failed, c.Type, c.Status, c.Reason, c.Message)
			}
			if !tt.stalled && len(tt.others) == 0 && p.WakeAt.After(now.Add(checkErrorPatience)) {
				t.Errorf("it wakes at %v", p.WakeAt)
			}
		})
	}
}

// What an earlier revision did remains to be rolled back, and a task that was not needed does not.
func TestRollbackAfterCheckBefore(t *testing.T) {
	for name, tt := range map[string]struct {
		before []func(*Node)
		want   bool // that the record says that the task never started
	}{
		"a node without a record":            {nil, true},
		"a success of an earlier revision":   {[]func(*Node){recorded(record.Succeeded, func(r *record.Record) { r.Revision = "old" })}, false},
		"a node that was already done":       {[]func(*Node){answeredBy(record.Succeeded, record.AnswerYes)}, true},
		"another machine with the same name": {[]func(*Node){recorded(record.Succeeded, func(r *record.Record) { r.MachineID = "earlier" })}, true},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("a", tt.before...)
			p := Next(see(newJob(checkedFirst), []Node{node}, newPod(node, checks, exited(0, reported("")))))
			if got := p.Actions[0].(Record).Record; got.NeverStarted != tt.want || !got.IsAlreadyDone() {
				t.Errorf("neverStarted is %v, want %v: %+v", got.NeverStarted, tt.want, got)
			}
		})
	}
}

// A result of the check that cannot be published fails no node.
func TestResultsOfCheckBefore(t *testing.T) {
	node := newNode("a")
	job := newJob(checkedFirst, func(j *v1alpha1.NodeJob) {
		j.Spec.Publish = []v1alpha1.PublishedResult{{Result: "size", Label: "example.com/size"}}
	})
	large := func(e *Exit) { e.Results = map[string]string{"size": "no label, this"} }
	p := Next(see(job, []Node{node}, newPod(node, checks, exited(0, reported(""), large))))
	got := p.Actions[0].(Record).Record
	if got.Outcome != record.Disrupted || got.CheckBefore != record.AnswerError || got.Disruptions != 1 || got.Assumed {
		t.Errorf("record %+v", got)
	}
	if !strings.Contains(got.Message, "no valid label value") || got.Reason != v1alpha1.ReasonCheckError {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}

// TestPrePull tests a NodeJob with one node that cordons it, and pulls the images of its task before.
func TestPrePull(t *testing.T) {
	pulled := reported(outcome.ReasonImagesPulled)
	const start = "start check-before 1 of rev on a"
	tests := map[string]struct {
		job     []func(*v1alpha1.NodeJob)
		a       []func(*Node)
		pods    []func(*Pod)
		want    []string
		reason  string
		message string // of the node
	}{
		"first the images": {want: []string{start}, reason: v1alpha1.ReasonPullingImages, message: "its images are pulled first"},
		"while an image cannot be pulled": {
			pods:   []func(*Pod){checks, func(p *Pod) { p.Waiting, p.Started = "ImagePullBackOff: image of a volume", time.Time{} }},
			reason: v1alpha1.ReasonPullingImages, message: "ImagePullBackOff: image of a volume",
		},
		"they are there": {
			pods: []func(*Pod){checks, exited(1, pulled)}, want: []string{"record Needed on a: attempts 0, disruptions 0, ImagesPulled: "},
			reason: v1alpha1.ReasonPullingImages,
		},
		"a check that was set meanwhile has not been asked": {
			job: []func(*v1alpha1.NodeJob){
				checkedFirst,
			},
			pods:   []func(*Pod){checks, exited(1, pulled)},
			reason: v1alpha1.ReasonCheckingBefore,
			want: []string{
				"record Disrupted on a: attempts 0, disruptions 1, Disrupted: the NodeJob was changed while the images were pulled",
			},
		},
		"then the cordon": {
			a: []func(*Node){
				answeredBy(record.Needed, record.AnswerNo, func(r *record.Record) { r.Reason = v1alpha1.ReasonImagesPulled }),
			},
			want:   []string{"Preparing a, cordoned by ns.everynode.dev/job"},
			reason: v1alpha1.ReasonPreparing,
		},
		"too late": {
			pods: []func(*Pod){checks, func(p *Pod) { p.Waiting, p.PastDeadline, p.Phase = "ImagePullBackOff: x", true, corev1.PodFailed }},
			want: []string{
				"record Disrupted on a: attempts 0, disruptions 1, ImagesNotPulled: ImagePullBackOff: x",
			},
			reason: v1alpha1.ReasonPullingImages,
		},
		"with a check, its pod pulls them": {
			job: []func(*v1alpha1.NodeJob){checkedFirst}, want: []string{start}, reason: v1alpha1.ReasonCheckingBefore,
		},
		"without maintenance, nothing is pulled before": {
			job:  []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon = false }},
			want: []string{"start attempt 1 of rev on a"}, reason: v1alpha1.ReasonStarting,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pulls := func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon, j.Spec.Maintenance.PrePull = true, true }
			job, node := newJob(append([]func(*v1alpha1.NodeJob){pulls}, tt.job...)...), newNode("a", tt.a...)
			in := see(job, []Node{node})
			if tt.pods != nil {
				in.Pods = []Pod{newPod(node, tt.pods...)}
			}
			p := Next(in)
			is := p.Nodes[0]
			if diff := cmp.Diff(tt.want, told(p)); diff != "" || is.Reason != tt.reason || tt.message != "" && is.Message != tt.message {
				t.Errorf("%s (%s), want %s; actions (-want +got):\n%s", is.Reason, is.Message, tt.reason, diff)
			}
		})
	}
}

// Images that cannot be pulled are reported as such, and nothing of the node changes.
func TestImagesThatCannotBePulled(t *testing.T) {
	fails := answeredBy(record.Disrupted, record.AnswerError, func(r *record.Record) {
		r.Reason, r.Message, r.DisruptedSince, r.RecordedAt = v1alpha1.ReasonImagesNotPulled, "ImagePullBackOff: x", ago(300), ago(9)
	})
	p := Next(
		see(
			newJob(func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon, j.Spec.Maintenance.PrePull = true, true }),
			[]Node{newNode("a", fails)},
		),
	)
	c := p.Status.Conditions[2]
	if c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonImagesNotPulled ||
		!strings.Contains(c.Message, "on 1 node, the images of the task cannot be pulled (a: ImagePullBackOff: x)") {
		t.Errorf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
	}
	if len(p.Actions) > 0 {
		t.Errorf("actions: %q", told(p))
	}
}

// An API server that refuses the pods which pull the images of a template keeps the task from every node, also while one of them is tried.
func TestPodsThatPullAreRefused(t *testing.T) {
	template := func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Script, j.Spec.Task.Template = "", &corev1.PodTemplateSpec{}
		j.Spec.Maintenance.Cordon, j.Spec.Maintenance.PrePull = true, true
	}
	for name, tt := range map[string]struct {
		retry int // seconds ago
		want  int // actions
	}{"until the next try": {-9, 0}, "the next try": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(template), []Node{newNode("a"), newNode("b")})
			in.RunnerRefused = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no such pods", Until: ago(tt.retry)}
			p := Next(in)
			c := p.Status.Conditions[2]
			if c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonPodForbidden || !strings.Contains(c.Message, "no such pods") {
				t.Errorf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
			}
			if len(p.Actions) != tt.want {
				t.Errorf("actions: %q, want %d", told(p), tt.want)
			}
		})
	}
}
