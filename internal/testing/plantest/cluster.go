// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plantest

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
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// Cluster is the API server, the kubelets and the manager of a simulation, without faults, delays and randomness. It has
// objects of the API, reads them as the manager does, and applies the patches of the manager.
type Cluster struct {
	Now   time.Time
	Job   *v1alpha1.NodeJob
	Nodes map[string]*corev1.Node
	Pods  map[string]*corev1.Pod
	// Task is how the attempts of a script end: with the exit code 0 if it is nil.
	Task func(task.Attempt) Result
	// Budgets are the NodeDisruptionBudgets. No seats run for them.
	Budgets []*v1alpha1.NodeDisruptionBudget
	// Workloads are the pods of others, by the names of their nodes.
	Workloads map[string][]*Workload

	t      testing.TB
	serial int
	// pending are the events that have a time.
	pending []event
	last    plan.Plan
	// listed are the nodes whose pods the last plan has seen.
	listed map[types.UID]bool
	gone   bool
	text   []byte
	// writes is how many writes the manager makes before it ends; negative: it does not end.
	writes int
	// shown is the last description of the states, and shownConditions are its conditions.
	shown           string
	shownConditions []string
}

// Result is how the script of a pod ends.
type Result struct {
	Code   int
	Output string
	// Reason is what the runner reports about a failure; TaskFailed if it is empty.
	Reason string
	// NotStarted is true if the runner could not start the script.
	NotStarted bool
	// Results are what the script writes.
	Results map[string]string
	// Archive is what the runner reports about the archive of the output.
	Archive *outcome.Archive
	// CutOff is true if the script cuts its node off, so that the node runs the rollback by itself (spec.confirm).
	CutOff bool
	// After is how long the script runs; 20 seconds if it is zero.
	After time.Duration
}

// Workload is a pod that a drain evicts.
type Workload struct {
	plan.DrainPod
	// Budget is why its PodDisruptionBudget does not allow the eviction; "" if it does.
	Budget string
}

// NewWorkload returns a pod that may be evicted.
func NewWorkload(namespace, name string) *Workload {
	return &Workload{DrainPod: plan.DrainPod{Namespace: namespace, Name: name, UID: types.UID(name)}}
}

// event happens at a time. what names it, and do returns a description of what has happened. Copies of a cluster share events, so do
// refers to nothing in it but by name.
type event struct {
	at   time.Time
	what string
	do   func(*Cluster) string
	// unwatched is true for what the manager does not watch.
	unwatched bool
}

// New returns a cluster with a NodeJob, which is given in YAML, and with these nodes, the oldest first.
func New(t testing.TB, spec string, nodes ...string) *Cluster {
	t.Helper()
	c := &Cluster{
		t: t, Now: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Job: &v1alpha1.NodeJob{},
		Nodes: map[string]*corev1.Node{}, Pods: map[string]*corev1.Pod{}, Workloads: map[string][]*Workload{},
		listed: map[types.UID]bool{}, writes: -1,
	}
	if err := yaml.UnmarshalStrict([]byte(spec), c.Job); err != nil {
		t.Fatal(err)
	}
	c.Job.UID, c.Job.Generation, c.Job.CreationTimestamp = "job", 1, metav1.NewTime(c.Now)
	for i, name := range nodes {
		c.AddNode(name, c.Now.Add(time.Duration(i-len(nodes))*24*time.Hour))
	}
	return c
}

func (c *Cluster) nextUID() types.UID {
	c.serial++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", c.serial))
}

func (c *Cluster) nextVersion() string {
	c.serial++
	return strconv.Itoa(c.serial)
}

// AddNode adds a Ready node.
func (c *Cluster) AddNode(name string, created time.Time, taints ...corev1.Taint) {
	c.Nodes[name] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: c.nextUID(), CreationTimestamp: metav1.NewTime(created), ResourceVersion: c.nextVersion(),
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
		},
		Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: string(c.nextUID()), MachineID: strings.ReplaceAll(string(c.nextUID()), "-", "")},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(created)}},
		},
	}
}

// NodeNames are the names of all nodes, in order.
func (c *Cluster) NodeNames() []string { return slices.Sorted(maps.Keys(c.Nodes)) }

// Running are the names of the pods that run, in order.
func (c *Cluster) Running() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.Pods)), func(name string) bool { return c.Pods[name].Status.Phase != corev1.PodRunning })
}

// Reboot gives a node another boot.
func (c *Cluster) Reboot(name string) {
	c.Nodes[name].Status.NodeInfo.BootID = string(c.nextUID())
}

// SetReady changes the Ready condition of a node.
func (c *Cluster) SetReady(name string, status corev1.ConditionStatus) {
	c.Nodes[name].Status.Conditions[0].Status = status
	c.Nodes[name].Status.Conditions[0].LastTransitionTime = metav1.NewTime(c.Now)
	c.Nodes[name].ResourceVersion = c.nextVersion()
}

// ChangeSpec changes the NodeJob as a user does.
func (c *Cluster) ChangeSpec(change func(*v1alpha1.NodeJobSpec)) {
	c.Job = c.Job.DeepCopy()
	c.Job.Generation++
	change(&c.Job.Spec)
}

// Create is the first event of each simulation.
func (c *Cluster) Create() {
	c.t.Helper()
	nodes := c.NodeNames()
	last := len(nodes) - 1
	c.Happens(fmt.Sprintf("The cluster has the nodes %s and %s. A user creates the NodeJob.", strings.Join(nodes[:last], ", "), nodes[last]), func() {})
}

// Happens is an event to which the manager reacts.
func (c *Cluster) Happens(text string, do func()) {
	c.t.Helper()
	do()
	c.step([]string{text})
}

// HappensUnwatched is an event that the manager does not watch.
func (c *Cluster) HappensUnwatched(text string, do func()) {
	do()
	c.note([]string{text})
}

// later is an event at a later time.
func (c *Cluster) later(after time.Duration, what string, do func(*Cluster) string) {
	c.pending = append(c.pending, event{at: c.Now.Add(after), what: what, do: do})
}

// ofPod is a later event of a pod, unless the pod is gone by then.
func (c *Cluster) ofPod(pod *corev1.Pod, after time.Duration, what string, do func(*Cluster, *corev1.Pod) string) {
	name, uid := pod.Name, pod.UID
	c.later(after, what+" "+name, func(c *Cluster) string {
		live := c.Pods[name]
		if live == nil || live.UID != uid {
			return ""
		}
		return do(c, live)
	})
}

// Delete is the deletion of the NodeJob by a user.
func (c *Cluster) Delete() {
	c.Job = c.Job.DeepCopy()
	c.Job.DeletionTimestamp = new(metav1.NewTime(c.Now))
}

// Run lets time pass. The manager makes a plan after each event that it watches, and when the last plan asked for it.
func (c *Cluster) Run(d time.Duration) {
	c.t.Helper()
	for end := c.Now.Add(d); ; {
		if c.Now = c.next(end); !c.Now.Before(end) {
			return
		}
		c.happen()
	}
}

// Advance lets time pass until something happens, and reports whether anything will.
func (c *Cluster) Advance() bool {
	c.t.Helper()
	never := c.Now.Add(1000 * time.Hour)
	next := c.next(never)
	if next.Equal(never) {
		return false
	}
	c.Now = next
	c.happen()
	return true
}

// happen lets all that is due happen, and the manager react.
func (c *Cluster) happen() {
	c.t.Helper()
	var texts, unwatched []string
	for _, e := range c.due() {
		switch words := e.do(c); {
		case words == "":
		case e.unwatched:
			unwatched = append(unwatched, words)
		default:
			texts = append(texts, words)
		}
	}
	slices.Sort(texts)
	c.note(unwatched)
	if len(texts) > 0 || c.Now.Equal(c.last.WakeAt) {
		c.step(texts)
	}
}

// EndManager ends the manager after so many more writes. Another one starts with StartManager.
func (c *Cluster) EndManager(writes int) { c.writes = writes }

// StartManager starts a manager if none runs.
func (c *Cluster) StartManager() {
	c.t.Helper()
	c.writes = -1
	c.step([]string{"A manager starts."})
}

// ManagerEnds reports whether the manager has ended, or will.
func (c *Cluster) ManagerEnds() bool { return c.writes >= 0 }

// mayWrite counts a write of the manager, and reports whether it can be made.
func (c *Cluster) mayWrite() bool {
	if c.writes > 0 {
		c.writes--
		return true
	}
	return c.writes < 0
}

// Pending are the events to come, in the order of time: what each is, and when.
func (c *Cluster) Pending() []string {
	var all []string
	for _, e := range c.pending {
		all = append(all, fmt.Sprintf("%10d %s", e.at.Sub(c.Now).Milliseconds(), e.what))
	}
	if wake := c.last.WakeAt; !wake.IsZero() {
		all = append(all, fmt.Sprintf("%10d wake", wake.Sub(c.Now).Milliseconds()))
	}
	slices.Sort(all)
	return all
}

// next is when something happens next, at most end.
func (c *Cluster) next(end time.Time) time.Time {
	next := end
	for _, e := range c.pending {
		next = earlier(next, e.at)
	}
	if wake := c.last.WakeAt; !c.gone && c.writes != 0 && !wake.IsZero() {
		next = earlier(next, wake)
	}
	return next
}

// due removes the events of now from the pending ones, and returns them.
func (c *Cluster) due() []event {
	isDue := func(e event) bool { return !e.at.After(c.Now) }
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

// start creates a pod. Its container starts at once and ends without a signal.
func (c *Cluster) start(a task.Attempt) {
	c.t.Helper()
	source := task.Source{Script: c.Job.Spec.Task.Script}
	if c.Job.Spec.Task.Check != nil {
		source.Check = c.Job.Spec.Task.Check.Script
	}
	if c.Job.Spec.Rollback != nil {
		source.Rollback = c.Job.Spec.Rollback.Script
	}
	if task.Archives(c.Job, a.Phase) {
		a.Archive = &task.Archive{Location: fmt.Sprintf("s3://outputs/%s/%s/%s/%s/%s-%d.log", c.Job.Namespace, c.Job.Name, a.Revision, a.NodeName, a.Phase, a.Number)}
	}
	pod := task.Pod(c.Job, source, a, task.Options{RunnerImage: "everynode-runner"})
	if c.Pods[pod.Name] != nil {
		c.t.Fatalf("pod %s is created twice", pod.Name)
	}
	pod.UID, pod.CreationTimestamp, pod.Status.Phase = c.nextUID(), metav1.NewTime(c.Now), corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, ImageID: "registry.example/image@sha256:" + strings.Repeat("0a", 32),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.Now)}},
	}}
	c.Pods[pod.Name] = pod
	if a.Phase == task.Reboot {
		c.later(2*time.Second, "down "+a.NodeName, func(c *Cluster) string { return c.goDown(a.NodeName) })
		c.later(40*time.Second, "back "+a.NodeName, func(c *Cluster) string { return c.comeBack(a.NodeName, pod.Name) })
		return
	}
	var r Result
	if c.Task != nil {
		r = c.Task(a)
	}
	if r.After == 0 {
		r.After = 20 * time.Second
	}
	c.ofPod(pod, r.After, fmt.Sprintf("end %+v", r), func(c *Cluster, pod *corev1.Pod) string {
		if pod.Status.Phase != corev1.PodRunning {
			return "" // it was stopped
		}
		if task.Confirms(c.Job, a.Phase) {
			return c.awaitConfirmation(pod, r)
		}
		return c.report(pod, a.Phase, r)
	})
}

// report ends a pod as the runner reports it.
func (c *Cluster) report(pod *corev1.Pod, phase task.Phase, r Result) string {
	o := outcome.Outcome{ExitCode: r.Code, Reason: r.Reason, Message: r.Output, Results: r.Results, Archive: r.Archive, NotStarted: r.NotStarted}.WithExitCode(r.Code)
	c.end(pod, o.ExitCode, "Completed", string(o.Encode()))
	if r.Code == 0 {
		return fmt.Sprintf("The %s succeeds on %s.", scriptNames[phase], pod.Spec.NodeName)
	}
	return fmt.Sprintf("The %s fails on %s with exit code %d: %s.", scriptNames[phase], pod.Spec.NodeName, r.Code, r.Output)
}

func (c *Cluster) end(pod *corev1.Pod, code int, reason, message string) {
	running := pod.Status.ContainerStatuses[0].State.Running
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: message, StartedAt: running.StartedAt, FinishedAt: metav1.NewTime(c.Now),
	}}
}

// stop deletes a running pod. The runner ends the script when it gets the signal.
func (c *Cluster) stop(pod *corev1.Pod) {
	grace := *pod.Spec.TerminationGracePeriodSeconds
	pod.DeletionGracePeriodSeconds = &grace
	pod.DeletionTimestamp = new(metav1.NewTime(c.Now.Add(time.Duration(grace) * time.Second)))
	c.ofPod(pod, time.Second, "interrupt", func(c *Cluster, pod *corev1.Pod) string {
		c.Interrupt(pod)
		return "The pod on " + pod.Spec.NodeName + " ends after its signal."
	})
}

// Interrupt ends a pod that was told to stop, as after an eviction.
func (c *Cluster) Interrupt(pod *corev1.Pod) {
	o := outcome.Outcome{ExitCode: 143, Reason: outcome.ReasonDisrupted}
	c.end(pod, o.ExitCode, "Error", string(o.Encode()))
}

func (c *Cluster) goDown(node string) string {
	c.SetReady(node, corev1.ConditionFalse)
	return node + " is not Ready: it reboots."
}

func (c *Cluster) comeBack(node, pod string) string {
	c.SetReady(node, corev1.ConditionTrue)
	c.Nodes[node].Status.NodeInfo.BootID = string(c.nextUID())
	if live := c.Pods[pod]; live != nil {
		c.end(live, 255, "Unknown", "")
	}
	return node + " is Ready again, with another boot ID."
}
