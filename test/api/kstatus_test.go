// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// kstatus waits until the library that Flux, kpt and Helm use computes this status.
func (w *world) kstatus(kind, name string, want status.Status) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("%s %s is %s", kind, name, want), func() error {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		if err := admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, live); err != nil {
			return err
		}
		got, err := status.Compute(live)
		if err != nil {
			return err
		}
		if got.Status != want {
			return fmt.Errorf("it is %s: %s", got.Status, got.Message)
		}
		return nil
	})
}

// shown waits until kstatus, and Argo CD with the health check in the pages, show this state of a NodeJob or NodeGuard. The
// message is a part of that in Argo CD.
func (w *world) shown(kind, name string, kstatus status.Status, argoCD, message string) {
	w.T.Helper()
	w.kstatus(kind, name, kstatus)
	w.argoCD(kind, name, argoCD, message)
}

// GitOps tools wait for these. The manager is not running at first: nothing may count as applied then.
func TestGitOpsToolsShowEachState(t *testing.T) {
	w := newWorld(t)
	for _, node := range []string{"kstatus-1", "kstatus-2"} {
		w.node(node)
	}
	job := w.job("rollout", func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Rollout = v1alpha1.RolloutSpec{
			PromoteTo: "canary",
			Steps:     []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}},
		}
	})
	w.job("nowhere", func(s *v1alpha1.NodeJobSpec) { s.Nodes.Selector = selects("no-such-label") })
	w.job("suspended", func(s *v1alpha1.NodeJobSpec) { s.Suspend = true })
	for _, name := range []string{"rollout", "nowhere", "suspended"} {
		w.shown("NodeJob", name, status.InProgressStatus, progressing, "waiting for the manager")
	}

	stop := startManager(t, noFaults)
	w.shown("NodeJob", "nowhere", status.CurrentStatus, healthy, "no node")
	w.shown("NodeJob", "suspended", status.CurrentStatus, suspended, "spec.suspend keeps new attempts from starting")
	pod := w.podOn("kstatus-1")
	w.shown("NodeJob", "rollout", status.InProgressStatus, progressing, "0 of 2 nodes are done")
	w.end(pod, 0, "")
	w.Condition("rollout", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingPromotion)
	w.shown("NodeJob", "rollout", status.CurrentStatus, suspended, "1 of 2 nodes are done")
	w.change(job, `{"rollout":{"promoteTo":"all"}}`)
	w.end(w.podOn("kstatus-2"), 1, "broken")
	w.Condition("rollout", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
	w.shown("NodeJob", "rollout", status.FailedStatus, degraded, "the rollout has stopped: 1 node failed")
	w.change(job, `{"suspend":true}`)
	w.shown("NodeJob", "rollout", status.FailedStatus, degraded, "the rollout has stopped: 1 node failed")
	w.change(job, `{"suspend":false}`)
	w.retry(job, "again")
	w.end(w.podOn("kstatus-2"), 0, "")
	w.Condition("rollout", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
	w.shown("NodeJob", "rollout", status.CurrentStatus, healthy, "2 of 2 nodes are done")

	stop()
	w.change(job, `{"suspend":true}`)
	w.shown("NodeJob", "rollout", status.InProgressStatus, progressing, "waiting for the manager")
	must(t, admin.Delete(w.Ctx, job))
	w.shown("NodeJob", "rollout", status.TerminatingStatus, progressing, "Pending deletion")
}

// TestGitOpsToolsShowEachStateOfANodeGuard is the same for a NodeGuard.
func TestGitOpsToolsShowEachStateOfANodeGuard(t *testing.T) {
	g := newGuarded(t, "kstatus-3")
	g.guard(nil)
	const kind, name = "NodeGuard", "storage"
	g.shown(kind, name, status.InProgressStatus, progressing, "waiting for the manager")
	stop := startGuards(t, noFaults)
	g.ready(1)
	g.shown(kind, name, status.CurrentStatus, healthy, "")
	must(t, admin.Patch(g.Ctx, g.live(), mergePatch(`{"spec":{"target":{"daemonSet":"missing"}}}`)))
	g.shown(kind, name, status.FailedStatus, degraded, "missing")
	stop()
	must(t, admin.Patch(g.Ctx, g.live(), mergePatch(`{"spec":{"maxUnavailable":0}}`)))
	g.shown(kind, name, status.InProgressStatus, progressing, "waiting for the manager")
}

// What remains of a misspelled field must not select all nodes or pods.
func TestTheAPIRejectsAnEmptySelector(t *testing.T) {
	w := newWorld(t)
	for name, spec := range map[string]string{
		"nodes.selector":    withTask(`nodes: {selector: %s}`),
		"step":              withTask(`rollout: {steps: [{name: a, selector: %s}, {name: b}]}`),
		"onFailure drain":   withTask(`onFailure: {action: Drain, drain: {podSelector: %s}}`),
		"maintenance drain": withTask(`maintenance: {drain: {podSelector: %s}}`),
	} {
		for _, selector := range []string{"{}", "{matchLabels: {}}", "{matchExpressions: []}"} {
			t.Run(name+" "+selector, func(t *testing.T) {
				err := admin.Create(w.Ctx, jobFromYAML(t, w.Namespace, "", fmt.Sprintf(spec, selector)))
				if err == nil {
					t.Fatal("the API server accepted it")
				}
				wantText(t, err.Error(), "elector: Invalid value", "the selector is empty: write", "matchLabels.KEY: VALUE, ")
			})
		}
	}
	// A client that does not validate strictly, for example kubectl apply --validate=ignore, sends the field, and the API
	// server prunes it.
	pruned := jobFromYAML(t, w.Namespace, "", withTask(`nodes: {selector: {pool: db}}`))
	err := admin.Create(w.Ctx, pruned, &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore}})
	if err == nil {
		t.Fatal("the API server accepted a NodeJob whose nodes.selector has only a misspelled field")
	}
	wantText(t, err.Error(), "spec.nodes.selector", "matchLabels.KEY: VALUE, such as kubernetes.io/os: linux for all Linux nodes")
}
