// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/uninstall"
)

// TestABudgetWaitsForItsRequirements : objects that the account of requirements may not read at first, although the manager may read one, and an Alertmanager that does not answer as it
// should. While a requirement is not met or cannot be checked, no eviction is granted, and a NodeJob waits.
func TestABudgetWaitsForItsRequirements(t *testing.T) {
	b := newBudgeted(t, "n0", "n1")
	b.startManager()
	must(t, b.admin.Create(b.Ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gate"}, Data: map[string]string{"go": "no"},
	}))
	must(t, b.admin.Create(b.Ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "storage"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("me")},
	}))
	var handler atomic.Pointer[http.HandlerFunc]
	answers := func(h http.HandlerFunc) { handler.Store(&h) }
	body := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	answers(body("[]"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*handler.Load())(w, r) }))
	t.Cleanup(server.Close)

	b.budget("careful", func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
		spec.Requirements = []v1alpha1.BudgetRequirement{
			{Name: "gate", Object: &v1alpha1.RequiredObject{
				APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "gate", Expression: "object.data.go == 'yes'",
			}},
			{Name: "storage", Object: &v1alpha1.RequiredObject{
				APIVersion: "coordination.k8s.io/v1",
				Kind:       "Lease",
				Namespace:  "default",
				Name:       "storage",
				Expression: "object.spec.holderIdentity == 'me'",
			}},
			{Name: "calm", Alerts: &v1alpha1.RequiredAlerts{URL: server.URL, Matchers: []string{"severity=critical"}}},
		}
	})
	const mayNot = "the ServiceAccount everynode-requirements in everynode-system may not get "
	b.says("careful", v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown, mayNot+"configmaps default/gate")
	b.granting(0)
	b.grant("default", "configmaps", "gate")
	b.says("careful", v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown, mayNot+"leases.coordination.k8s.io default/storage")
	b.grant("default", "leases.coordination.k8s.io", "storage")
	b.says(
		"careful",
		v1alpha1.ConditionReady,
		v1alpha1.ReasonRequirementNotMet,
		"requirement gate is not met (the expression is false for ConfigMap default/gate",
	)
	b.granting(0)

	must(
		t,
		b.kubectl(
			"label namespace default "+v1alpha1.EnabledLabel+"="+v1alpha1.EnabledValue+" pod-security.kubernetes.io/enforce=privileged",
		),
	)
	job := b.draft("waits")
	job.Namespace, job.Spec.Nodes, job.Spec.Maintenance.Cordon = "default", allNodes(), true
	must(t, b.admin.Create(b.Ctx, job))
	b.Within(time.Minute, 100*time.Millisecond, "a NodeJob waits, and says for what", func() error {
		must(t, b.admin.Get(b.Ctx, client.ObjectKeyFromObject(job), job))
		for _, c := range job.Status.Conditions {
			if strings.Contains(c.Message, "requirement gate is not met") {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", job.Status.Conditions)
	})

	must(t, b.kubectl(`patch configmap gate -n default --type=merge -p {"data":{"go":"yes"}}`))
	b.Within(time.Minute, 100*time.Millisecond, "the NodeJob continues", func() error {
		must(t, b.admin.Get(b.Ctx, client.ObjectKeyFromObject(job), job))
		if job.Status.Nodes.Done != 2 {
			return fmt.Errorf("the status is %+v", job.Status)
		}
		return nil
	})
	b.has("careful", 2, 0, 1)
	b.granting(1)

	for _, tt := range []struct {
		kind, reason, want string
		handler            http.HandlerFunc
	}{
		{
			v1alpha1.ConditionReady, v1alpha1.ReasonRequirementNotMet, "requirement calm is not met (1 alert is active: Fire)",
			body(`[{"labels": {"alertname": "Fire"}}]`),
		},
		{
			v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown, "requirement calm cannot be checked (no answer within 5s)",
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		},
		{
			v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown, "the response is larger than 1048576 bytes",
			body("[" + strings.Repeat(" ", 1<<20) + "]"),
		},
		{
			v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown, "redirects are not followed",
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/empty", http.StatusFound) },
		},
		{
			v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidSpec, "the Alertmanager rejects alerts.matchers (400 Bad Request)",
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(400)
				_, _ = w.Write([]byte(`"secret"`))
			},
		},
	} {
		answers(tt.handler)
		b.says("careful", tt.kind, tt.reason, tt.want)
		b.granting(0)
		answers(body("[]"))
		b.says("careful", v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen, "1 disruption may begin")
		b.granting(1)
	}
	server.Close()
	b.says("careful", v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown, "connection refused")
	b.granting(0)
	b.refuses("n0")
}

// grant lets the account of requirements get one object.
func (b *budgeted) grant(namespace, resource, name string) {
	b.T.Helper()
	must(
		b.T,
		b.kubectl(
			fmt.Sprintf("create role requires-%s -n %s --verb=get --resource=%s --resource-name=%s", name, namespace, resource, name),
		),
	)
	must(b.T, b.kubectl(fmt.Sprintf("create rolebinding requires-%s -n %s --role=requires-%s --serviceaccount=%s:%s",
		name, namespace, name, uninstall.Namespace, uninstall.Requirements)))
}

// says waits until this condition of a budget is True, with this reason and a part of its message, and returns the message.
func (b *budgeted) says(name, kind, reason, part string) (message string) {
	b.T.Helper()
	b.Within(time.Minute, 100*time.Millisecond, fmt.Sprintf("budget %s is %s: %s: %s", name, kind, reason, part), func() error {
		var ndb v1alpha1.NodeDisruptionBudget
		must(b.T, b.admin.Get(b.Ctx, client.ObjectKey{Name: name}, &ndb))
		c := meta.FindStatusCondition(ndb.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason || !strings.Contains(c.Message, part) {
			return fmt.Errorf("the conditions are %+v", ndb.Status.Conditions)
		}
		message = c.Message
		return nil
	})
	return message
}

// TestTheAPIRejectsRequirementsThatCannotWork : each with a message that says what to change.
func TestTheAPIRejectsRequirementsThatCannotWork(t *testing.T) {
	w := newWorld(t)
	alerts := func(url string) v1alpha1.BudgetRequirement {
		return v1alpha1.BudgetRequirement{Name: "calm", Alerts: &v1alpha1.RequiredAlerts{URL: url, Matchers: []string{"a=b"}}}
	}
	object := func(kind string) v1alpha1.BudgetRequirement {
		return v1alpha1.BudgetRequirement{
			Name:   "o",
			Object: &v1alpha1.RequiredObject{APIVersion: "v1", Kind: kind, Name: "x", Expression: "true"},
		}
	}
	named := func(name string) v1alpha1.BudgetRequirement {
		r := object("ConfigMap")
		r.Object.Name = name
		return r
	}
	both := alerts("http://am:9093")
	both.Object = object("Pod").Object
	long := alerts("http://am:9093")
	long.Alerts.Matchers = make([]string, 17)
	for i := range long.Alerts.Matchers {
		long.Alerts.Matchers[i] = "a=b"
	}
	for name, tt := range map[string]struct {
		requires []v1alpha1.BudgetRequirement
		want     string // "" if it is accepted
	}{
		"only requirements":        {[]v1alpha1.BudgetRequirement{alerts("https://am.example.com/prefix/"), object("ConfigMap")}, ""},
		"an object without a name": {[]v1alpha1.BudgetRequirement{named("")}, "object.name: Required value"},
		"a name that is too long":  {[]v1alpha1.BudgetRequirement{named(strings.Repeat("x", 254))}, "object.name: Too long"},
		"a secret":                 {[]v1alpha1.BudgetRequirement{object("Secret")}, "a Secret cannot be read"},
		"both":                     {[]v1alpha1.BudgetRequirement{both}, "set exactly one of alerts and object"},
		"neither":                  {[]v1alpha1.BudgetRequirement{{Name: "x"}}, "set exactly one of alerts and object"},
		"twice the same name":      {[]v1alpha1.BudgetRequirement{object("Pod"), object("Node")}, "Duplicate value"},
		"credentials":              {[]v1alpha1.BudgetRequirement{alerts("http://user:password@am:9093")}, "url in body should match"},
		"another scheme":           {[]v1alpha1.BudgetRequirement{alerts("file:///etc/passwd")}, "url in body should match"},
		"a query":                  {[]v1alpha1.BudgetRequirement{alerts("http://am:9093/?x=y")}, "url in body should match"},
		"too many matchers":        {[]v1alpha1.BudgetRequirement{long}, "must have at most 16 items"},
		"an upper-case name":       {[]v1alpha1.BudgetRequirement{{Name: "Calm", Object: object("Pod").Object}}, "name in body should match"},
	} {
		one := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"}}
		one.Spec.Requirements = tt.requires
		err := admin.Create(w.Ctx, one, client.DryRunAll)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
