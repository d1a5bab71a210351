// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func TestARunThatCannotBegin(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	w.node("begin-1")
	w.node("begin-2")
	lost := w.node("begin-3")
	lost.Status.Conditions[0].Status = corev1.ConditionUnknown
	must(t, admin.Status().Update(w.Ctx, lost))
	script := filepath.Join(t.TempDir(), "script")
	must(t, os.WriteFile(script, []byte("a\x00b"), 0o600))
	saved := filepath.Join(t.TempDir(), "index.json")
	must(t, os.WriteFile(saved, []byte(`{"nodes":[{"node":"begin-2","outcome":"Failed"}]}`), 0o600))
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"no nodes":              {[]string{"run", "--", "true"}, cmdutil.ExitUsage, "on which nodes?"},
		"two ways to name them": {[]string{"run", "begin-1", "--all", "--", "true"}, cmdutil.ExitUsage, "only one of them"},
		"no command":            {[]string{"run", "begin-1"}, cmdutil.ExitUsage, "run what?"},
		"an unknown node": {
			[]string{"run", "begin-9", "--", "true"},
			cmdutil.ExitNotFound,
			"there is no node begin-9; there are begin-1",
		},
		"labels without a node": {
			[]string{"run", "-l", "no=such", "--", "true"},
			cmdutil.ExitNotFound,
			"no node has the labels -l no=such",
		},
		"an invalid selector": {[]string{"run", "-l", "a in b", "--", "true"}, cmdutil.ExitUsage, "is no selector"},
		"two nodes, without a terminal": {
			[]string{"run", "begin-1", "begin-2", "--", "true"},
			cmdutil.ExitDeclined,
			"To confirm, give --yes",
		},
		"an unreachable node": {
			[]string{"run", "begin-3", "--", "true"},
			cmdutil.ExitNodesFailed,
			"nothing was run: begin-3: it has been unreachable since",
		},
		"an argument that is not UTF-8": {
			[]string{"run", "begin-1", "--", "echo", "a\xff"},
			cmdutil.ExitUsage,
			"argument 1 of the command is no UTF-8",
		},
		"a script that is not UTF-8": {[]string{"run", "begin-1", "-f", script}, cmdutil.ExitUsage, "is no text in UTF-8"},
		"a missing script":           {[]string{"run", "begin-1", "-f", script + "x"}, cmdutil.ExitUsage, "no such file"},
		"half a percent": {
			[]string{"run", "begin-1", "--max-concurrent", "0.5%", "--", "true"},
			cmdutil.ExitUsage,
			"--max-concurrent 0.5%: give a number from 1",
		},
		"an empty limit": {[]string{"run", "--all", "--limit", "", "--", "true"}, cmdutil.ExitUsage, "--limit is empty"},
		"a limit of no node": {
			[]string{"run", "begin-1", "--limit", "x*,@" + saved, "--", "true"},
			cmdutil.ExitNotFound,
			"leaves no node; selected: begin-1",
		},
		"an empty directory": {[]string{"run", "begin-1", "--save", "", "--", "true"}, cmdutil.ExitUsage, "--save is empty"},
		"a timeout of nothing": {
			[]string{"run", "begin-1", "--timeout", "0s", "--", "true"},
			cmdutil.ExitUsage,
			"--timeout 0s: give whole seconds, from 1s",
		},
		"an invalid name": {[]string{"run", "begin-1", "--name", "No", "--", "true"}, cmdutil.ExitError, "Invalid value"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := w.everynode(config, tt.args...); got.code != tt.code || !strings.Contains(got.err, tt.want) || got.out != "" {
				t.Errorf("%+v", got)
			}
		})
	}
	var jobs v1alpha1.NodeJobList
	must(t, admin.List(w.Ctx, &jobs, client.InNamespace(w.Namespace)))
	if len(jobs.Items) > 0 {
		t.Errorf("%s was created nevertheless", jobs.Items[0].Name)
	}
}

// TestARunWithoutLogs checks that a run shows the records if the logs may not be read or the pod is already deleted.
func TestARunWithoutLogs(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	startManager(t, noFaults)
	w.node("record-1")
	w.node("record-2")
	ended := make(chan told)
	go func() {
		ended <- w.everynode(config, "run", "record-1", "record-2", "--yes", "--name", "logless", "--max-concurrent", "100%", "--", "true")
	}()
	w.end(w.podOn("record-1"), 0, `{"exitCode":0,"message":"all of it\nin two lines"}`)
	w.end(w.podOn("record-2"), 3, `{"exitCode":3,"reason":"TaskFailed","message":"…only the end"}`)
	got := <-ended
	if got.code != cmdutil.ExitNodesFailed || got.out != "record-1: all of it\nrecord-1: in two lines\nrecord-2: …only the end\n" {
		t.Errorf("%+v", got)
	}
	wantText(t, got.err, "1 of 2 succeeded, 1 failed", "record-2: the log could not be read", "at most 1024 bytes")
	if !w.live("logless").Spec.Suspend {
		t.Error("the run has ended, and its NodeJob is not suspended")
	}
}

// TestARunSavesItsOutput checks the files of --save. There is no kubelet, so the output comes from the records.
func TestARunSavesItsOutput(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	startManager(t, noFaults)
	w.node("save-1")
	w.node("save-2")
	dir := filepath.Join(t.TempDir(), "saved")
	args := []string{"run", "save-1", "save-2", "--yes", "--save", dir, "--max-concurrent", "100%", "--", "true"}
	ended := make(chan told)
	go func() { ended <- w.everynode(config, args...) }()
	w.end(w.podOn("save-1"), 0, `{"exitCode":0,"message":"all of it"}`)
	w.end(w.podOn("save-2"), 3, `{"exitCode":3,"reason":"TaskFailed","message":"…only the end"}`)
	if got := <-ended; got.code != cmdutil.ExitNodesFailed || !strings.Contains(got.err, "The output is saved in "+dir) {
		t.Errorf("%+v", got)
	}
	for file, want := range map[string]string{"save-1.txt": "all of it\n", "save-2.txt": "…only the end\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			t.Errorf("%s has %q (%v), want %q", file, got, err, want)
		}
	}
	var index struct {
		Nodes []struct {
			Node, Outcome, File string
			ExitCode            *int
			Truncated           bool
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, "index.json"))
	must(t, err)
	must(t, json.Unmarshal(content, &index))
	if n := index.Nodes; len(n) != 2 || n[0].Outcome != "Succeeded" || n[0].Truncated || n[1].Outcome != "Failed" || n[1].ExitCode == nil ||
		*n[1].ExitCode != 3 ||
		!n[1].Truncated {
		t.Errorf("the index is %s", content)
	}
	if got := w.everynode(config, args...); got.code != cmdutil.ExitUsage || !strings.Contains(got.err, "is not empty: name a new one") {
		t.Errorf("with the same directory: %+v", got)
	}
}

// TestARunWithoutAManager checks the message that no manager processes the run, and that the command can be stopped.
func TestARunWithoutAManager(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	w.node("unmanaged-1")
	ended := make(chan told)
	go func() { ended <- w.everynode(config, "run", "unmanaged-1", "--name", "unmanaged", "--", "true") }()
	job := &v1alpha1.NodeJob{}
	w.Eventually("the NodeJob is there", func() error {
		return admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "unmanaged"}, job)
	})
	select {
	case got := <-ended:
		t.Fatalf("it has ended: %+v", got)
	case <-time.After(8 * time.Second): // it says so after five
	}
	must(t, admin.Delete(w.Ctx, job))
	got := <-ended
	if got.code != cmdutil.ExitGone {
		t.Errorf("exit code %d", got.code)
	}
	wantText(
		t,
		got.err,
		"the manager has not observed the NodeJob yet; check that it is running: kubectl everynode version",
		"the NodeJob was deleted",
	)
	if err := admin.Get(w.Ctx, client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}
}

// TestARunTakesNoOldRecordForItsOwn covers retained records of a deleted NodeJob with the same name.
func TestARunTakesNoOldRecordForItsOwn(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	startManager(t, noFaults)
	w.node("old-1")
	w.node("old-2")
	job := w.job("old", func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Names, s.DeletionPolicy = []string{"old-1"}, v1alpha1.DeletionRetain
	})
	w.end(w.podOn("old-1"), 0, "")
	w.Done("old", "old-1")
	args := []string{"run", "old-1", "old-2", "--yes", "--max-concurrent", "100%", "--name", "old", "--", "true"}
	got := w.everynode(config, args...)
	wantTold(
		t,
		"run while it is there",
		told{cmdutil.ExitUsage, "", "error: there is a NodeJob old in namespace NAMESPACE already: give another --name, or none\n"},
		got,
	)
	must(t, admin.Delete(w.Ctx, job))
	w.gone(job)
	got = w.everynode(config, args...)
	const key = "NAMESPACE.everynode.dev/old"
	wantTold(
		t,
		"run when it is gone",
		told{
			cmdutil.ExitUsage,
			"",
			"error: 1 node still carries the record of an earlier NodeJob NAMESPACE/old, as deletionPolicy Retain leaves it (label and annotation " + key + "): old-1. " +
				"It would be taken for that of this run. Give another --name, or none; or remove the records: kubectl label nodes --all " + key + "- " + record.SealKey(
				key,
			) + "- && kubectl annotate nodes --all " + key + "-\n",
		},
		got,
	)
	if err := admin.Get(w.Ctx, client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) {
		t.Errorf("it was created nevertheless: %v", err)
	}
	// A node without a record is not affected. The command in the message removes the record.
	must(t, admin.Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old-1"}},
		mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%[1]q:null,%[2]q:null},"annotations":{%[1]q:null}}}`,
			v1alpha1.RecordKey(w.Namespace, "old"), record.SealKey(v1alpha1.RecordKey(w.Namespace, "old"))))))
	ended := make(chan told)
	go func() { ended <- w.everynode(config, args...) }()
	for _, node := range []string{"old-1", "old-2"} {
		w.end(w.podOn(node), 0, "")
	}
	if got := <-ended; got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// TestAnotherNodeJobOfTheSameNameIsNotTouched by the writes of a run: they contain the UID, which the API server checks.
func TestAnotherNodeJobOfTheSameNameIsNotTouched(t *testing.T) {
	w := newWorld(t)
	job := w.job("named", nil)
	if err := admin.Patch(w.Ctx, w.draft("named"), mergePatch(`{"metadata":{"uid":"another"},"spec":{"suspend":true}}`)); err == nil {
		t.Error("a patch with the UID of another one was carried out")
	}
	if err := admin.Delete(w.Ctx, job, client.Preconditions{UID: new(types.UID("another"))}); !apierrors.IsConflict(err) {
		t.Errorf("deleting one with the UID of another: %v", err)
	}
	if live := w.live("named"); live.Spec.Suspend || !live.DeletionTimestamp.IsZero() {
		t.Errorf("it was changed: %+v", live)
	}
	must(t, admin.Patch(w.Ctx, w.draft("named"), mergePatch(fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"suspend":true}}`, job.UID))))
	if !w.live("named").Spec.Suspend {
		t.Error("a patch with its own UID was not carried out")
	}
}
