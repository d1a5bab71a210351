// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/record"
)

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
		"step": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}, Spec: v1alpha1.NodeJobSpec{Rollout: v1alpha1.RolloutSpec{Steps: []v1alpha1.RolloutStep{
			{Name: "first", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "canary"}}}, {Name: "all"},
		}}}},
		"broken": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}, Spec: v1alpha1.NodeJobSpec{
			Nodes: v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}}}},
		}},
	}
	everyone := []string{"all", "pool", "chained", "recorded", "step", "broken"}
	ready := func(n *corev1.Node) *corev1.NodeCondition { return &n.Status.Conditions[1] }
	tests := map[string]struct {
		change func(n *corev1.Node)
		// want are the NodeJobs that wake.
		want []string
	}{
		"nothing":                             {func(*corev1.Node) {}, nil},
		"a heartbeat":                         {func(n *corev1.Node) { n.ResourceVersion = "2"; ready(n).LastHeartbeatTime = metav1.Now() }, nil},
		"a message of the kubelet":            {func(n *corev1.Node) { ready(n).Message = "kubelet is posting ready status" }, nil},
		"another condition":                   {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, nil},
		"an image is pulled":                  {func(n *corev1.Node) { n.Status.Images = append(n.Status.Images, corev1.ContainerImage{}) }, nil},
		"it is no longer Ready":               {func(n *corev1.Node) { ready(n).Status = corev1.ConditionFalse }, everyone},
		"it is unreachable":                   {func(n *corev1.Node) { ready(n).Status = corev1.ConditionUnknown }, everyone},
		"its Ready condition is removed":      {func(n *corev1.Node) { n.Status.Conditions = nil }, everyone},
		"it reboots":                          {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "next" }, everyone},
		"it is another machine":               {func(n *corev1.Node) { n.Status.NodeInfo.MachineID = "next" }, everyone},
		"it was recreated between two events": {func(n *corev1.Node) { n.UID = "next" }, everyone},
		"it is being deleted":                 {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{}; *n.DeletionTimestamp = metav1.Now() }, everyone},
		"a taint is added":                    {func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "b"}) }, everyone},
		"a taint is removed":                  {func(n *corev1.Node) { n.Spec.Taints = nil }, everyone},
		"a taint changes":                     {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}} }, everyone},
		"nil taints become an empty list":     {func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[:1:1] }, nil},
		"it is cordoned":                      {func(n *corev1.Node) { n.Spec.Unschedulable = true }, everyone},
		"it is cordoned for another NodeJob":  {func(n *corev1.Node) { n.Annotations[v1alpha1.CordonedAnnotation] = "ns.everynode.dev/x" }, everyone},
		"it joins the pool of a step":         {func(n *corev1.Node) { n.Labels["pool"] = "canary" }, []string{"pool", "step"}},
		"an unrelated annotation":             {func(n *corev1.Node) { n.Annotations["unrelated"] = "y" }, nil},
		"an unrelated label":                  {func(n *corev1.Node) { n.Labels["unrelated"] = "y" }, nil},
		"it moves to another pool":            {func(n *corev1.Node) { n.Labels["pool"] = "b" }, []string{"pool"}},
		"a record is written":                 {func(n *corev1.Node) { n.Annotations["ns.everynode.dev/job"] = "{x}" }, []string{"recorded"}},
		"the label of a record is removed":    {func(n *corev1.Node) { delete(n.Labels, "ns.everynode.dev/job") }, []string{"recorded"}},
		"a record is removed":                 {func(n *corev1.Node) { delete(n.Annotations, "ns.everynode.dev/job") }, []string{"recorded"}},
		"the record of a dependency":          {func(n *corev1.Node) { n.Labels["ns.everynode.dev/other"] = "rev2" }, []string{"chained"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before, after := watchedNode(), watchedNode()
			tt.change(after)
			change := compareNodes(before, after)
			if change.nothing() && len(tt.want) > 0 {
				t.Errorf("nothing changed, want %v to wake", tt.want)
			}
			wanted := map[string]bool{}
			for _, job := range tt.want {
				wanted[job] = true
			}
			for job, object := range jobs {
				if got := !change.nothing() && change.matters(object); got != wanted[job] {
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
		"plain":     mine(v1alpha1.NodeJobSpec{}),
		"publishes": mine(v1alpha1.NodeJobSpec{Publish: []v1alpha1.PublishedResult{{Result: "r", Label: "x.example/fact"}, {Result: "s", Annotation: "x.example/note"}}}),
		"removes":   mine(v1alpha1.NodeJobSpec{RemoveLabels: []string{"x.example/wanted"}}),
		"depends":   mine(v1alpha1.NodeJobSpec{DependsOn: []string{"other"}}),
		"shares":    mine(v1alpha1.NodeJobSpec{Gate: &v1alpha1.GateSpec{Key: "x.example/gate"}}),
		"assumes":   mine(v1alpha1.NodeJobSpec{Nodes: v1alpha1.NodesSpec{AssumeDone: &v1alpha1.AssumeDoneSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"x.example/done": "yes"}}}}}),
		"gated":     mine(v1alpha1.NodeJobSpec{Gate: &v1alpha1.GateSpec{}, Rerun: v1alpha1.RerunSpec{OnReboot: true, PeriodSeconds: 3600}}),
	}
	everyone := []string{"plain", "publishes", "removes", "depends", "shares", "gated", "assumes"}
	gate := corev1.Taint{Key: "x.example/gate", Value: "everynode", Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]struct {
		change func(n *corev1.Node)
		// want are the NodeJobs that wake.
		want []string
	}{
		"a heartbeat":                               {func(n *corev1.Node) { n.ResourceVersion = "2"; n.Status.Conditions[1].LastHeartbeatTime = metav1.Now() }, nil},
		"the taint of a gate is added":              {func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, gate) }, everyone},
		"the taint of a gate is removed":            {func(n *corev1.Node) { n.Spec.Taints = nil }, everyone},
		"it reboots":                                {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "next" }, everyone},
		"an unrelated annotation":                   {func(n *corev1.Node) { n.Annotations["unrelated"] = "y" }, nil},
		"a published label is changed":              {func(n *corev1.Node) { n.Labels["x.example/fact"] = "y" }, []string{"publishes", "depends", "shares"}},
		"a published label is empty":                {func(n *corev1.Node) { n.Labels["x.example/fact"] = "" }, []string{"publishes", "depends", "shares"}},
		"a published annotation is changed":         {func(n *corev1.Node) { n.Annotations["x.example/note"] = "y" }, []string{"publishes"}},
		"the owner of a published label is changed": {func(n *corev1.Node) { n.Annotations["everynode.dev/published"] = published }, []string{"publishes"}},
		"a removed label is added again":            {func(n *corev1.Node) { n.Labels["x.example/wanted"] = "" }, []string{"removes", "depends", "shares"}},
		"a label by which it is assumed to be done": {func(n *corev1.Node) { n.Labels["x.example/done"] = "yes" }, []string{"assumes", "depends", "shares"}},
		"a label that another selects on":           {func(n *corev1.Node) { n.Labels["tier"] = "y" }, []string{"depends", "shares"}},
		"another is done":                           {func(n *corev1.Node) { n.Labels["ns.everynode.dev/other"] = "rev2" }, []string{"depends", "shares"}},
		"the seal of another's record is written":   {func(n *corev1.Node) { n.Labels[record.SealKey("ns.everynode.dev/other")] = "x" }, []string{"depends", "shares"}},
		"another's record is written":               {func(n *corev1.Node) { n.Annotations["ns.everynode.dev/other"] = "{x}" }, []string{"depends"}},
		"another's record is removed":               {func(n *corev1.Node) { delete(n.Annotations, "ns.everynode.dev/other") }, []string{"depends"}},
		"a NodeJob without dependents fails":        {func(n *corev1.Node) { n.Annotations["ns.everynode.dev/job"] = "{x}" }, nil},
		"a NodeJob of another namespace is done":    {func(n *corev1.Node) { n.Annotations["else.everynode.dev/other"] = "{x}" }, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before, after := watchedNode(), watchedNode()
			tt.change(after)
			change := compareNodes(before, after)
			for job, object := range jobs {
				if got, want := !change.nothing() && change.matters(object), slices.Contains(tt.want, job); got != want {
					t.Errorf("NodeJob %q wakes: %v, want %v", job, got, want)
				}
			}
		})
	}
}

func TestAConfigMapWakesTheNodeJobsThatReferenceIt(t *testing.T) {
	job := liveJob(rerunsOnChange(v1alpha1.ContentConfigMap, "mine"), rerunsOnChange(v1alpha1.ContentSecret, "secret"))
	job.Spec.Task.ScriptFrom = &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "script", Key: "sh"}}
	if got := strings.Join(observe.ConfigMapNames(job), " "); got != "script mine" {
		t.Errorf("it reruns on changes of %q", got)
	}
}

// Our own status writes must not trigger a pass, and the annotations of a user must.
func TestNodeJobChanges(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   bool
	}{
		"its status":                   {func(j *v1alpha1.NodeJob) { j.ResourceVersion, j.Status.Revision = "2", "x" }, false},
		"an unrelated annotation":      {func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{"x": "y"} }, false},
		"its spec":                     {func(j *v1alpha1.NodeJob) { j.Generation++ }, true},
		"the manager's finalizer":      {func(j *v1alpha1.NodeJob) { j.Finalizers = append(j.Finalizers, v1alpha1.NodeJobFinalizer) }, true},
		"a retry is requested":         {func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{v1alpha1.RetryAnnotation: "1"} }, true},
		"the retry request is removed": {func(j *v1alpha1.NodeJob) { j.Annotations = nil }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := liveJob()
			after := before.DeepCopy()
			tt.change(after)
			if got := jobChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tt.want {
				t.Errorf("it wakes: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAddedAndDeletedNodesWakeEveryNodeJob(t *testing.T) {
	change := compareNodes(nil, watchedNode())
	if change.nothing() || !change.matters(&v1alpha1.NodeJob{}) {
		t.Error("it wakes none")
	}
}

// Each of 15,000 nodes sends a heartbeat every few seconds: it must cost almost nothing.
func BenchmarkHeartbeat(b *testing.B) {
	before, after := watchedNode(), watchedNode()
	for b.Loop() {
		if !compareNodes(before, after).nothing() {
			b.Fatal("a heartbeat matters")
		}
	}
}
