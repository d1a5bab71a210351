// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

func TestFileNamesOfNodes(t *testing.T) {
	long := strings.Repeat("a", maxNodeFile)
	tests := map[string]struct {
		node, want string
		hashed     bool
	}{
		"a name":                               {node: "ip-10-0-0-7.ec2.internal", want: "ip-10-0-0-7.ec2.internal.txt"},
		"a long name":                          {node: long, want: long + ".txt"},
		"a name that is too long for a file":   {node: long + "a", hashed: true},
		"the name of the summary":              {node: "summary", hashed: true},
		"the name of the index":                {node: "index", want: "index.txt"},
		"a path to another directory":          {node: "../../etc/passwd", hashed: true},
		"a path":                               {node: "/etc/passwd", hashed: true},
		"a hidden file":                        {node: ".profile", hashed: true},
		"a name that moves the cursor":         {node: "a\x1b[2J", hashed: true},
		"a name that equals another in a file": {node: "Node-1", hashed: true},
		"no name":                              {node: "", hashed: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := fileName(tt.node)
			if !tt.hashed && got != tt.want {
				t.Errorf("the file is %q, want %q", got, tt.want)
			}
			if tt.hashed && (len(got) != len("_.txt")+64 || !strings.HasPrefix(got, "_") || got == fileName(tt.node+"x")) {
				t.Errorf("the file is %q, want a hash", got)
			}
		})
	}
}

func TestSaveNeedsAnEmptyDirectory(t *testing.T) {
	tests := map[string]struct {
		dir     func(base string) string
		created bool
		wantErr string
	}{
		"none":         {dir: func(string) string { return "" }},
		"a new one":    {created: true, dir: func(base string) string { return filepath.Join(base, "new", "er") }},
		"an empty one": {dir: func(base string) string { return base }},
		"one with a file": {
			wantErr: "is not empty: name a new one, or remove what it contains",
			dir:     func(base string) string { return write(t, base, "index.json") },
		},
		"one with a hidden one": {wantErr: "is not empty", dir: func(base string) string { return write(t, base, ".x") }},
		"a file": {
			wantErr: "reading the directory of --save: ",
			dir:     func(base string) string { return filepath.Join(write(t, base, "file"), "file") },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := tt.dir(t.TempDir())
			err := checkSaveDir(dir)
			if tt.wantErr != "" {
				if cmdutil.CodeOf(err) != cmdutil.ExitUsage || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error %v, want %q", err, tt.wantErr)
				}
				if _, err := newSaver(dir); err == nil {
					t.Error("it is used")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s, err := newSaver(dir)
			if err != nil || (s == nil) != (dir == "") {
				t.Fatal(s, err)
			}
			defer s.close()
			if tt.created && modeOf(t, dir) != 0o700 {
				t.Errorf("its mode is %o", modeOf(t, dir))
			}
		})
	}
}

func write(t *testing.T, dir, file string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// savedFiles returns the content of all files in a directory, which only the user may read.
func savedFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(content)
		if mode := modeOf(t, filepath.Join(dir, entry.Name())); mode != 0o600 {
			t.Errorf("the mode of %s is %o", entry.Name(), mode)
		}
	}
	return files
}

// savingRun is a run of a command on two nodes, whose pods are known.
func savingRun(t *testing.T) (r *running, dir string) {
	t.Helper()
	r = newRun(t, &jobServer{uid: "uid-of-j"})
	dir = filepath.Join(t.TempDir(), "saved")
	saved, err := newSaver(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(saved.close)
	r.saved, r.command, r.all = saved, []string{"echo", "\u009b2J"}, true
	withPods(r)
	r.saveIndex(false)
	return r, dir
}

// withPods is a run whose pods were observed.
func withPods(r *running) {
	for i := range r.view.Nodes {
		uid := types.UID("uid-of-" + r.view.Nodes[i].Name)
		r.pods[uid], r.nodes[i].last = r.nodes[i], uid
	}
}

func readIndex(t *testing.T, content string) (index savedRun) {
	t.Helper()
	if err := json.Unmarshal([]byte(content), &index); err != nil {
		t.Fatal(err)
	}
	return index
}

func TestOutputIsSavedAsItArrives(t *testing.T) {
	r, dir := savingRun(t)
	if index := readIndex(
		t,
		savedFiles(t, dir)[indexFile],
	); index.FinishedAt != nil || len(index.Nodes) != 2 ||
		index.Nodes[0].Outcome != "Waiting" {
		t.Errorf("at the beginning the index is %+v", index)
	}
	r.observeLog(logPart{pod: "uid-of-node-1", data: []byte("a\x1b[2J\xff\r\nb")})
	if got := savedFiles(t, dir)["node-1.txt"]; got != "a\x1b[2J\xff\r\nb" {
		t.Errorf("while the command runs, the file has %q", got)
	}
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	r.observeLog(logPart{pod: "uid-of-node-1", data: []byte("c\n")})
	r.observeLog(logPart{pod: "uid-of-node-1", end: true})
	r.nodes[0].record = &record.Record{
		Outcome:    record.Failed,
		Attempts:   1,
		ExitCode:   new(int32(3)),
		Reason:     "TaskFailed",
		Message:    "c",
		PodUID:     "uid-of-node-1",
		StartedAt:  at,
		FinishedAt: at.Add(90 * time.Second),
	}
	r.view.Nodes[0].State, r.view.Nodes[0].Reason, r.view.Nodes[0].Said = view.RunFailed, "TaskFailed", "c"
	r.view.Nodes[1].State = view.RunRunning
	r.observeLog(logPart{pod: "uid-of-node-2", data: []byte("begun\n")})

	if err := r.end(t.Context(), endDetached); cmdutil.CodeOf(err) != cmdutil.ExitDetached {
		t.Error(err)
	}
	files := savedFiles(t, dir)
	index := readIndex(t, files[indexFile])
	if strings.Contains(files[indexFile], "\u009b") {
		t.Error("the index has a control character")
	}
	if index.StartedAt.IsZero() || index.FinishedAt == nil {
		t.Errorf("it ran from %s to %v", index.StartedAt, index.FinishedAt)
	}
	index.StartedAt, index.FinishedAt = time.Time{}, nil
	want := savedRun{
		Namespace: "ns", NodeJob: "j", Command: []string{"echo", "\u009b2J"}, Selection: "--all", Nodes: []savedNode{
			{File: "node-1.txt", nodeOutcome: nodeOutcome{
				Node: "node-1", Outcome: "Failed", ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "c",
				Attempts: 1, StartedAt: &at, FinishedAt: new(at.Add(90 * time.Second)), DurationSeconds: new(int64(90)),
			}},
			{File: "node-2.txt", Truncated: true, nodeOutcome: nodeOutcome{Node: "node-2", Outcome: "Running"}},
		},
	}
	if diff := cmp.Diff(want, index, cmp.AllowUnexported(savedNode{})); diff != "" {
		t.Errorf("the index (-want +got):\n%s", diff)
	}
	delete(files, indexFile)
	delete(files, summaryFile)
	if diff := cmp.Diff(map[string]string{"node-1.txt": "a\x1b[2J\xff\r\nbc\n", "node-2.txt": "begun\n"}, files); diff != "" {
		t.Errorf("the files (-want +got):\n%s", diff)
	}
}

// TestWhatIsSavedWithoutALog covers records in place of logs: whether they have the whole output.
func TestWhatIsSavedWithoutALog(t *testing.T) {
	lost := errors.New("the connection was lost")
	tests := map[string]struct {
		logged    string
		lost      error
		record    record.Record
		want      string
		truncated bool
	}{
		"the record has all of it": {
			lost:   lost,
			record: record.Record{ExitCode: new(int32(0)), Message: "all"},
			want:   "all\n",
		},
		"the record has the end": {
			lost:      lost,
			record:    record.Record{ExitCode: new(int32(0)), Message: "…end"},
			want:      "…end\n",
			truncated: true,
		},
		"the log broke off": {
			logged:    "begun\n",
			lost:      lost,
			record:    record.Record{ExitCode: new(int32(0)), Message: "end"},
			want:      "begun\nend\n",
			truncated: true,
		},
		"nothing was printed": {lost: lost, record: record.Record{ExitCode: new(int32(0))}, want: ""},
		"the log broke off, and no record": {
			logged:    "begun\n",
			lost:      lost,
			record:    record.Record{ExitCode: new(int32(0))},
			want:      "begun\n",
			truncated: true,
		},
		"the log is that of an earlier attempt": {
			logged:    "begun\n",
			record:    record.Record{ExitCode: new(int32(0)), Message: "…end", PodUID: "later"},
			want:      "begun\n…end\n",
			truncated: true,
		},
		"the record says why it ended": {
			lost:      lost,
			record:    record.Record{Message: "evicted"},
			want:      "evicted\n",
			truncated: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, dir := savingRun(t)
			if tt.logged != "" {
				r.observeLog(logPart{pod: "uid-of-node-1", data: []byte(tt.logged)})
			}
			r.observeLog(logPart{pod: "uid-of-node-1", end: true, err: tt.lost})
			r.nodes[0].record, r.view.Nodes[0].State = &tt.record, view.RunSucceeded
			r.view.Nodes[1].State, r.nodes[1].last = view.RunUnreachable, ""
			_ = r.end(t.Context(), endOver)
			files := savedFiles(t, dir)
			nodes := readIndex(t, files[indexFile]).Nodes
			if got, there := files["node-1.txt"]; !there || got != tt.want || nodes[0].Truncated != tt.truncated {
				t.Errorf("it has %q, truncated: %v; want %q, %v", got, nodes[0].Truncated, tt.want, tt.truncated)
			}
			if _, there := files["node-2.txt"]; there || nodes[1].File != "" || nodes[1].Truncated || nodes[1].Outcome != "Unreachable" {
				t.Errorf("the node on which nothing ran has a file: %+v", nodes[1])
			}
		})
	}
}

// TestAFullDiskDoesNotEndARun checks that the rest of the run is saved, and that the command ends with an error.
func TestAFullDiskDoesNotEndARun(t *testing.T) {
	r, dir := savingRun(t)
	if err := os.Mkdir(filepath.Join(dir, "node-1.txt"), 0o700); err != nil { // no file can be written there
		t.Fatal(err)
	}
	for _, node := range []string{"node-1", "node-2"} {
		r.observeLog(logPart{pod: types.UID("uid-of-" + node), data: []byte("said\n")})
	}
	if err := os.Remove(filepath.Join(dir, "node-1.txt")); err != nil {
		t.Fatal(err)
	}
	r.observeLog(logPart{pod: "uid-of-node-1", data: []byte("after a gap\n")})
	if said := r.note(); !strings.HasPrefix(said, "not everything can be saved: writing the output of node node-1: ") {
		t.Errorf("it says %q", said)
	}
	for i := range r.view.Nodes {
		r.observeLog(logPart{pod: r.nodes[i].last, end: true})
		r.view.Nodes[i].State = view.RunSucceeded
	}
	if err := r.end(t.Context(), endOver); cmdutil.CodeOf(err) != cmdutil.ExitError {
		t.Errorf("it ends with %v", err)
	}
	if told := r.ErrOut.(*clitest.Buffer).String(); !strings.Contains(
		told,
		"not everything is saved: writing the output of node node-1: ",
	) {
		t.Errorf("it says %s", told)
	}
	files := savedFiles(t, dir)
	if got, there := files["node-1.txt"]; there {
		t.Errorf("the file with a gap has %q", got)
	}
	nodes := readIndex(t, files[indexFile]).Nodes
	if !nodes[0].Truncated || nodes[0].File != "" || nodes[0].OutputNote == "" || nodes[1].Truncated || files["node-2.txt"] != "said\n" {
		t.Errorf("the index is %+v", nodes)
	}
}

// TestAnIndexIsReplacedAsAWhole checks that an index that cannot be written leaves the old one.
func TestAnIndexIsReplacedAsAWhole(t *testing.T) {
	r, dir := savingRun(t)
	before := savedFiles(t, dir)[indexFile]
	obstacle := filepath.Join(dir, "."+indexFile+".tmp")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	r.saveIndex(true)
	if r.saved.err == nil || !strings.HasPrefix(r.saved.err.Error(), "writing index.json: ") {
		t.Errorf("the error is %v", r.saved.err)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if after := savedFiles(t, dir); after[indexFile] != before {
		t.Errorf("the index is %s", after[indexFile])
	}
	r.saveIndex(true)
	if files := savedFiles(t, dir); len(files) != 1 || files[indexFile] == before {
		t.Errorf("the files are %v", files)
	}
}
