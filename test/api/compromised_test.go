// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
)

// tierLabel is one that a kubelet cannot write, so that a node cannot select itself by it.
const tierLabel = "node-restriction.kubernetes.io/tier"

// attemptOf names what a pod runs, such as "task 1".
func attemptOf(pod *corev1.Pod) string {
	return pod.Labels[v1alpha1.PhaseLabel] + " " + pod.Annotations[v1alpha1.AttemptAnnotation]
}

// secretJob makes a NodeJob whose scripts get a Secret, for the nodes of this world with tierLabel.
func (w *world) secretJob(name string, change func(*v1alpha1.NodeJobSpec)) *v1alpha1.NodeJob {
	w.T.Helper()
	must(w.T, admin.Create(w.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "join"}, StringData: map[string]string{"token": "x"},
	}))
	return w.job(name, func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Selector.MatchLabels = map[string]string{tierLabel: w.Namespace}
		s.Task.Env = []v1alpha1.EnvVar{{Name: "TOKEN", ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "join"}, Key: "token",
		}}}}
		change(s)
	})
}

// tierNodeJoins makes a node that a secretJob selects, and waits for its pod.
func (w *world) tierNodeJoins(name string) *corev1.Pod {
	w.T.Helper()
	w.comes(name, map[string]string{tierLabel: w.Namespace})
	return w.podOf(name, task.Task)
}

// readsSecret asks for the Secret of a secretJob as a node.
func (w *world) readsSecret(node string) error {
	return w.kubeletOf(node).Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "join"}, &corev1.Secret{})
}

// forgedRecord is what a node could write to be taken for one that has rebooted in a run, and is to be checked.
func forgedRecord(revision, machine string) string {
	return record.Encode(record.Record{
		Revision: revision, Outcome: record.Rebooting, Attempts: 1, FinishedAt: time.Now().Add(-time.Minute), MachineID: machine,
		Reboot: &record.Reboot{StartedAt: time.Now().Add(-time.Minute), FromBootID: "x", BackAt: time.Now().Add(-time.Minute)},
	})
}

// TestARecordThatANodeForgesStartsNoPodThere : a pod would bring the Secret to a node that is not selected.
func TestARecordThatANodeForgesStartsNoPodThere(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.NodeJobSpec){
		"the check after a reboot": func(s *v1alpha1.NodeJobSpec) {
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "check"}}
			s.Maintenance = v1alpha1.MaintenanceSpec{Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested, MinReadySeconds: new(int32(0))}}
		},
		"the rollback at deletion": func(s *v1alpha1.NodeJobSpec) {
			s.Rollback, s.DeletionPolicy = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}, v1alpha1.DeletionRollback
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			made := w.podsMade()
			job := w.secretJob("secret", change)
			pod := w.tierNodeJoins(w.Namespace + "-honest")
			w.Eventually("the Node authorizer knows the pod", func() error { return w.readsSecret(pod.Spec.NodeName) })

			evil := w.Namespace + "-evil"
			w.node(evil)
			defer func() {
				if got := made(evil); len(got) > 0 {
					t.Errorf("on the node that is not selected ran %q", got)
				}
			}()
			key := v1alpha1.RecordKey(w.Namespace, job.Name)
			must(t, w.annotate(w.kubeletOf(evil), evil, key, forgedRecord(pod.Labels[v1alpha1.RevisionLabel], "machine-of-"+evil)))
			w.end(pod, 0, "")
			w.Done(job.Name, w.Namespace+"-honest")
			w.end(w.tierNodeJoins(w.Namespace+"-later"), 0, "") // the manager has planned with the forged record by now
			w.Done(job.Name, w.Namespace+"-later")
			must(t, admin.Delete(w.Ctx, job))
			if job.Spec.Rollback != nil {
				w.end(w.podOf(w.Namespace+"-honest", task.Rollback), 0, "")
				w.end(w.podOf(w.Namespace+"-later", task.Rollback), 0, "")
			}
			w.gone(job)

			w.wantForbidden("reading the Secret", w.readsSecret(evil))
			if on := w.On(job.Name, evil); on.Present {
				t.Errorf("after the deletion the node carries %+v", on)
			}
		})
	}
}

func TestAKubeletCannotWriteTheSealOfARecord(t *testing.T) {
	w := newWorld(t)
	key := v1alpha1.RecordKey(w.Namespace, "job")
	forged := forgedRecord("rev", "m")
	seal := map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{key: forged}, "labels": map[string]string{record.SealKey(key): record.Seal(forged)},
	}}
	body, err := json.Marshal(seal)
	must(t, err)
	patch := client.RawPatch(types.MergePatchType, body)

	node := w.node(w.Namespace + "-evil")
	kubelet := w.kubeletOf(node.Name)
	must(t, w.annotate(kubelet, node.Name, "x.test/mine", "yes")) // the request is not refused for another reason
	w.wantForbidden("a patch of its Node", kubelet.Patch(w.Ctx, node.DeepCopy(), patch))
	w.wantForbidden("a patch of its Node's status", kubelet.Status().Patch(w.Ctx, node.DeepCopy(), patch))
	w.wantForbidden("a patch of another Node", kubelet.Patch(w.Ctx, w.node(w.Namespace+"-other"), patch))

	joins := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-joins", Labels: map[string]string{"world": w.Namespace}}}
	sealed := joins.DeepCopy()
	record.SetOn(sealed, key, record.Record{Revision: "rev", Outcome: record.Succeeded})
	kubelet = w.kubeletOf(joins.Name)
	w.wantForbidden("registering with a seal", kubelet.Create(w.Ctx, sealed))
	must(t, kubelet.Create(w.Ctx, joins))

	must(t, admin.Patch(w.Ctx, node, patch))
	w.wantForbidden("removing the seal", w.kubeletOf(node.Name).Patch(w.Ctx, node.DeepCopy(),
		mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, record.SealKey(key)))))
}

// TestWhatAKubeletMayAndMayNotDo shows what docs/security.md says of kubelets, and Everynode relies on.
func TestWhatAKubeletMayAndMayNotDo(t *testing.T) {
	w := newWorld(t)
	node := w.comes(w.Namespace+"-evil", nil, gateOf("x.test/gate", "yes"))
	kubelet := w.kubeletOf(node.Name)
	w.wantForbidden("a label of node-restriction.kubernetes.io", kubelet.Patch(w.Ctx, node.DeepCopy(),
		mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:"secure"}}}`, tierLabel))))
	w.wantForbidden("removing its taints", kubelet.Patch(w.Ctx, node.DeepCopy(), mergePatch(`{"spec":{"taints":null}}`)))
	w.wantForbidden("deleting its Node, to register another", kubelet.Delete(w.Ctx, node.DeepCopy()))

	w.wantForbidden("reading another Node", kubelet.Get(w.Ctx, client.ObjectKeyFromObject(w.node(w.Namespace+"-other")), &corev1.Node{}))

	label := v1alpha1.RecordKey(w.Namespace, "job")
	must(t, kubelet.Patch(w.Ctx, node.DeepCopy(), mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:"rev","x.test/pool":"a"}}}`, label))))
	must(t, kubelet.Patch(w.Ctx, node.DeepCopy(), mergePatch(`{"spec":{"unschedulable":true}}`)))
	must(t, kubelet.Patch(w.Ctx, node.DeepCopy(), mergePatch(`{"spec":{"unschedulable":null}}`)))
	must(t, kubelet.Create(w.Ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "x-"},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(),
			Kind:       "NodeJob",
			Namespace:  w.Namespace,
			Name:       "job",
		},
	}))
}

// TestAMirrorPodWithTheNameOfAnAttemptHoldsThatNodeOnly : the node that makes it and the one that it is for differ.
func TestAMirrorPodWithTheNameOfAnAttemptHoldsThatNodeOnly(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	made := w.podsMade()
	victim, evil, third := w.node(w.Namespace+"-1"), w.node(w.Namespace+"-2"), w.node(w.Namespace+"-3")
	job := w.job("taken", func(s *v1alpha1.NodeJobSpec) { s.Suspend = true })
	w.Condition("taken", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonSuspended)
	name := task.PodName(
		seal.Key{},
		job,
		task.Attempt{Phase: task.Task, Revision: w.live("taken").Status.Revision, NodeUID: victim.UID, Number: 1},
	)
	mirror := w.mirrorPod(w.kubeletOf(evil.Name), evil, name, nil)

	w.change(job, `{"suspend":false}`)
	w.end(w.podOf(evil.Name, task.Task), 0, "")
	w.end(w.podOf(third.Name, task.Task), 0, "")
	w.Done("taken", evil.Name)
	w.Done("taken", third.Name)
	c := w.Condition("taken", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodNameTaken)
	wantText(t, c.Message, victim.Name+": pod "+w.Namespace+"/"+name+" on node "+evil.Name, "kubectl -n "+w.Namespace+" delete pod "+name)
	if told := w.live(
		"taken",
	).Status.NodeProblems; len(told) != 1 || told[0].Node != victim.Name || told[0].Reason != v1alpha1.ReasonPodNameTaken ||
		told[0].Since.IsZero() {
		t.Errorf("node problems %+v, want that of %s", told, victim.Name)
	}

	must(t, admin.Delete(w.Ctx, mirror, client.GracePeriodSeconds(0)))
	pod := w.podOf(victim.Name, task.Task)
	if pod.Name != name {
		t.Errorf("the pod is %s, want %s", pod.Name, name)
	}
	w.end(pod, 0, "")
	w.Done("taken", victim.Name)
	w.Condition("taken", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	if told := w.live("taken").Status.NodeProblems; len(told) != 0 {
		t.Errorf("node problems %+v after the last was solved", told)
	}
	if diff := cmp.Diff([]string{"task 1"}, made(victim.Name)); diff != "" {
		t.Errorf("pods of the victim: %s", diff)
	}
}

// TestANodeWithFullAnnotationsHoldsOnlyItself : the outcome of its attempt is recorded when there is space again.
func TestANodeWithFullAnnotationsHoldsOnlyItself(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	made := w.podsMade()
	evil, other := w.node(w.Namespace+"-1"), w.node(w.Namespace+"-2")
	w.job("full", func(s *v1alpha1.NodeJobSpec) { s.Rollout.MaxConcurrent = percent("100%") }) // it still has its slot
	kubelet, pod := w.kubeletOf(evil.Name), w.podOf(evil.Name, task.Task)
	const limit, key = 256 << 10, "x.test/fill"
	err := w.annotate(kubelet, evil.Name, key, strings.Repeat("x", limit-len(key)+1))
	if err == nil || !strings.Contains(err.Error(), "may not be more than 262144 bytes") {
		t.Fatalf("one byte more than the limit: %v", err)
	}
	must(t, w.annotate(kubelet, evil.Name, key, strings.Repeat("x", limit-len(key))))
	w.end(pod, 0, "")
	w.end(w.podOf(other.Name, task.Task), 0, "")
	w.Done("full", other.Name)
	c := w.Condition("full", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRecordRejected)
	wantText(
		t,
		c.Message,
		evil.Name+": recording on node "+evil.Name,
		"may not be more than 262144 bytes",
		"Make room in the annotations of the node",
	)

	must(t, kubelet.Patch(w.Ctx, evil, mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, key))))
	if rec := w.Done("full", evil.Name); rec.PodUID != pod.UID || rec.Attempts != 1 {
		t.Errorf("the record is %+v, want that of the only pod", rec)
	}
	w.Condition("full", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	w.NoPods()
	if diff := cmp.Diff([]string{"task 1"}, made(evil.Name)); diff != "" {
		t.Errorf("pods on the full node: %s", diff)
	}
}

// TestANodeThatRemovesItsOwnPodWaitsForTheNextAttempt removes the finalizer through the pod's status.
func TestANodeThatRemovesItsOwnPodWaitsForTheNextAttempt(t *testing.T) {
	for name, metadata := range map[string]string{
		"without the finalizer":     `{"finalizers":null}`,
		"which it marks as handled": fmt.Sprintf(`{"finalizers":null,"annotations":{%q:"yes"}}`, v1alpha1.RecordedAnnotation),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			evil, other := w.node(w.Namespace+"-1"), w.node(w.Namespace+"-2")
			w.job("vanishes", func(s *v1alpha1.NodeJobSpec) { s.Rollout.MaxConcurrent = percent("100%") })
			kubelet, pod := w.kubeletOf(evil.Name), w.podOf(evil.Name, task.Task)
			w.wantForbidden("taking the finalizer off the pod of another node",
				kubelet.Status().Patch(w.Ctx, w.podOf(other.Name, task.Task), mergePatch(`{"metadata":{"finalizers":null}}`)))

			must(t, kubelet.Status().Patch(w.Ctx, pod, mergePatch(`{"metadata":`+metadata+`}`)))
			removed := time.Now()
			must(t, kubelet.Delete(w.Ctx, pod, client.GracePeriodSeconds(0)))
			c := w.Condition("vanishes", v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonPodForceDeleted)
			wantText(t, c.Message, evil.Name+": pod "+w.Namespace+"/"+pod.Name+" was removed by force")
			w.end(w.podOf(other.Name, task.Task), 0, "")
			w.Done("vanishes", other.Name)

			next := w.podOf(evil.Name, task.Task)
			if earliest := removed.Add(10 * time.Second).Truncate(time.Second); next.CreationTimestamp.Time.Before(earliest) {
				t.Errorf("the next pod was made at %s, want it at %s or later", next.CreationTimestamp, earliest)
			}
			w.end(next, 0, "")
			w.Done("vanishes", evil.Name)
		})
	}
}
