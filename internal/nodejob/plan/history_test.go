// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/testing/historytest"
)

// kept are histories that once broke a rule, because of mutations of the planner or mistakes in it. They are played
// first. A history with a negative number has no gates, published results, reboots and dependencies.
var kept = []int64{
	-8598,    // joined nodes were rolled back all at once for a deletion
	-13583,   // a node was cordoned that had been skipped while its rollback ran
	-19303,   // the outcome of a drain overwrote the outcome of a rollback
	1342,     // a record that a user removed during an attempt was written again
	548,      // the node of the manager never ran, because others reran repeatedly
	105,      // a node that had cordoned itself blocked all others, and the status did not name it
	862,      // pods were no longer rejected, and nothing started
	448,      // a node on which pods are rejected was the only one that was tried
	1789,     // a taken pod name blocked a deletion, and the status did not say so
	2159,     // a rejected rollback prevented the preparation of a node forever
	312,      // a control plane node without progress was cordoned and uncordoned repeatedly
	906,      // the node of the manager waited for a node on which pods are rejected
	1344,     // a deletion waited for a pod that never terminated, and the status did not say so
	2367,     // a rollback was started beyond maxUnavailable
	-10557,   // a node reran whose success was recorded while another revision was skipped
	18002,    // a node that claimed to be prepared was not counted
	24874,    // a deletion rolled back a node on which the task had never started
	24563,    // a node stayed cordoned in a Stalled rollout
	21157,    // a node with two alternating problems never counted as without progress
	23203,    // a node that rebooted once more was checked before it had been Ready for long enough
	38279,    // a node waited for the control plane, and the status did not say for which
	43117,    // a rejected rollback prevented reruns from starting
	44834,    // a node that joined in a soak, and had never been Ready, counted as failed in it
	70898,    // a step had no nodes, and because of a schedule the status did not say so
	114220,   // a node removed its record repeatedly under the label of another revision, and ran without a wait
	162458,   // each try to record an outcome restarted the soak
	212065,   // a node that was prepared for an earlier revision stayed cordoned, and the next canary waited for it
	240377,   // a node that joined in the second in which a soak began counted as failed in it
	293285,   // the status did not report a node that failed while a schedule made others run
	330032,   // a node that is not selected anymore counted as failed while it was due again
	426820,   // a disruption restored the failures that a user had removed
	534620,   // a canary that failed its soak was forgotten when it was tainted for removal
	59567,    // the nodes of a step changed with each rerun, and its soak restarted
	953117,   // because of a pod that never ended, beside a failed rollback, the status did not say why a deletion waits
	973097,   // a canary that was done, terminating and due again lost its place at once
	769720,   // a pod that was only probed counted as a run whose record is removed, in the simulation only
	963883,   // a node that cordons itself in the name of a deleted NodeJob is uncordoned afterwards, not before
	986278,   // the same, with a gate and published results
	695360,   // a canary was unreachable after its failed reboot, while a pod of the previous machine existed
	5003918,  // a node that had joined just before a soak, and had never been Ready, counted as failed in it
	5070208,  // a skip was dropped whose label had the value that the manager had set before
	703694,   // because of a schedule nodes were running, no node was left for the staging step, and the oracle expected more
	7046756,  // a node had failed, and was gone when a revision was restored that no status had been written for in between
	-7131927, // a staging node had succeeded, and kept the label of a user who had skipped another revision
	7154614,  // a compromised node was not Ready in its soak, and another took its place after it was Ready again
	7245889,  // a node succeeded in the pass in which a manager had seen it without its label, and was skipped in its next run
	7617422,  // a node that was not selected anymore counted, because a user had removed its record and its pod was still there
	7647502,  // a node was cordoned for another NodeJob at the moment in which a deletion stopped waiting for what kubelets may write
	7681865,  // a node that had failed waited for a dependency past the deadline, and its machine was replaced
	7755671,  // a canary that had failed waited for a dependency past the deadline, and another took its place
	7455578,  // a user removed the label while the node rebooted for the task, and a later rerun that failed looked like a skipped node
	-7406436, // a node was not Ready when its task started, and the status was not written then
	-7824603, // the same, and another revision came and went before a status was written
	7427347,  // a node that had failed could not run again while it was being deleted, after a user had requested that
	7509011,  // a node was skipped while a rerun continued there whose label a user had removed
	598,      // a done node from which a label of the selector had been removed left the selection, and the NodeJob was not woken
	7084109,  // a user requested another run of a node that had succeeded, and it could not run again while it was being deleted
	-7081818, // a node that was created again for the same machine was not Ready beside the pod of the earlier node
	7111786,  // a node was not Ready when a manager without a status saw it run, and not when its task started once more
}

// TestRandomHistories plays seeded histories of a cluster in which everything goes wrong, and checks
// the rules (docs/rules.md) after every step. When the faults end, so must the work.
//
// To see one: go test ./internal/nodejob/plan -run TestRandomHistories -seed N -v
func TestRandomHistories(t *testing.T) {
	historytest.Run(t, kept, func(s int64) int64 {
		if s%3 == 0 {
			return -s // a longer rollout fits without gates, published results, reboots and dependencies
		}
		return s
	}, func(seed int64, told bool) (broken, story string) {
		h := play(seed)
		if told {
			story = h.story()
		}
		return h.broken, story
	})
}

// history is the real state of a cluster, and what the manager's cache shows of it. As in the manager, its own writes
// are visible immediately, and writes of others are visible when the cache catches up.
type history struct {
	rng *rand.Rand
	around
	now    time.Time
	job    *v1alpha1.NodeJob
	rev    string
	nodes  map[string]*Node
	pods   map[string]*simPod
	cache  cache
	uid    int
	lines  []string
	broken string
	// obstacle is the current obstacle.
	obstacle *hold.Why
	// workloads are the pods of others, by the UID of their node.
	workloads map[types.UID][]DrainPod
	// cordonedBy is who cordoned a node by hand, by its UID.
	byHand map[types.UID]bool
	faults bool
	last   Plan
	gone   bool
	// later lets time pass until the next pass at the end of a history, in which something is awaited; nil for 5 seconds.
	later func(awaited string)
	pause
	oracle
	truth
	actors
	gap
	clocks
	wishes
	villain
	shell
	namespaces
	tenant
	earlierPods
	budgeter
	otherWork
	inputs
	checkAnswers
	drifting
}

// cache is what the manager sees.
type cache struct {
	nodes map[string]Node
	pods  map[string]Pod
}

type simPod struct {
	Pod
	// raw is the pod of the API server, of which Pod has the metadata.
	raw *corev1.Pod
	// asked is maintenance.reboot of the spec when the manager created the pod.
	asked v1alpha1.RebootPolicy
	// disrupts is whether the spec disrupted nodes then.
	disrupts bool
	// machine and boot are those for which the pod was created.
	machine, boot string
	// recorded is true after its outcome is on its node, released after the manager has released it, and tampered after
	// another client has.
	recorded, released, tampered bool
	// endedAt is when it really ended.
	endedAt time.Time
	// recordedInGap is true if its outcome was recorded before its phase said that it has ended, and recordedAt is when it
	// was recorded, by the clock of the manager.
	recordedInGap bool
	recordedAt    time.Time
	// inGap is true once its container has ended, finally its phase after that, and hidden its exit while its kubelet has
	// forgotten it.
	inGap   bool
	finally corev1.PodPhase
	hidden  *Exit
	// willSucceed is the result of the task if nothing interrupts it.
	willSucceed bool
	// ran is true once the task itself ran to its end, and ranIn the boot in which it did.
	ran   bool
	ranIn string
	// answer is what its check before the task said; "" if it did not run to its end.
	answer string
	// leaves is the boot that a reboot must end.
	leaves string
	// results are what it reports.
	results map[string]string
}

const (
	steps     = 70
	nodeCount = 6
	otherKey  = "ns.everynode.dev/other"
	ownKey    = "ns.everynode.dev/job"
)

// newHistory is a history in which nothing has happened.
func newHistory(seed int64) *history {
	return &history{
		rng:       rand.New(rand.NewSource(max(seed, -seed))),
		around:    newAround(seed),
		now:       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		rev:       "rev1",
		nodes:     map[string]*Node{},
		pods:      map[string]*simPod{},
		workloads: map[types.UID][]DrainPod{},
		byHand:    map[types.UID]bool{},
		faults:    true,
		oracle:    newOracle(),
		truth:     newTruth(),
		actors:    newActors(seed),
		gap:       newGap(seed),
		clocks:    newClocks(),
		wishes:    newWishes(),
		shell:     newShell(),

		namespaces: newNamespaces(seed),
		tenant:     newTenant(seed),
		budgeter:   newBudgeter(seed),
		otherWork:  newOtherWork(),

		checkAnswers: newChecks(seed),
	}
}

func play(seed int64) *history {
	h := newHistory(seed)
	h.job = h.someJob()
	h.someMore()
	h.someOnce(seed)
	h.someAssumed(seed)
	h.someRetries(seed)
	h.scaleJob()
	h.templateMore()
	h.deadlineMore()
	h.scheduleMore()
	h.soakMore()
	h.someEarlier(seed)
	h.someInputs(seed)
	h.someChecks()
	h.someDrift(seed)
	h.beginRevision()
	for i := range nodeCount {
		h.addNode(fmt.Sprintf("n%d", i))
	}
	h.corrupt()
	h.catchUp()
	for range steps {
		h.event()
		h.labelNamespace()
		h.limitNamespace()
		h.intrude()
		h.changeBudget()
		h.changeValues()
		if h.pass(); h.broken != "" || h.gone {
			break
		}
	}
	if h.broken == "" && !h.gone {
		h.settle()
	}
	if h.broken == "" && h.gone {
		h.afterwards()
	}
	return h
}

// someJob is a NodeJob with a random selection of rollout settings.
func (h *history) someJob() *v1alpha1.NodeJob {
	limit := intstr.FromInt32(1 + h.rng.Int31n(3))
	if h.rng.Intn(3) == 0 {
		limit = intstr.FromString("40%")
	}
	mayFail := []intstr.IntOrString{
		intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("30%"), intstr.FromString("100%"),
	}[h.rng.Intn(5)]
	retries, backoff, timeout := h.rng.Int31n(3), int32(5), int32(60)
	job := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job-uid", Generation: 1},
		Spec: v1alpha1.NodeJobSpec{
			Nodes:   v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}},
			Task:    v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, TimeoutSeconds: &timeout},
			Retry:   v1alpha1.RetrySpec{Limit: &retries, BackoffSeconds: &backoff},
			Rollout: v1alpha1.RolloutSpec{MaxConcurrent: &limit, MaxFailures: &mayFail},
		},
	}
	soak := []int32{0, 0, 20}[h.rng.Intn(3)]
	canary := v1alpha1.RolloutStep{Name: "canary", Nodes: new(intstr.FromInt32(1 + h.rng.Int31n(2))), SoakSeconds: soak}
	staging := v1alpha1.RolloutStep{Name: "staging", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "yes"}}}
	all := v1alpha1.RolloutStep{Name: "all"}
	switch h.rng.Intn(4) {
	case 0: // the default
	case 1:
		job.Spec.Rollout.Steps = []v1alpha1.RolloutStep{canary, all}
	case 2:
		job.Spec.Rollout.Steps = []v1alpha1.RolloutStep{canary, staging, all}
	case 3:
		job.Spec.Rollout.Steps = []v1alpha1.RolloutStep{all}
	}
	if h.rng.Intn(2) == 0 {
		job.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, TimeoutSeconds: new(int32(40))}
	}
	job.Spec.OnFailure.Action = []v1alpha1.FailureAction{"", v1alpha1.FailureActionCordon, v1alpha1.FailureActionDrain}[h.rng.Intn(3)]
	if h.rng.Intn(2) == 0 && job.Spec.OnFailure.Action == v1alpha1.FailureActionDrain {
		job.Spec.OnFailure.Drain = &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(60))}
	}
	return job
}

func (h *history) say(format string, args ...any) {
	h.lines = append(h.lines, h.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// story is the history in words, the NodeJob first.
func (h *history) story() string {
	spec := h.job.Spec
	var steps []string
	for _, st := range spec.Rollout.Steps {
		text := st.Name
		if st.Nodes != nil {
			text += "=" + st.Nodes.String()
		}
		if st.SoakSeconds > 0 {
			text += fmt.Sprintf(" soak %d", st.SoakSeconds)
		}
		steps = append(steps, text)
	}
	return fmt.Sprintf("actors %v, maxConcurrent %s, maxFailures %s, retries %d, steps [%s], rollback %v, onFailure %s\n%s\n%s",
		h.tellActors(), spec.Rollout.MaxConcurrent, spec.Rollout.MaxFailures, *spec.Retry.Limit, strings.Join(steps, ", "),
		spec.Rollback != nil, spec.OnFailure.Action, h.tellMore(), strings.Join(h.lines, "\n"))
}

func (h *history) break_(rule, format string, args ...any) {
	if h.broken == "" && !h.lenient {
		h.broken = rule + ": " + fmt.Sprintf(format, args...)
		h.say("BROKEN %s", h.broken)
		h.say("  the status before: %+v", h.job.Status.Rollout)
		for _, st := range h.last.Nodes {
			h.say("  %s is %s: %s (%s)", st.Name, st.State, st.Reason, st.Message)
		}
	}
}
