// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// assessed is what is found out about the only node.
func assessed(in Input) *nodePlan {
	p := newPlanner(in)
	p.assessor.assessNode(&p.nodes[0])
	return &p.nodes[0]
}

// TestNodesThatRerun tests which nodes count as done although they run the task again.
func TestNodesThatRerun(t *testing.T) {
	due := func(r *record.Record) { r.FinishedAt = ago(3600) }
	old := func(n *Node) {
		recorded(record.Succeeded, due, func(r *record.Record) { r.Revision = "old" })(n)
		n.On.Label = "old"
	}
	sameWork := func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnRevisionChange = new(false) }
	for name, tt := range map[string]struct {
		job              func(*v1alpha1.NodeJob)
		node             func(*Node)
		rerun, succeeded bool
	}{
		"a rerun is due":                     {func(*v1alpha1.NodeJob) {}, recorded(record.Succeeded, due), true, true},
		"no rerun is due":                    {func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds = 0 }, recorded(record.Succeeded, due), false, true},
		"a rerun of another revision is due": {sameWork, old, false, false},
		"a rerun was disrupted": {func(*v1alpha1.NodeJob) {}, func(n *Node) {
			recorded(record.Disrupted, func(r *record.Record) { r.Rerun = true })(n)
			labelled(rev)(n)
		}, true, true},
		"the first run was disrupted":           {func(*v1alpha1.NodeJob) {}, recorded(record.Disrupted), false, false},
		"a node that was assumed to be done is": {func(*v1alpha1.NodeJob) {}, recorded(record.Succeeded, due, func(r *record.Record) { r.Assumed = true }), false, false},
	} {
		w := assessed(see(newJob(periodSeconds(60), tt.job), []Node{newNode("n", tt.node)}))
		if w.rerun != tt.rerun || w.succeeded != tt.succeeded {
			t.Errorf("%s: rerun %t, succeeded %t, want %t and %t", name, w.rerun, w.succeeded, tt.rerun, tt.succeeded)
		}
	}
}

// TestFailedNodesWithAnAttempt tests which nodes count as failed although an attempt runs there.
func TestFailedNodesWithAnAttempt(t *testing.T) {
	for name, tt := range map[string]struct {
		failures int32
		pool     string
		want     bool
	}{
		"every attempt has failed":                       {2, "a", true},
		"every attempt has failed on an unselected node": {2, "b", false},
		"another attempt is allowed":                     {1, "a", false},
	} {
		node := newNode("n", recorded(record.Failed, attempts(tt.failures)), inPool(tt.pool))
		if got := assessed(see(newJob(inPoolA), []Node{node}, newPod(node))).failed; got != tt.want {
			t.Errorf("%s: failed %t, want %t", name, got, tt.want)
		}
	}
}

// TestWhatIsKnownOfARunningAttempt tests what is found out about a node from its pod.
func TestWhatIsKnownOfARunningAttempt(t *testing.T) {
	pending := func(changes ...func(*Pod)) func(*Pod) {
		return func(p *Pod) {
			p.Phase, p.Started, p.Created = corev1.PodPending, time.Time{}, ago(10)
			for _, change := range changes {
				change(p)
			}
		}
	}
	image := func(p *Pod) { p.Waiting = "ImagePullBackOff" }
	silent := func(p *Pod) { p.Silent = true }
	long := func(p *Pod) { p.Created = ago(40) }
	const noReport = "the kubelet has not reported on the pod for 30 s"
	for name, tt := range map[string]struct {
		node         func(*Node)
		pod          func(*Pod)
		since        time.Time // the revision runs there; zero if it does not
		notStarted   string
		silent       bool
		wantFailures int
	}{
		"it runs":                               {pod: func(*Pod) {}, since: ago(10)},
		"it is of another revision":             {pod: func(p *Pod) { p.Revision = "old" }},
		"an attempt has run before":             {node: recorded(record.Failed), pod: func(*Pod) {}, since: ago(61), wantFailures: 1},
		"an attempt was disrupted before":       {node: recorded(record.Disrupted), pod: func(*Pod) {}, since: ago(61), wantFailures: 1},
		"an attempt has succeeded before":       {node: succeeded(60), pod: func(*Pod) {}, since: ago(61)},
		"another revision has failed before":    {node: recorded(record.Failed, func(r *record.Record) { r.Revision = "old" }), pod: func(*Pod) {}, since: ago(10)},
		"it has not started yet":                {pod: pending(silent), since: ago(10)},
		"it does not start":                     {pod: pending(image), since: ago(10), notStarted: "ImagePullBackOff"},
		"its kubelet is silent":                 {pod: pending(silent, long), since: ago(40), notStarted: noReport, silent: true},
		"it waits again after it has started":   {pod: func(p *Pod) { image(p) }, since: ago(10)},
		"it was rejected":                       {pod: pending(func(p *Pod) { p.Phase, p.StatusReason = corev1.PodFailed, "OutOfcpu" }), since: ago(10)},
		"it does not start before its deadline": {pod: pending(image, func(p *Pod) { p.Created = ago(overdue) }), since: ago(overdue)},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.node == nil {
				tt.node = func(*Node) {}
			}
			node := newNode("n", tt.node)
			w := assessed(see(newJob(), []Node{node}, newPod(node, tt.pod)))
			if w.ranRevision == tt.since.IsZero() || !w.since.Equal(tt.since) {
				t.Errorf("the revision runs there since %v (%t), want %v", w.since, w.ranRevision, tt.since)
			}
			found := w.findings()
			if found.notStarted != tt.notStarted || found.silent != tt.silent || len(found.failures) != tt.wantFailures {
				t.Errorf("%+v, want not started %q, silent %t, %d failures", found, tt.notStarted, tt.silent, tt.wantFailures)
			}
		})
	}
}

// TestARecordThatIsRefused tests when the write of an outcome is tried that the API server has refused.
func TestARecordThatIsRefused(t *testing.T) {
	node := newNode("a")
	refused := func(retryIn int) map[types.UID]NodeProblem {
		return map[types.UID]NodeProblem{
			"a-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "a policy", Until: ago(-retryIn)}, Since: ago(60)},
		}
	}
	written := []string{"record Succeeded on a: attempts 1, disruptions 0"}
	for name, tt := range map[string]struct {
		problems map[types.UID]NodeProblem
		want     []string
	}{
		"later":                        {refused(5), nil},
		"now":                          {refused(0), written},
		"another problem is no reason": {nameTaken(60, 5), written},
	} {
		in := see(newJob(), []Node{node}, newPod(node, exited(0)))
		in.NodeProblems = tt.problems
		if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
			t.Errorf("%s: actions (-want +got):\n%s", name, diff)
		}
	}
}

func TestOnlyPodsOfNodesThatDoNotExistAreReleased(t *testing.T) {
	p := Next(see(newJob(), []Node{newNode("a")}, newPod(newNode("a")), newPod(newNode("gone"))))
	if diff := cmp.Diff([]string{"release gone-pod"}, told(p)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

func TestANewRevisionBeginsWithTheFirstStep(t *testing.T) {
	job := newJob(inSteps(first(intstr.FromInt32(1)), rest), inStep("rest"))
	job.Status.Revision = "old"
	if got := Next(see(job, []Node{newNode("a")})).Status.Rollout.Step; got != "first" {
		t.Errorf("step %s", got)
	}
}

// A node is not rebooted if the results of its task cannot be published afterwards.
func TestANodeIsNotRebootedIfItsResultsCannotBePublished(t *testing.T) {
	node := newNode("n")
	pod := newPod(node, exited(0, results(map[string]string{"size": "8 GB"})), func(p *Pod) { p.Reboot = v1alpha1.RebootAlways })
	if r := recordOf(
		t,
		newJob(rebootingAs(v1alpha1.RebootAlways), publishing),
		node,
		pod,
	); r.Outcome != record.Failed ||
		r.Reason != v1alpha1.ReasonInvalidResult {
		t.Errorf("%s, %s", r.Outcome, r.Reason)
	}
}
