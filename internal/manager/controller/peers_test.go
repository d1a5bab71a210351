// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
)

func called(name string, changes ...func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
	return liveJob(
		append([]func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Name, j.UID = name, types.UID("uid-of-"+name) }}, changes...)...)
}

func in(namespace string) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Namespace, j.UID = namespace, j.UID+"-in-"+types.UID(namespace) }
}

func needs(names ...string) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Spec.DependsOn = names }
}

func gatedBy(key string) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Spec.Gate = &v1alpha1.GateSpec{Key: key} }
}

func at1(revision string) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Status.Revision, j.Status.ObservedGeneration = revision, 1 }
}

func deleting(j *v1alpha1.NodeJob) { now := at(0); j.DeletionTimestamp = &now }

// observed returns what a pass observes of a NodeJob and its peers.
func observed(t *testing.T, job *v1alpha1.NodeJob, others ...*v1alpha1.NodeJob) plan.Input {
	t.Helper()
	objects := []client.Object{job, watchedNode()}
	for _, other := range others {
		objects = append(objects, other)
	}
	seen, err := newReconciler(t, objects...).observe(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	return seen.input
}

func names(peers []plan.Peer) string {
	var all []string
	for _, p := range peers {
		all = append(all, p.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestPeers(t *testing.T) {
	noExecute := func(j *v1alpha1.NodeJob) { j.Spec.Gate.Effect = v1alpha1.GateNoExecute }
	noSchedule := func(j *v1alpha1.NodeJob) { j.Spec.Gate.Effect = v1alpha1.GateNoSchedule }
	tests := map[string]struct {
		job    *v1alpha1.NodeJob
		others []*v1alpha1.NodeJob
		// wantSharers and wantNeeds are names, wantGates keys.
		wantSharers, wantNeeds, wantGates string
	}{
		"alone":             {job: called("a")},
		"alone with a gate": {job: called("a", gated), wantGates: "ns.everynode.dev/a"},
		"two with different gates": {
			job:       called("a", gated),
			others:    []*v1alpha1.NodeJob{called("b", gated)},
			wantGates: "ns.everynode.dev/a ns.everynode.dev/b",
		},
		"a NodeJob without a gate sees the gates of others": {
			job: called(
				"a",
			),
			others:    []*v1alpha1.NodeJob{called("b", gated), called("c", gatedBy("x.example/k"))},
			wantGates: "ns.everynode.dev/b x.example/k",
		},
		"two with the same gate": {
			job:         called("a", gatedBy("x.example/k")),
			others:      []*v1alpha1.NodeJob{called("b", gatedBy("x.example/k"))},
			wantSharers: "b",
			wantGates:   "x.example/k",
		},
		"the same in another namespace": {
			job:         called("a", gatedBy("x.example/k")),
			others:      []*v1alpha1.NodeJob{called("b", in("other"), gatedBy("x.example/k"))},
			wantSharers: "other/b",
			wantGates:   "x.example/k",
		},
		"of the same name in another": {
			job:         called("a", gatedBy("x.example/k")),
			others:      []*v1alpha1.NodeJob{called("a", in("other"), gatedBy("x.example/k"))},
			wantSharers: "other/a",
			wantGates:   "x.example/k",
		},
		"another effect of the same key": {
			job:       called("a", gatedBy("x.example/k")),
			others:    []*v1alpha1.NodeJob{called("b", gatedBy("x.example/k"), noExecute)},
			wantGates: "x.example/k",
		},
		"the default effect, set explicitly": {
			job:         called("a", gatedBy("x.example/k")),
			others:      []*v1alpha1.NodeJob{called("b", gatedBy("x.example/k"), noSchedule)},
			wantSharers: "b",
			wantGates:   "x.example/k",
		},
		"a terminating NodeJob does not share a gate": {
			job: called(
				"a",
				gatedBy("x.example/k"),
			),
			others:    []*v1alpha1.NodeJob{called("b", gatedBy("x.example/k"), deleting)},
			wantGates: "x.example/k",
		},
		"one that depends on another": {
			job:       called("a", needs("b")),
			others:    []*v1alpha1.NodeJob{called("b"), called("c")},
			wantNeeds: "b",
		},
		"one that another depends on":            {job: called("a"), others: []*v1alpha1.NodeJob{called("b", needs("a"))}},
		"dependencies are in the same namespace": {job: called("a", needs("b")), others: []*v1alpha1.NodeJob{called("b", in("other"))}},
		"a terminating dependency counts": {
			job:       called("a", needs("b")),
			others:    []*v1alpha1.NodeJob{called("b", deleting)},
			wantNeeds: "b",
		},
		"several": {
			job:       called("a", needs("b", "c", "missing")),
			others:    []*v1alpha1.NodeJob{called("b"), called("c")},
			wantNeeds: "b c",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := observed(t, tt.job, tt.others...)
			if diff := cmp.Diff(
				[]string{tt.wantSharers, tt.wantNeeds, tt.wantGates},
				[]string{names(got.GatePeers), names(got.DependsOn), strings.Join(got.GateKeys, " ")},
			); diff != "" {
				t.Errorf("sharers, dependencies, gates (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPeerIsReadFromItsStatus(t *testing.T) {
	no, yes := false, true
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	tests := map[string]struct {
		other *v1alpha1.NodeJob
		want  plan.Peer
	}{
		"its revision":    {called("other", at1("rev")), plan.Peer{Revision: "rev", OnMachineChange: true}},
		"no revision yet": {called("other"), plan.Peer{OnMachineChange: true}},
		"the spec is not observed yet": {
			called("other", at1("rev"), func(j *v1alpha1.NodeJob) { j.Generation = 2 }),
			plan.Peer{OnMachineChange: true},
		},
		"any revision counts": {
			called("other", at1("rev"), func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnRevisionChange = &no }),
			plan.Peer{Revision: "rev", OnMachineChange: true, AnyRevision: true},
		},
		"any revision counts, even an unknown one": {
			called("other", func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnRevisionChange = &no }),
			plan.Peer{OnMachineChange: true, AnyRevision: true},
		},
		"it runs again after a reboot": {
			called("other", at1("rev"), func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnReboot = true }),
			plan.Peer{Revision: "rev", OnMachineChange: true, OnReboot: true},
		},
		"it does not rerun on a new machine": {
			called("other", at1("rev"), func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnMachineChange = &no }),
			plan.Peer{Revision: "rev"},
		},
		"it reruns on a new machine, set explicitly": {
			called(
				"other",
				at1("rev"),
				func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnMachineChange, j.Spec.Rerun.OnRevisionChange = &yes, &yes },
			),
			plan.Peer{Revision: "rev", OnMachineChange: true},
		},
		"it selects some of the nodes": {
			called("other", at1("rev"), func(j *v1alpha1.NodeJob) { j.Spec.Nodes.Selector = selector }),
			plan.Peer{Revision: "rev", OnMachineChange: true, Selector: selector},
		},
		"it is for Windows": {called("other", at1("rev"), func(j *v1alpha1.NodeJob) {
			j.Spec.Task = v1alpha1.TaskSpec{
				Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Windows}}},
			}
		}), plan.Peer{Revision: "rev", OnMachineChange: true, OS: corev1.Windows}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.want.Name, tt.want.Key = "other", "ns.everynode.dev/other"
			if tt.want.OS == "" {
				tt.want.OS = corev1.Linux
			}
			got := observed(t, called("a", needs("other")), tt.other)
			if diff := cmp.Diff([]plan.Peer{tt.want}, got.DependsOn); diff != "" {
				t.Errorf("peer (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]record.NodeRecord{{Label: "rev", Altered: true, Present: true}}, got.Nodes[0].OnPeers); diff != "" {
				t.Errorf("what the node stores for it (-want +got):\n%s", diff)
			}
		})
	}
}

// The manager must not forget its own writes while the cache is behind, or a node would start with a
// previous revision of its dependency.
func TestAPeerIncludesOurLastWrite(t *testing.T) {
	stale := called("other", at1("old"))
	behind := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, l, opts...)
		if jobs, ok := l.(*v1alpha1.NodeJobList); ok {
			for i := range jobs.Items {
				if jobs.Items[i].Name == "other" {
					jobs.Items[i] = *stale
				}
			}
		}
		return err
	}}
	job := called("a", needs("other"))
	r := newFaultyReconciler(t, behind, job, stale.DeepCopy())
	stale.ResourceVersion = "5"
	written := stale.DeepCopy()
	written.ResourceVersion, written.Status.Revision = "6", "new"
	r.written.rememberJob(written)
	seen, err := r.observe(t.Context(), job, nil)
	if err != nil || len(seen.input.DependsOn) != 1 || seen.input.DependsOn[0].Revision != "new" {
		t.Errorf("it sees %+v (%v), want the revision that was written", seen.input.DependsOn, err)
	}
}

func TestDependenciesThatCannotBeMet(t *testing.T) {
	const remedy = ". Take one of them out of another's dependsOn"
	const circle = "NodeJobs depend on each other in a circle by spec.dependsOn: "
	long := func(name string) string { return name + strings.Repeat("x", 62) }
	var all []*v1alpha1.NodeJob
	for i := range 26 {
		all = append(all, called(long(string(rune('a'+i))), needs(long(string(rune('a'+(i+1)%26))))))
	}
	tests := map[string]struct {
		job    *v1alpha1.NodeJob
		others []*v1alpha1.NodeJob
		// want is the reason and the message; "" for no obstacle.
		want string
	}{
		"none":                   {job: called("a")},
		"an existing dependency": {job: called("a", needs("b")), others: []*v1alpha1.NodeJob{called("b")}},
		"a chain":                {job: called("a", needs("b")), others: []*v1alpha1.NodeJob{called("b", needs("c")), called("c")}},
		"a diamond": {
			job:    called("a", needs("b", "c")),
			others: []*v1alpha1.NodeJob{called("b", needs("d")), called("c", needs("d")), called("d")},
		},
		"a cycle of others": {
			job:    called("a", needs("b")),
			others: []*v1alpha1.NodeJob{called("b", needs("c")), called("c", needs("b"))},
		},
		"a missing dependency": {
			job:  called("a", needs("b")),
			want: "DependencyNotFound: spec.dependsOn: NodeJob ns/b does not exist. Create it, or remove it from spec.dependsOn; this NodeJob then continues automatically",
		},
		"a dependency in another namespace": {
			job:    called("a", needs("b")),
			others: []*v1alpha1.NodeJob{called("b", in("other"))},
			want:   "DependencyNotFound: spec.dependsOn: NodeJob ns/b does not exist. Create it, or remove it from spec.dependsOn; this NodeJob then continues automatically",
		},
		"an invalid name": {
			job:  called("a", needs("b\x1b[2J")),
			want: `DependencyNotFound: spec.dependsOn: NodeJob ns/b\x1b[2J does not exist. Create it, or remove it from spec.dependsOn; this NodeJob then continues automatically`,
		},
		"a cycle of two": {
			job:    called("a", needs("b")),
			others: []*v1alpha1.NodeJob{called("b", needs("a"))},
			want:   "DependencyCycle: " + circle + "a -> b -> a" + remedy,
		},
		"a cycle of three": {
			job:    called("b", needs("c")),
			others: []*v1alpha1.NodeJob{called("a", needs("b")), called("c", needs("a"))},
			want:   "DependencyCycle: " + circle + "b -> c -> a -> b" + remedy,
		},
		"a cycle is reported before a missing dependency": {
			job:    called("a", needs("missing", "b")),
			others: []*v1alpha1.NodeJob{called("b", needs("a"))},
			want:   "DependencyCycle: " + circle + "a -> b -> a" + remedy,
		},
		"the same names in another namespace are not a cycle": {
			job:    called("a", needs("b")),
			others: []*v1alpha1.NodeJob{called("b"), called("b", in("other"), needs("a"))},
		},
		// The API rejects this.
		"itself": {job: called("a", needs("a")), want: "DependencyCycle: " + circle + "a -> a" + remedy},
		"a terminating NodeJob in a cycle has no obstacle": {job: called("a", needs("b"), deleting)},
		"a cycle of long names": {job: all[0], others: all[1:],
			want: "DependencyCycle: " + circle + outcome.CleanHead(circleOf(all), 512) + remedy},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if o := observed(t, tt.job, tt.others...).Obstacle; o != nil {
				got = o.Reason + ": " + o.Message
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("obstacle (-want +got):\n%s", diff)
			}
		})
	}
}

func circleOf(jobs []*v1alpha1.NodeJob) string {
	var names []string
	for _, job := range append(slices.Clone(jobs), jobs[0]) {
		names = append(names, job.Name)
	}
	return strings.Join(names, " -> ")
}

// A problem of the NodeJob itself is reported before that of another NodeJob.
func TestAnObstacleOfItsOwnComesBeforeThatOfADependency(t *testing.T) {
	job := called("a", needs("missing"), func(j *v1alpha1.NodeJob) { j.Spec.Task.Script = "\x00" })
	if o := observed(t, job).Obstacle; o == nil || o.Reason != v1alpha1.ReasonInvalidScript {
		t.Errorf("the obstacle is %+v", o)
	}
}

func TestOnlyGatedNodeJobsSeeTheGap(t *testing.T) {
	if gap := observed(t, called("a")).GateWarning; gap != "" {
		t.Errorf("without a gate: %q", gap)
	}
	if gap := observed(t, called("a", gated)).GateWarning; gap == "" {
		t.Error("with a gate there is none")
	}
}

func TestTheManagersOwnNodeIsSeen(t *testing.T) {
	job := called("a")
	r := newReconciler(t, job, watchedNode())
	r.Own.Node = "n"
	if seen, err := r.observe(t.Context(), job, nil); err != nil || seen.input.OwnNode != "n" {
		t.Errorf("it is %q (%v)", seen.input.OwnNode, err)
	}
}
