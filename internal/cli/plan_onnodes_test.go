// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// auditServer is a planServer that runs audits: their nodes have answered at once.
type auditServer struct {
	planServer
	status  v1alpha1.NodeJobStatus
	created *v1alpha1.NodeJob
	deleted []string
}

func (s *auditServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Query().Get("dryRun") == "":
		s.created = &v1alpha1.NodeJob{}
		if err := json.NewDecoder(r.Body).Decode(s.created); err != nil {
			s.t.Error(err)
		}
		s.created.Name, s.created.UID = s.created.GenerateName+"x7k2p", "audit-uid"
		s.created.Status = s.status
		s.jobs = append(s.jobs, *s.created)
		clitest.Respond(w, s.created)
	case r.Method == http.MethodDelete:
		s.deleted = append(s.deleted, r.URL.Path)
		clitest.Respond(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	case r.URL.Query().Get("watch") != "":
		<-r.Context().Done() // nothing changes
	default:
		s.planServer.ServeHTTP(w, r)
	}
}

func TestPlanOnNodes(t *testing.T) {
	const file = `apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: kernel, namespace: ns}
spec:
  nodes: {names: [a, b, c]}
  maintenance: {cordon: true}
  task:
    script: apt-get install -y linux
    env: [{name: WANT, value: "6.12"}]
    timeoutSeconds: 30
    check: {script: 'uname -r | grep -q "$WANT"', before: true}
`
	complete := v1alpha1.NodeJobStatus{
		Revision:   "rev",
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue}},
	}
	tests := map[string]struct {
		file   string
		args   []string
		status v1alpha1.NodeJobStatus
		code   int
		// want is a part of what is printed.
		want    string
		created bool
	}{
		"all nodes have answered": {
			file:    file,
			status:  complete,
			created: true,
			want:    "NODES COMPLIANT NON-COMPLIANT ERROR NOT ASKED COMPLIANT %\n(all) 3 1 1 1 0 33%\n\nNODE CHECK ASKED SINCE EXIT MESSAGE\nb NonCompliant 0s 0s 1\nc Error 0s 0s 75 no such file\n",
		},
		"for programs": {
			file: file, args: []string{"-o", "json"}, status: complete, created: true,
			want: `"nodeJob": "ns/kernel", "total": { "nodes": 3, "compliant": 1, "nonCompliant": 1, "error": 1, "notAsked": 0 },`,
		},
		"nothing answers": {
			file: file, args: []string{"--timeout", "1ms"}, code: cmdutil.ExitTimedOut, created: true,
			want: "3 nodes did not answer within 1ms: no manager has observed the NodeJob",
		},
		"it stalls": {
			file: file, code: cmdutil.ExitTimedOut, created: true,
			status: v1alpha1.NodeJobStatus{Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue},
				{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse, Message: "the namespace is not allowed"},
			}},
			want: "3 nodes did not answer: the namespace is not allowed",
		},
		"without a check": {
			file: strings.ReplaceAll(file, "    check:", "    # check:"), code: cmdutil.ExitUsage,
		},
		"a time without a question": {file: file, args: []string{"--timeout", "1s", "--on-nodes=false"}, code: cmdutil.ExitUsage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
			server := &auditServer{planServer: planServer{t: t}, status: tt.status}
			for node, is := range map[string]record.Asked{
				"a": {Answer: record.AnswerYes}, "b": {Answer: record.AnswerNo, NoSince: now, ExitCode: new(int32(1))},
				"c": {Answer: record.AnswerError, ErrorSince: now, Unanswered: 1, ExitCode: new(int32(75)), Message: "no such file"},
			} {
				server.nodes = append(server.nodes, answering(node, is, now, tt.status.Revision))
			}
			f, out, errs := clitest.NewFactory(t, server)
			f.Now = func() time.Time { return now }
			f.In = strings.NewReader(tt.file)
			code := command(t, f, append([]string{"plan", "-f", "-", "--on-nodes"}, tt.args...)...)
			if got := strings.Join(
				strings.Fields(out.String()+errs.String()),
				" ",
			); code != tt.code ||
				!strings.Contains(got, strings.Join(strings.Fields(tt.want), " ")) {
				t.Errorf("exit code %d, want %d\n%s\n%s\nwant\n%s", code, tt.code, out, errs, tt.want)
			}
			if (server.created != nil) != tt.created || len(server.deleted) > 0 != tt.created {
				t.Fatalf("created %v, deleted %v", server.created, server.deleted)
			}
			if tt.created {
				checkAudit(t, server)
			}
		})
	}
}

// checkAudit checks that an audit has the check and its environment, and nothing that changes a node, and that it was deleted.
func checkAudit(t *testing.T, server *auditServer) {
	t.Helper()
	want := v1alpha1.NodeJobSpec{
		Nodes: v1alpha1.NodesSpec{Names: []string{"a", "b", "c"}},
		Task: v1alpha1.TaskSpec{
			Check: &v1alpha1.CheckSpec{
				ScriptBlock: v1alpha1.ScriptBlock{Script: `uname -r | grep -q "$WANT"`},
			},
			Env:            []v1alpha1.EnvVar{{Name: "WANT", Value: "6.12"}},
			TimeoutSeconds: new(int32(30)),
		},
		TTLSecondsAfterFinished: new(int32(600)), DeletionPolicy: v1alpha1.DeletionForget,
	}
	if diff := cmp.Diff(want, server.created.Spec); diff != "" {
		t.Errorf("the audit (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{clitest.JobsPath + "/kernel-check-x7k2p"}, server.deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}

// answering is a node whose record has an answer for the audit of TestPlanOnNodes.
func answering(name string, is record.Asked, now time.Time, revision string) corev1.Node {
	node := readyNode(name)
	if revision == "" {
		return node
	}
	is.At, is.PodUID = now, "pod"
	key := v1alpha1.RecordKey("ns", "kernel-check-x7k2p")
	node.Labels = map[string]string{key: revision}
	record.SetOn(&node, key, record.Record{
		Revision: revision, Outcome: record.Succeeded, Label: revision, FinishedAt: now, PodUID: "p",
		Asked: record.Answers{record.QuestionCheck: is},
	})
	return node
}
