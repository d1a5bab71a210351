// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
)

// raced is a client in which another client changes a node between the plan and our write.
func raced() interceptor.Funcs {
	return interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return apierrors.NewConflict(corev1.Resource("nodes"), o.GetName(), errors.New("the object has been modified"))
		},
	}
}

// If another client cordons a node at the same moment, the next pass makes a new decision, and there is no warning.
func TestAConflictingCordonIsPlannedAgain(t *testing.T) {
	cordon := &record.Cordon{By: []string{"ns.everynode.dev/job"}}
	failed := record.Record{Revision: "rev", Outcome: record.Failed}
	change := func(c record.Change) record.Change {
		if c.UID, c.Key = "node-uid", "ns.everynode.dev/job"; c.Cordon != nil {
			c.ResourceVersion = "1"
		}
		return c
	}
	tests := map[string]struct {
		action plan.Action
		want   bool
	}{
		"a cordon": {
			plan.PatchNode{Node: "n", Reason: v1alpha1.ReasonCordoned, Change: change(record.Change{Record: &failed, Cordon: cordon})},
			true,
		},
		"a success that uncordons the node": {plan.Record{Node: "n", Change: change(record.Change{Record: &failed, Cordon: cordon})}, true},
		"the removal of the record": {
			plan.CleanUpNode{Node: "n", Change: change(record.Change{Forget: true, Cordon: cordon})},
			true,
		},
		"a drain that sets no cordon": {
			plan.PatchNode{Node: "n", Reason: v1alpha1.ReasonDrained, Change: change(record.Change{Record: &failed})},
			false,
		},
		"a record": {plan.Record{Node: "n", Change: change(record.Change{Record: &failed})}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newFaultyReconciler(t, raced(), watchedNode())
			did, err := r.apply(t.Context(), observation{job: liveJob()}, plan.Plan{Actions: []plan.Action{tt.action}})
			if did.again != tt.want || (err == nil) != tt.want {
				t.Errorf("another pass: %v (%v), want %v", did.again, err, tt.want)
			}
			// The cache may not show yet what was done meanwhile.
			if _, remembered := r.written.nodes["n"]; remembered != tt.want {
				t.Errorf("the current node is remembered: %v, want %v", remembered, tt.want)
			}
			if events := r.told.events(); len(events) > 0 {
				t.Errorf("events are %q", events)
			}
		})
	}
}

func TestACordonIsWrittenWithItsRecord(t *testing.T) {
	r := newReconciler(t, watchedNode())
	seen := observation{job: liveJob()}
	write := func(a plan.Action) *corev1.Node {
		t.Helper()
		if _, err := r.apply(t.Context(), seen, plan.Plan{Actions: []plan.Action{a}}); err != nil {
			t.Fatal(err)
		}
		return r.node("n")
	}
	const key = "ns.everynode.dev/job"
	failed := record.Record{Revision: "rev", Outcome: record.Failed, Cordoned: true}
	node := write(plan.PatchNode{Node: "n", Reason: v1alpha1.ReasonCordoned, Change: record.Change{
		UID:             "node-uid",
		Key:             key,
		Record:          &failed,
		Cordon:          &record.Cordon{By: []string{key}},
		ResourceVersion: r.node("n").ResourceVersion,
	}})
	on := record.Read(node.Labels, node.Annotations, key)
	if !node.Spec.Unschedulable || node.Annotations[v1alpha1.CordonedAnnotation] != key || on.Record == nil || !on.Record.Cordoned {
		t.Errorf("after the cordon it is %+v with %v", node.Spec, node.Annotations)
	}
	if view := observe.Node(r.written.node(watchedNode())); !view.Unschedulable || !cmp.Equal(view.CordonedBy, []string{key}) {
		t.Errorf("the next pass sees %+v, want the cordon", view)
	}
	node = write(plan.CleanUpNode{Node: "n", Change: record.Change{
		UID: "node-uid", Key: key, Forget: true, Cordon: &record.Cordon{}, ResourceVersion: node.ResourceVersion}})
	if _, there := node.Annotations[v1alpha1.CordonedAnnotation]; node.Spec.Unschedulable || there ||
		record.Read(node.Labels, node.Annotations, key).Present {
		t.Errorf("after the record was removed the node is %+v with %v and %v", node.Spec, node.Labels, node.Annotations)
	}
}

func TestTheRollbacksPodRunsTheRollback(t *testing.T) {
	job := liveJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
	})
	r := newReconciler(t, job, watchedNode())
	seen, err := r.observe(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	attempt := task.Attempt{Phase: task.Rollback, Revision: "rev", Number: 1, NodeName: "n", NodeUID: "node-uid"}
	if _, err := r.apply(t.Context(), seen, plan.Plan{Actions: []plan.Action{plan.Start{Attempt: attempt}}}); err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := r.Client.List(t.Context(), &pods); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods (%v), want 1", len(pods.Items), err)
	}
	var script string
	for _, v := range pods.Items[0].Spec.Containers[0].Env {
		if v.Name == "EVERYNODE_SCRIPT" {
			script = v.Value
		}
	}
	if !strings.Contains(script, "undo") {
		t.Errorf("it runs %q", script)
	}
}

// beaten is a client in which another client changes the node before each of the first writes.
func beaten(beats int, beat func(*corev1.Node)) interceptor.Funcs {
	return interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, isNode := o.(*corev1.Node); isNode && beats > 0 {
				beats--
				var node corev1.Node
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), &node); err != nil {
					return err
				}
				beat(&node)
				status := node.Status
				if err := c.Update(ctx, &node); err != nil {
					return err
				}
				node.Status = status
				if err := c.Status().Update(ctx, &node); err != nil {
					return err
				}
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}
}

// A joining node is updated often, mostly by its kubelet. This must not delay a decision if
// the fields that it depends on are unchanged. After any other change, the manager must read the node first.
func TestAWriteThatConflictsWithAHeartbeatIsRepeatedAtOnce(t *testing.T) {
	heartbeat := func(n *corev1.Node) {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{"x"}})
	}
	tests := map[string]struct {
		beats     int
		beat      func(*corev1.Node)
		wantRaced bool
	}{
		"nothing":                  {0, nil, false},
		"a heartbeat":              {1, heartbeat, false},
		"several heartbeats":       {4, heartbeat, false},
		"endless heartbeats":       {100, heartbeat, true},
		"another condition":        {1, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, false},
		"a message of the kubelet": {1, func(n *corev1.Node) { n.Status.Conditions[1].Message = "ready" }, false},
		"another client adds a taint": {1, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "b", Effect: "NoSchedule"})
		}, true},
		"another client cordons the node":   {1, func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"another client labels the node":    {1, func(n *corev1.Node) { n.Labels["x"] = "y" }, true},
		"another client annotates the node": {1, func(n *corev1.Node) { n.Annotations["x"] = "y" }, true},
		"the node reboots":                  {1, func(n *corev1.Node) { n.Status.NodeInfo.BootID = "next" }, true},
		"the node is not Ready":             {1, func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionFalse }, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := liveJob()
			r := newFaultyReconciler(t, beaten(tt.beats, tt.beat), job, watchedNode())
			seen, err := r.observe(t.Context(), job, nil)
			if err != nil {
				t.Fatal(err)
			}
			node := r.node("n")
			gate := corev1.Taint{Key: "example.com/gate", Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule}
			mark := plan.PatchNode{Node: "n", Reason: v1alpha1.ReasonGateClosed, Change: record.Change{
				UID: node.UID, ResourceVersion: node.ResourceVersion, Taints: &record.Taints{All: append(node.Spec.Taints, gate)}}}
			did, err := r.apply(t.Context(), seen, plan.Plan{Actions: []plan.Action{mark}})
			if err != nil || did.again != tt.wantRaced {
				t.Errorf("another pass: %v (%v), want %v", did.again, err, tt.wantRaced)
			}
			if closed := len(r.node("n").Spec.Taints) == 2 && r.node("n").Spec.Taints[1] == gate; closed == tt.wantRaced {
				t.Errorf("the taints are %v", r.node("n").Spec.Taints)
			}
			// In each case, the next pass sees the result.
			if got, want := r.written.node(node).ResourceVersion, r.node("n").ResourceVersion; got != want && tt.beats < 100 {
				t.Errorf("the next pass sees version %s, want %s", got, want)
			}
		})
	}
}

// If the pods of a node cannot be listed, the pass must not be repeated without a delay.
func TestADrainWaitsIfItsPodsCannotBeListed(t *testing.T) {
	job := liveJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Maintenance.Drain = &v1alpha1.DrainSpec{}
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "all"}}
	})
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			o := client.ListOptions{}
			for _, opt := range opts {
				opt.ApplyToList(&o)
			}
			if o.FieldSelector != nil && strings.Contains(o.FieldSelector.String(), nodeNameField) {
				return errors.New("away")
			}
			return c.List(ctx, l, opts...)
		}},
		job,
		tainted(),
	)
	now := noon
	r.Now = func() time.Time { return now }
	repeated := 0
	for range 10 {
		now = now.Add(2 * time.Second)
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		if err != nil {
			t.Fatal(err)
		}
		if result.RequeueAfter > 0 && result.RequeueAfter <= loop.Soon {
			repeated++
		}
	}
	if looks := r.drains.asked(client.ObjectKeyFromObject(job)); len(looks) != 1 {
		t.Fatalf("the plan asks for %v", looks)
	}
	if repeated > 1 {
		t.Errorf("%d of 10 passes are repeated at once, want only the one that begins the drain", repeated)
	}
}
