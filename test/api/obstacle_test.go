// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// scriptLabel lets NodeJobs run the scripts of a ConfigMap.
var scriptLabel = map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue}

func TestAMissingConfigMapIsReportedAndTheTaskContinuesWhenItExists(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("cm-1")
	w.job("from-cm", func(s *v1alpha1.NodeJobSpec) {
		s.Task = v1alpha1.TaskSpec{
			ScriptBlock: v1alpha1.ScriptBlock{
				ScriptFrom: &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "scripts", Key: "setup.sh"}},
			},
		}
	})
	c := w.Condition("from-cm", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotFound)
	wantText(t, c.Message, "spec.task.scriptFrom", w.Namespace+"/scripts does not exist", "Create it")

	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "scripts", Labels: scriptLabel},
		Data:       map[string]string{"other": "x"},
	}
	must(t, admin.Create(w.Ctx, cm))
	w.Eventually("the missing key is reported", func() error {
		c = w.Condition("from-cm", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotFound)
		if !strings.Contains(c.Message, `has no key "setup.sh"`) {
			return errors.New(c.Message)
		}
		return nil
	})

	cm.Data["setup.sh"] = "echo one"
	cm.Labels = nil
	must(t, admin.Update(w.Ctx, cm))
	c = w.Condition("from-cm", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotLabeled)
	wantText(t, c.Message, "kubectl -n "+w.Namespace+" label configmap scripts everynode.dev/script=true")
	if pods := w.Pods(); len(pods) > 0 {
		t.Errorf("%d pods run a script without the label", len(pods))
	}

	cm.Labels = scriptLabel
	must(t, admin.Update(w.Ctx, cm))
	pod := w.podOn("cm-1")
	w.end(pod, 0, "")
	first := w.Done("from-cm", "cm-1")
	w.Condition("from-cm", v1alpha1.ConditionStalled, metav1.ConditionFalse, "")
	w.NoPods()

	cm.Data["setup.sh"] = "echo two"
	must(t, admin.Update(w.Ctx, cm))
	pod = w.podOn("cm-1")
	if pod.Labels[v1alpha1.RevisionLabel] == first.Revision {
		t.Errorf("the content changed and the revision did not")
	}
	w.end(pod, 0, "")
	w.Eventually("the second revision is recorded", func() error {
		if rec := w.Done("from-cm", "cm-1"); rec.Revision == first.Revision {
			return errors.New("it is the first")
		}
		return nil
	})
}

func TestANamespaceThatForbidsThePodIsReportedAndTheTaskContinuesWhenItIsAllowed(t *testing.T) {
	w := newWorld(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	must(t, admin.Patch(w.Ctx, ns, mergePatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)))
	startManager(t, noFaults)
	w.node("ps-1")
	w.node("ps-2")
	w.job("forbidden", func(s *v1alpha1.NodeJobSpec) { s.Rollout.MaxConcurrent = percent("100%") }) // which is tried first changes
	c := w.Condition("forbidden", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodForbidden)
	wantText(t, c.Message, "violates PodSecurity", "kubectl label namespace "+w.Namespace+" pod-security.kubernetes.io/enforce=privileged")

	must(t, admin.Patch(w.Ctx, ns, mergePatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)))
	w.end(w.podOn("ps-1"), 0, "")
	w.end(w.podOn("ps-2"), 0, "")
	w.Done("forbidden", "ps-2")
	w.Condition("forbidden", v1alpha1.ConditionStalled, metav1.ConditionFalse, "")
}

func TestATemplateThatTheNamespaceForbidsDoesNotAskForPrivileges(t *testing.T) {
	w := newWorld(t)
	must(
		t,
		admin.Patch(
			w.Ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}},
			mergePatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`),
		),
	)
	startManager(t, noFaults)
	w.node("ps-template")
	must(t, admin.Create(w.Ctx, jobFromYAML(t, w.Namespace, "templated", template)))
	c := w.Condition("templated", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodForbidden)
	wantText(
		t,
		c.Message,
		"violates PodSecurity",
		"spec.task.template asks for what the Pod Security level of namespace "+w.Namespace+" refuses",
	)
	if strings.Contains(c.Message, "kubectl label") {
		t.Error(c.Message)
	}
}

func TestASelectorThatCannotBeUsedIsNamed(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("sel-1")
	w.job("bad-selector", func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like", Values: []string{"b"}}}
	})
	c := w.Condition("bad-selector", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidSelector)
	wantText(t, c.Message, "spec.nodes.selector", "Like")
}

func TestAnImageThatCannotBePulledIsNamedWithinSeconds(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("pull-1")
	w.job("no-image", nil)
	pod := w.podOn("pull-1")
	pod.Status.Phase = corev1.PodPending
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: "registry.test/none:1",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host \x1b[31m"}},
	}}
	must(t, admin.Status().Update(w.Ctx, pod))
	c := w.Condition("no-image", v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonPodNotStarting)
	wantText(t, c.Message, "pull-1: ImagePullBackOff: image registry.test/none:1", "Check the image's name")
}

func TestANodeJobThatCannotWorkDelaysNoOther(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("two-1")
	w.job("bad", func(s *v1alpha1.NodeJobSpec) {
		s.Task = v1alpha1.TaskSpec{
			ScriptBlock: v1alpha1.ScriptBlock{
				ScriptFrom: &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "none", Key: "none"}},
			},
		}
	})
	w.Condition("bad", v1alpha1.ConditionStalled, metav1.ConditionTrue, "")
	w.job("good", nil)
	w.end(w.podOn("two-1"), 0, "")
	w.Done("good", "two-1")
}

// TestARefusedPodIsNotCalledRunning also shows that the refusal is over when no node waits for it.
func TestARefusedPodIsNotCalledRunning(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	must(t, admin.Create(w.Ctx, quota))
	quota.Status.Hard = quota.Spec.Hard
	quota.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	must(t, admin.Status().Update(w.Ctx, quota))
	node := w.node("quota-1")
	w.job("quota", nil)
	w.Condition("quota", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodForbidden)
	var job v1alpha1.NodeJob
	must(t, admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "quota"}, &job))
	if want := (v1alpha1.NodeCounts{Total: 1, Waiting: 1}); job.Status.Nodes != want {
		t.Errorf("the counts are %+v, want %+v", job.Status.Nodes, want)
	}
	must(t, admin.Patch(w.Ctx, node, mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`,
		v1alpha1.RecordKey(w.Namespace, "quota"), job.Status.Revision))))
	w.Condition("quota", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
}
