// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/testing/historytest"
	"github.com/everynode/everynode/internal/testing/plantest"
)

const (
	auditPeriod = 300 * time.Second

	auditSpec = `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: audit, namespace: ns}
spec:
  task: {check: {script: "ok?", periodSeconds: 300}}
  retry: {limit: 0, backoffSeconds: 5, maxBackoffSeconds: 20}
  rollout: {maxConcurrent: 1, maxFailures: 0, steps: [{name: all}]}
`
)

// auditHistory is a random history of an audit, and what its check has really said.
type auditHistory struct {
	*plantest.Cluster
	t      testing.TB
	random *rand.Rand
	// bad are the nodes that are not as they should be, and flaky lets checks fail themselves.
	bad   map[string]bool
	flaky bool
	// said are the answers of the checks of the current script, by node, and asked counts all checks.
	said  map[string]map[record.Answer]bool
	asked map[string]int
}

// TestAuditHistories plays random histories in which nodes change, checks fail, pods are interrupted, nodes disappear, and users change the
// NodeJob.
func TestAuditHistories(t *testing.T) {
	historytest.RunLong(t, 20, func(seed int64, _ bool) (broken, story string) {
		h := newAuditHistory(rand.New(rand.NewSource(seed)))
		broken = historytest.Simulate(t, h.play)
		return broken, h.Text()
	})
}

func newAuditHistory(random *rand.Rand) *auditHistory {
	return &auditHistory{
		random: random, bad: map[string]bool{"node-2": true}, said: map[string]map[record.Answer]bool{}, asked: map[string]int{},
	}
}

func (h *auditHistory) play(t testing.TB) {
	h.flaky = h.random.Intn(2) == 0
	h.t, h.Cluster = t, plantest.New(t, auditSpec, "node-1", "node-2", "node-3", "node-4")
	h.Task = h.runs
	h.Create()
	playEvents(h.Cluster, h.random, 200, h.event, h.check)
	h.rest()
}

// runs is what a check says, and what must be true when it starts.
func (h *auditHistory) runs(a task.Attempt) plantest.Result {
	if a.Phase != task.CheckBefore && a.Phase != task.CheckDrift {
		h.fail("%s starts on %s", a.Phase, a.NodeName)
	}
	if h.Job.Spec.Suspend {
		h.fail("%s is asked while the NodeJob is suspended", a.NodeName)
	}
	h.asked[a.NodeName]++
	switch {
	case h.flaky && h.random.Intn(3) == 0:
		return plantest.Result{Code: 75}
	case h.bad[a.NodeName]:
		h.says(a, record.AnswerNo)
		return plantest.Result{Code: 1}
	}
	h.says(a, record.AnswerYes)
	return plantest.Result{}
}

func (h *auditHistory) says(a task.Attempt, answer record.Answer) {
	key := a.NodeName + "/" + a.Revision
	if h.said[key] == nil {
		h.said[key] = map[record.Answer]bool{}
	}
	h.said[key][answer] = true
}

// event is what happens next.
func (h *auditHistory) event() {
	node := h.Nodes[fmt.Sprintf("node-%d", 1+h.random.Intn(4))]
	switch h.random.Intn(12) {
	case 0, 1, 2:
		h.bad[node.Name] = h.random.Intn(2) == 0
	case 3:
		interrupt(h.Cluster, node.Name)
	case 4:
		delete(node.Labels, h.Key())
	case 5:
		h.SetReady(node.Name, corev1.ConditionUnknown)
	case 6, 7:
		h.SetReady(node.Name, corev1.ConditionTrue)
	case 8:
		h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Suspend = !s.Suspend })
	case 9:
		if h.random.Intn(4) == 0 {
			h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Check.Script += "x" })
		}
	case 10:
		h.Reboot(node.Name)
	}
}

// check checks what is on record against what checks have said.
func (h *auditHistory) check() {
	for name, node := range h.Nodes {
		if node.Spec.Unschedulable {
			h.fail("%s is cordoned for an audit", name)
		}
		on := record.Read(node.Labels, node.Annotations, h.Key())
		if on.Record == nil {
			continue
		}
		switch is := on.Record.Compliance(); is.Answer {
		case record.AnswerYes, record.AnswerNo:
			if !h.said[name+"/"+on.Record.Revision][is.Answer] {
				h.fail("%s is recorded for %s, and no check has said so", is.Answer, name)
			}
		case record.AnswerError, record.AnswerNone:
		}
	}
	if n := h.Job.Status.Nodes.Failed; n > 0 {
		h.fail("%d nodes have failed in an audit", n)
	}
}

// rest ends the faults. Then each node is asked once in each period, and its last answer is true.
func (h *auditHistory) rest() {
	h.flaky = false
	h.Happens("", func() {
		h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Suspend = false })
		for name := range h.Nodes {
			h.SetReady(name, corev1.ConditionTrue)
		}
	})
	h.Run(2 * auditPeriod)
	clear(h.asked)
	h.Run(5 * auditPeriod)
	h.check()
	bad := int32(0)
	for name, node := range h.Nodes {
		if n := h.asked[name]; n < 4 || n > 6 {
			h.fail("%s was asked %d times in 5 periods", name, n)
		}
		want := record.AnswerYes
		if h.bad[name] {
			want = record.AnswerNo
			bad++
		}
		on := record.Read(node.Labels, node.Annotations, h.Key())
		if on.Record == nil || on.Record.Compliance().Answer != want {
			h.fail("the last answer of %s is not %s in the end: %+v", name, want, on.Record)
		}
	}
	if n := h.Job.Status.Nodes; int(n.Done) != len(h.Nodes) || n.NonCompliant != bad {
		h.fail("%d nodes are done and %d have drifted in the end, want %d and %d", n.Done, n.NonCompliant, len(h.Nodes), bad)
	}
}

func (h *auditHistory) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("at %s: %s", h.Now.Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
