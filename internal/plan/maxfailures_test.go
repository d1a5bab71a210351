// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
)

func TestMaxFailures(t *testing.T) {
	value := func(v intstr.IntOrString) *intstr.IntOrString { return &v }
	tests := map[string]struct {
		value   *intstr.IntOrString
		matched int
		want    int
	}{
		"none when nothing is asked for":        {nil, 100, 0},
		"a number":                              {value(intstr.FromInt32(3)), 100, 3},
		"a number of more nodes than there are": {value(intstr.FromInt32(3)), 1, 3},
		"a percentage":                          {value(intstr.FromString("10%")), 100, 10},
		"a percentage is rounded down":          {value(intstr.FromString("10%")), 19, 1},
		"a percentage of a few is none":         {value(intstr.FromString("10%")), 9, 0},
		"a percentage of none":                  {value(intstr.FromString("100%")), 0, 0},
		"all":                                   {value(intstr.FromString("100%")), 7, 7},
		"what the API lets nobody write":        {value(intstr.FromString("many")), 7, 0},
		"less than none":                        {value(intstr.FromInt32(-1)), 7, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mayFail(v1alpha1.RolloutSpec{MaxFailures: tt.value}, tt.matched); got != tt.want {
				t.Errorf("%d may fail, want %d", got, tt.want)
			}
		})
	}
}

// TestCasualties tests which nodes count as failed though no record says so.
func TestCasualties(t *testing.T) {
	atRisk := func(name string, failed bool) v1alpha1.NodeAtRisk {
		return v1alpha1.NodeAtRisk{Node: name, UID: types.UID(name + "-uid"), MachineID: name + "-machine", Failed: failed}
	}
	casualty := func(name, reason string) v1alpha1.UnrecordedFailure {
		return v1alpha1.UnrecordedFailure{Node: name, UID: types.UID(name + "-uid"), Reason: reason, At: metav1.Time{Time: now}}
	}
	sick := func(n *Node) { n.Ready = corev1.ConditionFalse }
	going := func(key string) func(*Node) {
		return func(n *Node) { n.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} }
	}
	deleting := func(n *Node) { n.Deleting = true }
	done, failed := recorded(record.Succeeded), recorded(record.Failed, attempts(2))
	was := func(changes ...func(*v1alpha1.RolloutStatus)) *v1alpha1.RolloutStatus {
		r := &v1alpha1.RolloutStatus{Step: "all", StepStartedAt: metav1.Time{Time: ago(300)}}
		for _, change := range changes {
			change(r)
		}
		return r
	}
	risks := func(nodes ...v1alpha1.NodeAtRisk) func(*v1alpha1.RolloutStatus) {
		return func(r *v1alpha1.RolloutStatus) { r.AtRisk = nodes }
	}
	casualties := func(nodes ...v1alpha1.UnrecordedFailure) func(*v1alpha1.RolloutStatus) {
		return func(r *v1alpha1.RolloutStatus) { r.UnrecordedFailures = nodes }
	}
	tests := map[string]struct {
		job            *v1alpha1.NodeJob
		was            *v1alpha1.RolloutStatus
		nodes          []Node
		wantCasualties []string
		wantAtRisk     []string
	}{
		"none when all is well":                     {nodes: []Node{newNode("a", done), newNode("b")}},
		"a failed node is at risk":                  {nodes: []Node{newNode("a", failed)}, wantAtRisk: []string{"a failed"}},
		"a node that is done and not Ready is":      {nodes: []Node{newNode("a", done, sick), newNode("b")}, wantAtRisk: []string{"a"}},
		"one that is not Ready and was not touched": {nodes: []Node{newNode("a", sick, func(n *Node) { n.Ready = corev1.ConditionUnknown }), newNode("b")}},
		"one that was done with another revision":   {nodes: []Node{newNode("a", recorded(record.Succeeded, func(r *record.Record) { r.Revision = "old" }), labelled("old"), func(n *Node) { n.Ready = corev1.ConditionUnknown })}},
		"one that the cluster-autoscaler takes away": {
			nodes: []Node{newNode("a", done, sick, going("ToBeDeletedByClusterAutoscaler")), newNode("b")},
		},
		"one that Karpenter takes away":              {nodes: []Node{newNode("a", done, sick, going("karpenter.sh/disrupted")), newNode("b")}},
		"one that an earlier Karpenter takes away":   {nodes: []Node{newNode("a", done, sick, going("karpenter.sh/disruption")), newNode("b")}},
		"one that GKE takes back":                    {nodes: []Node{newNode("a", done, sick, going("cloud.google.com/impending-node-termination")), newNode("b")}},
		"one whose spot instance AWS takes back":     {nodes: []Node{newNode("a", done, sick, going("aws-node-termination-handler/spot-itn")), newNode("b")}},
		"one that a person has drained":              {nodes: []Node{newNode("a", done, sick, byHand), newNode("b")}},
		"one that a NodeJob has cordoned is at risk": {nodes: []Node{newNode("a", done, sick, cordonedBy("ns.everynode.dev/other")), newNode("b")}, wantAtRisk: []string{"a"}},
		"one that is being deleted":                  {nodes: []Node{newNode("a", done, sick, deleting), newNode("b")}},
		"one that was not Ready before that": {
			was: was(risks(atRisk("a", false))), nodes: []Node{newNode("a", done, sick, deleting), newNode("b")}, wantAtRisk: []string{"a"},
		},
		"one that is well again": {was: was(risks(atRisk("a", false))), nodes: []Node{newNode("a", done), newNode("b")}},
		"one that failed its soak, and is tainted to be removed when it is due again": {
			job: newJob(everySeconds(60)), was: was(casualties(casualty("a", v1alpha1.ReasonNotReadyInSoak))),
			nodes:          []Node{newNode("a", recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(900) }), sick, going("ToBeDeletedByClusterAutoscaler")), newNode("b")},
			wantCasualties: []string{"a NotReadyInSoak"},
		},
		"one that was deleted failed": {
			was: was(risks(atRisk("a", true))), nodes: []Node{newNode("b")}, wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"one that was deleted not Ready": {
			was: was(risks(atRisk("a", false))), nodes: []Node{newNode("b")}, wantCasualties: []string{"a NotReadyNodeDeleted"},
		},
		"one that was made anew under the same name": {
			was: was(risks(atRisk("a", true))), nodes: []Node{newNode("a", func(n *Node) { n.UID = "another" })}, wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"one that another machine has taken the place of": {
			was: was(risks(atRisk("a", true))), nodes: []Node{newNode("a", failed, func(n *Node) { n.MachineID = "another" })}, wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"one that does not say which machine it is": {
			was: was(risks(atRisk("a", true))), nodes: []Node{newNode("a", failed, func(n *Node) { n.MachineID = "" })}, wantAtRisk: []string{"a failed"},
		},
		"it counts once": {
			was:   was(risks(atRisk("a", true)), casualties(casualty("a", v1alpha1.ReasonFailedNodeDeleted))),
			nodes: []Node{newNode("b")}, wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"it is forgotten with another try": {
			job: newJob(askAgain), was: was(casualties(casualty("a", v1alpha1.ReasonFailedNodeDeleted))), nodes: []Node{newNode("b")},
		},
		"it is forgotten when the revision is proven": {
			was: was(provenSince(9), casualties(casualty("a", v1alpha1.ReasonFailedNodeDeleted)), risks(atRisk("c", true))), nodes: []Node{newNode("b", done)},
		},
		"one in a soak that runs again counts by what comes of it": {
			was: was(casualties(casualty("a", v1alpha1.ReasonNotReadyInSoak))), nodes: []Node{newNode("a"), newNode("b")},
		},
		"one in a soak that is deleted": {
			was: was(casualties(casualty("a", v1alpha1.ReasonNotReadyInSoak))), nodes: []Node{newNode("b")}, wantCasualties: []string{"a NotReadyNodeDeleted"},
		},
		"one in a soak that is still there": {
			was: was(casualties(casualty("a", v1alpha1.ReasonNotReadyInSoak))), nodes: []Node{newNode("a", done), newNode("b")}, wantCasualties: []string{"a NotReadyInSoak"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.job == nil {
				tt.job = newJob()
			}
			tt.job.Status.Revision, tt.job.Status.Rollout = rev, tt.was
			r := Next(see(tt.job, tt.nodes)).Status.Rollout
			var casualties, atRisk []string
			for _, c := range r.UnrecordedFailures {
				casualties = append(casualties, c.Node+" "+c.Reason)
			}
			for _, n := range r.AtRisk {
				text := n.Node
				if n.Failed {
					text += " failed"
				}
				atRisk = append(atRisk, text)
			}
			if diff := cmp.Diff(tt.wantCasualties, casualties); diff != "" {
				t.Errorf("casualties (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantAtRisk, atRisk); diff != "" {
				t.Errorf("at risk (-want +got):\n%s", diff)
			}
		})
	}
}

// A task breaks every node that it runs on, in a cluster that repairs nodes by replacing them. With maxFailures 100%,
// only the number of these nodes stops the rollout.
func TestTooManyCasualtiesStopAnyBudget(t *testing.T) {
	job := newJob()
	job.Status.Revision = rev
	job.Status.Rollout = &v1alpha1.RolloutStatus{Step: "all", StepStartedAt: metav1.Time{Time: ago(300)}}
	for i := range 40 {
		job.Status.Rollout.AtRisk = append(job.Status.Rollout.AtRisk, v1alpha1.NodeAtRisk{Node: fmt.Sprintf("gone-%d", i), UID: types.UID(fmt.Sprint(i)), Failed: true})
	}
	nodes := make([]Node, 0, 100)
	for i := range 100 {
		nodes = append(nodes, newNode(fmt.Sprintf("new-%d", i)))
	}
	p := Next(see(job, nodes))
	if len(p.Actions) != 0 || len(p.Status.Rollout.UnrecordedFailures) != maxUnrecordedFailures {
		t.Errorf("%d actions, %d casualties", len(p.Actions), len(p.Status.Rollout.UnrecordedFailures))
	}
	if c := p.Status.Conditions[2]; c.Reason != v1alpha1.ReasonMaxFailuresExceeded || !strings.Contains(c.Message, "gone-0: FailedNodeDeleted") {
		t.Errorf("condition %+v", c)
	}
}

// A failed node prevents all others from starting, not only those of later steps.
func TestBeyondMaxFailuresNothingStarts(t *testing.T) {
	failed := recorded(record.Failed, attempts(2))
	again := recorded(record.Failed)
	tests := map[string]struct {
		mayFail int32
		nodes   []Node
		pods    []Pod
		want    []string
	}{
		"as many as may": {1, []Node{newNode("a", failed), newNode("b")}, nil, []string{"start attempt 1 of rev on b"}},
		"one more":       {1, []Node{newNode("a", failed), newNode("b", failed), newNode("c")}, nil, nil},
		"a retry":        {0, []Node{newNode("a", failed), newNode("b", again)}, nil, nil},
		"what runs may end": {
			0, []Node{newNode("a", failed), newNode("b")}, []Pod{newPod(newNode("b"), exited(0))},
			[]string{"record Succeeded on b: attempts 1, disruptions 0"},
		},
		"a failed node that is not selected any more does not count": {
			0, []Node{newNode("a", failed, inPool("x")), newNode("b")}, nil, []string{"start attempt 1 of rev on b"},
		},
		"one that was skipped does not count": {
			0, []Node{newNode("a", failed, labelled(rev)), newNode("b")}, nil, []string{"start attempt 1 of rev on b"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(mayFailNodes(tt.mayFail), func(j *v1alpha1.NodeJob) {
				j.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
			})
			if diff := cmp.Diff(tt.want, told(Next(see(job, tt.nodes, tt.pods...)))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}
