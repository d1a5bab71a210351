// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
)

// TestTheBannerOfAFreeze checks the sentence in the state of the page, and that it is no problem if budgets cannot be read.
func TestTheBannerOfAFreeze(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	const want = `"freezes":["Frozen until 13:00:00 UTC (in 60m) by alice: INC-42 \\x1b[2J (NodeDisruptionBudget freeze): nothing starts on 1 node"]`
	const denied, missing, down = `cannot list resource`, "404 page not found", "down"
	for name, tt := range map[string]struct {
		// answer is the error of the API server; "" for the budget.
		answer   string
		selector map[string]string
		banner   bool
		note     bool
	}{
		"a freeze":                   {banner: true},
		"a freeze without nodes":     {selector: map[string]string{"pool": "none"}},
		"a user who may not read it": {answer: denied},
		"an older Everynode":         {answer: missing},
		"an API server that is down": {answer: down, note: true},
	} {
		t.Run(name, func(t *testing.T) {
			none, ends := intstr.FromInt32(0), metav1.NewTime(now.Add(time.Hour))
			budget := v1alpha1.NodeDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Name: "freeze", Annotations: map[string]string{v1alpha1.ChangedByAnnotation: "alice"}},
				Spec: v1alpha1.NodeDisruptionBudgetSpec{
					AppliesTo:   v1alpha1.AppliesToAllTasks,
					Limits:      []v1alpha1.BudgetLimit{{MaxUnavailable: &none}},
					Description: "INC-42 \x1b[2J",
					ExpiresAt:   &ends,
				},
			}
			if tt.selector != nil {
				budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: tt.selector}
			}
			f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == clitest.NodesPath:
					clitest.Respond(w, corev1.NodeList{
						TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
						Items:    []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
					})
				case tt.answer == denied:
					clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, denied)
				case tt.answer == missing:
					http.Error(w, missing, http.StatusNotFound)
				case tt.answer == down:
					clitest.RespondError(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, down)
				default:
					clitest.Respond(w, v1alpha1.NodeDisruptionBudgetList{
						TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudgetList"},
						Items:    []v1alpha1.NodeDisruptionBudget{budget},
					})
				}
			}))
			c, err := f.Client()
			if err != nil {
				t.Fatal(err)
			}
			m := newMirrors(c, "ns", f.After)
			for _, load := range []func() error{
				func() error { _, _, err := m.nodes.load(t.Context()); return err },
				func() error { at, err := m.budgets.loop().Once(t.Context()); m.budgets.fail(at, err); return nil },
			} {
				if err := load(); err != nil {
					t.Fatal(err)
				}
			}
			o := m.observe(now)
			if unreadable := o.newBudgetsView().Unreadable; (unreadable != "") != (tt.answer == denied || tt.answer == missing) {
				t.Errorf("the view of budgets says that they cannot be read: %q", unreadable)
			}
			cluster := string(o.values()["cluster"])
			if strings.Contains(cluster, want) != tt.banner || strings.Contains(cluster, `"freezes"`) != tt.banner ||
				strings.Contains(cluster, `"what":"NodeDisruptionBudgets"`) != tt.note {
				t.Errorf("the state is %s", cluster)
			}
		})
	}
}
