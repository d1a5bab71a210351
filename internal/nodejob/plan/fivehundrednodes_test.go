// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/seal"
)

// TestFiveHundredNodes simulates one rollout from its first pass to its last. Of 500 nodes
//
//	n000, n050, … n450   (10)  fail once and succeed with their second attempt
//	n001, n101, … n401    (5)  fail with every attempt
//	n002, n102, … n402    (5)  are evicted in the first attempt, and then succeed
//	n003                       becomes unreachable while it runs, and stays so
//	n004                       becomes unreachable while it runs, and is reachable again too late
//
// and all others succeed at once. At most 25 run at any time. An attempt takes 20 seconds.
func TestFiveHundredNodes(t *testing.T) {
	const size, atOnce = 500, 25
	rollout := newStory(size, newJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Rollout.MaxConcurrent = new(intstr.FromString("5%"))
		j.Spec.Retry = v1alpha1.RetrySpec{Limit: new(int32(2)), BackoffSeconds: new(int32(10))}
	}))
	var most int
	for !rollout.over(t) {
		most = max(most, int(rollout.pass(t).Nodes.Running))
	}

	status := rollout.job.Status
	want := v1alpha1.NodeCounts{Total: size, Done: size - 6, Failed: 6}
	if diff := cmp.Diff(want, status.Nodes); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if most != atOnce {
		t.Errorf("at most %d nodes ran at once, want %d", most, atOnce)
	}
	// 500 first attempts; 10 second ones; 2 more on each of 5; 5 after an eviction; and one on the node
	// that is reachable again. The node that stays unreachable has had its only one.
	wantStarts := 500 + 10 + 2*5 + 5 + 1
	if rollout.starts != wantStarts {
		t.Errorf("%d attempts, want %d", rollout.starts, wantStarts)
	}
	wantRecords := map[string]int{
		"Succeeded": 494, "Failed TaskFailed": 10 + 3*5, "Disrupted Evicted": 5, "Failed NodeUnreachable": 2,
	}
	if diff := cmp.Diff(wantRecords, rollout.records); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	// 20 times 25 attempts, and the time of the slow nodes.
	if took := rollout.now.Sub(now); took < 400*time.Second || took > 600*time.Second {
		t.Errorf("it took %v of the cluster's time", took)
	}
	var named []string
	for _, f := range status.Failures {
		named = append(named, fmt.Sprintf("%s %s %d %v", f.Node, f.Reason, f.Attempts, f.Retrying))
	}
	wantNamed := []string{
		"n001 TaskFailed 3 false",
		"n003 NodeUnreachable 1 false",
		"n101 TaskFailed 3 false",
		"n201 TaskFailed 3 false",
		"n301 TaskFailed 3 false",
		"n401 TaskFailed 3 false",
	}
	if diff := cmp.Diff(wantNamed, named); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

// story plays the API server and the kubelets, by the second.
type story struct {
	now     time.Time
	job     *v1alpha1.NodeJob
	nodes   []Node
	pods    map[string]*Pod
	byName  map[string]int
	starts  int
	records map[string]int
	tries   map[string]int
	last    Plan
}

func newStory(size int, job *v1alpha1.NodeJob) *story {
	s := &story{now: now, job: job, pods: map[string]*Pod{}, byName: map[string]int{}, records: map[string]int{}, tries: map[string]int{}}
	for i := range size {
		name := fmt.Sprintf("n%03d", i)
		s.byName[name] = i
		s.nodes = append(s.nodes, newNode(name))
	}
	return s
}

func (s *story) input() Input {
	in := Input{Job: s.job, Revision: rev, Nodes: s.nodes, Now: s.now}
	for _, pod := range s.pods {
		in.Pods = append(in.Pods, *pod)
	}
	return in
}

// over reports whether the plan has no actions and does not wait for a point in time. It advances the clock.
func (s *story) over(t *testing.T) bool {
	t.Helper()
	if s.now.Sub(now) > time.Hour {
		t.Fatalf("the rollout does not finish: %+v", s.job.Status.Nodes)
	}
	s.now = s.now.Add(time.Second)
	s.kubelets()
	return s.starts > 0 && len(s.pods) == 0 && len(s.last.Actions) == 0 && s.last.WakeAt.IsZero()
}

func (s *story) pass(t *testing.T) v1alpha1.NodeJobStatus {
	t.Helper()
	s.last = Next(s.input())
	for _, action := range s.last.Actions {
		switch a := action.(type) {
		case Start:
			s.start(t, a.Attempt)
		case Record:
			node := &s.nodes[s.byName[a.Node]]
			r, err := record.Decode(record.Encode(*a.Record))
			if err != nil {
				t.Fatal(err)
			}
			node.On.Record, node.On.Present = &r, true
			what := string(r.Outcome)
			if r.Outcome == record.Succeeded {
				node.On.Label = r.Revision
			} else {
				what += " " + r.Reason
			}
			s.records[what]++
			delete(s.pods, a.Pod.Name)
		default:
			t.Fatalf("%s, want only starts and records", tell(action))
		}
	}
	s.job.Status = s.last.Status
	return s.last.Status
}

func (s *story) start(t *testing.T, a task.Attempt) {
	t.Helper()
	name := task.PodName(seal.Key{}, s.job, a)
	if s.pods[name] != nil {
		t.Fatalf("pod %s is created twice", name)
	}
	s.starts++
	s.tries[a.NodeName]++
	s.pods[name] = &Pod{
		Name: name, UID: types.UID(fmt.Sprint("pod-", s.starts)), NodeName: a.NodeName, NodeUID: a.NodeUID,
		Machine: task.Machine(a.MachineID, a.BootID), Revision: a.Revision, Attempt: a.Number,
		Created: s.now, Finalized: true, Phase: corev1.PodRunning, Started: s.now,
	}
}

func (s *story) kubelets() {
	if n := &s.nodes[s.byName["n004"]]; s.now.Sub(now) > 200*time.Second {
		n.Ready = corev1.ConditionTrue
	}
	for _, pod := range s.pods {
		node, try := &s.nodes[s.byName[pod.NodeName]], s.tries[pod.NodeName]
		if pod.ended() || s.now.Sub(pod.Created) < 20*time.Second {
			continue
		}
		index := s.byName[pod.NodeName]
		switch {
		case (index == 3 || index == 4) && try == 1:
			node.Ready = corev1.ConditionUnknown
		case (index%50 == 0 && try == 1) || index%100 == 1:
			pod.Phase, pod.Exit = corev1.PodFailed, &Exit{Code: 1, Finished: s.now, Reported: true, Reason: outcome.ReasonTaskFailed}
		case index%100 == 2 && try == 1:
			pod.Disrupted, pod.DisruptedReason = s.now, "EvictionByEvictionAPI"
			pod.Phase, pod.Exit = corev1.PodFailed, &Exit{Code: 143, Finished: s.now, Reported: true, Reason: outcome.ReasonDisrupted}
		default:
			pod.Phase, pod.Exit = corev1.PodSucceeded, &Exit{Finished: s.now, Reported: true}
		}
	}
}
