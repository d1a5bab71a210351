// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
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
)

func nameTaken(since, retryIn int) map[types.UID]NodeProblem {
	return map[types.UID]NodeProblem{
		"a-uid": {
			Why:     hold.Why{Reason: v1alpha1.ReasonPodNameTaken, Message: "pod x has its name", Until: ago(-retryIn)},
			Since:   ago(since),
			TriedAt: now,
		},
	}
}

func templated(j *v1alpha1.NodeJob) {
	j.Spec.Task = v1alpha1.TaskSpec{Template: &corev1.PodTemplateSpec{}, TimeoutSeconds: j.Spec.Task.TimeoutSeconds}
	j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
}

// succeeded adds the record of a success to a node whose label a user has removed since.
func succeeded(seconds int) func(*Node) {
	return func(n *Node) {
		recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt, r.RecordedAt = ago(seconds), ago(seconds) })(n)
		n.On.Label = ""
	}
}

func deletingSince(seconds int) func(*Node) {
	return func(n *Node) { n.Deleting, n.DeletingSince = true, ago(seconds) }
}

// TestNodeProblem tests what starts while node a has a problem.
func TestNodeProblem(t *testing.T) {
	failed := recorded(record.Failed, attempts(2))
	refused := &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(-5)}
	tests := map[string]struct {
		change  []func(*v1alpha1.NodeJob)
		nodes   []Node
		in      func(*Input)
		want    []string
		reason  string // of node a
		stalled string
	}{
		"the others start": {
			nodes: []Node{newNode("a"), newNode("b")}, in: func(in *Input) { in.NodeProblems = nameTaken(60, 5) },
			want: []string{"start attempt 1 of rev on b"}, reason: v1alpha1.ReasonPodNameTaken,
		},
		"the other nodes come first when a may be retried": {
			change: []func(*v1alpha1.NodeJob){
				oneAtOnce,
			},
			nodes:  []Node{newNode("a"), newNode("b")},
			in:     func(in *Input) { in.NodeProblems = nameTaken(60, 0) },
			want:   []string{"start attempt 1 of rev on b"},
			reason: v1alpha1.ReasonWaitingForSlot,
		},
		"a is retried when no other node waits": {
			nodes: []Node{newNode("a"), newNode("b", labelled(rev))}, in: func(in *Input) { in.NodeProblems = nameTaken(60, 0) },
			want: []string{"start attempt 1 of rev on a"}, reason: v1alpha1.ReasonStarting,
		},
		"the NodeJob is Stalled when nothing else continues": {
			nodes: []Node{newNode("a"), newNode("b", labelled(rev))}, in: func(in *Input) { in.NodeProblems = nameTaken(60, 5) },
			reason: v1alpha1.ReasonPodNameTaken, stalled: "a: pod x has its name",
		},
		"a counts as failed after the progress deadline": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(first(intstr.FromInt32(1)), rest),
			},
			nodes:   []Node{newNode("a", made(90)), newNode("b")},
			in:      func(in *Input) { in.NodeProblems = nameTaken(3600, 5) },
			reason:  v1alpha1.ReasonProgressDeadlineExceeded,
			stalled: "the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0 (a: ProgressDeadlineExceeded: no progress for 3600 s",
		},
		"another node takes its place if maxFailures allows a failure": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(first(intstr.FromInt32(1)), rest),
				mayFailNodes(1),
			},
			nodes:  []Node{newNode("a", made(90)), newNode("b")},
			in:     func(in *Input) { in.NodeProblems = nameTaken(3600, 5) },
			want:   []string{"start attempt 1 of rev on b"},
			reason: v1alpha1.ReasonProgressDeadlineExceeded,
		},
		"a loses its place also when it is prepared": {
			change: []func(*v1alpha1.NodeJob){cordoning, oneAtOnce}, nodes: []Node{newNode("a", cordonedBy(jobKey)), newNode("b", byHand)},
			in:   func(in *Input) { in.NodeProblems = nameTaken(60, 0) },
			want: []string{"start attempt 1 of rev on b", "Uncordoned a, uncordoned"}, reason: v1alpha1.ReasonWaitingForSlot,
		},
		"a rollback that cannot be created comes last": {
			change: []func(*v1alpha1.NodeJob){
				oneAtOnce,
				mayFailNodes(1),
				func(j *v1alpha1.NodeJob) {
					j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
				},
			},
			nodes:  []Node{newNode("a", failed), newNode("b")},
			in:     func(in *Input) { in.NodeProblems = nameTaken(60, 0) },
			want:   []string{"start attempt 1 of rev on b"},
			reason: v1alpha1.ReasonRollbackPending,
		},
		"a does not count as failed without a progress deadline": {
			change: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Rollout.ProgressDeadlineSeconds = new(int32(0)) }},
			nodes:  []Node{newNode("a"), newNode("b")}, in: func(in *Input) { in.NodeProblems = nameTaken(99999, 5) },
			want: []string{"start attempt 1 of rev on b"}, reason: v1alpha1.ReasonPodNameTaken,
		},
		"a does not count as failed while the API server rejects all pods": {
			nodes: []Node{newNode("a"), newNode("b")}, in: func(in *Input) {
				in.Obstacle = refused
				in.NodeProblems = map[types.UID]NodeProblem{
					"a-uid": {
						Why:     hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(-5)},
						General: true,
						Since:   ago(99999),
						TriedAt: ago(5),
					},
				}
			},
			reason: v1alpha1.ReasonPodForbidden, stalled: "no",
		},
		"a rejected rollback does not prevent a template from starting": {
			change: []func(*v1alpha1.NodeJob){
				templated,
				mayFailNodes(1),
			},
			nodes:  []Node{newNode("a", failed), newNode("b")},
			in:     func(in *Input) { in.RunnerRefused = refused },
			want:   []string{"start attempt 1 of rev on b"},
			reason: v1alpha1.ReasonRollbackPending,
		},
		"a rejected template does not prevent a rollback": {
			change: []func(*v1alpha1.NodeJob){
				templated,
				mayFailNodes(1),
			},
			nodes:   []Node{newNode("a", failed), newNode("b")},
			in:      func(in *Input) { in.Obstacle = refused },
			want:    []string{"start rollback 1 of rev on a"},
			reason:  v1alpha1.ReasonRollingBack,
			stalled: "no",
		},
		"a node that is disrupted for too long counts as failed and is retried": {
			change: []func(*v1alpha1.NodeJob){mayFailNodes(1)},
			nodes: []Node{
				newNode(
					"a",
					recorded(
						record.Disrupted,
						func(r *record.Record) { r.Disruptions, r.DisruptedSince, r.RecordedAt = 40, ago(4000), ago(400) },
					),
				),
				newNode("b"),
			},
			in:     func(*Input) {},
			want:   []string{"start attempt 1 of rev on b", "start attempt 1 of rev on a"},
			reason: v1alpha1.ReasonStarting,
		},
		"a node that was disrupted once, long ago, has had no chance since: the NodeJob was suspended, frozen, or without a manager": {
			change: []func(*v1alpha1.NodeJob){mayFailNodes(0)},
			nodes: []Node{
				newNode("a", recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince, r.RecordedAt = ago(7200), ago(7200) })),
				newNode("b"),
			},
			in:     func(*Input) {},
			want:   []string{"start attempt 1 of rev on a", "start attempt 1 of rev on b"},
			reason: v1alpha1.ReasonStarting,
		},
		"a problem of which the last occurrence is long ago waits for its next try": {
			change: []func(*v1alpha1.NodeJob){mayFailNodes(0)},
			nodes:  []Node{newNode("a"), newNode("b")},
			in: func(in *Input) {
				in.NodeProblems = map[types.UID]NodeProblem{
					"a-uid": {
						Why:     hold.Why{Reason: v1alpha1.ReasonPodNameTaken, Message: "no", Until: ago(-5)},
						Since:   ago(7200),
						TriedAt: ago(7100),
					},
				}
			},
			want: []string{"start attempt 1 of rev on b"}, reason: v1alpha1.ReasonPodNameTaken,
		},
		"a node that is disrupted for too long stalls a rollout with maxFailures 0": {
			change: []func(*v1alpha1.NodeJob){mayFailNodes(0)},
			nodes: []Node{
				newNode(
					"a",
					recorded(
						record.Disrupted,
						func(r *record.Record) { r.Disruptions, r.DisruptedSince, r.RecordedAt = 40, ago(4000), ago(400) },
					),
				),
				newNode("b"),
			},
			in:      func(*Input) {},
			reason:  v1alpha1.ReasonMaxFailuresExceeded,
			stalled: "the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0 (a: ProgressDeadlineExceeded: no progress for 3600 s (rollout.progressDeadlineSeconds): 40 attempts in a row were disrupted",
		},
		"a canary that is unreachable after a disruption counts as failed": {
			change: []func(*v1alpha1.NodeJob){inSteps(first(intstr.FromInt32(1)), rest), mayFailNodes(1)},
			nodes: []Node{
				newNode(
					"a",
					made(9000),
					func(n *Node) { n.Ready = corev1.ConditionUnknown },
					recorded(
						record.Disrupted,
						func(r *record.Record) { r.DisruptedSince, r.RecordedAt = ago(4000), ago(4000) },
					),
				),
				newNode("b"),
			},
			in: func(*Input) {}, want: []string{"start attempt 1 of rev on b"}, reason: v1alpha1.ReasonProgressDeadlineExceeded,
		},
		"a canary that was done for a long time, is terminating, and is due again keeps its place": {
			change: []func(*v1alpha1.NodeJob){inSteps(first(intstr.FromInt32(1)), rest), mayFailNodes(1)},
			nodes:  []Node{newNode("a", made(9000), succeeded(4000), deletingSince(60)), newNode("b")},
			in:     func(*Input) {}, reason: v1alpha1.ReasonNodeTerminating,
		},
		"a terminating canary keeps its place until the progress deadline": {
			change: []func(*v1alpha1.NodeJob){inSteps(first(intstr.FromInt32(1)), rest), mayFailNodes(1)},
			nodes:  []Node{newNode("a", made(9000), succeeded(8000), deletingSince(3600)), newNode("b")},
			in:     func(*Input) {}, want: []string{"start attempt 1 of rev on b"}, reason: v1alpha1.ReasonProgressDeadlineExceeded,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(tt.change...), tt.nodes)
			tt.in(&in)
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if p.Nodes[0].Reason != tt.reason {
				t.Errorf("a is %+v, want %s", p.Nodes[0], tt.reason)
			}
			if c := p.Status.Conditions[2]; (c.Status == metav1.ConditionTrue) != (tt.stalled != "") ||
				!strings.Contains(c.Message, tt.stalled) {
				t.Errorf("condition %+v, want Stalled: %q", c, tt.stalled)
			}
		})
	}
}

func TestNodeProblemsInTheStatus(t *testing.T) {
	var nodes []Node
	problems := map[types.UID]NodeProblem{"gone-uid": {Why: hold.Why{Reason: v1alpha1.ReasonPodNameTaken, Message: "gone"}, Since: ago(60)}}
	for i := range 2 * maxNodeProblems {
		name := fmt.Sprintf("n%02d", 2*maxNodeProblems-i)
		nodes = append(nodes, newNode(name))
		problems[nodes[i].UID] = NodeProblem{
			Why:     hold.Why{Reason: v1alpha1.ReasonPodNameTaken, Message: "\x1b" + strings.Repeat("x", 1<<10), Until: ago(-5)},
			Since:   ago(60).Add(time.Millisecond),
			General: name == "n02",
		}
	}
	in := see(newJob(), nodes)
	in.NodeProblems = problems
	p := Next(in)
	var named []string
	for _, t := range p.Status.NodeProblems {
		named = append(named, t.Node)
	}
	if diff := cmp.Diff([]string{"n01", "n03", "n04", "n05", "n06", "n07", "n08", "n09", "n10", "n11"}, named); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	first := p.Status.NodeProblems[0]
	if len(first.Message) != maxFailureMessage || !strings.HasPrefix(first.Message, `\x1bxxx`) ||
		first.Reason != v1alpha1.ReasonPodNameTaken ||
		!first.Since.Time.Equal(ago(60)) {
		t.Errorf("problem %+v", first)
	}

	for uid, t := range problems { // the operation was retried
		t.Until = t.Until.Add(time.Minute)
		problems[uid] = t
	}
	if diff := cmp.Diff(p.Status.NodeProblems, Next(in).Status.NodeProblems); diff != "" {
		t.Errorf("a retry changes the status (-want +got):\n%s", diff)
	}
	in.NodeProblems = nil
	if left := Next(in).Status.NodeProblems; left != nil {
		t.Errorf("solved problems: %+v", left)
	}

	for name, policy := range map[string]v1alpha1.DeletionPolicy{"with a rollback": v1alpha1.DeletionRollback, "without": v1alpha1.DeletionForget} {
		t.Run("a deletion "+name, func(t *testing.T) {
			in := see(newJob(func(j *v1alpha1.NodeJob) {
				j.DeletionTimestamp, j.Spec.DeletionPolicy, j.Spec.Rollback = &metav1.Time{
					Time: ago(5),
				}, policy, &v1alpha1.RollbackSpec{
					ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"},
				}
			}), []Node{newNode("a", recorded(record.Succeeded))})
			in.NodeProblems = nameTaken(60, 5)
			if told := Next(in).Status.NodeProblems; len(told) != 1 || told[0].Node != "a" {
				t.Errorf("problems %+v, want that of a", told)
			}
		})
	}
}

// An attempt whose outcome cannot be recorded keeps its slot, but not forever.
func TestOutcomeThatCannotBeRecorded(t *testing.T) {
	cannot := func(since int) map[types.UID]NodeProblem {
		return map[types.UID]NodeProblem{
			"a-uid": {
				Why:   hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "its annotations are full", Until: ago(-5)},
				Since: ago(since),
			},
		}
	}
	nodes := []Node{newNode("a"), newNode("b")}
	for name, tt := range map[string]struct {
		created int
		want    []string
		reason  string
	}{
		"it has its slot": {created: 600, reason: v1alpha1.ReasonRunning},
		"a terminating canary keeps its place until the progress deadline": {created: 4000, want: []string{"start attempt 1 of rev on b"}, reason: v1alpha1.ReasonProgressDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(oneAtOnce, mayFailNodes(1)), nodes, newPod(nodes[0], exited(0), func(p *Pod) { p.Created = ago(tt.created) }))
			in.NodeProblems = cannot(tt.created)
			p := Next(in)
			if diff := cmp.Diff(
				tt.want,
				told(p),
			); diff != "" || p.Nodes[0].Reason != tt.reason ||
				!strings.Contains(p.Nodes[0].Message, "its annotations are full") {
				t.Errorf("a is %+v, want %s; actions (-want +got):\n%s", p.Nodes[0], tt.reason, diff)
			}
		})
	}
}

// A soak does not wait forever for a node to become Ready.
func TestSoakThatDoesNotStart(t *testing.T) {
	soaked := first(intstr.FromInt32(1))
	soaked.SoakSeconds = 60
	notReady := newNode("a", made(9000), recorded(record.Succeeded), func(n *Node) { n.Ready = corev1.ConditionFalse })
	next := func(waits time.Time) Plan {
		job := newJob(inSteps(soaked, rest), mayFailNodes(1))
		job.Status.Revision, job.Status.Rollout = rev, &v1alpha1.RolloutStatus{Step: "first", StepStartedAt: metav1.Time{Time: ago(9000)}}
		job.Status.ControllerState.Rollout.WaitingForReadySince = metav1.Time{Time: waits}
		return Next(see(job, []Node{notReady, newNode("b", made(9000))}))
	}
	if p := next(
		time.Time{},
	); !p.Status.ControllerState.Rollout.WaitingForReadySince.Time.Equal(now) || !wakes(p, now.Add(time.Hour)) ||
		len(p.Actions) > 0 {
		t.Errorf(
			"the soak waits since %v, the plan wakes at %v and does %v",
			p.Status.ControllerState.Rollout.WaitingForReadySince,
			p.WakeAt,
			told(p),
		)
	}
	p := next(ago(3600))
	if diff := cmp.Diff(
		[]string{"start attempt 1 of rev on b"},
		told(p),
	); diff != "" ||
		p.Nodes[0].Reason != v1alpha1.ReasonProgressDeadlineExceeded {
		t.Errorf("a is %+v; actions (-want +got):\n%s", p.Nodes[0], diff)
	}
	if c := p.Status.Rollout.UnrecordedFailures; len(c) != 1 || c[0].Reason != v1alpha1.ReasonProgressDeadlineExceeded {
		t.Errorf("unrecorded failures %+v, want a", c)
	}
}

// A node can write something under the NodeJob's key as often as it wants.
func TestDeletionDoesNotWaitForNodeWrites(t *testing.T) {
	forged := newNode("a", func(n *Node) { n.On = record.NodeRecord{Label: rev, Altered: true, Present: true} })
	sealed := newNode("b", recorded(record.Succeeded), func(n *Node) { n.On.Sealed = true })
	for name, tt := range map[string]struct {
		deleted int
		nodes   []Node
		want    []string
	}{
		"it waits at first":                              {deleted: 30, nodes: []Node{forged}, want: []string{"forget a"}},
		"it does not wait after a minute":                {deleted: 60, nodes: []Node{forged}, want: []string{"forget a", "finish"}},
		"it waits for records that Everynode has sealed": {deleted: 600, nodes: []Node{forged, sealed}, want: []string{"forget a", "forget b"}},
		"it waits for no write if nothing is left":       {deleted: 5, nodes: []Node{newNode("a")}, want: []string{"finish"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = &metav1.Time{Time: ago(tt.deleted)} })
			if diff := cmp.Diff(tt.want, told(Next(see(job, tt.nodes)))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}
