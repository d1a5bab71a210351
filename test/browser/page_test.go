// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

const (
	cells = "document.querySelectorAll('[role=option]')"
	text  = "document.body.innerText"
)

// stateOf is an expression for the state of the cell of a node.
func stateOf(node string) string {
	return fmt.Sprintf("document.querySelector('[role=option][data-key=%q]')?.dataset.state", node)
}

func TestThePageFollowsTheCluster(t *testing.T) {
	f := newFleet(t, 6)
	job := f.job("max-map-count", "true", outcomes(6, 2, 1), func(j *v1alpha1.NodeJob) {
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "all"}}
		j.Spec.Rollout.MaxFailures = percent("6")
	})
	f.create()
	f.run(job, 2)
	f.report()
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 6")
	see(t, tab, stateOf("node-1")+" === 'done'")
	see(t, tab, stateOf("node-2")+" === 'failed'")
	see(t, tab, stateOf("node-3")+" === 'running'")
	see(t, tab, cells+"[0].dataset.key === 'node-2'") // problems first

	f.finish(job, 3)
	see(t, tab, stateOf("node-4")+" === 'done'")
	create(t, newNode("node-7", nil), nil)
	see(t, tab, cells+".length === 7")
	if err := admin.Delete(t.Context(), f.nodes[5]); err != nil {
		t.Fatal(err)
	}
	see(t, tab, cells+".length === 6")

	do(t, tab, "location.hash = '#/job/default/max-map-count/node/node-2'")
	see(t, tab, "document.querySelector('#job').innerText.includes('default/max-map-count')")
	see(t, tab, "document.querySelector('#node').innerText.includes('has failed on node-2 after 4 attempts')")
	see(t, tab, "document.querySelector('#node').innerText.includes('Read-only file system')")
	if err := admin.Delete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	see(t, tab, "document.querySelector('#job').innerText.includes('does not exist')")
	see(t, tab, "document.querySelectorAll('#jobs li').length === 1")
	for _, address := range tab.Requests() {
		if !strings.HasPrefix(address, "http://127.0.0.1:") {
			t.Errorf("the page requests %s", address)
		}
		if strings.Contains(address, "token=") && !strings.Contains(address, "#token=") {
			t.Errorf("the token is in a request: %s", address)
		}
	}
	noProblems(t, tab, "404")
}

func TestFiltersSearchAndGroups(t *testing.T) {
	f := newFleet(t, 9)
	f.job("max-map-count", "true", outcomes(9, 4, 1), nil)
	f.create()
	f.report()
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 9")
	see(t, tab, "document.querySelectorAll('.node-group').length === 1") // a small cluster is one group
	do(t, tab, "document.querySelector('[data-key=failed]').click()")
	see(t, tab, cells+".length === 1 && "+cells+"[0].dataset.key === 'node-2'")
	do(t, tab, "document.querySelector('[data-key=failed]').click()")
	see(t, tab, cells+".length === 9")
	do(t, tab, "document.querySelector('#search').focus()")
	if err := tab.Type("eu-west-1b"); err != nil {
		t.Fatal(err)
	}
	see(t, tab, cells+".length === 3")
	press(t, tab, "Escape")
	see(t, tab, cells+".length === 9")
	for by, groups := range map[string]int{"state": 3, "zone": 3, "pool": 2, "label:kubernetes.io/os": 1, "": 1} {
		do(
			t,
			tab,
			fmt.Sprintf("{ const by = document.querySelector('#group'); by.value = %q; by.dispatchEvent(new Event('change')); }", by),
		)
		see(t, tab, fmt.Sprintf("document.querySelectorAll('.node-group').length === %d", groups))
	}
	noProblems(t, tab)
}

// TestTextNeverBecomesMarkup lets everything that is not ours contain markup.
func TestTextNeverBecomesMarkup(t *testing.T) {
	const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`
	f := newFleet(t, 2)
	job := f.job("max-map-count", "true", "f", nil)
	key := v1alpha1.RecordKey(namespace, job.Name)
	rec := record.Read(f.nodes[0].Labels, f.nodes[0].Annotations, key).Record
	rec.Message, rec.Reason = hostile+"\x1b[2J\n"+hostile, hostile
	record.SetOn(f.nodes[0], key, *rec)
	f.create()
	f.report()
	for i := range job.Status.Conditions {
		job.Status.Conditions[i].Message += hostile
	}
	if err := admin.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 2")
	see(t, tab, "document.querySelector('#needs .cause')?.innerText.includes('<script>window.hacked=1</script>')")
	see(t, tab, "document.querySelector('.tile-why')?.innerText.includes('<img src=x')")
	see(t, tab, "document.querySelectorAll('main img, main script').length === 0")
	do(t, tab, "location.hash = '#/job/default/max-map-count/node/node-1'")
	see(t, tab, "document.querySelector('#node .output')?.innerText.includes('<script>window.hacked=1</script>')")
	see(t, tab, "document.querySelector('#job')?.innerText.includes('<img src=x')")
	see(t, tab, "document.querySelectorAll('main img, aside img, main script, aside script').length === 0")
	see(t, tab, "window.hacked === undefined")
	see(t, tab, "!"+text+`.includes('\x1b')`)
	noProblems(t, tab)
	// The policy of the page refuses markup from text even if its code had a mistake.
	var said string
	if err := tab.Evaluate(
		"(() => { try { document.body.innerHTML = '<b>'; return 'accepted' } catch (e) { return e.name } })()",
		&said,
	); err != nil ||
		said != "TypeError" {
		t.Errorf("markup from text: %s, %v", said, err)
	}
}

func TestEverythingWorksWithTheKeyboard(t *testing.T) {
	f := newFleet(t, 60)
	f.job("max-map-count", "true", outcomes(60, 30, 1), nil)
	f.create()
	f.report()
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 60")
	focused := "document.activeElement.dataset.key"
	press(t, tab, "Tab", "Enter") // skip to the nodes
	see(t, tab, focused+" === 'node-2'")
	press(t, tab, "End")
	see(t, tab, "document.activeElement === [..."+cells+"].at(-1)")
	press(t, tab, "Home", "ArrowRight")
	see(t, tab, focused+" === 'node-5'")
	press(t, tab, "ArrowDown")
	see(t, tab, "document.activeElement.closest('.node-group') !== "+cells+"[0].closest('.node-group')")
	press(t, tab, "ArrowUp")
	see(t, tab, focused+" === 'node-5'")
	press(t, tab, "Enter")
	see(
		t,
		tab,
		"!document.querySelector('#node').hidden && document.activeElement.id === 'node-name' && document.activeElement.textContent === 'node-5'",
	)
	press(t, tab, "Escape")
	see(t, tab, "document.querySelector('#node').hidden && "+focused+" === 'node-5'")
	press(t, tab, "/")
	see(t, tab, "document.activeElement.id === 'search'")
	// The whole grid is one stop of the tabulator key, and every other control is reached.
	reached := map[string]bool{}
	do(t, tab, "document.activeElement.blur()")
	for range 40 {
		press(t, tab, "Tab")
		var at string
		if err := tab.Evaluate(
			"document.activeElement.id || document.activeElement.dataset.key || document.activeElement.tagName",
			&at,
		); err != nil {
			t.Fatal(err)
		}
		reached[at] = true
	}
	stops := 0
	for at := range reached {
		if strings.HasPrefix(at, "node-") {
			stops++
		}
	}
	for _, want := range []string{"search", "theme", "#/job/default/max-map-count", "failed", "group"} {
		if !reached[want] {
			t.Errorf("the tabulator key does not reach %s: %v", want, reached)
		}
	}
	if stops != 1 {
		t.Errorf("%d cells are stops of the tabulator key", stops)
	}
	noProblems(t, tab)
}

func TestTheAPIServerRestarts(t *testing.T) {
	f := newFleet(t, 3)
	job := f.job("max-map-count", "true", outcomes(3, 1), nil)
	f.create()
	f.report()
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, stateOf("node-1")+" === 'done'")
	start := killAPIServer(t)
	see(t, tab, "document.querySelector('#notes').innerText.includes('does not answer')")
	see(t, tab, cells+".length === 3") // what was known stays
	start()
	see(t, tab, "document.querySelector('#notes').innerText === ''")
	f.finish(job, 1)
	see(t, tab, stateOf("node-2")+" === 'done'")
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	f := newFleet(t, 3)
	f.job("max-map-count", "true", outcomes(3, 1), nil)
	f.create()
	f.report()
	create(t, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "some"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.Group}, Resources: []string{"nodejobs"}, Verbs: []string{"list", "watch"}},
		},
	}, nil)
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "some"}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "some"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "some"}},
	}, nil)
	tab := open(t, dashboard(t, envtest.User{Name: "some"}), 1280, 800, false)
	see(t, tab, "document.querySelectorAll('#jobs li').length === 2")
	for _, want := range []string{"Not all nodes can be shown", "may not list nodes in the whole cluster", "Not all NodeGuards can be shown", "everynode-view-nodes", "may not list nodejobs.everynode.dev in the whole cluster"} {
		see(t, tab, fmt.Sprintf("document.querySelector('#notes').innerText.includes(%q)", want))
	}
	do(t, tab, "location.hash = '#/job/default/max-map-count'")
	see(t, tab, "document.querySelector('#job-status').innerText.includes('what runs cannot be seen')")
}

func TestWithoutATokenThePageSaysWhatToDo(t *testing.T) {
	address := dashboard(t, asAdmin)
	bare, _, _ := strings.Cut(address, "#")
	for _, wrong := range []string{bare, bare + "#token=WRONG"} {
		tab := open(t, wrong, 1280, 800, false)
		see(
			t,
			tab,
			"document.querySelector('[role=alert]')?.innerText.includes('open the address that kubectl everynode dashboard has printed')",
		)
	}
	tab := open(t, address, 1280, 800, false)
	see(t, tab, "document.querySelector('#connection').innerText === 'live'")
	see(t, tab, "!location.href.includes('token')")
	reload(t, tab)
	see(t, tab, "document.querySelector('#connection')?.innerText === 'live'")
}

// noProblems checks that the page has written no error to its console, except requests with these answers.
func noProblems(t *testing.T, tab interface{ Problems() []string }, except ...string) {
	t.Helper()
	for _, problem := range tab.Problems() {
		if !slices.ContainsFunc(except, func(s string) bool { return strings.Contains(problem, s) }) {
			t.Error(problem)
		}
	}
}
