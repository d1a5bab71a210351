// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/local/cluster"
)

// pauseImage is on every node of the local cluster, and does nothing forever.
const pauseImage = "registry.local/everynode/pause:1"

// toldOf waits for a warning event about an object that contains this text.
func (w *world) toldOf(kind, name, reason, words string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("a warning %s of %s %s is there", reason, kind, name), func() error {
		var list eventsv1.EventList
		if err := admin.List(w.Ctx, &list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason && e.Type == corev1.EventTypeWarning &&
				strings.Contains(e.Note, words) && (strings.Contains(e.Note, w.Namespace) || e.Regarding.Namespace == w.Namespace) {
				return nil
			}
		}
		return errors.New("none is")
	})
}

// wantCordoned checks whether a node is cordoned, and whether by a NodeJob or by another tool.
func (w *world) wantCordoned(node string, want bool, by ...string) {
	w.T.Helper()
	live := w.node(node)
	for i := range by {
		by[i] = v1alpha1.RecordKey(w.Namespace, by[i])
	}
	if got := record.CordonedBy(live.Annotations); live.Spec.Unschedulable != want || !slices.Equal(got, by) {
		w.T.Errorf("%s is cordoned: %v, for %q; want %v, for %q", node, live.Spec.Unschedulable, got, want, by)
	}
}

// runningRollback waits until the pod of a rollback runs on the node.
func (w *world) runningRollback(node string) corev1.Pod {
	w.T.Helper()
	var found corev1.Pod
	w.Eventually("a rollback runs on "+node, func() error {
		for _, pod := range w.Pods() {
			if pod.Spec.NodeName == node && pod.Labels[v1alpha1.PhaseLabel] == string(task.Rollback) &&
				pod.Status.Phase == corev1.PodRunning {
				found = pod
				return nil
			}
		}
		return errors.New("none does")
	})
	return found
}

// rolledBack waits until the end of a rollback is on the node's record.
func (w *world) rolledBack(job, node string, want record.Outcome) record.Rollback {
	w.T.Helper()
	var rb record.Rollback
	w.Eventually("the rollback of "+job+" is on record", func() error {
		rec := w.On(job, node).Record
		if rec == nil || rec.Rollback == nil || rec.Rollback.Outcome != want {
			return fmt.Errorf("the record is %+v", rec)
		}
		rb = *rec.Rollback
		return nil
	})
	return rb
}

// workloads are on the node: a pod of a Deployment whose budget allows no disruption, and that may run on node-2; a pod
// of a DaemonSet; and a pod without a controller.
func (w *world) workloads(node string) (web, agent corev1.Pod) {
	w.T.Helper()
	template := func(app string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64(1)),
				Containers:                    []corev1.Container{{Name: "pause", Image: pauseImage}},
			},
		}
	}
	selector := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	hostname := func(names ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: names},
		}}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: w.Namespace, Name: name} }
	deployment := &appsv1.Deployment{
		ObjectMeta: named("web"),
		Spec:       appsv1.DeploymentSpec{Selector: selector("web"), Template: template("web")},
	}
	deployment.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{hostname(node, "node-2")},
		},
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: hostname(node)}},
	}}
	daemons := &appsv1.DaemonSet{
		ObjectMeta: named("agent"),
		Spec:       appsv1.DaemonSetSpec{Selector: selector("agent"), Template: template("agent")},
	}
	daemons.Spec.Template.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": node}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: named("one-at-least"),
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector("web"), MinAvailable: new(intstr.FromInt32(1))}}
	lonely := &corev1.Pod{ObjectMeta: named("lonely"), Spec: template("lonely").Spec}
	lonely.Labels = map[string]string{"app": "lonely"}
	lonely.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": node}
	// As soon as this pod runs, the scheduler has seen that the node is ready, and prefers it for the Deployment.
	must(w.T, admin.Create(w.Ctx, lonely))
	w.runs("lonely", node)
	for _, object := range []client.Object{deployment, daemons, budget} {
		must(w.T, admin.Create(w.Ctx, object))
	}
	web, agent = w.runs("web", node), w.runs("agent", node)
	w.Eventually("the budget counts the pod", func() error {
		must(w.T, admin.Get(w.Ctx, client.ObjectKeyFromObject(budget), budget))
		if budget.Status.CurrentHealthy != 1 || budget.Status.DisruptionsAllowed != 0 {
			return fmt.Errorf("it is %+v", budget.Status)
		}
		return nil
	})
	return web, agent
}

// runs waits until a pod of a workload is ready on the node.
func (w *world) runs(app, node string) corev1.Pod {
	w.T.Helper()
	var found corev1.Pod
	w.Eventually("a pod of "+app+" runs on "+node, func() error {
		var pods corev1.PodList
		if err := admin.List(w.Ctx, &pods, client.InNamespace(w.Namespace), client.MatchingLabels{"app": app}); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if pod.Spec.NodeName == node && ready && pod.DeletionTimestamp.IsZero() {
				found = pod
				return nil
			}
		}
		return fmt.Errorf("of %d none does", len(pods.Items))
	})
	return found
}

// TestR19_AFailedCanaryIsRolledBackAndDrainedAndTheOthersAreSpared covers every reaction to a failed canary,
// and then corrects the script.
func TestR19_AFailedCanaryIsRolledBackAndDrainedAndTheOthersAreSpared(t *testing.T) {
	t.Parallel()
	const soak = 3 * time.Second
	w := newWorld(t)
	canary := w.join(cluster.NodeOptions{})
	web, agent := w.workloads(canary)
	log, conditions := w.logPods(), w.logConditions()
	changed, undo := w.markFile()+".changed", w.markFile()+".undo"
	w.job("broken", w.mark()+"; touch "+changed+`; echo "disk.size-gb=12" >> $EVERYNODE_RESULTS; echo no room left; exit 7`,
		onNodes(canary, "node-2"), func(s *v1alpha1.NodeJobSpec) {
			s.Task.Env = []v1alpha1.EnvVar{{Name: "EXTRA", Value: "from-env"}}
			s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: fmt.Sprintf(
				"rm %s; env > %s.env; while [ ! -e %s ]; do sleep 0.1; done; echo undone", changed, w.markFile(), undo)}}
			s.Retry.Limit = new(int32(1))
			s.OnFailure = v1alpha1.OnFailureSpec{Action: v1alpha1.FailureActionDrain}
			s.Rollout = w.canaryFirst(int32(soak / time.Second))
			s.Rollout.PromoteTo = "canary"
		})

	// The node is cordoned at once, and drained when it is rolled back.
	pod := w.runningRollback(canary)
	w.Eventually("the status shows the rollback", func() error {
		s := w.Get("broken").Status
		if len(s.Failures) != 1 || s.Failures[0].Rollback != v1alpha1.ReasonRollingBack ||
			s.Failures[0].Quarantine != v1alpha1.ReasonCordoned ||
			len(s.Drains) > 0 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	w.wantCordoned(canary, true, "broken")
	w.wantRan(canary, 2)
	w.sh(canary, "touch "+undo)
	if rb := w.rolledBack(
		"broken",
		canary,
		record.Succeeded,
	); rb.PodUID != pod.UID || rb.Attempts != 1 ||
		!strings.Contains(rb.Message, "undone") {
		t.Errorf("the rollback is %+v", rb)
	}
	if out := w.sh(canary, "ls "+changed+" 2>&1 || true"); !strings.Contains(out, "No such file") {
		t.Errorf("the task was not rolled back: %s", out)
	}
	env := strings.Split(w.sh(canary, "cat "+w.markFile()+".env"), "\n")
	for _, want := range []string{
		"EVERYNODE_ROLLBACK_FOR=Failure", "EVERYNODE_FAILED_EXIT_CODE=7", "EVERYNODE_FAILED_REASON=TaskFailed",
		`EVERYNODE_RUN_RESULTS={"disk.size-gb":"12"}`, "EVERYNODE_RESULT_DISK_SIZE_GB=12", "EVERYNODE_NODE_NAME=" + canary, "EXTRA=from-env",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("the rollback's environment has no %s: %q", want, env)
		}
	}

	// The message names what blocks the drain, until the budget allows the eviction.
	w.Eventually("the status names what blocks the drain", func() error {
		drains := w.Get("broken").Status.Drains
		if len(drains) != 1 || drains[0].Node != canary || drains[0].Pods != 2 || len(drains[0].Blocked) != 2 {
			return fmt.Errorf("it shows %+v", drains)
		}
		for _, b := range drains[0].Blocked {
			if words := map[string]string{"/" + web.Name: "one-at-least", "/lonely": "no controller"}[strings.TrimPrefix(b.Pod, w.Namespace)]; words == "" ||
				!strings.Contains(b.Message, words) {
				t.Errorf("blocked is %+v", b)
			}
		}
		return nil
	})
	if now := w.runs("web", canary); now.UID != web.UID {
		t.Error("the pod was evicted despite its PodDisruptionBudget")
	}
	w.runs("lonely", canary)
	c := w.Condition("broken", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
	wantText(t, c.Message, canary+": TaskFailed, exit code 7: no room left")
	must(t, admin.Delete(w.Ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "lonely"}}))
	must(t, admin.Patch(w.Ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "one-at-least"}},
		mergePatch(`{"spec":{"minAvailable":0}}`)))
	w.Eventually("the node is drained", func() error {
		if rec := w.On("broken", canary).Record; rec.Drain == nil || rec.Drain.Outcome != v1alpha1.ReasonDrained {
			return fmt.Errorf("the record is %+v", rec)
		}
		return nil
	})
	w.runs("web", "node-2")
	if now := w.runs("agent", canary); now.UID != agent.UID {
		t.Error("the DaemonSet's pod was evicted")
	}
	w.Eventually("the status shows the outcome of the canary", func() error {
		s := w.Get("broken").Status
		if want := (v1alpha1.NodeCounts{Total: 2, Waiting: 1, Failed: 1, RolledBack: 1}); s.Nodes != want {
			return fmt.Errorf("the counts are %+v", s.Nodes)
		}
		if f := s.Failures; len(f) != 1 || f[0].Rollback != v1alpha1.ReasonRolledBack || f[0].Quarantine != v1alpha1.ReasonDrained ||
			*f[0].ExitCode != 7 {
			return fmt.Errorf("the failures are %+v", f)
		}
		return nil
	})
	w.untouched(log, "broken", "node-2")

	// The corrected script starts with the canary again, which is uncordoned as soon as it is done.
	w.patch("broken", `{"spec":{"task":{"script":%q}}}`, w.timed("true"))
	w.Eventually("the canary is done", func() error {
		live := w.node(canary)
		on := record.Read(live.Labels, live.Annotations, v1alpha1.RecordKey(w.Namespace, "broken"))
		if on.Label == "" || on.Record == nil || on.Record.Outcome != record.Succeeded {
			return fmt.Errorf("it carries label %q and record %+v", on.Label, on.Record)
		}
		if live.Spec.Unschedulable || len(record.CordonedBy(live.Annotations)) > 0 {
			t.Error("the node is done and still cordoned")
		}
		return nil
	})
	conditions.eventually(w, "broken", v1alpha1.ConditionReconciling, v1alpha1.ReasonSoaking)
	c = w.Condition("broken", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingPromotion)
	w.untouched(log, "broken", "node-2")
	promoted := time.Now()
	w.asTold(c.Message, "promoteTo")
	w.complete("broken")
	first, rest := w.spans(canary)[0], w.spans("node-2")[0]
	if rest.began.Before(promoted) || rest.began.Sub(first.ended) < soak {
		t.Errorf("the canary ran until %s, the promotion was at %s, and the other node ran at %s", first.ended, promoted, rest.began)
	}
	want := []string{"task 1 on " + canary, "task 2 on " + canary, "rollback 1 on " + canary, "task 1 on " + canary, "task 1 on node-2"}
	if got := log.story("broken"); !slices.Equal(got, want) {
		t.Errorf("the pods were %q, want %q", got, want)
	}
}

// TestR19_ARollbackThatFailsAsWellIsSaidEverywhere covers a node that is in an undefined state after a failed rollback.
func TestR19_ARollbackThatFailsAsWellIsSaidEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := w.logPods()
	fixed := w.markFile() + ".fixed"
	w.job("worse", "[ -e "+fixed+" ] || exit 7", onNode2, func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(1))
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "echo it cannot be undone; exit 9"}}
	})
	c := w.Condition("worse", v1alpha1.ConditionRollbackFailed, metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed)
	wantText(t, c.Message, "node-2: TaskFailed, exit code 9: it cannot be undone")
	if rb := w.rolledBack("worse", "node-2", record.Failed); rb.Attempts != 2 || *rb.ExitCode != 9 {
		t.Errorf("the rollback is %+v", rb)
	}
	live := w.counted("worse", v1alpha1.NodeCounts{Total: 1, Failed: 1, RollbackFailed: 1})
	if f := live.Status.Failures; len(f) != 1 || f[0].Rollback != v1alpha1.ReasonRollbackFailed ||
		f[0].RollbackMessage != "it cannot be undone" ||
		*f[0].ExitCode != 7 {
		t.Errorf("the failures are %+v", f)
	}
	w.toldOf("NodeJob", "worse", v1alpha1.ReasonRollbackFailed, "it cannot be undone")
	w.toldOf("Node", "node-2", v1alpha1.ReasonRollbackFailed, "it cannot be undone")
	w.Eventually("the metrics show it", func() error {
		text := w.metrics()
		for _, want := range []string{
			fmt.Sprintf(`everynode_nodejob_nodes{namespace=%q,nodejob="worse",state="rollback_failed"} 1`, w.Namespace),
			fmt.Sprintf(`everynode_nodejob_stalled{namespace=%q,nodejob="worse"} 1`, w.Namespace),
			`everynode_attempts_total{outcome="Failed",phase="rollback"}`,
		} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("%s is missing", want)
			}
		}
		return nil
	})

	w.sh("node-2", "touch "+fixed)
	c = w.Condition("worse", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	w.asTold(c.Message, "annotate nodejob")
	w.complete("worse")
	w.Condition("worse", v1alpha1.ConditionRollbackFailed, metav1.ConditionFalse, "")
	want := []string{"task 1 on node-2", "task 2 on node-2", "rollback 1 on node-2", "rollback 2 on node-2", "task 1 on node-2"}
	if got := log.story("worse"); !slices.Equal(got, want) {
		t.Errorf("the pods were %q, want %q", got, want)
	}
}
