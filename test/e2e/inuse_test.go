// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
)

// upgrades begins the work of a tool such as the system-upgrade-controller: it drains the node with kubectl, and runs a pod there that
// tolerates the cordon.
func (w *world) upgrades(node string) corev1.Pod {
	w.T.Helper()
	w.drained(node, w.drain(node))
	labels := map[string]string{"app": "upgrade"}
	must(w.T, admin.Create(w.Ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "upgrade"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector:                  map[string]string{"kubernetes.io/hostname": node},
					Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					TerminationGracePeriodSeconds: new(int64(1)),
					Containers:                    []corev1.Container{{Name: "pause", Image: pauseImage}},
				},
			},
		},
	}))
	return w.runs("upgrade", node)
}

// upgraded ends that work, without an uncordon.
func (w *world) upgraded(pod corev1.Pod) {
	w.T.Helper()
	var live corev1.Pod
	must(w.T, admin.Get(w.Ctx, client.ObjectKeyFromObject(&pod), &live))
	if live.UID != pod.UID || live.DeletionTimestamp != nil {
		w.T.Errorf("the pod of the other tool was evicted")
	}
	must(w.T, admin.Delete(w.Ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "upgrade"}},
		client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.Eventually("the pod of the other tool has gone", func() error {
		if err := admin.Get(w.Ctx, client.ObjectKeyFromObject(&pod), &live); !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading it: %w", errNotYetOr(err))
		}
		return nil
	})
}

func errNotYetOr(err error) error {
	if err == nil {
		return errNotYet
	}
	return err
}

// saysInUse waits until a NodeJob says that another tool works on a node.
func (w *world) saysInUse(job, node string) {
	w.T.Helper()
	w.Eventually(job+" says that "+node+" is in use", func() error {
		conditions := w.Get(job).Status.Conditions
		if !slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
			return strings.Contains(c.Message, v1alpha1.ReasonNodeInUse+" ("+node)
		}) {
			return fmt.Errorf("its conditions are %+v", conditions)
		}
		return nil
	})
}

// TestANodeJobWaitsForAnotherToolOnItsNode : a tool drains a node and works there, before a NodeJob drains it and while its task runs.
// Neither evicts the work of the other again.
func TestANodeJobWaitsForAnotherToolOnItsNode(t *testing.T) {
	t.Parallel()
	b := newBudgeted(t, "a")
	node := b.nodes[0]
	work := b.upgrades(node)
	b.job("drains", b.hold(), onNodes(node), func(s *v1alpha1.NodeJobSpec) { s.Maintenance.Drain = &v1alpha1.DrainSpec{} })
	b.saysInUse("drains", node)
	b.killManager()
	b.saysInUse("drains", node)
	b.wantRan(node, 0)
	b.upgraded(work)
	b.uncordon(node)
	b.began(node)

	// The other way round: the tool evicts the task.
	work = b.upgrades(node)
	b.saysInUse("drains", node)
	if rec := b.On(
		"drains",
		node,
	).Record; rec == nil || rec.Outcome != record.Disrupted || rec.Reason != v1alpha1.ReasonEvicted ||
		rec.Attempts != 0 {
		t.Errorf("the record is %+v", rec)
	}
	b.killManager()
	b.saysInUse("drains", node)
	b.wantRan(node, 1)
	b.upgraded(work)
	b.wantRan(node, 1)
	b.letGo(node)
	must(t, admin.Patch(b.Ctx, &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "drains"}},
		mergePatch(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.TakeOverAnnotation, node)))
	b.Done("drains", node)
	b.complete("drains")
	b.wantRan(node, 2)
	b.wantCordoned(node, false) // it was cordoned for the NodeJob, and the tool has not uncordoned it
	b.seated(1, 1)
}

// TestARevisionRunsAgainAfterAnotherOneHasRebootedTheNode : the node is done with the first revision, the second one reboots it, and the
// first one becomes current again. What ran last is the second one, so the first one runs.
func TestARevisionRunsAgainAfterAnotherOneHasRebootedTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("flips", w.mark(), onNodes(node), func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance.Reboot = v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested, MinReadySeconds: new(int32(1))}
	})
	first := w.Done("flips", node).Revision
	w.wantRan(node, 1)
	boot := w.bootID(node)
	w.patch("flips", `{"spec":{"task":{"script":%q}}}`, "echo reboot=true >> $EVERYNODE_RESULTS")
	w.Eventually("the node reboots for the second revision", func() error {
		if rec := w.On("flips", node).Record; rec == nil || rec.Outcome != record.Rebooting {
			return fmt.Errorf("the record is %+v", rec)
		}
		return nil
	})
	w.patch("flips", `{"spec":{"task":{"script":%q}}}`, w.mark())
	w.Eventually("the first revision has run again", func() error {
		on := w.On("flips", node)
		if on.Record == nil || on.Record.Revision != first || on.Record.Outcome != record.Succeeded {
			return fmt.Errorf("the record is %+v", on.Record)
		}
		return nil
	})
	w.complete("flips")
	if ran := w.ran(node); ran != 2 {
		t.Errorf("the first revision ran %d times; the boot was %s, and is %s", ran, boot, w.bootID(node))
	}
}
