// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
)

func (w *world) bootID(node string) string {
	w.T.Helper()
	return w.node(node).Status.NodeInfo.BootID
}

// bootWhen notes in a file on the node in which boot a script ran.
func (w *world) bootWhen(what string) string {
	return fmt.Sprintf("cat /proc/sys/kernel/random/boot_id >> %s.%s", w.markFile(), what)
}

func (w *world) bootsOf(node, what string) []string {
	w.T.Helper()
	return strings.Fields(w.sh(node, fmt.Sprintf("cat %s.%s 2>/dev/null || true", w.markFile(), what)))
}

// TestANodeIsDrainedRebootedAndCheckedInItsNewBoot covers a complete maintenance: the pods are evicted after their
// budget allows it, the script requests a reboot, and its result is checked after the reboot.
func TestANodeIsDrainedRebootedAndCheckedInItsNewBoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	web, agent := w.workloads(node)
	before := w.bootID(node)
	w.job(
		"kernel",
		w.bootWhen("task")+"; echo reboot=true >> $EVERYNODE_RESULTS; echo size=12 >> $EVERYNODE_RESULTS",
		onNodes(node),
		func(s *v1alpha1.NodeJobSpec) {
			s.Task.Check = &v1alpha1.CheckSpec{
				ScriptBlock: v1alpha1.ScriptBlock{Script: w.bootWhen("check") + `; [ "$EVERYNODE_RESULT_SIZE" = 12 ]`},
			}
			s.Maintenance = v1alpha1.MaintenanceSpec{
				Drain:  &v1alpha1.DrainSpec{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
				Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested, MinReadySeconds: new(int32(2))},
			}
		},
	)
	w.wantBlocked("kernel", node, "web", "one-at-least")
	w.wantCordoned(node, true, "kernel")
	if boots := w.bootsOf(node, "task"); len(boots) > 0 {
		t.Fatal("the task has run before the pods have left")
	}
	must(
		t,
		admin.Patch(
			w.Ctx,
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "one-at-least"}},
			mergePatch(`{"spec":{"minAvailable":0}}`),
		),
	)
	rec := w.Done("kernel", node)
	after := w.bootID(node)
	if after == before || rec.BootID != after || rec.Attempts != 1 || rec.Results["size"] != "12" {
		t.Errorf("the boot was %s and is %s, and the record is %+v", before, after, rec)
	}
	if task, check := w.bootsOf(
		node,
		"task",
	), w.bootsOf(
		node,
		"check",
	); !slices.Equal(task, []string{before}) ||
		!slices.Equal(check, []string{after}) {
		t.Errorf("the task ran in %v, want once in %s; the check in %v, want once in %s", task, before, check, after)
	}
	w.complete("kernel")
	w.wantCordoned(node, false)
	w.Eventually("web runs elsewhere, and the agent on the node", func() error {
		var pods corev1.PodList
		must(t, admin.List(w.Ctx, &pods, client.InNamespace(w.Namespace)))
		for _, pod := range pods.Items {
			switch {
			case pod.UID == web.UID:
				return errors.New("the old pod of web is there")
			case pod.Labels["app"] == "web" && pod.Spec.NodeName == node && pod.CreationTimestamp.Before(&metav1.Time{Time: rec.FinishedAt}):
				return errors.New("web is on the node")
			}
		}
		return nil
	})
	if w.runs("agent", node).UID != agent.UID {
		t.Error("the pod of the DaemonSet was evicted")
	}
}

func TestNothingIsRebootedThatIsNotAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	before := w.bootID(node)
	w.job("kernel", "true", onNodes(node), func(s *v1alpha1.NodeJobSpec) {
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: w.bootWhen("check")}}
		s.Maintenance = v1alpha1.MaintenanceSpec{Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested}, Cordon: true}
	})
	w.Done("kernel", node)
	w.complete("kernel")
	if after := w.bootID(node); after != before || !slices.Equal(w.bootsOf(node, "check"), []string{before}) {
		t.Errorf("the boot was %s and is %s, and the check ran in %v", before, after, w.bootsOf(node, "check"))
	}
	w.wantCordoned(node, false)
}

// TestRebootsOneNodeAfterTheOtherAndAFailedCheckStops has two nodes that must not be unavailable at once, and a check
// that fails after the reboot of one of them.
func TestRebootsOneNodeAfterTheOtherAndAFailedCheckStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.join(cluster.NodeOptions{}), w.join(cluster.NodeOptions{})
	boots := map[string]string{first: w.bootID(first), second: w.bootID(second)}
	w.job("kernel", "true", func(s *v1alpha1.NodeJobSpec) {
		s.Task.Check = &v1alpha1.CheckSpec{
			ScriptBlock: v1alpha1.ScriptBlock{
				Script: fmt.Sprintf("[ ! -e %s.bad ] || { echo the module is missing; exit 5; }", w.markFile()),
			},
		}
		s.Maintenance = v1alpha1.MaintenanceSpec{
			Reboot:         v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, MinReadySeconds: new(int32(1))},
			MaxUnavailable: new(intstr.FromInt32(1)),
		}
		s.Retry.Limit = new(int32(0))
	})
	w.Done("kernel", first)
	if boot := w.bootID(first); boot == boots[first] {
		t.Error("the first node was not rebooted")
	}
	w.Done("kernel", second)
	one, two := *w.On("kernel", first).Record, *w.On("kernel", second).Record
	if two.StartedAt.Before(one.FinishedAt) && one.StartedAt.Before(two.FinishedAt) {
		t.Errorf("both were unavailable at once: %v to %v and %v to %v", one.StartedAt, one.FinishedAt, two.StartedAt, two.FinishedAt)
	}
	w.complete("kernel")

	w.sh(second, "touch "+w.markFile()+".bad")
	w.unlabel("kernel", second)
	rec := w.failed("kernel", second)
	if rec.Reason != "CheckFailed" || !strings.Contains(rec.Message, "the module is missing") || rec.ExitCode == nil || *rec.ExitCode != 5 {
		t.Errorf("the record is %+v", rec)
	}
}

// TestAnAttemptFailsIfTheRebootNeverEnds uses a simulated node, which never reboots.
func TestAnAttemptFailsIfTheRebootNeverEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{Name: "sim-" + w.Namespace, Simulated: true})
	w.job("kernel", "true", func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance = v1alpha1.MaintenanceSpec{
			Cordon: true,
			Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, TimeoutSeconds: new(int32(10)), MinReadySeconds: new(int32(1))},
		}
		s.Retry.Limit = new(int32(0))
	})
	w.Eventually("it waits for the reboot", func() error {
		if n := w.Get(
			"kernel",
		).Status.Nodes; n.Running != 1 || w.On("kernel", node).Record == nil ||
			w.On("kernel", node).Record.Outcome != record.Rebooting {
			return fmt.Errorf("the counts are %+v", n)
		}
		return nil
	})
	w.wantCordoned(node, true, "kernel")
	if rec := w.failed("kernel", node); rec.Reason != v1alpha1.ReasonRebootTimedOut {
		t.Errorf("the record is %+v", rec)
	}
	wantText(
		t,
		w.Condition("kernel", v1alpha1.ConditionStalled, metav1.ConditionTrue, "").Message,
		node,
		"RebootTimedOut",
		"reboot.timeoutSeconds",
	)
	if n := w.Get("kernel").Status.Nodes; n.Running != 0 || n.Failed != 1 {
		t.Errorf("the counts are %+v", n)
	}
	w.Eventually("the node is uncordoned after the failure", func() error {
		if w.node(node).Spec.Unschedulable {
			return errors.New("it is cordoned")
		}
		return nil
	})
}

// TestADrainThatNeverEndsFailsTheAttempt covers a drain before a task: the task does not run, and the node is uncordoned.
func TestADrainThatNeverEndsFailsTheAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	web, _ := w.workloads(node)
	w.job("drains", w.mark(), onNodes(node), func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance.Drain = &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(3))}
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "touch " + w.markFile() + ".undone"}}
		s.Retry.Limit = new(int32(0))
	})
	rec := w.failed("drains", node)
	if rec.Reason != v1alpha1.ReasonDrainTimedOut || !strings.Contains(rec.Message, "one-at-least") {
		t.Errorf("the record is %+v", rec)
	}
	w.wantRan(node, 0)
	w.Eventually("the node is uncordoned", func() error {
		if live := w.node(node); live.Spec.Unschedulable || len(record.CordonedBy(live.Annotations)) > 0 {
			return fmt.Errorf("it is %+v", live.Spec)
		}
		return nil
	})
	if w.runs("web", node).UID != web.UID {
		t.Error("the pod was evicted despite its PodDisruptionBudget")
	}
	if out := w.sh(node, "ls "+w.markFile()+".undone 2>&1 || true"); !strings.Contains(out, "No such file") {
		t.Error("a task that never ran was rolled back")
	}
}

// TestTheManagersOwnNodeComesLast reboots the node that the manager runs on, and with it the manager.
func TestTheManagersOwnNodeComesLast(t *testing.T) {
	w := newWorld(t)
	other := w.join(cluster.NodeOptions{Name: "zz-" + w.Namespace}) // last in the order of names
	own := w.manager().Spec.NodeName
	before := w.bootID(own)
	w.job("kernel", "true", onNodes(own, other), func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance = v1alpha1.MaintenanceSpec{
			Drain: &v1alpha1.DrainSpec{
				PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "everynode"}},
			},
			Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, MinReadySeconds: new(int32(1))},
		}
	})
	// Each of the two reboots has the time of one: the second also waits until another manager has the lease.
	w.Done("kernel", other)
	w.Eventually("the manager's node is in another boot", func() error {
		if w.bootID(own) == before {
			return errors.New("it is not")
		}
		return nil
	})
	w.Done("kernel", own)
	w.complete("kernel")
	one, two := w.On("kernel", other).Record, w.On("kernel", own).Record
	if one == nil || two.StartedAt.Before(one.FinishedAt) {
		t.Errorf("the manager's node began at %v, and the other ended at %+v", two.StartedAt, one)
	}
	w.wantCordoned(own, false)
	w.manager()
}

// wantBlocked waits until the status names the pod that blocks a drain, and its budget.
func (w *world) wantBlocked(job, node, app, budget string) {
	w.T.Helper()
	w.Eventually("the status says what blocks the drain", func() error {
		for _, d := range w.Get(job).Status.Drains {
			for _, b := range d.Blocked {
				if d.Node == node && strings.Contains(b.Pod, "/"+app) && strings.Contains(b.Message, budget) && !d.Deadline.IsZero() {
					return nil
				}
			}
		}
		return fmt.Errorf("the drains are %+v", w.Get(job).Status.Drains)
	})
}
