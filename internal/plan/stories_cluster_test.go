// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/task"
)

// cluster is the API server, the kubelets and the manager of a story, without faults, delays and randomness. It has
// objects of the API, reads them as the manager does, and applies the patches of the manager.
type cluster struct {
	t         *testing.T
	now       time.Time
	job       *v1alpha1.NodeJob
	nodes     map[string]*corev1.Node
	pods      map[string]*corev1.Pod
	workloads map[string][]*workload
	// task is how the attempts of a script end: with the exit code 0 if it is nil.
	task func(task.Attempt) result
	// pending are the events that have a time.
	pending []event
	last    plan.Plan
	// listed are the nodes whose pods the last plan has seen.
	listed map[types.UID]bool
	gone   bool
	serial int
	text   strings.Builder
	// shown is the last description of the states, and shownConditions are its conditions.
	shown           string
	shownConditions []string
}

// result is how the script of a pod ends.
type result struct {
	code   int
	output string
	// after is how long the script runs; 20 seconds if it is zero.
	after time.Duration
}

// event happens at a time. do returns what happened, for the reader.
type event struct {
	at time.Time
	do func() string
	// unwatched is true for what the manager does not watch.
	unwatched bool
}

// workload is a pod that a drain evicts.
type workload struct {
	plan.DrainPod
	// budget is why its PodDisruptionBudget does not allow the eviction; "" if it does.
	budget string
}

func newCluster(t *testing.T, s story) *cluster {
	t.Helper()
	c := &cluster{
		t: t, now: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), job: &v1alpha1.NodeJob{},
		nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, workloads: map[string][]*workload{},
		listed: map[types.UID]bool{},
	}
	if err := yaml.UnmarshalStrict([]byte(s.spec), c.job); err != nil {
		t.Fatal(err)
	}
	c.job.UID, c.job.Generation, c.job.CreationTimestamp = "job", 1, metav1.NewTime(c.now)
	for i, name := range s.nodes {
		c.addNode(name, c.now.Add(time.Duration(i-len(s.nodes))*time.Hour))
	}
	return c
}

func (c *cluster) nextUID() types.UID {
	c.serial++
	return types.UID(strconv.Itoa(c.serial))
}

func (c *cluster) addNode(name string, created time.Time, taints ...corev1.Taint) {
	c.nodes[name] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: c.nextUID(), CreationTimestamp: metav1.NewTime(created), ResourceVersion: string(c.nextUID()),
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
		},
		Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: name + "-boot-1", MachineID: name + "-machine"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(created)}},
		},
	}
}

// setReady changes the Ready condition of a node.
func (c *cluster) setReady(name string, status corev1.ConditionStatus) {
	c.nodes[name].Status.Conditions[0].Status = status
	c.nodes[name].Status.Conditions[0].LastTransitionTime = metav1.NewTime(c.now)
	c.nodes[name].ResourceVersion = string(c.nextUID())
}

// changeSpec changes the NodeJob as a user does.
func (c *cluster) changeSpec(change func(*v1alpha1.NodeJobSpec)) {
	c.job = c.job.DeepCopy()
	c.job.Generation++
	change(&c.job.Spec)
}

// create is the first event of each script.
func (c *cluster) create() {
	c.t.Helper()
	nodes := slices.Sorted(maps.Keys(c.nodes))
	last := len(nodes) - 1
	c.happens(fmt.Sprintf("The cluster has the nodes %s and %s. A user creates the NodeJob.", strings.Join(nodes[:last], ", "), nodes[last]), func() {})
}

// happens is an event of the script.
func (c *cluster) happens(text string, do func()) {
	c.t.Helper()
	do()
	c.step([]string{text})
}

// happensUnwatched is an event of the script that the manager does not watch.
func (c *cluster) happensUnwatched(text string, do func()) {
	do()
	c.note([]string{text})
}

// later is an event at a later time.
func (c *cluster) later(after time.Duration, do func() string) {
	c.pending = append(c.pending, event{at: c.now.Add(after), do: do})
}

// run lets time pass. The manager makes a plan after each event, and when the last plan asked for it.
func (c *cluster) run(d time.Duration) {
	c.t.Helper()
	for end := c.now.Add(d); ; {
		next := end
		for _, e := range c.pending {
			next = earlier(next, e.at)
		}
		if !c.gone && !c.last.WakeAt.IsZero() {
			next = earlier(next, c.last.WakeAt)
		}
		if c.now = next; !next.Before(end) {
			return
		}
		var texts, unwatched []string
		for _, e := range c.due() {
			if words := e.do(); e.unwatched {
				unwatched = append(unwatched, words)
			} else {
				texts = append(texts, words)
			}
		}
		slices.Sort(texts)
		if len(unwatched) > 0 {
			c.note(unwatched)
		}
		if len(texts) > 0 || len(unwatched) == 0 || c.now.Equal(c.last.WakeAt) {
			c.step(texts)
		}
	}
}

// due removes the events of now from the pending ones, and returns them.
func (c *cluster) due() []event {
	isDue := func(e event) bool { return !e.at.After(c.now) }
	var due []event
	for _, e := range c.pending {
		if isDue(e) {
			due = append(due, e)
		}
	}
	c.pending = slices.DeleteFunc(c.pending, isDue)
	return due
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// start creates a pod. Its container runs at once, and ends by itself.
func (c *cluster) start(a task.Attempt) {
	c.t.Helper()
	source := task.Source{Script: c.job.Spec.Task.Script}
	if c.job.Spec.Verify != nil {
		source.Verify = c.job.Spec.Verify.Script
	}
	if c.job.Spec.Rollback != nil {
		source.Rollback = c.job.Spec.Rollback.Script
	}
	pod := task.Pod(c.job, source, a, task.Options{RunnerImage: "everynode-runner"})
	if c.pods[pod.Name] != nil {
		c.t.Fatalf("pod %s is created twice", pod.Name)
	}
	pod.UID, pod.CreationTimestamp, pod.Status.Phase = c.nextUID(), metav1.NewTime(c.now), corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: task.ContainerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.now)}},
	}}
	c.pods[pod.Name] = pod
	if a.Phase == task.Reboot {
		c.later(2*time.Second, func() string { return c.goDown(a.NodeName) })
		c.later(40*time.Second, func() string { return c.comeBack(a.NodeName, pod) })
		return
	}
	var r result
	if c.task != nil {
		r = c.task(a)
	}
	if r.after == 0 {
		r.after = 20 * time.Second
	}
	c.later(r.after, func() string {
		o := outcome.Outcome{ExitCode: r.code, Message: r.output}.WithExitCode(r.code)
		c.end(pod, o.ExitCode, "Completed", string(o.Encode()))
		if r.code == 0 {
			return fmt.Sprintf("The %s succeeds on %s.", scriptNames[a.Phase], a.NodeName)
		}
		return fmt.Sprintf("The %s fails on %s with exit code %d: %s.", scriptNames[a.Phase], a.NodeName, r.code, r.output)
	})
}

func (c *cluster) end(pod *corev1.Pod, code int, reason, message string) {
	running := pod.Status.ContainerStatuses[0].State.Running
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: message, StartedAt: running.StartedAt, FinishedAt: metav1.NewTime(c.now),
	}}
}

func (c *cluster) goDown(node string) string {
	c.setReady(node, corev1.ConditionFalse)
	return node + " is not Ready: it reboots."
}

func (c *cluster) comeBack(node string, pod *corev1.Pod) string {
	c.setReady(node, corev1.ConditionTrue)
	c.nodes[node].Status.NodeInfo.BootID = node + "-boot-2"
	c.end(pod, 255, "Unknown", "")
	return node + " is Ready again, with another boot ID."
}
