// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// gated gives a NodeJob a gate, that it has had for an hour.
func gated(spec v1alpha1.GateSpec) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Spec.Gate = &spec
		effect := spec.Effect
		if effect == "" {
			effect = v1alpha1.GateNoSchedule
		}
		j.Status.Gate = &v1alpha1.GateStatus{Key: v1alpha1.GateKey(j), Effect: effect, Since: metav1.NewTime(ago(3600))}
	}
}

func inPoolA(j *v1alpha1.NodeJob) {
	j.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
}

func onHold(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }

func deleted(policy v1alpha1.DeletionPolicy) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.DeletionTimestamp, j.Spec.DeletionPolicy = &metav1.Time{Time: ago(1)}, policy
	}
}

// with taints gives a node taints, as key=value:effect.
func withTaints(taints ...corev1.Taint) func(*Node) {
	return func(n *Node) { n.Taints = taints }
}

func taint(key, value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

var (
	ownTaint     = taint("ns.everynode.dev/job", v1alpha1.GateValue, corev1.TaintEffectNoSchedule)
	sharedTaint  = taint("example.com/boot", v1alpha1.GateValue, corev1.TaintEffectNoSchedule)
	kubeletTaint = taint("example.com/boot", "true", corev1.TaintEffectNoSchedule)
	prefers      = taint("example.com/prefers", "", corev1.TaintEffectPreferNoSchedule)
)

// sharer is another NodeJob with the same gate.
func sharer(label string) []Peer {
	return []Peer{{Name: "other", Key: "ns.everynode.dev/other", Revision: label}}
}

func otherDone(n *Node) { n.Labels = map[string]string{"pool": "a", "ns.everynode.dev/other": "o1"} }

// A NodeJob that was restored without its status, and whose ConfigMap is missing, does not know its revision. Then
// every node would look unfinished.
func TestNoNodeIsClosedWhileTheRevisionIsNotKnown(t *testing.T) {
	in := see(newJob(gated(v1alpha1.GateSpec{Scope: v1alpha1.GateAll, Effect: v1alpha1.GateNoExecute})), []Node{newNode("n", made(7200), labelled("old"))})
	in.Revision, in.Obstacle = "", &task.Obstacle{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "it is missing"}
	if got := told(Next(in)); len(got) > 0 {
		t.Errorf("actions %v, want none", got)
	}
}

// TestGate tests what happens to the taint of the gate on one node. The plan has nothing else to do: the NodeJob is
// suspended.
func TestGate(t *testing.T) {
	own, shared := gated(v1alpha1.GateSpec{}), gated(v1alpha1.GateSpec{Key: "example.com/boot"})
	all := gated(v1alpha1.GateSpec{Scope: v1alpha1.GateAll})
	ofBoot := func(boot string) func(*record.Record) { return func(r *record.Record) { r.BootID = boot } }
	onReboot := func(j *v1alpha1.NodeJob) {
		gated(v1alpha1.GateSpec{OnReboot: true})(j)
		j.Spec.Rerun.OnReboot = true
	}
	tests := map[string]struct {
		job     func(*v1alpha1.NodeJob)
		node    Node
		sharers []Peer
		want    []string
	}{
		"a node that joins is closed":                       {job: own, node: newNode("n", made(5)), want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"}},
		"beside the taints that it has":                     {job: own, node: newNode("n", made(5), withTaints(prefers)), want: []string{"GateClosed n, taints [example.com/prefers:PreferNoSchedule ns.everynode.dev/job=everynode:NoSchedule]"}},
		"one that the API server has closed stays so":       {job: own, node: newNode("n", made(5), withTaints(ownTaint))},
		"one that its kubelet has closed stays so":          {job: shared, node: newNode("n", made(5), withTaints(kubeletTaint))},
		"one that was there before the gate stays open":     {job: own, node: newNode("n", made(7200))},
		"one that joined more than ten minutes ago, too":    {job: own, node: newNode("n", made(601))},
		"one that was done, and is to do another revision":  {job: own, node: newNode("n", made(5), labelled("old"))},
		"one that is being deleted":                         {job: own, node: newNode("n", made(5), func(n *Node) { n.Deleting = true })},
		"one that the NodeJob is not for":                   {job: own, node: newNode("n", made(5), inPool("b"))},
		"with scope All, any that is not done is closed":    {job: all, node: newNode("n", made(7200)), want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"}},
		"also one that did an earlier revision":             {job: all, node: newNode("n", made(7200), labelled("old")), want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"}},
		"not one that runs this one again":                  {job: func(j *v1alpha1.NodeJob) { all(j); j.Spec.Rerun.OnReboot = true }, node: newNode("n", recorded(record.Succeeded, ofBoot("before")))},
		"with onReboot it is closed after one":              {job: onReboot, node: newNode("n", made(7200), recorded(record.Succeeded, ofBoot("before"))), want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"}},
		"and not without one":                               {job: onReboot, node: newNode("n", made(7200), recorded(record.Succeeded))},
		"another machine behind the node is closed":         {job: own, node: newNode("n", made(7200), recorded(record.Succeeded, func(r *record.Record) { r.MachineID = "gone" })), want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"}},
		"a node that is done is opened":                     {job: own, node: newNode("n", recorded(record.Succeeded), withTaints(prefers, ownTaint)), want: []string{"GateOpened n, taints [example.com/prefers:PreferNoSchedule]"}},
		"and one that is skipped":                           {job: own, node: newNode("n", labelled(rev), withTaints(ownTaint)), want: []string{"GateOpened n, taints []"}},
		"whoever closed it":                                 {job: shared, node: newNode("n", labelled(rev), withTaints(kubeletTaint)), want: []string{"GateOpened n, taints []"}},
		"with its own key, whatever the effect":             {job: own, node: newNode("n", labelled(rev), withTaints(taint("ns.everynode.dev/job", "x", corev1.TaintEffectNoExecute))), want: []string{"GateOpened n, taints []"}},
		"with a user's key, that effect only":               {job: shared, node: newNode("n", labelled(rev), withTaints(taint("example.com/boot", v1alpha1.GateValue, corev1.TaintEffectNoExecute)))},
		"one that failed stays closed":                      {job: own, node: newNode("n", recorded(record.Failed, attempts(2)), withTaints(ownTaint))},
		"one that waits stays closed":                       {job: own, node: newNode("n", withTaints(ownTaint))},
		"one that it is not for is opened":                  {job: shared, node: newNode("n", inPool("b"), withTaints(sharedTaint)), want: []string{"GateOpened n, taints []"}},
		"unless somebody else has closed it":                {job: shared, node: newNode("n", inPool("b"), withTaints(kubeletTaint))},
		"one with a taint of others is opened":              {job: shared, node: newNode("n", withTaints(busy, sharedTaint)), want: []string{"GateOpened n, taints [dedicated=db:NoSchedule]"}},
		"not one that the cloud does not know yet":          {job: shared, node: newNode("n", withTaints(taint(transientTaints[0], "true", "NoSchedule"), sharedTaint))},
		"a stray gate is no reason to open":                 {job: own, node: newNode("n", withTaints(sharedTaint, ownTaint))},
		"while another NodeJob is awaited it stays closed":  {job: shared, node: newNode("n", recorded(record.Succeeded), withTaints(sharedTaint)), sharers: sharer("o1")},
		"also when the revision of the other is not known":  {job: shared, node: newNode("n", recorded(record.Succeeded), otherDone, withTaints(sharedTaint)), sharers: sharer("")},
		"the last of both opens it":                         {job: shared, node: newNode("n", recorded(record.Succeeded), otherDone, withTaints(sharedTaint)), sharers: sharer("o1"), want: []string{"GateOpened n, taints []"}},
		"without a gate any more, its own key is taken off": {job: func(*v1alpha1.NodeJob) {}, node: newNode("n", withTaints(ownTaint)), want: []string{"GateOpened n, taints []"}},
		"a deletion opens it":                               {job: func(j *v1alpha1.NodeJob) { shared(j); deleted("")(j) }, node: newNode("n", withTaints(kubeletTaint)), want: []string{"forget n, taints []"}},
		"unless another NodeJob is awaited":                 {job: func(j *v1alpha1.NodeJob) { shared(j); deleted("")(j) }, node: newNode("n", withTaints(kubeletTaint)), sharers: sharer("o1"), want: []string{"finish"}},
		"also one that retains the records":                 {job: func(j *v1alpha1.NodeJob) { own(j); deleted(v1alpha1.DeletionRetain)(j) }, node: newNode("n", recorded(record.Failed), withTaints(ownTaint)), want: []string{"GateOpened n, taints []"}},
		"a deletion leaves somebody's on other nodes":       {job: func(j *v1alpha1.NodeJob) { shared(j); deleted("")(j) }, node: newNode("n", inPool("b"), withTaints(kubeletTaint)), want: []string{"finish"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.node.ResourceVersion = "7"
			in := see(newJob(inPoolA, onHold, tt.job), []Node{tt.node})
			in.GatePeers, in.GateKeys = tt.sharers, []string{v1alpha1.GateKey(in.Job)}
			readOnPeers(&in)
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			for _, action := range p.Actions {
				if mark, ok := action.(PatchNode); ok && mark.ResourceVersion != "7" {
					t.Errorf("%s is written under the resource version %q, want that which was seen", tell(mark), mark.ResourceVersion)
				}
			}
		})
	}
}

// The success and all that it brings about are one write.
func TestASuccessOpensTheGate(t *testing.T) {
	tests := map[string]struct {
		node    Node
		sharers []Peer
		want    []string
		guarded bool
	}{
		"a closed node": {
			node: newNode("n", withTaints(prefers, kubeletTaint)), guarded: true,
			want: []string{"record Succeeded on n: attempts 1, disruptions 0, taints [example.com/prefers:PreferNoSchedule]"},
		},
		"one that another NodeJob keeps closed": {
			node: newNode("n", withTaints(sharedTaint)), sharers: sharer("o1"), want: []string{"record Succeeded on n: attempts 1, disruptions 0"},
		},
		"an open one": {node: newNode("n", withTaints(prefers)), want: []string{"record Succeeded on n: attempts 1, disruptions 0"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.node.ResourceVersion = "7"
			in := see(newJob(gated(v1alpha1.GateSpec{Key: "example.com/boot"})), []Node{tt.node}, newPod(tt.node, exited(0)))
			in.GatePeers = tt.sharers
			readOnPeers(&in)
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if got := p.Actions[0].(Record).Guarded(); got != tt.guarded {
				t.Errorf("written under a precondition: %v, want %v", got, tt.guarded)
			}
		})
	}
}

func TestGateStatus(t *testing.T) {
	in := see(newJob(gated(v1alpha1.GateSpec{Effect: v1alpha1.GateNoExecute}), onHold), []Node{
		newNode("closed", made(7200), withTaints(ownTaint)), newNode("joins", made(5)), newNode("old", made(7200)), newNode("done", recorded(record.Succeeded)),
	})
	in.GateWarning = "there is none: apply it"
	status := Next(in).Status
	want := &v1alpha1.GateStatus{Key: "ns.everynode.dev/job", Effect: v1alpha1.GateNoExecute, Since: metav1.NewTime(ago(3600)), Closed: 2}
	if diff := cmp.Diff(want, status.Gate); diff != "" {
		t.Errorf("gate (-want +got):\n%s", diff)
	}
	if c := status.Conditions[len(status.Conditions)-1]; c.Type != v1alpha1.ConditionGateEnforced || c.Status != metav1.ConditionFalse || c.Message != in.GateWarning {
		t.Errorf("condition %+v, want %s False", c, v1alpha1.ConditionGateEnforced)
	}
	in.Job.Status = status
	in.Job.Spec.Gate = &v1alpha1.GateSpec{Key: "example.com/boot"}
	if got := Next(in).Status.Gate; !got.Since.Time.Equal(now.Truncate(time.Second)) {
		t.Errorf("another gate is there since %v, want now", got.Since)
	}
	in.Job.Spec.Gate = nil
	if status = Next(in).Status; status.Gate != nil || len(status.Conditions) != 3 {
		t.Errorf("without a gate: %+v, conditions %+v", status.Gate, status.Conditions)
	}
}
