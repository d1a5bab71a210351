// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
)

// small is a cluster with a few nodes and NodeJobs, of which the first is planned.
type small struct {
	*rand.Rand
	nodes []*corev1.Node
	jobs  []*v1alpha1.NodeJob
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(seconds int) metav1.Time {
	return metav1.NewTime(noon.Add(-time.Duration(seconds) * time.Second))
}

// named returns a NodeJob as it is stored in the API.
func named(name string) *v1alpha1.NodeJob {
	return &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "ns",
			Name:              name,
			UID:               types.UID("uid-of-" + name),
			Generation:        1,
			CreationTimestamp: ago(0),
			Finalizers:        []string{v1alpha1.NodeJobFinalizer},
		},
		Spec: v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}},
	}
}

const smallKey = "ns.everynode.dev/job"

func (s *small) often() bool  { return s.IntN(10) < 8 }
func (s *small) seldom() bool { return s.IntN(10) == 0 }

func newSmall(seed uint64) *small {
	s := &small{Rand: rand.New(rand.NewPCG(seed, 0))}
	s.jobs = []*v1alpha1.NodeJob{named("job"), named("other")}
	for _, job := range s.jobs {
		s.spec(&job.Spec)
		job.Status.Revision, job.Status.ObservedGeneration = "rev", job.Generation
	}
	if s.seldom() {
		s.jobs[0].Spec.DependsOn = []string{"other"}
	}
	allDone := s.often()
	for i := range 2 + s.IntN(3) {
		s.nodes = append(s.nodes, s.node(i, allDone))
	}
	// The rollout part of the status is computed by a plan.
	for range 3 {
		s.jobs[0].Status = s.plan(s.nodes).Status
	}
	return s
}

func (s *small) spec(spec *v1alpha1.NodeJobSpec) {
	if s.IntN(3) == 0 {
		spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	}
	if s.seldom() {
		spec.Nodes.Names = []string{"n0", "n1"}
	}
	if s.IntN(3) == 0 {
		spec.Gate = &v1alpha1.GateSpec{
			Nodes: []v1alpha1.GateNodes{"", v1alpha1.GateJoiningAndRebooted, v1alpha1.GateAll, v1alpha1.GateAll}[s.IntN(4)],
		}
		if s.IntN(2) == 0 {
			spec.Gate.Key = "x.example/gate"
		}
	}
	spec.Rerun.OnReboot = s.seldom()
	if s.seldom() {
		spec.Rerun.PeriodSeconds = 600
	}
	if s.IntN(3) == 0 {
		spec.Maintenance = v1alpha1.MaintenanceSpec{
			Drain:  &v1alpha1.DrainSpec{},
			Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways},
		}
	}
	if s.IntN(3) == 0 {
		spec.OnFailure.Action = v1alpha1.FailureActionCordon
	}
	if s.seldom() {
		spec.RemoveLabels = []string{"pool"}
	}
	if s.IntN(3) == 0 {
		spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "first", SoakSeconds: 60}, {Name: "all"}}
	}
	spec.Suspend = s.seldom()
	if s.IntN(2) == 0 {
		s.inputs(spec)
	}
	if s.IntN(3) == 0 {
		spec.Task.Check = &v1alpha1.CheckSpec{
			ScriptBlock:   v1alpha1.ScriptBlock{Script: "ok?"},
			PeriodSeconds: 600,
			OnDrift:       []v1alpha1.DriftPolicy{v1alpha1.DriftReport, v1alpha1.DriftRun}[s.IntN(2)],
		}
	}
	if s.IntN(4) == 0 {
		spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "false"}}
		spec.Expires = &v1alpha1.ExpiresSpec{
			Check: &v1alpha1.ExpiresCheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "fixed?"}, PeriodSeconds: int32(600 * s.IntN(2))},
		}
		if s.seldom() {
			at := ago(s.IntN(20) - 10)
			spec.Expires.At = &at
		}
	}
}

// asked adds the answers of checks to a record.
func (s *small) asked(rec *record.Record) {
	is := func(answers ...record.Answer) record.Asked {
		return record.Asked{Answer: answers[s.IntN(len(answers))], At: noon.Add(-time.Duration(s.IntN(1200)) * time.Second), PodUID: "asks"}
	}
	if s.IntN(2) == 0 {
		rec.Asked = rec.Asked.With(
			record.QuestionCheck,
			is(record.AnswerYes, record.AnswerYes, record.AnswerYes, record.AnswerNo, record.AnswerError),
		)
	}
	if s.often() {
		rec.Expiry = &record.Expiry{
			Asked:  is(record.AnswerNo, record.AnswerNo, record.AnswerNo, record.AnswerYes, record.AnswerError),
			Checks: 1,
			BootID: "boot",
		}
	}
}

// inputs has the task take values from the node.
func (s *small) inputs(spec *v1alpha1.NodeJobSpec) {
	for i, path := range []string{"metadata.labels['zone']", "metadata.annotations['x.example/role']", "spec.providerID", "status.nodeInfo.architecture"} {
		if s.IntN(2) == 0 {
			ref := &v1alpha1.NodeFieldSelector{FieldPath: path}
			if s.often() {
				ref.Default = new("none")
			}
			spec.Task.Env = append(
				spec.Task.Env,
				v1alpha1.EnvVar{Name: fmt.Sprint("INPUT", i), ValueFrom: &v1alpha1.EnvVarSource{NodeFieldRef: ref}},
			)
		}
	}
	spec.Rerun.OnNodeFieldChange = len(spec.Task.Env) > 0 && s.IntN(2) == 0
}

func (s *small) node(i int, done bool) *corev1.Node {
	name := fmt.Sprint("n", i)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               types.UID(name),
			CreationTimestamp: ago(s.IntN(7200)),
			Labels:            map[string]string{"pool": []string{"a", "a", "b"}[s.IntN(3)]},
			Annotations:       map[string]string{},
		},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: "boot", MachineID: "machine"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(7200)}},
		},
	}
	for _, key := range []string{smallKey, "ns.everynode.dev/other"} {
		rec := record.Record{
			Revision:   "rev",
			Outcome:    record.Succeeded,
			Attempts:   1,
			StartedAt:  noon.Add(-time.Minute),
			FinishedAt: noon.Add(-time.Minute),
			BootID:     "boot",
			MachineID:  "machine",
			PodUID:     "gone",
		}
		if values := s.values(node); s.often() {
			rec.Inputs = values.Hash()
		} else {
			rec.Inputs = "other"
		}
		if !done && !s.often() {
			rec.Outcome = []record.Outcome{record.Failed, record.Disrupted}[s.IntN(2)]
			rec.Cordoned = s.seldom()
		}
		s.asked(&rec)
		if (done || s.often()) && node.Labels["pool"] == "a" || s.seldom() {
			record.SetOn(node, key, rec)
			if rec.Outcome == record.Succeeded || s.seldom() {
				node.Labels[key] = "rev"
			}
		}
	}
	for _, key := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd"} {
		if s.IntN(4) == 0 {
			node.Labels[key] = ""
		}
	}
	if s.seldom() {
		node.Labels[corev1.LabelOSStable] = string(corev1.Windows)
	}
	for range s.IntN(2) {
		s.change(node)
	}
	return node
}

// values are those that the task takes from the node.
func (s *small) values(node *corev1.Node) task.NodeValues {
	return task.ReadNodeValues(s.jobs[0].Spec.Task.Env, task.NodeFields{
		Labels:       node.Labels,
		Annotations:  node.Annotations,
		ProviderID:   node.Spec.ProviderID,
		Architecture: node.Status.NodeInfo.Architecture,
	})
}

// change is one that plan.CompareNodes finds.
func (s *small) change(node *corev1.Node) {
	toggle := func(taint corev1.Taint) {
		for i, t := range node.Spec.Taints {
			if t.Key == taint.Key {
				node.Spec.Taints = append(node.Spec.Taints[:i:i], node.Spec.Taints[i+1:]...)
				return
			}
		}
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	label := func(key, value string) {
		if _, there := node.Labels[key]; there {
			delete(node.Labels, key)
		} else {
			node.Labels[key] = value
		}
	}
	switch s.IntN(15) {
	case 0, 1:
		ready := &node.Status.Conditions[0]
		ready.Status = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[s.IntN(3)]
		ready.LastTransitionTime = ago(s.IntN(60))
	case 2:
		node.Spec.Unschedulable = !node.Spec.Unschedulable
	case 3:
		toggle(corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute})
	case 4:
		toggle(corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
	case 5:
		toggle(
			corev1.Taint{
				Key:    []string{"x.example/gate", smallKey, "ns.everynode.dev/other"}[s.IntN(3)],
				Value:  v1alpha1.GateValue,
				Effect: corev1.TaintEffectNoSchedule,
			},
		)
	case 6:
		node.Annotations[v1alpha1.CordonedAnnotation] = []string{"", smallKey, "ns.everynode.dev/other"}[s.IntN(3)]
	case 7:
		node.Status.NodeInfo.BootID += "+"
	case 8:
		node.Status.NodeInfo.MachineID += "+"
	case 9:
		label("node-role.kubernetes.io/control-plane", "")
	case 10:
		label(corev1.LabelOSStable, string(corev1.Windows))
	case 11:
		label("zone", "a")
	case 12:
		node.Annotations["x.example/role"] = []string{"db", strings.Repeat("x", 5000), strings.Repeat("x", 6000)}[s.IntN(3)]
	case 13:
		node.Spec.ProviderID += "x"
	case 14:
		node.Status.NodeInfo.Architecture += "x"
	}
}

func (s *small) plan(nodes []*corev1.Node) plan.Plan {
	in := plan.Input{Job: s.jobs[0], Now: noon, Revision: "rev"}
	for _, node := range nodes {
		view := observe.Node(node)
		view.On = record.Read(node.Labels, node.Annotations, smallKey)
		in.Nodes = append(in.Nodes, view)
	}
	observe.Peers(&in, s.jobs, nil, func(_ string, labels, annotations map[string]string, key string) record.NodeRecord {
		return record.Read(labels, annotations, key)
	})
	return plan.Next(in)
}

// forDisplay are fields that only the command line shows, which makes its own plan.
var forDisplay = cmpopts.IgnoreFields(plan.NodeState{}, "Unavailable")

// In random clusters, a node change that does not affect a NodeJob must not change its plan.
func TestWhatDoesNotAffectANodeJobDoesNotChangeItsPlan(t *testing.T) {
	ignored, atRest := 0, 0
	for seed := range uint64(10000) {
		s := newSmall(seed)
		i := s.IntN(len(s.nodes))
		before, after := s.nodes[i], s.nodes[i].DeepCopy()
		nodes, changed := s.nodes, append([]*corev1.Node{}, s.nodes...)
		changed[i] = after
		var change plan.NodeChange
		switch s.IntN(10) {
		case 0:
			nodes = append(append([]*corev1.Node{}, nodes[:i]...), nodes[i+1:]...)
			change = compare(nil, after)
		case 1:
			changed = append(append([]*corev1.Node{}, nodes[:i]...), nodes[i+1:]...)
			change = compare(nil, before)
		default:
			for range 1 + s.IntN(2) {
				s.change(after)
			}
			change = compare(before, after)
		}
		if change.IsEmpty() || change.Affects(s.jobs[0], noon, noPod) {
			continue
		}
		was, is := s.plan(nodes), s.plan(changed)
		ignored++
		if slices.ContainsFunc(is.Nodes, func(st plan.NodeState) bool { return st.Name == after.Name && st.State == plan.Done }) {
			atRest++
		}
		was.Nodes, is.Nodes = statesBut(was.Nodes, before.Name), statesBut(is.Nodes, before.Name)
		if diff := cmp.Diff(
			was,
			is,
			cmpopts.EquateEmpty(),
			cmpopts.IgnoreFields(record.Change{}, "ResourceVersion"),
			cmpopts.IgnoreFields(plan.StepNodes{}, "Nodes"),
			forDisplay,
		); diff != "" {
			t.Fatalf("seed %d: the change of node %s is ignored, and the plan is another (-before +after):\n%s", seed, before.Name, diff)
		}
	}
	if ignored < 1000 || atRest < 500 {
		t.Errorf("only %d changes were ignored, %d of them of nodes that are done: the test shows little", ignored, atRest)
	}
}

// statesBut returns the states of nodes without those of excluded nodes, which have no effect.
func statesBut(states []plan.NodeState, name string) []plan.NodeState {
	var others []plan.NodeState
	for _, st := range states {
		if st.Name != name || st.State != plan.Excluded {
			others = append(others, st)
		}
	}
	return others
}
