package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// raced is a client in which somebody changes a node between the plan and our write.
func raced() interceptor.Funcs {
	return interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
		return apierrors.NewConflict(corev1.Resource("nodes"), o.GetName(), errors.New("the object has been modified"))
	}}
}

// Somebody may cordon a node in the same moment: that is decided anew, without an alarm.
func TestACordonThatComesTooLateIsDecidedAnew(t *testing.T) {
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
		"a cordon":                    {plan.Mark{Node: "n", Reason: v1alpha1.ReasonCordoned, Change: change(record.Change{Record: &failed, Cordon: cordon})}, true},
		"a success that opens":        {plan.Record{Node: "n", Change: change(record.Change{Record: &failed, Cordon: cordon})}, true},
		"the end of all":              {plan.Forget{Node: "n", Change: change(record.Change{Forget: true, Cordon: cordon})}, true},
		"a drain, which needs no one": {plan.Mark{Node: "n", Reason: v1alpha1.ReasonDrained, Change: change(record.Change{Record: &failed})}, false},
		"a record":                    {plan.Record{Node: "n", Change: change(record.Change{Record: &failed})}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newFaultyReconciler(t, raced(), watchedNode())
			did, err := r.apply(t.Context(), observation{job: liveJob()}, plan.Plan{Actions: []plan.Action{tt.action}})
			if did.again != tt.want || (err == nil) != tt.want {
				t.Errorf("again: %v (%v), want %v", did.again, err, tt.want)
			}
			// The cache may not show yet what was done meanwhile.
			if _, remembered := r.memory.nodes[client.ObjectKey{Name: "n"}]; remembered != tt.want {
				t.Errorf("the node as it is now is remembered: %v, want %v", remembered, tt.want)
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
	node := write(plan.Mark{Node: "n", Reason: v1alpha1.ReasonCordoned, Change: record.Change{
		UID: "node-uid", Key: key, Record: &failed, Cordon: &record.Cordon{By: []string{key}}, ResourceVersion: r.node("n").ResourceVersion}})
	on := record.Read(node.Labels, node.Annotations, key)
	if !node.Spec.Unschedulable || node.Annotations[v1alpha1.CordonedAnnotation] != key || on.Record == nil || !on.Record.Cordoned {
		t.Errorf("after the cordon it is %+v with %v", node.Spec, node.Annotations)
	}
	if view := viewNode(r.memory.node(watchedNode())); !view.Unschedulable || !cmp.Equal(view.CordonedBy, []string{key}) {
		t.Errorf("the next pass sees %+v, want the cordon", view)
	}
	node = write(plan.Forget{Node: "n", Change: record.Change{
		UID: "node-uid", Key: key, Forget: true, Cordon: &record.Cordon{}, ResourceVersion: node.ResourceVersion}})
	if _, there := node.Annotations[v1alpha1.CordonedAnnotation]; node.Spec.Unschedulable || there || record.Read(node.Labels, node.Annotations, key).Present {
		t.Errorf("after it was forgotten it is %+v with %v and %v", node.Spec, node.Labels, node.Annotations)
	}
}

func TestTheRollbacksPodRunsTheRollback(t *testing.T) {
	job := liveJob(func(j *v1alpha1.NodeJob) { j.Spec.Rollback = &v1alpha1.RollbackSpec{Script: "undo"} })
	r := newReconciler(t, job, watchedNode())
	seen, err := r.observe(t.Context(), job)
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
