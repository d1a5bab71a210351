// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/testing/historytest"
	"github.com/everynode/everynode/internal/testing/plantest"
)

const expirySpec = `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: deny, namespace: ns}
spec:
  task: {script: deny}
  rollback: {script: allow}
  retry: {limit: 1, backoffSeconds: 5, maxBackoffSeconds: 20}
  rollout: {maxConcurrent: 2, maxFailures: "100%", steps: [{name: all}]}
  expires: {check: {script: "fixed?", periodSeconds: 600}}
`

// expiryHistory is a random history of a NodeJob with spec.expires, and what the scripts have really done and said.
type expiryHistory struct {
	*plantest.Cluster
	t      testing.TB
	random *rand.Rand
	// fixed are the nodes with the fixed kernel. flaky lets checks fail, and harmful the task.
	fixed          map[string]bool
	flaky, harmful bool
	// denied says where the task has begun since the last rollback that ended well, and ends when rollbacks end.
	denied map[string]bool
	ends   map[string]time.Time
	// answers are the pods of the last answers on record, by node.
	answers map[string]types.UID
	// saidYes and saidNo are what checks have said, by node and boot, and ended is true once spec.expires.at has passed.
	saidYes, saidNo map[string]bool
	ended           bool
}

// TestExpiryHistories plays random histories in which kernels are fixed by reboots, checks fail, pods are interrupted, nodes
// disappear, and users change the NodeJob.
func TestExpiryHistories(t *testing.T) {
	historytest.RunLong(t, 20, func(seed int64, _ bool) (broken, story string) {
		h := newExpiryHistory(rand.New(rand.NewSource(seed)))
		broken = historytest.Simulate(t, h.play)
		return broken, h.Text()
	})
}

func newExpiryHistory(random *rand.Rand) *expiryHistory {
	return &expiryHistory{
		random: random, fixed: map[string]bool{"node-3": true}, denied: map[string]bool{}, ends: map[string]time.Time{},
		answers: map[string]types.UID{}, saidYes: map[string]bool{}, saidNo: map[string]bool{},
	}
}

func (h *expiryHistory) play(t testing.TB) {
	h.flaky, h.harmful = h.random.Intn(2) == 0, h.random.Intn(3) == 0
	h.t, h.Cluster = t, plantest.New(t, expirySpec, "node-1", "node-2", "node-3", "node-4")
	h.Task = h.runs
	h.Create()
	playEvents(h.Cluster, h.random, 90, h.event, h.check)
	h.rest()
}

// runs is how a script ends, and what must be true when it starts.
func (h *expiryHistory) runs(a task.Attempt) plantest.Result {
	h.settle()
	rec, boot := h.record(a.NodeName), a.NodeName+"/"+a.BootID
	over := h.ended || rec != nil && rec.HasExpired()
	switch a.Phase {
	case task.CheckExpires:
		if h.ended {
			h.fail("%s is asked after spec.expires.at", a.NodeName)
		}
		if h.flaky && h.random.Intn(3) == 0 {
			return plantest.Result{Code: 3}
		}
		if h.fixed[a.NodeName] {
			h.saidYes[boot] = true
			return plantest.Result{}
		}
		h.saidNo[boot] = true
		return plantest.Result{Code: 1}
	case task.Task:
		if over || rec != nil && rec.Outcome == record.Expired {
			h.fail("the task starts on %s, which needs it no longer", a.NodeName)
		}
		if h.checks() && !h.saidNo[boot] {
			h.fail("the task starts on %s, and no check has said in this boot that it is needed", a.NodeName)
		}
		h.denied[a.NodeName] = true
		if h.harmful && h.random.Intn(2) == 0 {
			return plantest.Result{Code: 1}
		}
	case task.Rollback:
		if !over && rec.Outcome != record.Failed {
			h.fail("%s is rolled back, and no check has said that it may be", a.NodeName)
		}
		if h.harmful && h.random.Intn(4) == 0 {
			return plantest.Result{Code: 1}
		}
		h.ends[a.NodeName] = h.Now.Add(20 * time.Second)
	case task.Reboot, task.Check, task.CheckBefore, task.CheckDrift:
		h.fail("%s starts on %s", a.Phase, a.NodeName)
	}
	return plantest.Result{}
}

// event is what happens next.
func (h *expiryHistory) event() {
	node := h.Nodes[fmt.Sprintf("node-%d", 1+h.random.Intn(4))]
	switch h.random.Intn(16) {
	case 0, 1:
		h.fixed[node.Name] = h.random.Intn(3) > 0
		h.Reboot(node.Name)
	case 2:
		if interrupt(h.Cluster, node.Name) {
			delete(h.ends, node.Name)
		}
	case 3:
		delete(node.Labels, h.Key())
	case 4:
		h.SetReady(node.Name, corev1.ConditionUnknown)
	case 5, 6:
		h.SetReady(node.Name, corev1.ConditionTrue)
	case 7:
		h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Suspend = !s.Suspend })
	case 8:
		if h.random.Intn(4) == 0 {
			h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script += "x" })
		}
	case 9:
		if h.random.Intn(20) == 0 {
			h.ended = true
			h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Expires.At = &metav1.Time{Time: h.Now} })
		}
	}
}

// settle notes the rollbacks that have ended.
func (h *expiryHistory) settle() {
	for name, at := range h.ends {
		if !h.Now.Before(at) {
			delete(h.ends, name)
			delete(h.denied, name)
		}
	}
}

// check checks what is on record against what has really happened.
func (h *expiryHistory) check() {
	h.settle()
	for name := range h.Nodes {
		h.checkAnswer(name)
		rec := h.record(name)
		if rec == nil {
			continue
		}
		boot := ""
		if rec.Expiry != nil {
			boot = name + "/" + rec.Expiry.BootID
		}
		switch {
		case rec.Outcome == record.Succeeded && rec.Expiry == nil:
			h.fail("the task has succeeded on %s, and no answer is on record", name)
		case rec.Outcome == record.Expired && h.denied[name]:
			h.fail("%s is Expired, and what the task did is still there", name)
		case rec.Outcome == record.Expired && !rec.HasExpired() && !h.ended:
			h.fail("%s is Expired, and its last answer is that it is needed", name)
		case rec.HasExpired() && !h.saidYes[boot]:
			h.fail("%s is recorded as no longer needed, and no check has said so in that boot", name)
		case rec.Expiry != nil && rec.Expiry.Answer == record.AnswerNo && !h.saidNo[boot]:
			h.fail("%s is recorded as needed, and no check has said so in that boot", name)
		}
	}
	n := h.Job.Status.Nodes
	if !h.harmful && (n.Failed > 0 || n.RollbackFailed > 0) {
		h.fail("%d nodes have failed, and no task has", n.Failed)
	}
}

// checkAnswer checks an answer that is new on record. Boots and revisions change only between the plans that follow each event.
func (h *expiryHistory) checkAnswer(name string) {
	node := h.Nodes[name]
	rec := record.Read(node.Labels, node.Annotations, h.Key()).Record
	if rec == nil || rec.Expiry == nil || rec.Expiry.PodUID == h.answers[name] {
		return
	}
	h.answers[name] = rec.Expiry.PodUID
	switch e := rec.Expiry; {
	case rec.Revision != h.revision():
		h.fail("an answer about %s is recorded on %s, and the revision is %s", rec.Revision, name, h.revision())
	case (e.Answer == record.AnswerYes || e.Answer == record.AnswerNo) && e.BootID != node.Status.NodeInfo.BootID:
		h.fail("%s is recorded on %s for an earlier boot", e.Answer, name)
	}
}

// rest ends the faults and checks what must be true in the end.
func (h *expiryHistory) rest() {
	h.flaky, h.harmful = false, false
	h.Happens("", func() {
		h.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Suspend = false })
		h.Job.Annotations = map[string]string{v1alpha1.RetryAnnotation: "again"}
		for name := range h.Nodes {
			h.SetReady(name, corev1.ConditionTrue)
		}
	})
	h.Run(time.Hour)
	h.check()
	for name := range h.Nodes {
		rec := h.record(name)
		switch {
		case rec == nil || h.Nodes[name].Labels[h.Key()] != rec.Revision:
			h.fail("%s is not done in the end: %+v", name, rec)
		case (h.fixed[name] || h.ended) != (rec.Outcome == record.Expired) && !(rec.HasExpired() && rec.Outcome == record.Expired):
			h.fail("%s is %s in the end, fixed: %v, ended: %v", name, rec.Outcome, h.fixed[name], h.ended)
		case rec.Outcome == record.Succeeded && !h.denied[name]:
			h.fail("%s is done, and the task has not run", name)
		}
	}
}

// record is that of a node; nil if there is none of the revision.
func (h *expiryHistory) record(node string) *record.Record {
	on := record.Read(h.Nodes[node].Labels, h.Nodes[node].Annotations, h.Key())
	if on.Record == nil || on.Record.Revision != h.revision() {
		return nil
	}
	return on.Record
}

func (h *expiryHistory) revision() string {
	return task.Revision(&h.Job.Spec, task.Source{Script: h.Job.Spec.Task.Script})
}

func (h *expiryHistory) checks() bool { return task.ChecksExpiry(h.Job) }

func (h *expiryHistory) fail(format string, args ...any) {
	h.t.Helper()
	records := map[string]*record.Record{}
	for name := range h.Nodes {
		records[name] = h.record(name)
	}
	b, _ := json.Marshal(records)
	h.t.Fatalf("at %s: %s\n%s", h.Now.Format(time.TimeOnly), fmt.Sprintf(format, args...), b)
}

// playEvents lets 60 events happen, with up to a number of seconds between them, and checks what must be true after each, and after the time.
func playEvents(c *plantest.Cluster, random *rand.Rand, seconds int, event, check func()) {
	for range 60 {
		c.Happens("", event)
		check()
		c.Run(time.Duration(1+random.Intn(seconds)) * time.Second)
		check()
	}
}

// interrupt interrupts the pods that run on a node, and reports whether there were any.
func interrupt(c *plantest.Cluster, node string) (found bool) {
	for _, name := range c.Running() {
		if pod := c.Pods[name]; pod.Spec.NodeName == node {
			c.Interrupt(pod)
			found = true
		}
	}
	return found
}
