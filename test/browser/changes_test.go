// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"errors"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/test/browser/chromium"
)

const dialog = "document.querySelector('#change')"

// waiting returns a fleet of 6 nodes with a NodeJob that awaits promotion after its first step. A node has failed.
func waiting(t *testing.T) (f *fleet, job *v1alpha1.NodeJob) {
	t.Helper()
	f = newFleet(t, 6)
	job = f.job("max-map-count", "true", outcomes(6, 2, 1), func(j *v1alpha1.NodeJob) {
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{
			{Name: "canary", Nodes: percent("1")},
			{Name: "half", Nodes: percent("50%")},
			{Name: "all"},
		}
		j.Spec.Rollout.PromoteTo, j.Spec.Rollout.MaxFailures = "canary", percent("6")
	})
	f.create()
	f.report()
	return f, job
}

// button is an expression for the button of a change.
func button(label string) string {
	return fmt.Sprintf("[...document.querySelectorAll('.changes button')].find((button) => button.textContent === %q)", label)
}

// live reads a NodeJob.
func live(t *testing.T, job *v1alpha1.NodeJob) *v1alpha1.NodeJob {
	t.Helper()
	var now v1alpha1.NodeJob
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(job), &now); err != nil {
		t.Fatal(err)
	}
	return &now
}

// showing opens the page of a user at a NodeJob and a node ("" for none).
func showing(t *testing.T, user envtest.User, node string, args ...string) *chromium.Tab {
	t.Helper()
	tab := open(t, dashboard(t, user, args...), 1280, 800, false)
	see(t, tab, cells+".length === 6")
	at := "#/job/default/max-map-count"
	if node != "" {
		at += "/node/" + node
	}
	do(t, tab, fmt.Sprintf("location.hash = %q", at))
	see(t, tab, "document.querySelector('#job-status .rows')")
	return tab
}

// ask opens the dialog of a change.
func ask(t *testing.T, tab *chromium.Tab, label string) {
	t.Helper()
	see(t, tab, button(label))
	do(t, tab, "{ const button = "+button(label)+"; button.focus(); button.click(); }")
	see(t, tab, dialog+".open")
}

// confirm confirms the change.
func confirm(t *testing.T, tab *chromium.Tab) {
	t.Helper()
	do(t, tab, dialog+".querySelector('.primary').click()")
}

func TestAChangeIsConfirmedAndMade(t *testing.T) {
	_, job := waiting(t)
	tab := showing(t, asAdmin, "", "--allow-changes")
	ask(t, tab, "Promote to half")
	for _, want := range []string{"Promote to half?", "default/max-map-count", "The rollout may run up to step half", "kubectl everynode promote max-map-count --to half -n default"} {
		see(t, tab, fmt.Sprintf("%s.innerText.includes(%q)", dialog, want))
	}
	if *pictures != "" {
		shoot(t, tab, *pictures, "change.png")
	}
	confirm(t, tab)
	see(t, tab, dialog+".querySelector('[role=status]')?.innerText.includes('promoted: spec.rollout.promoteTo canary -> half')")
	if got := live(t, job).Spec.Rollout.PromoteTo; got != "half" {
		t.Errorf("promoted to %s", got)
	}
	see(t, tab, "document.activeElement.textContent === 'Close'")
	press(t, tab, "Enter")
	see(t, tab, "!"+dialog+".open && !"+button("Promote to half"))

	ask(t, tab, "Suspend")
	confirm(t, tab)
	see(t, tab, dialog+".innerText.includes('suspended: spec.suspend false -> true')")
	if !live(t, job).Spec.Suspend {
		t.Error("not suspended")
	}
	press(t, tab, "Escape")
	ask(t, tab, "Resume")
	confirm(t, tab)
	see(t, tab, dialog+".innerText.includes('resumed')")
	if live(t, job).Spec.Suspend {
		t.Error("not resumed")
	}
	press(t, tab, "Escape")
	ask(t, tab, "Retry failed nodes")
	confirm(t, tab)
	see(t, tab, dialog+".innerText.includes('retry requested on 1 node')")
	if live(t, job).Annotations[v1alpha1.RetryAnnotation] == "" {
		t.Error("no retry is requested")
	}
	noProblems(t, tab)
}

func TestANodeIsRetriedAndSkipped(t *testing.T) {
	f, job := waiting(t)
	key := v1alpha1.RecordKey(namespace, job.Name)
	tab := showing(t, asAdmin, "node-2", "--allow-changes")
	ask(t, tab, "Retry on this node")
	see(t, tab, dialog+".innerText.includes('kubectl everynode retry max-map-count node-2 -n default')")
	confirm(t, tab)
	see(t, tab, dialog+".innerText.includes('node node-2: retry requested')")
	node := f.nodes[1]
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	if rec := record.Read(node.Labels, node.Annotations, key).Record; rec == nil || !rec.RetryRequested {
		t.Errorf("record %+v", rec)
	}
	press(t, tab, "Escape")
	see(t, tab, "!"+dialog+".open && !document.querySelector('#node').hidden") // Escape closes one thing only
	ask(t, tab, "Skip this node")
	confirm(t, tab)
	see(t, tab, dialog+".innerText.includes('node node-2: counts as done without a run')")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil || node.Labels[key] != revision {
		t.Errorf("labels %v: %v", node.Labels, err)
	}
	press(t, tab, "Escape")
	see(t, tab, stateOf("node-2")+" === 'done'")
	see(t, tab, "!"+button("Skip this node"))
	noProblems(t, tab)
}

func TestAChangeIsCancelledWithTheKeyboard(t *testing.T) {
	_, job := waiting(t)
	tab := showing(t, asAdmin, "node-2", "--allow-changes")
	before := live(t, job).ResourceVersion
	see(t, tab, button("Promote to all"))
	do(t, tab, button("Promote to all")+".focus()")
	press(t, tab, "Enter")
	see(t, tab, dialog+".open && document.activeElement.textContent === 'Cancel'")
	for _, want := range []string{"Promote to all", "Cancel", "Promote to all"} { // the focus stays in the dialog
		press(t, tab, "Tab")
		see(t, tab, fmt.Sprintf("%s.contains(document.activeElement) && document.activeElement.textContent === %q", dialog, want))
	}
	press(t, tab, "/")
	see(t, tab, dialog+".contains(document.activeElement)")
	press(t, tab, "Escape")
	see(t, tab, "!"+dialog+".open && document.activeElement === "+button("Promote to all"))
	see(t, tab, "!document.querySelector('#node').hidden")
	press(t, tab, "Enter", "Enter") // the first control is Cancel
	see(t, tab, "!"+dialog+".open")
	if after := live(t, job).ResourceVersion; after != before {
		t.Errorf("the NodeJob was changed: version %s, was %s", after, before)
	}
	noProblems(t, tab)
}

// TestAChangeNeedsThePermissionsOfTheUser shows a user who may only read what is missing.
func TestAChangeNeedsThePermissionsOfTheUser(t *testing.T) {
	_, job := waiting(t)
	create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.Group}, Resources: []string{"nodejobs", "nodeguards"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"get", "list", "watch"}},
		},
	}, nil)
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: "reader",
		},
		RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "reader"}},
	}, nil)
	tab := showing(t, envtest.User{Name: "reader"}, "node-2", "--allow-changes")
	for label, want := range map[string]string{
		"Suspend":            "reader may not patch nodejobs.everynode.dev in namespace default. The ClusterRole everynode-nodejob-editor allows changing NodeJobs. To check: kubectl auth can-i patch nodejobs.everynode.dev -n default",
		"Retry on this node": "reader may not patch nodes in the whole cluster. The ClusterRole everynode-operator-nodes",
	} {
		ask(t, tab, label)
		confirm(t, tab)
		see(t, tab, fmt.Sprintf("%s.querySelector('[role=alert]')?.innerText.includes(%q)", dialog, want))
		see(t, tab, dialog+".querySelector('[role=alert]').innerText.startsWith('Not done.')")
		press(t, tab, "Escape")
	}
	if live(t, job).Spec.Suspend {
		t.Error("suspended")
	}
	noProblems(t, tab, "403")
}

func TestNothingIsChangedWithoutTheFlag(t *testing.T) {
	_, job := waiting(t)
	tab := showing(t, asAdmin, "node-2")
	see(t, tab, "document.querySelectorAll('.commands').length === 1") // of the NodeJob; what helps the node is among its rows
	see(t, tab, "document.querySelector('#node .copyable').innerText.includes('kubectl everynode retry max-map-count node-2 -n default')")
	see(
		t,
		tab,
		"document.querySelector('#job .remedies').innerText.includes('kubectl everynode promote max-map-count --to half -n default')",
	)
	see(t, tab, "document.querySelectorAll('.changes').length === 0")
	do(t, tab, "document.querySelector('.commands').open = true")
	see(t, tab, "document.querySelector('.commands').innerText.includes('kubectl everynode suspend max-map-count -n default')")
	var code int
	if err := tab.Evaluate(
		fmt.Sprintf(
			`fetch("/api/change", { method: "POST", headers: { Authorization: "Bearer " + sessionStorage.getItem("everynode-token"), "Content-Type": "application/json" },
		body: JSON.stringify({ verb: "suspend", namespace: "default", name: "max-map-count", uid: %q }) }).then((answer) => answer.status)`,
			job.UID,
		),
		&code,
	); err != nil ||
		code != 405 {
		t.Errorf("answer %d: %v", code, err)
	}
	if live(t, job).Spec.Suspend {
		t.Error("suspended")
	}
}

// TestAChangeOfWhatIsGone confirms a change of a NodeJob and of a node that were deleted while the dialog was open.
func TestAChangeOfWhatIsGone(t *testing.T) {
	f, job := waiting(t)
	tab := showing(t, asAdmin, "node-2", "--allow-changes")
	ask(t, tab, "Skip this node")
	if err := admin.Delete(t.Context(), f.nodes[1]); err != nil {
		t.Fatal(err)
	}
	confirm(t, tab)
	see(t, tab, dialog+".querySelector('[role=alert]')?.innerText.includes('there is no node node-2')")
	press(t, tab, "Escape")
	do(t, tab, "location.hash = '#/job/default/max-map-count/node/node-6'")
	ask(t, tab, "Skip this node")
	again := newNode("node-6", nil)
	if err := errors.Join(admin.Delete(t.Context(), f.nodes[5]), admin.Create(t.Context(), again)); err != nil {
		t.Fatal(err)
	}
	confirm(t, tab)
	see(
		t,
		tab,
		dialog+".querySelector('[role=alert]')?.innerText.includes('node node-6 was deleted, and another node with this name was created')",
	)
	press(t, tab, "Escape")
	ask(t, tab, "Suspend")
	if err := admin.Delete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	confirm(t, tab)
	see(t, tab, dialog+".querySelector('[role=alert]')?.innerText.includes('there is no NodeJob max-map-count in namespace default')")
	press(t, tab, "Escape")
	see(t, tab, "!"+dialog+".open")
	noProblems(t, tab, "404")
}
