// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Builders for the tables of this package.

const rev = "rev"

var (
	now  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	busy = corev1.Taint{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}
)

// ago is a time in seconds before now.
func ago(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }

// newJob runs on all nodes in one step, ten at once, with any number of failures, a timeout of 60 s and a backoff of 10 s.
func newJob(changes ...func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
	job := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job-uid", Generation: 3},
		Spec: v1alpha1.NodeJobSpec{
			Task:  v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, TimeoutSeconds: new(int32(60))},
			Retry: v1alpha1.RetrySpec{Limit: new(int32(1)), BackoffSeconds: new(int32(10))},
			Rollout: v1alpha1.RolloutSpec{
				MaxConcurrent: new(intstr.FromInt32(10)), MaxFailures: new(intstr.FromString("100%")),
				Steps: []v1alpha1.RolloutStep{{Name: "all"}},
			},
		},
	}
	for _, change := range changes {
		change(job)
	}
	if m := &job.Spec.Maintenance; m.MaxUnavailable == nil {
		m.MaxUnavailable = job.Spec.Rollout.MaxConcurrent // most tests are about something else
	}
	return job
}

func newNode(name string, changes ...func(*Node)) Node {
	node := Node{
		Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"pool": "a"},
		Ready: corev1.ConditionTrue, BootID: name + "-boot", MachineID: name + "-machine",
	}
	for _, change := range changes {
		change(&node)
	}
	return node
}

// askAgain requests a retry of every failed node.
func askAgain(j *v1alpha1.NodeJob) {
	j.Annotations = map[string]string{v1alpha1.RetryAnnotation: "now"}
}

// labelled puts the record's label on a node.
func labelled(revision string) func(*Node) {
	return func(node *Node) { node.On.Label, node.On.Present = revision, true }
}

// recorded puts a record on a node, of this revision and machine, that ended a minute ago.
func recorded(o record.Outcome, changes ...func(*record.Record)) func(*Node) {
	return func(node *Node) {
		r := record.Record{
			Revision: rev, Outcome: o, Attempts: 1, StartedAt: ago(61), FinishedAt: ago(60),
			BootID: node.BootID, MachineID: node.MachineID, PodUID: "earlier-pod",
		}
		switch o {
		case record.Succeeded:
			node.On.Label = rev
		case record.Failed:
			r.Reason, r.Message, r.ExitCode = "TaskFailed", "line 1\nno space left", new(int32(3))
		case record.Disrupted:
			r.Attempts, r.Disruptions, r.Reason = 0, 1, v1alpha1.ReasonDisrupted
		case record.Rebooting:
			r.Reboot = &record.Reboot{StartedAt: ago(60), FromBootID: node.Name + "-boot-before"}
		case record.Needed:
			r.CheckBefore = record.AnswerNo
		case record.Expired:
			r.Reason = v1alpha1.ReasonExpired
		}
		for _, change := range changes {
			change(&r)
		}
		if r.Label == "" && (o == record.Succeeded || r.Rerun) {
			r.Label = r.Revision
		}
		node.On.Record, node.On.Present = &r, true
	}
}

// newPod has run on the node for ten seconds.
func newPod(node Node, changes ...func(*Pod)) Pod {
	pod := Pod{
		Name: node.Name + "-pod", UID: types.UID(node.Name + "-pod-uid"), NodeName: node.Name, NodeUID: node.UID,
		Machine: task.Machine(node.MachineID, node.BootID), Runs: task.Task, Revision: rev, Attempt: 1,
		Created: ago(10), Started: ago(9), Finalized: true, Phase: corev1.PodRunning,
	}
	for _, change := range changes {
		change(&pod)
	}
	return pod
}

// exited ends a pod as its kubelet reports it, two seconds ago.
func exited(code int32, changes ...func(*Exit)) func(*Pod) {
	return func(pod *Pod) {
		pod.Phase = corev1.PodFailed
		if code == 0 {
			pod.Phase = corev1.PodSucceeded
		}
		pod.Exit = &Exit{Code: code, Finished: ago(2), Message: "the end"}
		for _, change := range changes {
			change(pod.Exit)
		}
	}
}

// reported is what the runner itself reports about the end.
func reported(reason string) func(*Exit) {
	return func(exit *Exit) { exit.Reported, exit.Reason = true, reason }
}

// see returns an input with one revision at a fixed time.
func see(job *v1alpha1.NodeJob, nodes []Node, pods ...Pod) Input {
	return Input{Job: job, Revision: rev, Nodes: nodes, Pods: pods, Now: now}
}

// wakes reports whether a plan wakes at that time. While nodes wait, recheckInterval limits it.
func wakes(p Plan, at time.Time) bool {
	return p.WakeAt.Equal(at) || p.WakeAt.Equal(now.Add(recheckInterval)) && (at.IsZero() || at.After(p.WakeAt))
}

// readOnPeers reads from each node what it stores for the NodeJobs of DependsOn and GatePeers.
func readOnPeers(in *Input) {
	for i := range in.Nodes {
		node := &in.Nodes[i]
		node.OnPeers = nil
		for _, peers := range [][]Peer{in.DependsOn, in.GatePeers} {
			for p := range peers {
				node.OnPeers = append(node.OnPeers, record.Read(node.Labels, node.Annotations, peers[p].Key))
			}
		}
	}
}

// told describes what a plan does.
func told(p Plan) []string {
	var words []string
	for _, action := range p.Actions {
		words = append(words, tell(action))
	}
	return words
}

func tell(action Action) string {
	switch a := action.(type) {
	case Start:
		if a.Attempt.Phase != task.Task {
			return fmt.Sprintf("start %s %d of %s on %s", a.Attempt.Phase, a.Attempt.Number, a.Attempt.Revision, a.Attempt.NodeName)
		}
		return fmt.Sprintf("start attempt %d of %s on %s", a.Attempt.Number, a.Attempt.Revision, a.Attempt.NodeName)
	case Claim:
		return "claim " + a.Node
	case Record:
		words := fmt.Sprintf(
			"record %s on %s: attempts %d, disruptions %d",
			a.Record.Outcome,
			a.Node,
			a.Record.Attempts,
			a.Record.Disruptions,
		)
		if a.Record.Reason != "" {
			words += ", " + a.Record.Reason + ": " + a.Record.Message
		}
		if a.DropLabel {
			words += ", without label"
		}
		if rb := a.Record.Rollback; rb != nil {
			words += fmt.Sprintf(", rollback %s: attempts %d, disruptions %d", rb.Outcome, rb.Attempts, rb.Disruptions)
		}
		if a.Final {
			words += ", for good"
		}
		if a.Retain {
			words += ", and keep its pod"
		}
		if a.Ending {
			words += ", and its pod ends"
		}
		return words + cordoned(a.Cordon) + tainted(a.Change)
	case PatchNode:
		words := a.Reason + " " + a.Node
		if a.Record != nil {
			words += ", recorded"
		}
		return words + cordoned(a.Cordon) + tainted(a.Change)
	case Evict:
		words := "evict from " + a.Node + ":"
		for _, pod := range a.Pods {
			words += " " + pod.Namespace + "/" + pod.Name
		}
		return words
	case Stop:
		return fmt.Sprintf("stop %s: %s", a.Pod.Name, a.Reason)
	case FinalizePod:
		return "release " + a.Pod.Name
	case RetainPod:
		return "keep " + a.Pod.Name
	case DeleteJob:
		return "expire"
	case CleanUpNode:
		return "forget " + a.Node + cordoned(a.Cordon) + tainted(a.Change)
	case RemoveFinalizer:
		return "finish"
	}
	return fmt.Sprintf("%T", action)
}

// tainted describes changes of taints, published results and labels.
func tainted(c record.Change) string {
	words := ""
	if c.Taints != nil {
		words += ", taints ["
		for i := range c.Taints.All {
			words += strings.Repeat(" ", min(i, 1)) + c.Taints.All[i].ToString()
		}
		words += "]"
	}
	if c.Publish != nil {
		for _, kind := range []struct {
			name string
			keys map[string]*string
		}{{"label", c.Publish.Labels}, {"annotation", c.Publish.Annotations}} {
			for _, key := range slices.Sorted(maps.Keys(kind.keys)) {
				if value := kind.keys[key]; value != nil {
					words += fmt.Sprintf(", %s %s=%s", kind.name, key, *value)
				} else {
					words += fmt.Sprintf(", no %s %s", kind.name, key)
				}
			}
		}
	}
	for _, key := range c.RemoveLabels {
		words += ", without " + key
	}
	return words
}

func cordoned(c *record.Cordon) string {
	switch {
	case c == nil:
		return ""
	case len(c.By) == 0:
		return ", uncordoned"
	}
	return ", cordoned by " + strings.Join(c.By, " and ")
}
