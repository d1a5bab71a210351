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
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s %s is %s", kind, name, want), func() error {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		if err := admin.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, live); err != nil {
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

// GitOps tools wait for these. The manager is not running at first: nothing may count as applied then.
func TestKstatusComputesEachState(t *testing.T) {
	w := newWorld(t)
	for _, node := range []string{"kstatus-1", "kstatus-2"} {
		w.node(node)
	}
	job := w.job("rollout", func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Rollout = v1alpha1.RolloutSpec{PromoteTo: "canary", Steps: []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}}
	})
	w.job("nowhere", func(s *v1alpha1.NodeJobSpec) { s.NodeSelector = selects("no-such-label") })
	w.job("suspended", func(s *v1alpha1.NodeJobSpec) { s.Suspend = true })
	must(t, admin.Create(w.ctx, &v1alpha1.NodeGuard{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "guard"},
		Spec:       v1alpha1.NodeGuardSpec{Target: v1alpha1.GuardTarget{PodSelector: selects("app")}},
	}))
	w.kstatus("NodeGuard", "guard", status.InProgressStatus)
	for _, name := range []string{"rollout", "nowhere", "suspended"} {
		w.kstatus("NodeJob", name, status.InProgressStatus)
	}

	stop := startManager(t, noFaults)
	w.kstatus("NodeJob", "nowhere", status.CurrentStatus)
	w.kstatus("NodeJob", "suspended", status.CurrentStatus)
	pod := w.podOn("kstatus-1")
	w.kstatus("NodeJob", "rollout", status.InProgressStatus)
	w.end(pod, 0, "")
	w.condition("rollout", v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonAwaitingPromotion)
	w.kstatus("NodeJob", "rollout", status.CurrentStatus)
	w.change(job, `{"rollout":{"promoteTo":"all"}}`)
	w.end(w.podOn("kstatus-2"), 1, "broken")
	w.condition("rollout", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
	w.kstatus("NodeJob", "rollout", status.FailedStatus)
	w.retry(job, "again")
	w.end(w.podOn("kstatus-2"), 0, "")
	w.condition("rollout", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
	w.kstatus("NodeJob", "rollout", status.CurrentStatus)

	stop()
	w.change(job, `{"suspend":true}`)
	w.kstatus("NodeJob", "rollout", status.InProgressStatus)
	must(t, admin.Delete(w.ctx, job))
	w.kstatus("NodeJob", "rollout", status.TerminatingStatus)
}

// What remains of a misspelled field must not select all nodes or pods.
func TestTheAPIRejectsAnEmptySelector(t *testing.T) {
	w := newWorld(t)
	for name, spec := range map[string]string{
		"nodeSelector":      withTask(`nodeSelector: %s`),
		"step":              withTask(`rollout: {steps: [{name: a, nodeSelector: %s}, {name: b}]}`),
		"onFailure drain":   withTask(`onFailure: {node: Drain, drain: {podSelector: %s}}`),
		"maintenance drain": withTask(`maintenance: {drain: {podSelector: %s}}`),
	} {
		for _, selector := range []string{"{}", "{matchLabels: {}}", "{matchExpressions: []}"} {
			t.Run(name+" "+selector, func(t *testing.T) {
				err := admin.Create(w.ctx, jobFromYAML(t, w.namespace, "", fmt.Sprintf(spec, selector)))
				if err == nil {
					t.Fatal("the API server accepted it")
				}
				wantText(t, err.Error(), "elector: Invalid value", "the selector is empty: write", "matchLabels.KEY: VALUE, or omit")
			})
		}
	}
	// A client that does not validate strictly, for example kubectl apply --validate=ignore, sends the field, and the API
	// server prunes it.
	pruned := jobFromYAML(t, w.namespace, "", withTask(`nodeSelector: {pool: db}`))
	err := admin.Create(w.ctx, pruned, &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore}})
	if err == nil {
		t.Fatal("the API server accepted a NodeJob whose nodeSelector has only a misspelled field")
	}
	wantText(t, err.Error(), "spec.nodeSelector", "matchLabels.KEY: VALUE, or omit nodeSelector for all nodes")
}
