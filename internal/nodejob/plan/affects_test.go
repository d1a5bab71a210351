// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/observe"
)

// compare compares two versions of a node; before is nil for one that was created or deleted.
func compare(before, after *corev1.Node) plan.NodeChange {
	is := observe.Node(after)
	if before == nil {
		return plan.CompareNodes(nil, &is)
	}
	was := observe.Node(before)
	return plan.CompareNodes(&was, &is)
}

func noPod() bool { return false }

func watchedNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "node-uid", ResourceVersion: "1",
			Labels:      map[string]string{"pool": "a", "ns.everynode.dev/job": "rev", "ns.everynode.dev/other": "rev"},
			Annotations: map[string]string{"ns.everynode.dev/job": "{}", "ns.everynode.dev/other": "{}", "unrelated": "x"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: "boot", MachineID: "machine"},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(time.Unix(1, 0))},
			},
		},
	}
}

// TestNodeChanges checks which NodeJobs a change of a node wakes: one for all nodes, one for pool a and
// one for the nodes that another NodeJob is done with.
func TestNodeChanges(t *testing.T) {
	selects := func(labels map[string]string) *v1alpha1.NodeJob {
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}}
		if labels != nil {
			job.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: labels}
		}
		return job
	}
	jobs := map[string]*v1alpha1.NodeJob{
		"all":      selects(nil),
		"pool":     selects(map[string]string{"pool": "a"}),
		"chained":  selects(map[string]string{"ns.everynode.dev/other": "rev"}),
		"recorded": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}},
		"step": {
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"},
			Spec: v1alpha1.NodeJobSpec{Rollout: v1alpha1.RolloutSpec{Steps: []v1alpha1.RolloutStep{
				{Name: "first", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "canary"}}}, {Name: "all"},
			}}},
		},
		"broken": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}, Spec: v1alpha1.NodeJobSpec{
			Nodes: v1alpha1.NodesSpec{
				Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}}},
			},
		}},
	}
	everyone := []string{"all", "pool", "chained", "recorded", "step", "broken"}
	ready := func(n *corev1.Node) *corev1.NodeCondition { return &n.Status.Conditions[1] }
	tests := map[string]struct {
		change func(n *corev1.Node)
		// want are the NodeJobs that wake.
		want []string
	}{
		"nothing": {func(*corev1.Node) {}, nil},
		"a heartbeat": {
			func(n *corev1.Node) { n.ResourceVersion = "2"; ready(n).LastHeartbeatTime = metav1.Now() },
			nil,
		},
		"a message of the kubelet": {func(n *corev1.Node) { ready(n).Message = "kubelet is posting ready status" }, nil},
		"another condition":        {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, nil},
		"an image is pulled": {
			func(n *corev1.Node) { n.Status.Images = append(n.Status.Images, corev1.ContainerImage{}) },
			nil,
		},
		"it is no longer Ready":               {func(n *corev1.Node) { ready(n).Status = corev1.ConditionFalse }, everyone},
		"it is unreachable":                   {func(n *corev1.Node) { ready(n).Status = corev1.ConditionUnknown }, everyone},
		"its Ready condition is removed":      {func(n *corev1.Node) { n.Status.Conditions = nil }, everyone},
		"it reboots":                          {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "next" }, everyone},
		"it is another machine":               {func(n *corev1.Node) { n.Status.NodeInfo.MachineID = "next" }, everyone},
		"it was recreated between two events": {func(n *corev1.Node) { n.UID = "next" }, everyone},
		"it is being deleted": {
			func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{}; *n.DeletionTimestamp = metav1.Now() },
			everyone,
		},
		"a taint is added": {
			func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "b"}) },
			everyone,
		},
		"a taint is removed": {func(n *corev1.Node) { n.Spec.Taints = nil }, everyone},
		"a taint changes": {
			func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}} },
			everyone,
		},
		"nil taints become an empty list": {func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[:1:1] }, nil},
		"it is cordoned":                  {func(n *corev1.Node) { n.Spec.Unschedulable = true }, everyone},
		"it is cordoned for another NodeJob": {
			func(n *corev1.Node) { n.Annotations[v1alpha1.CordonedAnnotation] = "ns.everynode.dev/x" },
			everyone,
		},
		"it joins the pool of a step": {func(n *corev1.Node) { n.Labels["pool"] = "canary" }, []string{"pool", "step"}},
		"an unrelated annotation":     {func(n *corev1.Node) { n.Annotations["unrelated"] = "y" }, nil},
		"an unrelated label":          {func(n *corev1.Node) { n.Labels["unrelated"] = "y" }, nil},
		"it moves to another pool":    {func(n *corev1.Node) { n.Labels["pool"] = "b" }, []string{"pool"}},
		"a record is written": {
			func(n *corev1.Node) { n.Annotations["ns.everynode.dev/job"] = "{x}" },
			[]string{"recorded"},
		},
		"the label of a record is removed": {func(n *corev1.Node) { delete(n.Labels, "ns.everynode.dev/job") }, []string{"recorded"}},
		"a record is removed": {
			func(n *corev1.Node) { delete(n.Annotations, "ns.everynode.dev/job") },
			[]string{"recorded"},
		},
		"the record of a dependency": {func(n *corev1.Node) { n.Labels["ns.everynode.dev/other"] = "rev2" }, []string{"chained"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before, after := watchedNode(), watchedNode()
			tt.change(after)
			change := compare(before, after)
			if change.IsEmpty() && len(tt.want) > 0 {
				t.Errorf("nothing changed, want %v to wake", tt.want)
			}
			wanted := map[string]bool{}
			for _, job := range tt.want {
				wanted[job] = true
			}
			for job, object := range jobs {
				if got := !change.IsEmpty() && change.Affects(object, noon, noPod); got != wanted[job] {
					t.Errorf("NodeJob %q wakes: %v, want %v", job, got, wanted[job])
				}
			}
		})
	}
}

// TestNodeChangesOutsideOfRuns covers what a NodeJob does or waits for on nodes, apart from its own run.
func TestNodeChangesOutsideOfRuns(t *testing.T) {
	const published = `{"labels":{"x.example/fact":"ns.everynode.dev/mine"}}`
	mine := func(spec v1alpha1.NodeJobSpec) *v1alpha1.NodeJob {
		spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
		return &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}, Spec: spec}
	}
	jobs := map[string]*v1alpha1.NodeJob{
		"plain": mine(v1alpha1.NodeJobSpec{}),
		"publishes": mine(
			v1alpha1.NodeJobSpec{
				Publish: []v1alpha1.PublishedResult{{Result: "r", Label: "x.example/fact"}, {Result: "s", Annotation: "x.example/note"}},
			},
		),
		"removes": mine(v1alpha1.NodeJobSpec{RemoveLabels: []string{"x.example/wanted"}}),
		"depends": mine(v1alpha1.NodeJobSpec{DependsOn: []string{"other"}}),
		"shares":  mine(v1alpha1.NodeJobSpec{Gate: &v1alpha1.GateSpec{Key: "x.example/gate"}}),
		"assumes": mine(
			v1alpha1.NodeJobSpec{
				Nodes: v1alpha1.NodesSpec{
					AssumeDone: &v1alpha1.AssumeDoneSpec{
						Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"x.example/done": "yes"}},
					},
				},
			},
		),
		"reads": mine(v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{Env: []v1alpha1.EnvVar{
			{
				Name: "RACK",
				ValueFrom: &v1alpha1.EnvVarSource{
					NodeFieldRef: &v1alpha1.NodeFieldSelector{FieldPath: "metadata.labels['x.example/rack']"},
				},
			},
		}}}),
		"gated": mine(v1alpha1.NodeJobSpec{Gate: &v1alpha1.GateSpec{}, Rerun: v1alpha1.RerunSpec{OnReboot: true, PeriodSeconds: 3600}}),
	}
	everyone := []string{"plain", "publishes", "removes", "depends", "shares", "gated", "assumes", "reads"}
	gate := corev1.Taint{Key: "x.example/gate", Value: "everynode", Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]struct {
		change func(n *corev1.Node)
		// want are the NodeJobs that wake.
		want []string
	}{
		"a heartbeat": {
			func(n *corev1.Node) { n.ResourceVersion = "2"; n.Status.Conditions[1].LastHeartbeatTime = metav1.Now() },
			nil,
		},
		"the taint of a gate is added":   {func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, gate) }, everyone},
		"the taint of a gate is removed": {func(n *corev1.Node) { n.Spec.Taints = nil }, everyone},
		"it reboots":                     {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "next" }, everyone},
		"an unrelated annotation":        {func(n *corev1.Node) { n.Annotations["unrelated"] = "y" }, nil},
		"a published label is changed": {
			func(n *corev1.Node) { n.Labels["x.example/fact"] = "y" },
			[]string{"publishes", "depends", "shares"},
		},
		"a published label is empty": {
			func(n *corev1.Node) { n.Labels["x.example/fact"] = "" },
			[]string{"publishes", "depends", "shares"},
		},
		"a published annotation is changed": {
			func(n *corev1.Node) { n.Annotations["x.example/note"] = "y" },
			[]string{"publishes"},
		},
		"the owner of a published label is changed": {
			func(n *corev1.Node) { n.Annotations["everynode.dev/published"] = published },
			[]string{"publishes"},
		},
		"a removed label is added again": {
			func(n *corev1.Node) { n.Labels["x.example/wanted"] = "" },
			[]string{"removes", "depends", "shares"},
		},
		"a label by which it is assumed to be done": {
			func(n *corev1.Node) { n.Labels["x.example/done"] = "yes" },
			[]string{"assumes", "depends", "shares"},
		},
		"a label that task.env reads": {
			func(n *corev1.Node) { n.Labels["x.example/rack"] = "7" },
			[]string{"reads", "depends", "shares"},
		},
		"the provider ID is set":          {func(n *corev1.Node) { n.Spec.ProviderID = "cloud://1" }, everyone},
		"the architecture is known":       {func(n *corev1.Node) { n.Status.NodeInfo.Architecture = "arm64" }, everyone},
		"a label that another selects on": {func(n *corev1.Node) { n.Labels["tier"] = "y" }, []string{"depends", "shares"}},
		"a label that a namespace may be limited by": {
			func(n *corev1.Node) { n.Labels["x.node-restriction.kubernetes.io/team"] = "a" }, everyone,
		},
		"another is done": {
			func(n *corev1.Node) { n.Labels["ns.everynode.dev/other"] = "rev2" },
			[]string{"depends", "shares"},
		},
		"the seal of another's record is written": {
			func(n *corev1.Node) { n.Labels[record.SealKey("ns.everynode.dev/other")] = "x" },
			[]string{"depends", "shares"},
		},
		"another's record is written": {
			func(n *corev1.Node) { n.Annotations["ns.everynode.dev/other"] = "{x}" },
			[]string{"depends"},
		},
		"another's record is removed": {
			func(n *corev1.Node) { delete(n.Annotations, "ns.everynode.dev/other") },
			[]string{"depends"},
		},
		"a NodeJob without dependents fails":     {func(n *corev1.Node) { n.Annotations["ns.everynode.dev/job"] = "{x}" }, nil},
		"a NodeJob of another namespace is done": {func(n *corev1.Node) { n.Annotations["else.everynode.dev/other"] = "{x}" }, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before, after := watchedNode(), watchedNode()
			tt.change(after)
			change := compare(before, after)
			for job, object := range jobs {
				if got, want := !change.IsEmpty() && change.Affects(object, noon, noPod), slices.Contains(tt.want, job); got != want {
					t.Errorf("NodeJob %q wakes: %v, want %v", job, got, want)
				}
			}
		})
	}
}

func TestAddedAndDeletedNodesWakeEveryNodeJob(t *testing.T) {
	change := compare(nil, watchedNode())
	if change.IsEmpty() || !change.Affects(&v1alpha1.NodeJob{}, noon, noPod) {
		t.Error("it wakes none")
	}
}

// A pod of a NodeJob is affected by what happens to its node, although the NodeJob no longer matches the node.
func TestANodeJobIsAffectedByTheNodesOfItsPods(t *testing.T) {
	elsewhere := &v1alpha1.NodeJob{Spec: v1alpha1.NodeJobSpec{Nodes: v1alpha1.NodesSpec{Names: []string{"elsewhere"}}}}
	for name, tt := range map[string]struct {
		change func(n *corev1.Node)
		want   bool
	}{
		"it is cordoned":      {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"an unrelated label":  {func(n *corev1.Node) { n.Labels["unrelated"] = "y" }, false},
		"only a heartbeat":    {func(n *corev1.Node) { n.ResourceVersion = "2" }, false},
		"it is not Ready now": {func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionFalse }, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := watchedNode()
			tt.change(after)
			change := compare(watchedNode(), after)
			if change.Affects(elsewhere, noon, noPod) {
				t.Error("it is affected without a pod there")
			}
			if got := change.Affects(elsewhere, noon, func() bool { return true }); got != tt.want {
				t.Errorf("it is affected: %v, want %v", got, tt.want)
			}
		})
	}
}

// TestANodeJobIsAffectedByANodeOfWhichItReportsAProblem covers a node that no longer matches when it is deleted.
func TestANodeJobIsAffectedByANodeOfWhichItReportsAProblem(t *testing.T) {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}}
	job.Spec.Nodes.Names = []string{"another"}
	if compare(nil, watchedNode()).Affects(job, time.Unix(0, 0), noPod) {
		t.Error("the deletion of a node that does not match needs a plan")
	}
	job.Status.NodeProblems = []v1alpha1.NodeProblem{{Node: "n", Reason: v1alpha1.ReasonPodNameTaken}}
	if !compare(nil, watchedNode()).Affects(job, time.Unix(0, 0), noPod) {
		t.Error("the problem of a node that is deleted stays in the status")
	}
}
