// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/text"
)

// smallServer has the NodeJob j, which promoteTo pauses, and which runs on node-1 and has failed there. It forbids what it does
// not know.
func smallServer(t *testing.T) http.Handler {
	t.Helper()
	job := clitest.NodeJob("j")
	job.Spec.Rollout = v1alpha1.RolloutSpec{
		Steps:     []v1alpha1.RolloutStep{{Name: "canary-of-all-regions"}, {Name: "all"}},
		PromoteTo: "canary-of-all-regions",
	}
	job.Spec.Rollback = &v1alpha1.RollbackSpec{}
	job.Status.Nodes = v1alpha1.NodeCounts{Total: 2, Running: 1, Failed: 1}
	suspended := job.DeepCopy()
	suspended.Name, suspended.Spec.Suspend = "suspended", true
	job.Status.ObservedGeneration = job.Generation
	job.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionUnknown}, {
		Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInProgress,
		Message: "0 of 2 nodes are done, 1 failed, 1 running; the sentence that says what happens next is at its end",
	}}
	job.Status.Rollout = &v1alpha1.RolloutStatus{Step: "canary-of-all-regions", Steps: []v1alpha1.StepStatus{
		{Name: "canary-of-all-regions", Nodes: 1, Failed: 1}, {Name: "all", Nodes: 1},
	}}
	other := job.DeepCopy()
	other.Name, other.UID = "other", "uid-of-other"
	key := v1alpha1.RecordKey("ns", "j")
	encoded := record.Encode(record.Record{Revision: "new", Outcome: record.Failed, Attempts: 1})
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{
		Name: "node-1", UID: "uid-of-node-1", ResourceVersion: "1",
		Labels: map[string]string{record.SealKey(key): record.Seal(encoded)}, Annotations: map[string]string{key: encoded},
	}}
	running := clitest.Pod("p", "node-1", corev1.PodRunning)
	running.Labels[v1alpha1.PhaseLabel] = "task"
	objects := map[string]runtime.Object{
		clitest.JobsPath + "/j":         job,
		clitest.JobsPath + "/suspended": suspended,
		clitest.JobsPath + "/other":     other,
		clitest.NodesPath + "/node-1":   node,
		clitest.PodsPath + "/p":         running,
		clitest.JobsPath: &v1alpha1.NodeJobList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJobList"},
			Items:    []v1alpha1.NodeJob{*job},
		},
		clitest.NodesPath: &corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
			Items:    []corev1.Node{*node},
		},
		clitest.PodsPath: &corev1.PodList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
			Items:    []corev1.Pod{*running},
		},
		"/apis/everynode.dev/v1alpha1/nodejobs": &v1alpha1.NodeJobList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJobList"},
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		object, known := objects[r.URL.Path]
		switch {
		case strings.HasSuffix(r.URL.Path, "reviews"):
			body, _ := io.ReadAll(r.Body)
			review := map[string]any{}
			_ = json.Unmarshal(body, &review)
			review["status"] = map[string]any{"allowed": false, "userInfo": map[string]any{"username": "jane"}}
			clitest.Respond(w, review)
		case known:
			clitest.Respond(w, object)
		default:
			clitest.RespondError(
				w,
				http.StatusForbidden,
				metav1.StatusReasonForbidden,
				`User "jane" cannot `+strings.ToLower(r.Method)+` resource "things" in API group "" at the cluster scope`,
			)
		}
	})
}

// notShown are the commands that print a file for an editor, or serve a page or an assistant.
var notShown = []string{"create", "dashboard", "mcp"}

// TestNothingIsCutOnATerminal compares the words that each command prints on terminals with those that it writes into a file: the
// end of a sentence may prevent the next accident.
func TestNothingIsCutOnATerminal(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	manifest := file(
		"job.yaml",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: new, namespace: ns}\nspec: {task: {script: 'true'}}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
	)
	permanent := file(
		"daemonset.yaml",
		"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: new, namespace: ns}\nspec: {template: {spec: {containers: [{name: a, image: registry.example/a, command: [serve]}]}}}\n",
	)
	tests := map[string]struct {
		args []string
		// want is a part of the last sentence.
		want string
	}{
		"promote": {
			[]string{"promote", "j", "--to", "all"},
			"in the change that creates it. With GitOps, commit this instead: spec.rollout.promoteTo: all",
		},
		"nothing to do": {
			[]string{"promote", "j", "--to", "canary-of-all-regions"},
			"canary-of-all-regions already, and is in step canary-of-all-regions",
		},
		"suspend": {[]string{"suspend", "j"}, "may finish there. To end it: kubectl everynode abort j -n ns"},
		"resume":  {[]string{"resume", "suspended"}, "commit this instead: spec.suspend: false"},
		"abort":   {[]string{"abort", "j"}, "node node-1: the running attempt is ended"},
		"roll back": {
			[]string{"abort", "j", "--rollback", "--yes"},
			"spec.deletionPolicy: Rollback first, and then the removal of the NodeJob",
		},
		"retry": {[]string{"retry", "j"}, "any new value requests a retry"},
		"retry of a run that is over": {
			[]string{"retry", "suspended"},
			"The NodeJob is suspended. Nothing starts until: kubectl everynode resume suspended -n ns With GitOps",
		},
		"retry on a node": {[]string{"retry", "j", "node-1"}, "With GitOps, commit nothing: the change is on the nodes."},
		"rerun":           {[]string{"rerun", "j", "node-1"}, "it has failed there; to run it again, use retry"},
		"skip":            {[]string{"skip", "j", "node-1"}, "that excludes it: skip applies to the current revision only"},
		"an unknown node": {[]string{"skip", "j", "node-9"}, "node node-9: jane may not"},
		"can-i": {
			[]string{"can-i", "-f", manifest},
			"An administrator grants what is missing with: kubectl -n ns create",
		},
		"freeze":  {[]string{"freeze", "--reason", "INC-42"}, "jane may not get things"},
		"thaw":    {[]string{"thaw", "a"}, "jane may not get things"},
		"budgets": {[]string{"budgets"}, "jane may not get things"},
		"plan":    {[]string{"plan", "-f", manifest}, "-- left out, since no plan depends on it: v1 Service"},
		"convert": {[]string{"convert", "-f", permanent}, "DaemonSet"},
		"version": {[]string{"version"}, "(not known: "},
		"results": {[]string{"results", "j", "--by", "kernl"}, "no node has the result or the label kernl; the results are none"},
		"report": {
			[]string{"report", "j"},
			"so there is nothing to report. What its task has found: kubectl everynode results j -n ns",
		},
		"logs":          {[]string{"logs", "other"}, "explain other NODE says why"},
		"explain":       {[]string{"explain", "node-1"}, "could not check whether a NodeGuard holds the node: "},
		"status":        {[]string{"status", "j"}, "waits for promotion (promoteTo: canary-of-all-regions)"},
		"status wide":   {[]string{"status", "j", "-o", "wide"}, "the node has not reported its state yet"},
		"status of all": {[]string{"status"}, "takes the name of a NodeJob (to list all: kubectl everynode list), and got 0 arguments"},
		"list wide":     {[]string{"list", "-o", "wide"}, "MESSAGE"},
		"list":          {[]string{"list", "-A"}, "no NodeJob"},
		"run": {
			[]string{"run", "node-1", "--", "true"},
			"nothing was run: node-1: it has not reported its state yet",
		},
		"uninstall": {[]string{"uninstall", "--dry-run"}, "jane may not"},
	}
	for name, tt := range tests {
		for _, columns := range []uint16{44, 80, 100} {
			t.Run(fmt.Sprintf("%s, %d columns", name, columns), func(t *testing.T) {
				written, shown := printed(t, columns, tt.args)
				want, got := strings.Join(strings.Fields(written), " "), strings.Join(strings.Fields(shown), " ")
				if want != got {
					t.Errorf("it says\n%s\nwant\n%s", shown, written)
				}
				if !strings.Contains(want, tt.want) {
					t.Errorf("no %q in\n%s", tt.want, want)
				}
				for line := range strings.Lines(shown) {
					if line = strings.TrimSuffix(
						line,
						"\n",
					); text.Width(line) > int(columns) &&
						strings.Contains(strings.TrimSpace(line), " ") {
						t.Errorf("%q is wider than %d columns", line, columns)
					}
				}
			})
		}
	}
	tested := notShown
	for _, tt := range tests {
		tested = append(tested, tt.args[0])
	}
	for _, command := range NewCommand(console.NewFactory(genericiooptions.IOStreams{})).Commands() {
		if !command.Hidden && !slices.Contains(tested, command.Name()) {
			t.Errorf("what %s prints is not tested; tested are %q", command.Name(), slices.Sorted(maps.Keys(tests)))
		}
	}
}

// printed returns what a command writes into a file, and what it shows on a terminal.
func printed(t *testing.T, columns uint16, args []string) (written, shown string) {
	t.Helper()
	f, out, _ := clitest.NewFactory(t, smallServer(t))
	f.Now = func() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }
	f.Getenv = func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }
	f.ErrOut = out // in the order of a terminal
	execute := func() {
		root := NewCommand(f)
		root.SetArgs(args)
		tellError(f, root.ExecuteContext(t.Context()))
	}
	execute()
	shown = clitest.OnTerminal(t, columns, func(terminal *os.File) {
		f.Out, f.ErrOut = terminal, terminal
		execute()
	})
	return out.String(), shown
}
