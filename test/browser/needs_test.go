// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// says is an expression for whether an element has a text.
func says(selector, want string) string {
	return fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, want)
}

// searchFor is an expression that searches for a text.
const searchFor = "{ const s = document.querySelector('#search'); s.value = %q; s.dispatchEvent(new Event('input')); }"

const tile2 = `[role=option][data-key="node-2"]`

// mixed is a small cluster in which a NodeJob has failed on node-2, a run on all nodes, and one is for node-1 and the tainted node-3 only.
func mixed(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, 4)
	f.nodes[2].Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	f.job("max-map-count", "true", "df.d", nil)
	f.job("run-x", "false", "ff.f", func(j *v1alpha1.NodeJob) {
		j.Labels = map[string]string{cmdutil.CreatedByLabel: cmdutil.CreatedByRun}
	})
	f.job("for-one", "true", "d", func(j *v1alpha1.NodeJob) { j.Spec.Nodes.Names = []string{"node-1", "node-3"} })
	f.create()
	f.report()
	return f
}

func TestTheFirstPageSaysWhatNeedsAUser(t *testing.T) {
	f := mixed(t)
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, says("#needs h2", "1 NodeJob needs you"))
	for _, want := range []string{"default/max-map-count", "Stopped, 1 failed", "MaxFailuresExceeded", "node-2", "37m ago", "TaskFailed, exit code 1", "Read-only file system"} {
		see(t, tab, says("#needs", want))
	}
	const command = "kubectl everynode retry max-map-count -n default"
	do(t, tab, "navigator.clipboard.writeText = async (text) => { window.copied = text; }")
	do(t, tab, "document.querySelector('#needs .copy').click()")
	see(t, tab, fmt.Sprintf("window.copied === %q", command))
	see(t, tab, says("#needs .copy", "Copied"))
	do(t, tab, "navigator.clipboard.writeText = async () => { throw new Error('not allowed'); }")
	do(t, tab, "document.querySelector('#needs .copy').click()")
	see(t, tab, fmt.Sprintf("getSelection().toString() === %q", command))

	do(t, tab, "document.querySelector('#needs .need-name').click()")
	see(t, tab, says("#job .remedies", command)+" && document.querySelector('#needs').hidden")
	see(t, tab, "!"+says("#job-status", command)) // said once
	do(t, tab, "location.hash = '#/'")
	f.finish(f.jobs[0], 1)
	f.nodes[1].Labels = nil
	f.jobs[0].Status.Nodes = v1alpha1.NodeCounts{Total: 3, Done: 3}
	f.jobs[0].Status.Failures = nil
	for i := range f.jobs[0].Status.Conditions {
		c := &f.jobs[0].Status.Conditions[i]
		c.Status = map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[c.Type == v1alpha1.ConditionComplete]
	}
	if err := admin.Status().Update(t.Context(), f.jobs[0]); err != nil {
		t.Fatal(err)
	}
	see(t, tab, says("#needs", "Nothing needs you")) // the run has failed, and is apart
	see(t, tab, "document.title === 'Everynode: envtest'")
	noProblems(t, tab)
}

// TestAnAuditIsNotGreen has an audit of 4 nodes, of which 2 are compliant.
func TestAnAuditIsNotGreen(t *testing.T) {
	f := newFleet(t, 4)
	f.job("sshd-audit", "", "dnnd", func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	})
	f.create()
	f.report()
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	for _, want := range []string{
		"default/sshd-audit", "2 not compliant", "NonCompliant", "2 of 4 nodes are compliant, 2 not compliant (node-2: PermitRootLogin is yes; node-3)",
		"kubectl everynode report sshd-audit -n default",
	} {
		see(t, tab, says("#needs", want))
	}
	see(t, tab, stateOf("node-2")+" === 'noncompliant' && "+stateOf("node-1")+" === 'done'")
	see(t, tab, says(tile2, "Not compliant, default/sshd-audit")+" && "+says(tile2, "PermitRootLogin is yes"))
	do(t, tab, "location.hash = '#/job/default/sshd-audit'")
	see(t, tab, says("#job .big", "2 of 4 compliant")+" && document.querySelector('#job .badge.tone-bad').innerText === '2 not compliant'")
	for state, want := range map[string]string{"noncompliant": "Not compliant 2", "failed": "Failed 0", "done": "Compliant 2"} {
		see(t, tab, fmt.Sprintf("document.querySelector('#legend [data-key=%s]').textContent === %q", state, want))
	}
	see(t, tab, "document.title.startsWith('(2 not compliant) ')")
	do(t, tab, "document.querySelector('"+tile2+"').click()")
	see(t, tab, "document.querySelector('#node .badge.tone-bad').innerText === 'Not compliant'")
	see(t, tab, "document.querySelector('#node .card').dataset.state === 'noncompliant'")
	noProblems(t, tab)
}

// TestADriftedNodeIsNotGreen has a NodeJob that is done on 4 nodes, of which one has drifted, and another one that has failed there.
func TestADriftedNodeIsNotGreen(t *testing.T) {
	f := newFleet(t, 4)
	f.job("sysctl", "true", "dydd", func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, PeriodSeconds: 3600}
	})
	f.job("other", "true", "dddf", nil)
	f.create()
	f.report()
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, stateOf("node-2")+" === 'drifted' && "+stateOf("node-1")+" === 'done'")
	see(t, tab, says(tile2, "Drifted, default/sysctl")+" && "+says(tile2, "it is 65530"))
	for state, want := range map[string]string{"drifted": "Drifted 1", "done": "All done 2", "failed": "Failed 1"} {
		see(t, tab, fmt.Sprintf("document.querySelector('#legend [data-key=%s]').textContent === %q", state, want))
	}
	see(t, tab, says("#needs", "1 drifted")+" && document.title.startsWith('(1 failed) ')")
	do(t, tab, "location.hash = '#/job/default/sysctl'")
	see(t, tab, says("#job .big", "3 of 4 done")+" && document.querySelector('#job .badge.tone-warn').innerText === 'Done'")
	see(t, tab, "document.querySelectorAll('#jobs a[aria-current] .part.drifted').length === 1")
	noProblems(t, tab)
}

func TestASmallClusterHasTilesWithWords(t *testing.T) {
	mixed(t)
	tab := open(t, dashboard(t, asAdmin), 390, 800, false)
	see(t, tab, cells+".length === 4 && document.querySelectorAll('.tile').length === 4")
	for _, want := range []string{"node-2", "Failed, default/max-map-count", "TaskFailed, exit code 1: sysctl"} {
		see(t, tab, says(tile2, want))
	}
	see(t, tab, "document.querySelector('#theme').getBoundingClientRect().bottom < 60") // the header is one line
	see(t, tab, "document.querySelector('header').offsetHeight < 60")
	fits(t, tab)
	see(
		t,
		tab,
		"document.querySelector('#needs').getBoundingClientRect().top < document.querySelector('#runs').getBoundingClientRect().top",
	)
	do(t, tab, "document.querySelector('"+tile2+"').click()")
	see(t, tab, "document.querySelector('#node .badge').innerText === 'Failed'")
	see(t, tab, "!document.querySelector('#node .tone-good.badge')")
	press(t, tab, "Escape")
	see(t, tab, "document.activeElement.dataset.key === 'node-2'")
	press(t, tab, "ArrowDown", "Enter") // one tile below the other
	see(t, tab, "document.querySelector('#node-name').innerText === 'node-1'")
	noProblems(t, tab)
}

func TestRunsDoNotColorTheFleet(t *testing.T) {
	mixed(t)
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, stateOf("node-4")+" === 'done'")
	see(t, tab, says("#runs", "run-x")+" && !"+says("#jobs", "run-x")+" && "+says("#jobs", "2 in the cluster"))
	// The title, the page and the filter count the same nodes.
	see(t, tab, "document.title.startsWith('(1 failed)') && "+says("#legend [data-key=failed]", "1"))
	do(t, tab, "location.hash = '#/job/default/run-x'")
	see(t, tab, stateOf("node-4")+" === 'failed'")
	see(t, tab, "document.title.startsWith('(3 failed)') && "+says("#legend [data-key=failed]", "3"))
}

func TestExcludedNodesAreShownWithTheirReason(t *testing.T) {
	mixed(t)
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, says("#jobs", "1 excluded"))
	do(t, tab, "location.hash = '#/job/default/for-one'")
	see(t, tab, says("#legend [data-key=excluded]", "1")+" && "+says("#legend [data-key=none]", "2"))
	see(t, tab, says(`[data-key="node-3"].tile`, "it has the taint gpu:NoSchedule"))
	see(t, tab, says(`[data-key="node-4"].tile`, "Not selected")+" && "+says(`[data-key="node-4"].tile`, "spec.nodes.names"))
	see(t, tab, "["+"..."+cells+"].slice(-2).every((cell) => cell.dataset.state === 'none')")
	do(t, tab, "document.querySelector('#legend [data-key=none]').click()")
	see(t, tab, cells+".length === 2")
}

func TestTheSearchFindsNodeJobsAndReasons(t *testing.T) {
	mixed(t)
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 4")
	search := func(text string) { do(t, tab, fmt.Sprintf(searchFor, text)) }
	const listed = "[...document.querySelectorAll('#jobs .bar, #runs .bar')].length"
	search("MAX-map")
	see(t, tab, listed+" === 1 && "+says("#jobs", "max-map-count"))
	search("maxfailures")
	see(t, tab, listed+" === 2") // the NodeJob and the run
	search("read-only file")
	see(t, tab, cells+".length === 1 && "+stateOf("node-2")+" === 'failed'")
	search("eu-west-1c")
	see(t, tab, cells+".length === 1 && "+says("#jobs", "No NodeJob matches the search."))
	search("")
	see(t, tab, listed+" === 3")
	see(t, tab, "document.querySelector('#search').placeholder.includes('NodeJobs')")
}

// TestTheTimeOfAttemptsHasAScale checks that a few attempts do not fill the page with an empty axis, and that each bar says what it is.
func TestTheTimeOfAttemptsHasAScale(t *testing.T) {
	mixed(t)
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 4")
	do(t, tab, "location.hash = '#/job/default/for-one'") // one attempt
	see(t, tab, "document.querySelectorAll('.plot rect').length === 1 && document.querySelector('.plot').offsetWidth <= 160")
	see(t, tab, says(".timeline", "1 succeeded; each bar is 1 s, the highest has 1"))
	do(t, tab, "location.hash = '#/job/default/max-map-count'")
	see(t, tab, "[...document.querySelectorAll('.plot title')].some((title) => title.textContent.endsWith(' UTC: 1 failed'))")
	see(t, tab, "[...document.querySelectorAll('.plot rect')].every((bar) => bar.getBoundingClientRect().width > 20)")
}

// TestTheRingOfACellIsNotClipped checks that each group is larger than its cells by the width of the ring.
func TestTheRingOfACellIsNotClipped(t *testing.T) {
	newFleet(t, 60).create()
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 60")
	see(t, tab, `[...document.querySelectorAll(".node-group")].every((group) => {
		const box = group.getBoundingClientRect();
		return [...group.querySelectorAll("[role=option]")].map((cell) => cell.getBoundingClientRect())
			.every((cell) => cell.left - box.left >= 4 && cell.top - box.top >= 4 && box.bottom - cell.bottom >= 4 && box.right - cell.right >= 4);
	})`)
}
