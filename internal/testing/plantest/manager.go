// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plantest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // as the API server applies it
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
)

// This file is the manager: it observes, plans and applies.

// Input returns what the manager observes.
func (c *Cluster) Input() plan.Input {
	c.t.Helper()
	noContents := func([]task.Content) ([]task.Hashes, *hold.Why, error) { return nil, nil, nil }
	source, obstacle, err := observe.Source(c.Job, observe.Fetch{Contents: noContents})
	if err != nil {
		c.t.Fatal(err)
	}
	in := plan.Input{Job: c.Job, Now: c.Now, Obstacle: obstacle, Revision: c.Job.Status.Revision, Digest: c.Job.Status.RevisionDigest, Drains: map[types.UID][]plan.DrainPod{}}
	for _, name := range c.NodeNames() {
		node := c.Nodes[name]
		view := observe.Node(node)
		view.Published = record.ReadPublished(node.Annotations)
		view.On = record.Read(node.Labels, node.Annotations, c.Key())
		in.Nodes = append(in.Nodes, view)
	}
	if c.Job.DeletionTimestamp.IsZero() {
		in.Revision, in.Digest = observe.Revision(c.Job, source, in.Nodes)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Pods)) {
		in.Pods = append(in.Pods, observe.Pod(c.Pods[name]))
	}
	observe.Peers(&in, []*v1alpha1.NodeJob{c.Job}, nil, func(_ string, labels, annotations map[string]string, key string) record.NodeRecord {
		return record.Read(labels, annotations, key)
	})
	if len(c.Budgets) > 0 {
		observe.Budgets(&in, budget.EffectsOf(c.Budgets, nil, 0, c.Now), observe.Stances{})
	}
	c.listed = map[types.UID]bool{}
	for _, request := range c.last.DrainPodRequests {
		c.listed[request.UID] = true
		in.Drains[request.UID] = []plan.DrainPod{}
		for _, w := range c.Workloads[request.Node] {
			in.Drains[request.UID] = append(in.Drains[request.UID], w.DrainPod)
		}
	}
	return in
}

// Key is the key of the record of the NodeJob.
func (c *Cluster) Key() string { return v1alpha1.RecordKey(c.Job.Namespace, c.Job.Name) }

// reconcile makes and applies plans until nothing changes any more or the manager ends, and returns the actions in words.
func (c *Cluster) reconcile() []string {
	c.t.Helper()
	var words []string
	for range 20 {
		done, changed := c.pass()
		words = append(words, done...)
		if changed && !c.gone && c.writes != 0 {
			continue
		}
		if wake := c.last.WakeAt; !c.gone && c.writes != 0 && !wake.IsZero() && !wake.After(c.Now) {
			c.t.Errorf("at %s, the plan asks for %s, which has passed", c.Now, wake)
		}
		return words
	}
	c.t.Fatalf("at %s, plans without end: %q", c.Now, words)
	return nil
}

// pass makes and applies a plan, and reports whether the next one may be another.
func (c *Cluster) pass() (words []string, changed bool) {
	c.t.Helper()
	if c.writes == 0 {
		return nil, false
	}
	c.last = plan.Next(c.Input())
	for _, action := range c.last.Actions {
		if !c.mayWrite() {
			return words, false
		}
		words = append(words, c.apply(action))
	}
	changed = len(c.last.Actions) > 0
	if !reflect.DeepEqual(c.Job.Status, c.last.Status) && c.mayWrite() {
		changed = true
		c.Job = c.Job.DeepCopy()
		c.Job.Status = *c.last.Status.DeepCopy()
	}
	asks := slices.ContainsFunc(c.last.DrainPodRequests, func(r plan.DrainPodRequest) bool { return !c.listed[r.UID] })
	return words, changed || asks
}

// apply executes an action as the manager does, and returns it in words.
func (c *Cluster) apply(action plan.Action) string {
	c.t.Helper()
	switch a := action.(type) {
	case plan.Start:
		c.start(a.Attempt)
		return "create the pod of " + nameOf(a.Attempt.Phase, a.Attempt.Number, a.Attempt.NodeName)
	case plan.Claim:
		return "claim " + a.Node
	case plan.Record:
		return c.record(a)
	case plan.PatchNode:
		return fmt.Sprintf("mark %s as %s: %s", a.Node, a.Reason, a.Message) + c.patch(a.Node, a.Change)
	case plan.CleanUpNode:
		return "clean up " + a.Node + c.patch(a.Node, a.Change)
	case plan.Evict:
		return c.evict(a)
	case plan.DeleteJob:
		c.Delete()
		return "delete the NodeJob"
	case plan.RemoveFinalizer:
		c.gone = true
		return "remove the finalizer of the NodeJob, which is then gone"
	default:
		return c.applyToPod(action)
	}
}

func (c *Cluster) applyToPod(action plan.Action) string {
	c.t.Helper()
	switch a := action.(type) {
	case plan.FinalizePod:
		delete(c.Pods, a.Pod.Name)
		return "delete the pod of " + nameOf(a.Pod.Runs, a.Pod.Attempt, a.Pod.NodeName)
	case plan.RetainPod:
		c.retain(a.Pod)
		return "retain the pod of " + nameOf(a.Pod.Runs, a.Pod.Attempt, a.Pod.NodeName)
	case plan.Confirm:
		return c.confirm(a)
	case plan.Stop:
		c.stop(c.Pods[a.Pod.Name])
		return "stop the pod of " + nameOf(a.Pod.Runs, a.Pod.Attempt, a.Pod.NodeName) + ": " + a.Reason
	default:
		c.t.Fatalf("%T is unknown", action)
		return ""
	}
}

// record writes the end of an attempt to its node, and then releases the pod.
func (c *Cluster) record(a plan.Record) string {
	words := recorded(a) + c.patch(a.Node, a.Change)
	switch {
	case a.Ending:
	case a.Retain:
		c.retain(a.Pod)
	default:
		delete(c.Pods, a.Pod.Name)
	}
	return words
}

// retain keeps a pod for its logs.
func (c *Cluster) retain(pod plan.Pod) {
	live := c.Pods[pod.Name]
	live.Finalizers = nil
	live.Annotations[v1alpha1.RecordedAnnotation] = "true"
}

// patch writes a change to a node as the API server does, and returns what others see of it.
func (c *Cluster) patch(name string, change record.Change) string {
	c.t.Helper()
	before := c.Nodes[name]
	if change.UID != before.UID || (change.Guarded() && change.ResourceVersion != before.ResourceVersion) {
		c.t.Fatalf("conflict: %s is not what the plan has seen", name)
	}
	body, err := json.Marshal(before)
	if err != nil {
		c.t.Fatal(err)
	}
	if body, err = jsonpatch.MergePatch(body, change.Patch()); err != nil {
		c.t.Fatal(err)
	}
	after := &corev1.Node{}
	if err := json.Unmarshal(body, after); err != nil {
		c.t.Fatal(err)
	}
	after.ResourceVersion = c.nextVersion()
	c.Nodes[name] = after
	return difference(before, after, c.Key())
}

// evict requests evictions. An evicted pod needs some time to terminate.
func (c *Cluster) evict(a plan.Evict) string {
	var words []string
	for _, pod := range a.Pods {
		i := slices.IndexFunc(c.Workloads[a.Node], func(w *Workload) bool { return w.UID == pod.UID })
		w := c.Workloads[a.Node][i]
		w.TriedAt = c.Now
		name := w.Namespace + "/" + w.Name
		if w.Blocked = w.Budget; w.Blocked != "" {
			words = append(words, name+" (denied)")
			continue
		}
		w.Terminating = true
		words = append(words, name)
		c.pending = append(c.pending, event{at: c.Now.Add(3 * time.Second), what: "terminate " + name, unwatched: true, do: func(c *Cluster) string {
			c.Workloads[a.Node] = slices.DeleteFunc(c.Workloads[a.Node], func(other *Workload) bool { return other.UID == pod.UID })
			return name + " has terminated on " + a.Node + "."
		}})
	}
	return "evict from " + a.Node + ": " + strings.Join(words, ", ")
}
