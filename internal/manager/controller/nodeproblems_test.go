// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
)

var jobName = client.ObjectKey{Namespace: "ns", Name: "job"}

func nodeCalled(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func startOn(node string, phase task.Phase) plan.Start {
	return plan.Start{Attempt: task.Attempt{Phase: phase, Revision: "rev", Number: 1, NodeName: node, NodeUID: types.UID(node + "-uid")}}
}

func (r *fakeReconciler) podNodes() string {
	r.t.Helper()
	var pods corev1.PodList
	if err := r.Client.List(r.t.Context(), &pods); err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for i := range pods.Items {
		if ownedBy(&pods.Items[i], "job-uid") {
			names = append(names, pods.Items[i].Spec.NodeName)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// A node can create a mirror pod with any name.
func TestAPodNameThatIsTakenIsAProblemOfItsNodeOnly(t *testing.T) {
	tests := map[string][]metav1.OwnerReference{
		"by a pod of another owner": nil,
		"by a pod that names the NodeJob as its": {
			{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob", Name: "job", UID: "job-uid", Controller: new(true)},
		},
	}
	for name, owners := range tests {
		t.Run(name, func(t *testing.T) { testTakenPodName(t, owners) })
	}
}

func testTakenPodName(t *testing.T, owners []metav1.OwnerReference) {
	job := liveJob()
	starts := []plan.Action{startOn("a", task.Task), startOn("b", task.Task), startOn("c", task.Task)}
	foreign := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "ns",
			Name:            task.PodName(seal.Key{}, job, starts[0].(plan.Start).Attempt),
			UID:             "foreign",
			OwnerReferences: owners,
		},
		Spec: corev1.PodSpec{NodeName: "evil"},
	}
	r := newReconciler(t, job, foreign)
	did, err := r.apply(t.Context(), observation{job: job}, plan.Plan{Actions: starts})
	if err != nil || did.refused || !did.again {
		t.Errorf("%+v (%v), want another pass and no error", did, err)
	}
	if got := r.podNodes(); got != "b c" {
		t.Errorf("pods on %q, want b and c", got)
	}
	met := r.problems.on(jobName, "", []plan.Node{{UID: "a-uid"}, {UID: "b-uid"}})
	want := "pod ns/" + foreign.Name + " on node evil has the name of the next attempt's pod"
	if got := met["a-uid"]; len(met) != 1 || got.Reason != v1alpha1.ReasonPodNameTaken || !strings.HasPrefix(got.Message, want) ||
		!got.Until.After(noon) {
		t.Errorf("node problems %+v, want on a: %s", met, want)
	}
	if owners == nil { // otherwise the manager has deleted it
		r.delete(foreign)
	}
	if _, err := r.apply(t.Context(), observation{job: job}, plan.Plan{Actions: starts[:1]}); err != nil {
		t.Fatal(err)
	}
	if met := r.problems.on(jobName, "", []plan.Node{{UID: "a-uid"}}); len(met) > 0 {
		t.Errorf("after the pod was deleted there is still %+v", met)
	}
}

// A namespace may allow the pods of a template, and not the privileged ones that run a rollback.
func TestARefusedRollbackDoesNotPreventTheTask(t *testing.T) {
	job := liveJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Task = v1alpha1.TaskSpec{
			Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}
		j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
	})
	refuse := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if pod, ok := o.(*corev1.Pod); ok && pod.Labels[v1alpha1.PhaseLabel] == string(task.Rollback) {
			return apierrors.NewForbidden(
				schema.GroupResource{Resource: "pods"},
				pod.Name,
				errors.New(`violates PodSecurity "baseline:latest": privileged`),
			)
		}
		return c.Create(ctx, o, opts...)
	}}
	r := newFaultyReconciler(t, refuse, job)
	starts := []plan.Action{startOn("a", task.Rollback), startOn("b", task.Rollback), startOn("c", task.Task), startOn("d", task.Task)}
	did, err := r.apply(t.Context(), observation{job: job}, plan.Plan{Actions: starts})
	if err != nil || !did.refused {
		t.Errorf("%+v (%v), want that a pod was refused", did, err)
	}
	if got := r.podNodes(); got != "c d" {
		t.Errorf("pods on %q, want c and d", got)
	}
	if met := r.problems.on(
		jobName,
		"",
		[]plan.Node{{UID: "a-uid"}, {UID: "b-uid"}},
	); len(met) != 1 ||
		met["a-uid"].Reason != v1alpha1.ReasonPodForbidden {
		t.Errorf("node problems %+v, want one on a", met)
	}
	seen, err := r.observe(t.Context(), job, nil)
	if err != nil || seen.input.Obstacle != nil || seen.input.RunnerRefused == nil ||
		seen.input.RunnerRefused.Reason != v1alpha1.ReasonPodForbidden {
		t.Errorf("obstacle %+v, of the runner's pods %+v (%v)", seen.input.Obstacle, seen.input.RunnerRefused, err)
	}
}

// A NodeJob may be applied together with its namespace, before Kubernetes has created the service account there. A status
// that is Stalled for a moment would fail a deployment that waits for it.
func TestANewNamespaceMayLackItsServiceAccountForAMoment(t *testing.T) {
	const noAccount = `error looking up service account ns/default: serviceaccount "default" not found`
	refuse := interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, o.GetName(), errors.New(noAccount))
	}}
	cordon := plan.PatchNode{
		Node:   "b",
		Change: record.Change{UID: "b-uid"},
		Before: &task.Attempt{NodeName: "b", NodeUID: "b-uid", Phase: task.Task, Number: 1},
	}
	for name, tt := range map[string]struct {
		age     time.Duration
		problem bool
	}{
		"a new NodeJob: an error, which is retried":        {newNamespaceGrace - time.Second, false},
		"a NodeJob that is older: a problem in its status": {newNamespaceGrace, true},
	} {
		t.Run(name, func(t *testing.T) {
			job := liveJob(func(j *v1alpha1.NodeJob) { j.CreationTimestamp = metav1.NewTime(noon.Add(-tt.age)) })
			r := newFaultyReconciler(t, refuse, job)
			for _, action := range []plan.Action{startOn("a", task.Task), cordon} {
				did, err := r.apply(t.Context(), observation{job: job}, plan.Plan{Actions: []plan.Action{action}})
				if did.refused != tt.problem || (err == nil) != tt.problem {
					t.Errorf("%T: %+v (%v), want a problem: %v", action, did, err, tt.problem)
				}
			}
			if met := r.problems.on(jobName, "", []plan.Node{{UID: "a-uid"}}); (len(met) > 0) != tt.problem {
				t.Errorf("node problems %+v, want one: %v", met, tt.problem)
			}
			seen, err := r.observe(t.Context(), job, nil)
			if err != nil || (seen.input.Obstacle != nil) != tt.problem {
				t.Errorf("obstacle %+v (%v), want one: %v", seen.input.Obstacle, err, tt.problem)
			}
		})
	}
}

// A node must not be cordoned or drained for a pod that cannot be created.
func TestNoNodeIsPreparedForAPodThatIsRefused(t *testing.T) {
	job := liveJob(func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon = true })
	refuse := interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, o.GetName(), errors.New("exceeded quota: pods"))
	}}
	for name, tt := range map[string]struct {
		faults interceptor.Funcs
		want   bool
	}{"it is refused": {refuse, false}, "it is taken": {interceptor.Funcs{}, true}} {
		t.Run(name, func(t *testing.T) {
			r := newFaultyReconciler(t, tt.faults, job.DeepCopy(), nodeCalled("a"))
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: jobName}); err != nil {
				t.Fatal(err)
			}
			if got := r.node("a").Spec.Unschedulable; got != tt.want {
				t.Errorf("cordoned: %v, want %v", got, tt.want)
			}
			if got := r.podNodes(); got != "" {
				t.Errorf("pods on %q, want none", got)
			}
			if o := r.refusals.Of(job); (o == nil) != tt.want {
				t.Errorf("refusal %+v", o)
			}
		})
	}
}

// A node can fill its annotations to the size limit.
func TestAWriteThatDoesNotFitIsAProblemOfItsNodeOnly(t *testing.T) {
	full := interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "full" {
				return apierrors.NewInvalid(
					schema.GroupKind{Kind: "Node"},
					"full",
					field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 262144)},
				)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}
	job := liveJob()
	r := newFaultyReconciler(t, full, job, nodeCalled("full"), nodeCalled("other"))
	for _, node := range []string{"full", "other"} {
		pod := benchPod(job, task.Source{Script: "true"}, nodeCalled(node))
		pod.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
		pod.CreationTimestamp = at(0)
		r.create(pod)
	}
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: jobName})
	if err != nil || result.RequeueAfter != loop.Soon {
		t.Errorf("%+v (%v), want another pass soon and no error", result, err)
	}
	if label := r.node("other").Labels["ns.everynode.dev/job"]; label == "" {
		t.Error("the success on the other node is not recorded")
	}
	r.Now = func() time.Time { return noon.Add(100 * time.Millisecond) }
	seen, err := r.observe(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Next(seen.input)
	if len(p.Actions) > 0 || !strings.Contains(p.Nodes[0].Message, "may not be more than 262144 bytes") ||
		p.Nodes[0].State != plan.Running {
		t.Errorf("%v, node %+v; want no action, and that the node says why", p.Actions, p.Nodes[0])
	}
	if c := p.Status.Conditions[2]; c.Reason != v1alpha1.ReasonRecordRejected ||
		!strings.Contains(c.Message, "full: recording on node full") {
		t.Errorf("condition %+v, want %s", c, v1alpha1.ReasonRecordRejected)
	}
}

// A first attempt after the end of a run was recorded means that the record, or the label of the success, was removed.
func TestWhatCountsAsARemovedRecord(t *testing.T) {
	rec := func(outcome record.Outcome, label string) record.NodeRecord {
		return record.NodeRecord{Label: label, Record: &record.Record{Revision: "rev", Outcome: outcome}}
	}
	for name, tt := range map[string]struct {
		on   record.NodeRecord
		want bool
	}{
		"record and label were removed":         {record.NodeRecord{}, true},
		"a label of another revision":           {record.NodeRecord{Label: "old"}, true},
		"the label of the success was removed":  {rec(record.Succeeded, ""), true},
		"the label is that of another revision": {rec(record.Succeeded, "old"), true},
		"a run that is due again":               {rec(record.Succeeded, "rev"), false},
		"an attempt that was disrupted":         {rec(record.Disrupted, ""), false},
		"a failure that a user has retried":     {rec(record.Failed, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, liveJob(), nodeCalled("a"))
			for range freeRemovals {
				r.problems.ended(jobName, "a-uid", "rev", "", noon)
				r.started(jobName, startOn("a", task.Task), &plan.Node{UID: "a-uid", On: tt.on})
			}
			met := r.problems.on(jobName, "", []plan.Node{{UID: "a-uid"}})
			if got := met["a-uid"].Reason == v1alpha1.ReasonRecordRemoved; got != tt.want {
				t.Errorf("node problems %+v, want one: %v", met, tt.want)
			}
		})
	}
}

// A node may have several problems in a row: the progress deadline counts from the first, until one of them has ended.
func TestConsecutiveNodeProblemsCountFromTheFirst(t *testing.T) {
	known := newNodeProblems()
	node := []plan.Node{{UID: "a-uid"}}
	minute := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	note := func(reason string, n int) {
		known.note(jobName, "a-uid", reason, "no", minute(n), firstTroubleWait, longestTroubleWait)
	}
	note(v1alpha1.ReasonPodNameTaken, 0)
	note(v1alpha1.ReasonRecordRejected, 1)
	note(v1alpha1.ReasonPodNameTaken, 2)
	if got := known.on(jobName, "", node)["a-uid"]; !got.Since.Equal(noon) || got.Reason != v1alpha1.ReasonPodNameTaken {
		t.Errorf("%+v, want since %v", got, noon)
	}
	known.clear(jobName, "a-uid", v1alpha1.ReasonPodNameTaken)
	note(v1alpha1.ReasonRecordRejected, 3)
	if got := known.on(jobName, "", node)["a-uid"]; !got.Since.Equal(minute(3)) {
		t.Errorf("%+v, want since %v", got, minute(3))
	}
	// While nothing is tried, such as in a NodeJob that is suspended, no problem is the node's.
	note(v1alpha1.ReasonRecordRejected, 60)
	if got := known.on(jobName, "", node)["a-uid"]; !got.Since.Equal(minute(60)) {
		t.Errorf("%+v, want since %v", got, minute(60))
	}
	// A refusal for all nodes is not a problem of a node that had another problem before.
	known.refusing(jobName, minute(61))
	note(v1alpha1.ReasonPodForbidden, 62)
	if got := known.on(jobName, "", node)["a-uid"]; !got.General {
		t.Errorf("%+v, want a general refusal", got)
	}
}

// A kubelet can remove the finalizer from its own pods, and delete them.
func TestAPodThatVanishesUnrecordedIsANodeProblem(t *testing.T) {
	job := liveJob()
	recorded := func(phase task.Phase, rec record.Record) func(*fakeReconciler, *corev1.Pod) {
		return func(r *fakeReconciler, pod *corev1.Pod) {
			pod.Labels[v1alpha1.PhaseLabel] = string(phase)
			node := nodeCalled("a")
			node.Status.NodeInfo.BootID = "new"
			rec.Revision, rec.Attempts = "rev", 1
			record.SetOn(node, v1alpha1.RecordKey(job.Namespace, job.Name), rec)
			r.delete(nodeCalled("a"))
			r.create(node)
		}
	}
	const own, other = "a-pod", "another-pod" // UIDs
	rebootFrom := func(boot string) record.Record {
		return record.Record{Outcome: record.Rebooting, PodUID: other, Reboot: &record.Reboot{FromBootID: boot}}
	}
	for name, tt := range map[string]struct {
		before func(r *fakeReconciler, pod *corev1.Pod)
		want   bool
	}{
		"the finalizer was removed by another client": {func(*fakeReconciler, *corev1.Pod) {}, true},
		"the manager removed the finalizer":           {func(r *fakeReconciler, pod *corev1.Pod) { r.written.rememberReleased(pod.UID, noon) }, false},
		"its node is deleted":                         {func(r *fakeReconciler, _ *corev1.Pod) { r.delete(nodeCalled("a")) }, false},
		"this manager is not the leader":              {func(r *fakeReconciler, _ *corev1.Pod) { r.isWarm.Store(false) }, false},
		"another manager recorded the task":           {recorded(task.Task, record.Record{Outcome: record.Succeeded, PodUID: own}), false},
		"the record is of an earlier pod":             {recorded(task.Task, record.Record{Outcome: record.Failed, PodUID: other}), true},
		"another manager recorded the rollback": {
			recorded(task.Rollback, record.Record{Outcome: record.Failed, PodUID: other, Rollback: &record.Rollback{Outcome: record.Succeeded, PodUID: own}}), false,
		},
		"the node of a pod that reboots it has rebooted":     {recorded(task.Reboot, rebootFrom("old")), false},
		"the node of a pod that reboots it has not rebooted": {recorded(task.Reboot, rebootFrom("new")), true},
		"another manager recorded that the reboot failed":    {recorded(task.Reboot, record.Record{Outcome: record.Failed, PodUID: own}), false},
		"another manager recorded that the pod of the reboot was disrupted": {
			recorded(task.Reboot, record.Record{Outcome: record.Rebooting, PodUID: own, Reboot: &record.Reboot{FromBootID: "new"}}), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, job.DeepCopy(), nodeCalled("a"))
			r.isWarm.Store(true)
			pod := benchPod(job, task.Source{Script: "true"}, nodeCalled("a"))
			tt.before(r, pod)
			r.podGone(t.Context(), pod)
			met := r.problems.on(jobName, "", []plan.Node{{UID: "a-uid"}})
			if got := met["a-uid"].Reason == v1alpha1.ReasonPodForceDeleted; got != tt.want {
				t.Errorf("node problems %+v, want one: %v", met, tt.want)
			}
		})
	}
}

// A node can remove its own record, so that the task runs repeatedly. A user may do so as well, but rarely.
func TestARecordThatIsRemovedRepeatedlyDelaysTheNextRun(t *testing.T) {
	tr := newNodeProblems()
	nodes := []plan.Node{{UID: "a"}}
	var waits []string
	now := noon
	for range 5 {
		tr.ended(jobName, "a", "rev", "", now)
		tr.begins(jobName, "a", "rev", "", now.Add(time.Second))
		met := tr.on(jobName, "", nodes)["a"]
		waits = append(waits, fmt.Sprint(met.Until.Sub(now.Add(time.Second)) > 0))
		now = now.Add(time.Minute)
	}
	if got := strings.Join(waits, " "); got != "false false true true true" {
		t.Errorf("it waits: %s", got)
	}
	for name, again := range map[string]func(){
		"another revision":  func() { tr.begins(jobName, "a", "rev2", "", now) },
		"a requested retry": func() { tr.begins(jobName, "a", "rev", "retry", now) },
		"hours later":       func() { tr.begins(jobName, "a", "rev", "", now.Add(2*time.Hour)) },
	} {
		again()
		if met := tr.on(jobName, "", nodes); len(met) > 0 {
			t.Errorf("%s: %+v", name, met)
		}
	}
	tr.note(jobName, "a", v1alpha1.ReasonPodNameTaken, "taken", now, time.Second, time.Second)
	if met := tr.on(jobName, "retry", nodes); len(met) > 0 {
		t.Errorf("after a retry was requested there is still %+v", met)
	}
	if tr.on(jobName, "", nil); len(tr.of[jobName].recorded) > 0 {
		t.Error("a deleted node is remembered")
	}
}
