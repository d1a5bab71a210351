// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// gated gives a NodeJob a gate that was created an hour ago.
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
	j.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
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
func TestNoNodeIsClosedWithUnknownRevision(t *testing.T) {
	in := see(
		newJob(gated(v1alpha1.GateSpec{Nodes: v1alpha1.GateAll, Effect: v1alpha1.GateNoExecute})),
		[]Node{newNode("n", made(7200), labelled("old"))},
	)
	in.Revision, in.Obstacle = "", &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "it is missing"}
	if got := told(Next(in)); len(got) > 0 {
		t.Errorf("actions %v, want none", got)
	}
}

// TestGate tests the taint of the gate on one node. The plan has nothing else to do, because the NodeJob is
// suspended.
func TestGate(t *testing.T) {
	own, shared := gated(v1alpha1.GateSpec{}), gated(v1alpha1.GateSpec{Key: "example.com/boot"})
	all := gated(v1alpha1.GateSpec{Nodes: v1alpha1.GateAll})
	ofBoot := func(boot string) func(*record.Record) { return func(r *record.Record) { r.BootID = boot } }
	onReboot := func(j *v1alpha1.NodeJob) {
		gated(v1alpha1.GateSpec{Nodes: v1alpha1.GateJoiningAndRebooted})(j)
		j.Spec.Rerun.OnReboot = true
	}
	tests := map[string]struct {
		job     func(*v1alpha1.NodeJob)
		node    Node
		sharers []Peer
		in      func(*Input)
		want    []string
	}{
		"a joining node is closed": {
			job:  own,
			node: newNode("n", made(5)),
			want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"},
		},
		"other taints of a joining node stay": {
			job:  own,
			node: newNode("n", made(5), withTaints(prefers)),
			want: []string{"GateClosed n, taints [example.com/prefers:PreferNoSchedule ns.everynode.dev/job=everynode:NoSchedule]"},
		},
		"a node that the API server has closed stays closed": {
			job:  own,
			node: newNode("n", made(5), withTaints(ownTaint)),
		},
		"a node that its kubelet has closed stays closed": {
			job:  shared,
			node: newNode("n", made(5), withTaints(kubeletTaint)),
		},
		"a node that is older than the gate stays open": {job: own, node: newNode("n", made(7200))},
		"a node that joined ten minutes ago stays open": {job: own, node: newNode("n", made(600))},
		"a node that joined when the gate was created stays open": {
			job:  func(j *v1alpha1.NodeJob) { own(j); j.Status.Gate.Since = metav1.NewTime(ago(5)) },
			node: newNode("n", made(5)),
		},
		"a node that is older than the gate stays open with other taints": {
			job:  own,
			node: newNode("n", made(7200), withTaints(prefers)),
		},
		"a joining node on which the task has failed is closed": {
			job:  own,
			node: newNode("n", made(5), recorded(record.Failed)),
			want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"},
		},
		"a joining node on which the task has succeeded stays open": {
			job:  own,
			node: newNode("n", made(5), succeeded(3)),
		},
		"a joining node stays open while the namespace is not allowed": {
			job:  own,
			node: newNode("n", made(5)),
			in:   refuseNamespace,
		},
		"the node of the manager stays open if its pod would end": {
			job:  gated(v1alpha1.GateSpec{Effect: v1alpha1.GateNoExecute}),
			node: newNode("n", made(5)),
			in:   func(in *Input) { in.OwnNode = "n" },
		},
		"a node that joined more than ten minutes ago stays open": {job: own, node: newNode("n", made(601))},
		"a node that is done with an earlier revision stays open": {
			job:  own,
			node: newNode("n", made(5), labelled("old")),
		},
		"a terminating node stays open": {
			job:  own,
			node: newNode("n", made(5), func(n *Node) { n.Deleting = true }),
		},
		"a node that does not match stays open": {
			job:  own,
			node: newNode("n", made(5), inPool("b")),
		},
		"All closes every node that is not done": {
			job:  all,
			node: newNode("n", made(7200)),
			want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"},
		},
		"All closes a node that is done with an earlier revision": {
			job:  all,
			node: newNode("n", made(7200), labelled("old")),
			want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"},
		},
		"All does not close a node that reruns the same revision without a reboot": {
			job:  func(j *v1alpha1.NodeJob) { all(j); j.Spec.Rerun.PeriodSeconds = 10 },
			node: newNode("n", recorded(record.Succeeded)),
		},
		"All closes a node that reruns the task after a reboot": {
			job:  func(j *v1alpha1.NodeJob) { all(j); j.Spec.Rerun.OnReboot = true },
			node: newNode("n", recorded(record.Succeeded, ofBoot("before"))),
			want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"},
		},
		"All does not close a node that has rebooted and does not rerun the task": {
			job:  all,
			node: newNode("n", recorded(record.Succeeded, ofBoot("before"))),
		},
		"with JoiningAndRebooted a node is closed after a reboot": {
			job:  onReboot,
			node: newNode("n", made(7200), recorded(record.Succeeded, ofBoot("before"))),
			want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"},
		},
		"with JoiningAndRebooted a node is not closed without a reboot": {
			job:  onReboot,
			node: newNode("n", made(7200), recorded(record.Succeeded)),
		},
		"with JoiningAndRebooted a node that reruns the task is not closed without a reboot": {
			job:  onReboot,
			node: newNode("n", made(7200), succeeded(60)),
		},
		"with JoiningAndRebooted a node on which the task has failed is not closed": {
			job:  onReboot,
			node: newNode("n", made(7200), recorded(record.Failed, ofBoot("before"))),
		},
		"a replaced machine is closed": {
			job:  own,
			node: newNode("n", made(7200), recorded(record.Succeeded, func(r *record.Record) { r.MachineID = "gone" })),
			want: []string{"GateClosed n, taints [ns.everynode.dev/job=everynode:NoSchedule]"},
		},
		"a done node is opened": {
			job:  own,
			node: newNode("n", recorded(record.Succeeded), withTaints(prefers, ownTaint)),
			want: []string{"GateOpened n, taints [example.com/prefers:PreferNoSchedule]"},
		},
		"a skipped node is opened": {
			job:  own,
			node: newNode("n", labelled(rev), withTaints(ownTaint)),
			want: []string{"GateOpened n, taints []"},
		},
		"a node that its kubelet has closed is opened": {
			job:  shared,
			node: newNode("n", labelled(rev), withTaints(kubeletTaint)),
			want: []string{"GateOpened n, taints []"},
		},
		"a gate with the default key is opened with any effect": {
			job:  own,
			node: newNode("n", labelled(rev), withTaints(taint("ns.everynode.dev/job", "x", corev1.TaintEffectNoExecute))),
			want: []string{"GateOpened n, taints []"},
		},
		"a gate with a user's key is only opened with its effect": {
			job:  shared,
			node: newNode("n", labelled(rev), withTaints(taint("example.com/boot", v1alpha1.GateValue, corev1.TaintEffectNoExecute))),
		},
		"a failed node stays closed": {
			job:  own,
			node: newNode("n", recorded(record.Failed, attempts(2)), withTaints(ownTaint)),
		},
		"a waiting node stays closed": {
			job:  own,
			node: newNode("n", withTaints(ownTaint)),
		},
		"a node that does not match is opened": {
			job:  shared,
			node: newNode("n", inPool("b"), withTaints(sharedTaint)),
			want: []string{"GateOpened n, taints []"},
		},
		"a node that does not match is opened with any value of the default key": {
			job:  own,
			node: newNode("n", inPool("b"), withTaints(taint("ns.everynode.dev/job", "x", "NoSchedule"))),
			want: []string{"GateOpened n, taints []"},
		},
		"a node that does not match is opened before it is initialized": {
			job:  shared,
			node: newNode("n", inPool("b"), withTaints(taint(transientTaints[0], "true", "NoSchedule"), sharedTaint)),
			want: []string{"GateOpened n, taints [" + transientTaints[0] + "=true:NoSchedule]"},
		},
		"a joining node with another operating system is opened": {
			job:  shared,
			node: newNode("n", made(5), withOS("windows"), withTaints(sharedTaint)),
			want: []string{"GateOpened n, taints []"},
		},
		"a joining node with an untolerated taint stays closed": {
			job:  shared,
			node: newNode("n", made(5), withTaints(busy, sharedTaint)),
		},
		"a node that does not match and was closed by its kubelet stays closed": {
			job:  shared,
			node: newNode("n", inPool("b"), withTaints(kubeletTaint)),
		},
		"a node with an untolerated taint is opened": {
			job:  shared,
			node: newNode("n", withTaints(busy, sharedTaint)),
			want: []string{"GateOpened n, taints [dedicated=db:NoSchedule]"},
		},
		"a node that the cloud provider has not initialized stays closed": {
			job:  shared,
			node: newNode("n", withTaints(taint(transientTaints[0], "true", "NoSchedule"), sharedTaint)),
		},
		"an orphaned gate is no reason to open": {
			job:  own,
			node: newNode("n", withTaints(sharedTaint, ownTaint)),
		},
		"a done node stays closed while another NodeJob with the gate is pending": {
			job:     shared,
			node:    newNode("n", recorded(record.Succeeded), withTaints(sharedTaint)),
			sharers: sharer("o1"),
		},
		"a done node stays closed while the revision of the other NodeJob is unknown": {
			job:     shared,
			node:    newNode("n", recorded(record.Succeeded), otherDone, withTaints(sharedTaint)),
			sharers: sharer(""),
		},
		"the last of both NodeJobs opens the gate": {
			job:     shared,
			node:    newNode("n", recorded(record.Succeeded), otherDone, withTaints(sharedTaint)),
			sharers: sharer("o1"),
			want:    []string{"GateOpened n, taints []"},
		},
		"without spec.gate the default key is removed": {
			job:  func(*v1alpha1.NodeJob) {},
			node: newNode("n", withTaints(ownTaint)),
			want: []string{"GateOpened n, taints []"},
		},
		"a deletion opens the gate": {
			job:  func(j *v1alpha1.NodeJob) { shared(j); deleted("")(j) },
			node: newNode("n", withTaints(kubeletTaint)),
			want: []string{"forget n, taints []"},
		},
		"a deletion does not open the gate while another NodeJob is pending": {
			job:     func(j *v1alpha1.NodeJob) { shared(j); deleted("")(j) },
			node:    newNode("n", withTaints(kubeletTaint)),
			sharers: sharer("o1"),
			want:    []string{"finish"},
		},
		"a deletion that retains the records opens the gate": {
			job:  func(j *v1alpha1.NodeJob) { own(j); deleted(v1alpha1.DeletionRetain)(j) },
			node: newNode("n", recorded(record.Failed), withTaints(ownTaint)),
			want: []string{"GateOpened n, taints []"},
		},
		"a deletion does not open a gate that the kubelet has closed on other nodes": {
			job:  func(j *v1alpha1.NodeJob) { shared(j); deleted("")(j) },
			node: newNode("n", inPool("b"), withTaints(kubeletTaint)),
			want: []string{"finish"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.node.ResourceVersion = "7"
			in := see(newJob(inPoolA, onHold, tt.job), []Node{tt.node})
			in.GatePeers, in.GateKeys = tt.sharers, []string{v1alpha1.GateKey(in.Job)}
			readOnPeers(&in)
			if tt.in != nil {
				tt.in(&in)
			}
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			for _, action := range p.Actions {
				if mark, ok := action.(PatchNode); ok && mark.ResourceVersion != "7" {
					t.Errorf("%s is written with resource version %q, want the observed one", tell(mark), mark.ResourceVersion)
				}
			}
		})
	}
}

func refuseNamespace(in *Input) {
	in.NotAllowed = &hold.Why{Reason: v1alpha1.ReasonNamespaceNotAllowed, Message: "it has no label"}
}

// The success and all changes that it causes are one write.
func TestSuccessOpensGate(t *testing.T) {
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
		"a node that another NodeJob keeps closed": {
			node: newNode(
				"n",
				withTaints(sharedTaint),
			),
			sharers: sharer("o1"),
			want:    []string{"record Succeeded on n: attempts 1, disruptions 0"},
		},
		"an open node": {node: newNode("n", withTaints(prefers)), want: []string{"record Succeeded on n: attempts 1, disruptions 0"}},
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
				t.Errorf("written with a precondition: %v, want %v", got, tt.guarded)
			}
		})
	}
}

// TestNodesThatRegisterWithTheGate has a gate that exists for an hour and no admission policy.
func TestNodesThatRegisterWithTheGate(t *testing.T) {
	const key = "example.com/boot"
	registers := corev1.Taint{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule}
	added := corev1.Taint{Key: key, Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule, TimeAdded: new(metav1.NewTime(ago(1)))}
	timed := registers
	timed.TimeAdded = added.TimeAdded
	byPolicy := added
	byPolicy.TimeAdded = nil
	elsewhere := registers
	elsewhere.Effect = corev1.TaintEffectNoExecute
	joins := func(name string, seconds int, taints ...corev1.Taint) Node {
		return newNode(name, made(seconds), withTaints(taints...))
	}
	tests := map[string]struct {
		nodes  []Node
		was    v1alpha1.GateStatus
		policy bool
		// registered and late are the ages of the nodes that the status shows, in seconds; 0 for none.
		registered, late int
		reason           string
	}{
		"no node has joined": {nodes: []Node{joins("old", 7200)}, reason: v1alpha1.ReasonNoAdmissionPolicy},
		"a node registers with the taint": {
			nodes:      []Node{joins("a", 30, registers), joins("b", 20, registers)},
			registered: 20,
			reason:     v1alpha1.ReasonRegisteredTaint,
		},
		"a node registers with a taint that has a time": {
			nodes:      []Node{joins("a", 30, timed)},
			registered: 30,
			reason:     v1alpha1.ReasonRegisteredTaint,
		},
		"a node registers with another taint": {
			nodes:  []Node{joins("a", 30, taint("other.everynode.dev/job", "true", "NoSchedule"))},
			reason: v1alpha1.ReasonNoAdmissionPolicy,
		},
		"a node is as old as the gate": {
			nodes:  []Node{joins("a", 3600, registers)},
			reason: v1alpha1.ReasonNoAdmissionPolicy,
		},
		"an older node has the taint": {
			nodes:  []Node{joins("a", 7200, registers)},
			reason: v1alpha1.ReasonNoAdmissionPolicy,
		},
		"the manager adds the taint": {
			nodes:  []Node{joins("a", 30, added)},
			late:   30,
			reason: v1alpha1.ReasonNoAdmissionPolicy,
		},
		"the API server has added the taint": {
			nodes:  []Node{joins("a", 30, byPolicy)},
			reason: v1alpha1.ReasonNoAdmissionPolicy,
		},
		"a node registers with a taint that is alike": {
			nodes:  []Node{joins("a", 30, elsewhere)},
			reason: v1alpha1.ReasonNoAdmissionPolicy,
		},
		"a later node does not": {
			nodes:      []Node{joins("a", 30, registers), joins("b", 20, added)},
			registered: 30,
			late:       20,
			reason:     v1alpha1.ReasonNoAdmissionPolicy,
		},
		"only an earlier node did not": {
			nodes:      []Node{joins("a", 30, added), joins("b", 20, registers)},
			registered: 20,
			late:       30,
			reason:     v1alpha1.ReasonRegisteredTaint,
		},
		"the gate of the node is open again": {
			nodes:      []Node{joins("a", 30)},
			was:        v1alpha1.GateStatus{RegisteredAt: metav1.NewTime(ago(30))},
			registered: 30,
			reason:     v1alpha1.ReasonRegisteredTaint,
		},
		"the status of another effect": {
			nodes: []Node{
				joins("a", 30),
			},
			was:    v1alpha1.GateStatus{RegisteredAt: metav1.NewTime(ago(30)), Effect: v1alpha1.GateNoExecute},
			reason: v1alpha1.ReasonNoAdmissionPolicy,
		},
		"there is a policy": {
			nodes:      []Node{joins("a", 30, registers)},
			policy:     true,
			registered: 30,
			reason:     v1alpha1.ReasonAdmissionPolicy,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(gated(v1alpha1.GateSpec{Key: key}), onHold), tt.nodes)
			in.Job.Status.Gate = &tt.was
			if tt.was.Key, tt.was.Since = key, metav1.NewTime(ago(3600)); tt.was.Effect == "" {
				tt.was.Effect = v1alpha1.GateNoSchedule
			}
			if !tt.policy {
				in.GateWarning = "there is none: apply it"
			}
			status := Next(in).Status
			if c := meta.FindStatusCondition(
				status.Conditions,
				v1alpha1.ConditionGateEnforced,
			); c.Reason != tt.reason ||
				(c.Status == metav1.ConditionTrue) != (tt.reason != v1alpha1.ReasonNoAdmissionPolicy) {
				t.Errorf("condition %+v, want the reason %s", c, tt.reason)
			}
			for what, times := range map[string][2]time.Time{
				"registered": {ofAge(tt.registered), status.Gate.RegisteredAt.Time}, "late": {ofAge(tt.late), status.Gate.AddedLateAt.Time},
			} {
				if !times[0].Equal(times[1]) {
					t.Errorf("%s: %v, want %v", what, times[1], times[0])
				}
			}
		})
	}
}

// ofAge is when a node of this age was created, in seconds; zero for 0.
func ofAge(age int) time.Time {
	if age == 0 {
		return time.Time{}
	}
	return ago(age)
}

func TestGateStatus(t *testing.T) {
	in := see(newJob(gated(v1alpha1.GateSpec{Effect: v1alpha1.GateNoExecute}), onHold), []Node{
		newNode(
			"closed",
			made(7200),
			withTaints(ownTaint),
		),
		newNode("joins", made(5)),
		newNode("old", made(7200)),
		newNode("done", recorded(record.Succeeded)),
	})
	in.GateWarning = "there is none: apply it"
	status := Next(in).Status
	want := &v1alpha1.GateStatus{Key: "ns.everynode.dev/job", Effect: v1alpha1.GateNoExecute, Since: metav1.NewTime(ago(3600)), Closed: 2}
	if diff := cmp.Diff(want, status.Gate); diff != "" {
		t.Errorf("gate (-want +got):\n%s", diff)
	}
	if c := status.Conditions[len(status.Conditions)-1]; c.Type != v1alpha1.ConditionGateEnforced || c.Status != metav1.ConditionFalse ||
		c.Message != in.GateWarning {
		t.Errorf("condition %+v, want %s False", c, v1alpha1.ConditionGateEnforced)
	}
	in.Job.Status = status
	in.Job.Status.Gate.RegisteredAt = metav1.NewTime(ago(60))
	in.Job.Spec.Gate = &v1alpha1.GateSpec{Key: "example.com/boot"}
	if got := Next(in).Status.Gate; !got.Since.Time.Equal(now.Truncate(time.Second)) {
		t.Errorf("another gate exists since %v, want now", got.Since)
	} else if !got.RegisteredAt.IsZero() {
		t.Errorf("a node has registered with another gate at %v", got.RegisteredAt)
	}
	in.Job.Spec.Gate.Effect = v1alpha1.GateNoExecute
	if got := Next(in).Status.Gate; !got.RegisteredAt.IsZero() {
		t.Errorf("a node has registered with another gate of the same effect at %v", got.RegisteredAt)
	}
	in.Job.Spec.Gate = nil
	if status = Next(in).Status; status.Gate != nil || len(status.Conditions) != 3 {
		t.Errorf("without a gate: %+v, conditions %+v", status.Gate, status.Conditions)
	}
}

func TestGateClosedSince(t *testing.T) {
	added := ownTaint
	added.TimeAdded = new(metav1.NewTime(ago(600)))
	tests := map[string]struct {
		nodes []Node
		want  time.Time
	}{
		"a taint without a time is as old as its node": {[]Node{newNode("n", made(1800), withTaints(ownTaint))}, ago(1800)},
		"other taints do not count":                    {[]Node{newNode("n", made(7200), withTaints(added, prefers))}, ago(600)},
		"the order of the nodes does not count": {
			[]Node{newNode("b", made(7200), withTaints(added)), newNode("a", made(60), withTaints(ownTaint))},
			ago(600),
		},
		"a taint of the manager has its own time": {[]Node{newNode("n", made(7200), withTaints(added))}, ago(600)},
		"the gate that was closed first counts": {
			[]Node{newNode("a", made(60), withTaints(ownTaint)), newNode("b", made(7200), withTaints(added))},
			ago(600),
		},
		"a gate that is closed now":                  {[]Node{newNode("n", made(5))}, now},
		"no gate is closed on a node that was there": {[]Node{newNode("n", made(7200))}, time.Time{}},
		"a gate that is opened now is no longer closed": {
			[]Node{newNode("n", made(1800), withTaints(ownTaint), recorded(record.Succeeded))},
			time.Time{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(gated(v1alpha1.GateSpec{Effect: v1alpha1.GateNoExecute}), onHold), tt.nodes)
			if got := Next(in).GateClosedSince; !got.Equal(tt.want) {
				t.Errorf("closed since %v, want %v", got, tt.want)
			}
		})
	}
}
