// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/observe"
)

const (
	namespace = "default"
	revision  = "7d9f2c41"
)

// fleet is a cluster in the middle of rollouts: its nodes, with the records that the manager writes.
type fleet struct {
	t     *testing.T
	nodes []*corev1.Node
	jobs  []*v1alpha1.NodeJob
	pods  []corev1.Pod
	now   time.Time
}

// newFleet creates nodes in three zones and two pools.
func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{t: t, now: time.Now().Truncate(time.Second)}
	for i := range n {
		node := newNode(fmt.Sprintf("node-%d", i+1), map[string]string{
			"topology.kubernetes.io/zone": fmt.Sprintf(
				"eu-west-1%c",
				'a'+i%3,
			),
			"karpenter.sh/nodepool":            []string{"general", "general", "gpu"}[i%7%3],
			"kubernetes.io/arch":               "amd64",
			"kubernetes.io/os":                 "linux",
			"node.kubernetes.io/instance-type": []string{"m7i.2xlarge", "m7i.4xlarge", "g6.4xlarge"}[i%7%3],
		})
		f.nodes = append(f.nodes, node)
	}
	return f
}

// job adds a NodeJob whose nodes have these outcomes: the i-th byte is d for done, f for failed, n for a no in an audit, y for
// done and drifted since, and anything else for not run yet.
func (f *fleet) job(name, script, outcomes string, change func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
	f.t.Helper()
	job := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.NodeJobSpec{
			Nodes: v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "example.com/none", Operator: metav1.LabelSelectorOpDoesNotExist},
				},
			}},
			Task: v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: script}},
		},
	}
	if change != nil {
		change(job)
	}
	f.jobs = append(f.jobs, job)
	key := v1alpha1.RecordKey(namespace, name)
	for i, node := range f.nodes[:min(len(f.nodes), len(outcomes))] {
		ended := f.now.Add(-time.Duration((len(outcomes)-i)*3000/len(outcomes)) * time.Second)
		r := record.Record{
			Revision:   revision,
			Outcome:    record.Succeeded,
			Attempts:   1,
			StartedAt:  ended.Add(-4 * time.Second),
			FinishedAt: ended,
			RecordedAt: ended,
			ExitCode:   new(int32(0)),
			Message:    "vm.max_map_count = 262144\n",
			BootID:     "boot-" + node.Name,
			MachineID:  "machine-" + node.Name,
		}
		switch outcomes[i] {
		case 'd':
			r.Label, node.Labels[key] = revision, revision
		case 'n':
			r.Label, node.Labels[key] = revision, revision
			r.CheckBefore, r.Assumed, r.NeverStarted, r.Attempts = record.AnswerNo, true, true, 0
			r.Asked = record.Answers{}.With(record.QuestionCheck, record.Asked{}.Next(record.Asked{
				Answer: record.AnswerNo, At: ended, ExitCode: new(int32(1)), Message: "PermitRootLogin is yes\n",
			}))
		case 'y':
			r.Label, node.Labels[key] = revision, revision
			r.Asked = record.Answers{}.With(record.QuestionCheck, record.Asked{}.Next(record.Asked{
				Answer: record.AnswerNo, At: ended.Add(time.Second), ExitCode: new(int32(1)), Message: "it is 65530\n",
			}))
		case 'f':
			r.Outcome, r.ExitCode, r.Reason, r.Attempts = record.Failed, new(int32(1)), "TaskFailed", 4
			r.Message = "sysctl: setting key \"vm.max_map_count\": Read-only file system\n"
		default:
			continue
		}
		record.SetOn(node, key, r)
	}
	return job
}

// create creates the objects, and then the status that the manager would write.
func (f *fleet) create() {
	f.t.Helper()
	group, _ := errgroup.WithContext(f.t.Context())
	group.SetLimit(24)
	for _, node := range f.nodes {
		group.Go(func() error {
			ready(node)
			return admin.Create(f.t.Context(), node)
		})
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		removeAll(f.t)
	})
	for _, job := range f.jobs {
		create(f.t, job, func() { job.Status.Revision, job.Status.ObservedGeneration = revision, job.Generation })
	}
}

// run creates the pod of an attempt that runs on the i-th node.
func (f *fleet) run(job *v1alpha1.NodeJob, i int) *corev1.Pod {
	f.t.Helper()
	node := f.nodes[i]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      job.Name + "-" + node.Name,
			Labels: map[string]string{
				v1alpha1.NodeJobLabel:  job.Name,
				v1alpha1.RevisionLabel: revision,
				v1alpha1.PhaseLabel:    "task",
			},
			Annotations:     map[string]string{v1alpha1.NodeUIDAnnotation: string(node.UID), v1alpha1.AttemptAnnotation: "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, v1alpha1.GroupVersion.WithKind("NodeJob"))},
		},
		Spec: corev1.PodSpec{
			NodeName:      node.Name,
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "task", Image: "registry.local/task"}},
		},
	}
	create(f.t, pod, func() {
		pod.Status.Phase = corev1.PodRunning
		started := metav1.NewTime(time.Now())
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{
				Name:  "task",
				Image: "registry.local/task",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
			},
		}
	})
	f.pods = append(f.pods, *pod)
	return pod
}

// report writes the status of each NodeJob that the manager would write.
func (f *fleet) report() {
	f.t.Helper()
	cluster := observe.Cluster{Jobs: f.jobs, Now: time.Now()}
	for _, node := range f.nodes {
		cluster.Nodes = append(cluster.Nodes, observe.Node(node))
	}
	for _, job := range f.jobs {
		var pods []corev1.Pod
		for _, pod := range f.pods {
			if pod.Labels[v1alpha1.NodeJobLabel] == job.Name {
				pods = append(pods, pod)
			}
		}
		for range 5 { // each plan goes one step further
			status := plan.Next(cluster.Input(job, pods)).Status
			status.Revision, status.ObservedGeneration = revision, job.Generation
			job.Status = status
		}
		if err := admin.Status().Update(f.t.Context(), job); err != nil {
			f.t.Fatal(err)
		}
	}
}

// finish records that the task has succeeded on the i-th node.
func (f *fleet) finish(job *v1alpha1.NodeJob, i int) {
	f.t.Helper()
	node := f.nodes[i]
	before := node.DeepCopy()
	key := v1alpha1.RecordKey(namespace, job.Name)
	now := time.Now().Truncate(time.Second)
	record.SetOn(node, key, record.Record{
		Revision:   revision,
		Outcome:    record.Succeeded,
		Attempts:   1,
		StartedAt:  now,
		FinishedAt: now,
		RecordedAt: now,
		ExitCode:   new(int32(0)),
		BootID:     "boot-" + node.Name,
		MachineID:  "machine-" + node.Name,
		Label:      revision,
	})
	node.Labels[key] = revision
	if err := admin.Patch(f.t.Context(), node, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}

// outcomes is a rollout over n nodes: most are done, some have failed, and the rest waits.
func outcomes(n, done int, failed ...int) string {
	all := []byte(strings.Repeat("d", done) + strings.Repeat(".", n-done))
	for _, i := range failed {
		all[i] = 'f'
	}
	return string(all)
}

// rolling returns a fleet of n nodes with four NodeJobs that are at different points.
func rolling(t *testing.T, n int) *fleet {
	t.Helper()
	return rollingBeside(t, n, 0)
}

// rollingBeside is rolling with more NodeJobs, which are done on all nodes.
func rollingBeside(t *testing.T, n, more int) *fleet {
	t.Helper()
	f := newFleet(t, n)
	f.job("containerd-mirror", "true", outcomes(n, n), nil)
	f.job("kernel-modules", "true", outcomes(n, n*7/10), func(j *v1alpha1.NodeJob) {
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{
			{Name: "canary", Nodes: percent("1")},
			{Name: "quarter", Nodes: percent("25%")},
			{Name: "all"},
		}
		j.Spec.Rollout.MaxConcurrent = percent("20%")
	})
	var failed []int
	for i := range max(n/70, 1) {
		failed = append(failed, n/2-1-i*max(n/150, 1))
	}
	slices.Sort(failed)
	f.job("max-map-count", "sysctl -w vm.max_map_count=262144", outcomes(n, n/2, failed...), func(j *v1alpha1.NodeJob) {
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{
			{Name: "canary", Nodes: percent("1")},
			{Name: "tenth", Nodes: percent("10%")},
			{Name: "all"},
		}
	})
	for i := range more {
		f.job(fmt.Sprintf("done-%d", i), "true", outcomes(n, n), nil)
	}
	f.create()
	for i := range min(max(n/20, 1), 12) {
		f.run(f.jobs[1], n*7/10+i)
	}
	f.jobs[2].Status.Rollout = &v1alpha1.RolloutStatus{Step: "all", StepStartedAt: metav1.NewTime(f.now.Add(-20 * time.Minute))}
	f.report()
	return f
}
