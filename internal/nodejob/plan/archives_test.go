// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

func archived(location string) func(*Pod) { return func(p *Pod) { p.Archive = location } }

func stored(bytes int64) func(*Exit) {
	return func(e *Exit) { e.Archive = &outcome.Archive{Stored: true, Bytes: bytes} }
}

func runs(phase task.Phase) func(*Pod) { return func(p *Pod) { p.Runs = phase } }

func TestTheRecordSaysWhereTheOutputIs(t *testing.T) {
	ofTask := record.Archive{Phase: "task", Location: "s3://a", Stored: true, Bytes: 5}
	before := func(r *record.Record) { r.Archives = record.Archives{ofTask} }
	tests := map[string]struct {
		node Node
		pod  Pod
		want record.Archives
	}{
		"a success": {
			newNode("n"),
			newPod(newNode("n"), archived("s3://a"), exited(0, stored(5))),
			record.Archives{ofTask},
		},
		"a failure": {
			newNode("n"),
			newPod(newNode("n"), archived("s3://a"), exited(3, stored(5))),
			record.Archives{ofTask},
		},
		"a failure after another failure": {
			newNode("n", recorded(record.Failed, before)),
			newPod(newNode("n"), archived("s3://b"), exited(3, stored(6))),
			record.Archives{{Phase: "task", Location: "s3://b", Stored: true, Bytes: 6}},
		},
		"an upload that failed": {
			newNode("n"), newPod(newNode("n"), archived("s3://a"), exited(0, func(e *Exit) { e.Archive = outcome.NotStored("gone") })),
			record.Archives{{Phase: "task", Location: "s3://a", Error: "gone"}},
		},
		"a runner that was killed": {
			newNode(
				"n",
			),
			newPod(newNode("n"), archived("s3://a"), exited(137)),
			record.Archives{{Phase: "task", Location: "s3://a", Error: record.NotReported}},
		},
		"a pod whose container is lost": {
			newNode("n"), newPod(newNode("n"), archived("s3://a"), exited(137, stored(5), func(e *Exit) { e.Lost = true })),
			record.Archives{{Phase: "task", Location: "s3://a", Error: record.NotReported}},
		},
		"an attempt that is not archived":                   {newNode("n"), newPod(newNode("n"), exited(0)), nil},
		"an attempt that is not archived, and claims to be": {newNode("n"), newPod(newNode("n"), exited(0, stored(5))), nil},
		"an attempt that is not archived after one that was": {
			newNode("n", recorded(record.Failed, before)),
			newPod(newNode("n"), exited(3)),
			nil,
		},
		"a check after a reboot keeps the archive of the task": {
			newNode(
				"n",
				recorded(record.Rebooting, before),
			),
			newPod(newNode("n"), runs(task.Check), archived("s3://b"), exited(0, stored(6))),
			record.Archives{ofTask, {Phase: "check", Location: "s3://b", Stored: true, Bytes: 6}},
		},
		"a rollback keeps the archive of the task": {
			newNode("n", recorded(record.Failed, before)), newPod(newNode("n"), runs(task.Rollback), archived("s3://b"), exited(1)),
			record.Archives{ofTask, {Phase: "rollback", Location: "s3://b", Error: record.NotReported}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, action := range Next(see(newJob(), []Node{tt.node}, tt.pod)).Actions {
				if a, ok := action.(Record); ok {
					if diff := cmp.Diff(tt.want, a.Record.Archives); diff != "" {
						t.Errorf("archives (-want +got):\n%s", diff)
					}
					return
				}
			}
			t.Error("nothing is recorded")
		})
	}
}

// TestAnUploadHasTimeAfterTheTimeLimit : a script that uses all of its time has succeeded, and its output is uploaded after
// that.
func TestAnUploadHasTimeAfterTheTimeLimit(t *testing.T) {
	archives := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Task.Output.Archive = v1alpha1.ArchiveAlways })
	for name, tt := range map[string]struct {
		job  *v1alpha1.NodeJob
		pod  Pod
		want time.Duration
	}{
		"with an archive":    {archives, newPod(newNode("n")), 60*time.Second + task.MaxUploadTime + DeadlineSlack},
		"without an archive": {newJob(), newPod(newNode("n")), 60*time.Second + DeadlineSlack},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(see(tt.job, []Node{newNode("n")}, tt.pod))
			if got := p.Nodes[0].Until; !got.Equal(tt.pod.Created.Add(tt.want)) {
				t.Errorf("it runs until %v at most, want %v after %v", got, tt.want, tt.pod.Created)
			}
		})
	}
}

// TestWithoutAnArchiveOnlyNewRunsWait : a rollback must run although its output cannot be archived.
func TestWithoutAnArchiveOnlyNewRunsWait(t *testing.T) {
	job := newJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Output.Archive = v1alpha1.ArchiveAlways
		j.Spec.Retry.Limit = new(int32(0))
		j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	})
	in := see(job, []Node{newNode("failed", recorded(record.Failed)), newNode("new")})
	in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonArchiveNotConfigured, Message: "no archive"}
	p := Next(in)
	if diff := cmp.Diff([]string{"start rollback 1 of rev on failed"}, told(p)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if got := p.Nodes[1]; got.State != Waiting || got.Reason != v1alpha1.ReasonArchiveNotConfigured || got.Message != "no archive" {
		t.Errorf("the other node is %+v", got)
	}
}
