// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// assistant starts kubectl everynode mcp as a user, and returns a client of it.
func (w *world) assistant(config string) *mcp.ClientSession {
	w.T.Helper()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := cli.Run(
			w.Ctx,
			genericiooptions.IOStreams{In: fromClient, Out: toClient, ErrOut: io.Discard},
			[]string{"mcp", "--kubeconfig", config},
		)
		_ = toClient.Close()
		ended <- code
	}()
	transport := &mcp.IOTransport{Reader: fromServer, Writer: toServer}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(w.Ctx, transport, nil)
	must(w.T, err)
	w.T.Cleanup(func() {
		_ = session.Close()
		if code := <-ended; code != 0 {
			w.T.Errorf("exit code %d after the client has closed its output", code)
		}
	})
	return session
}

// callTool calls a tool, and returns its result as text.
func (w *world) callTool(session *mcp.ClientSession, tool string, arguments map[string]any) (text string, failed bool) {
	w.T.Helper()
	result, err := session.CallTool(w.Ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	must(w.T, err)
	content, ok := result.Content[0].(*mcp.TextContent)
	if !ok {
		w.T.Fatalf("content of the type %T", result.Content[0])
	}
	return content.Text, result.IsError
}

// TestMCPProposesWhatOnlyAPersonStarts proposes a NodeJob over the Model Context Protocol, and resumes it as a person. Another user may only read.
func TestMCPProposesWhatOnlyAPersonStarts(t *testing.T) {
	w := newWorld(t)
	startManager(t, interceptor.Funcs{})
	w.node("proposed")
	manifest := func(name, more string) map[string]any {
		object, err := json.Marshal(map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(),
			"kind":       "NodeJob",
			"metadata":   map[string]any{"name": name, "namespace": w.Namespace},
			"spec": map[string]any{
				"task":  map[string]any{"script": "true"},
				"nodes": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"world": w.Namespace}}},
			},
		})
		must(t, err)
		return map[string]any{"manifest": string(object) + more}
	}

	config := w.kubeconfigOf()
	session := w.assistant(config)
	got, failed := w.callTool(session, "propose", manifest("approved", ""))
	if failed || !strings.Contains(got, "resume proposal-approved-") || !strings.Contains(got, "proposed") {
		t.Fatalf("propose: %s", got)
	}
	var proposals v1alpha1.NodeJobList
	must(t, admin.List(w.Ctx, &proposals, client.InNamespace(w.Namespace), client.HasLabels{cmdutil.CreatedByLabel}))
	if len(proposals.Items) != 1 {
		t.Fatalf("%d proposals", len(proposals.Items))
	}
	job, proposal := proposals.Items[0], proposals.Items[0].Name
	w.Condition(proposal, v1alpha1.ConditionReconciling, metav1.ConditionFalse, v1alpha1.ReasonSuspended)
	w.NoPods()
	proposed := func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "kubectl-everynode-mcp" }
	if !slices.ContainsFunc(job.ManagedFields, proposed) {
		t.Errorf("managed fields %+v", job.ManagedFields)
	}

	reader := w.assistant(w.viewer())
	if got, failed := w.callTool(
		reader,
		"status",
		map[string]any{"namespace": w.Namespace, "name": proposal},
	); failed ||
		!strings.Contains(got, "Suspended") {
		t.Errorf("status as a user who may read: %s", got)
	}
	if got, failed := w.callTool(reader, "propose", manifest("no-rights", "")); !failed || !strings.Contains(got, "was not created") {
		t.Errorf("propose as a user who may only read: %s", got)
	}
	if got, failed := w.callTool(
		session,
		"propose",
		manifest("bad", "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: x}}"),
	); !failed {
		t.Errorf("propose a Namespace: %s", got)
	}

	if got := w.everynode(config, "resume", proposal); got.code != 0 {
		t.Fatalf("resume: %+v", got)
	}
	w.end(w.podOn("proposed"), 0, "")
	w.Done(proposal, "proposed")
}

// TestAProposalStartsNoOtherNodeJob has an assistant propose a NodeJob with a name on which another one waits, and a user create it suspended.
func TestAProposalStartsNoOtherNodeJob(t *testing.T) {
	w := newWorld(t)
	startManager(t, interceptor.Funcs{})
	w.node("waits")
	w.job("dangerous", func(s *v1alpha1.NodeJobSpec) { s.DependsOn = []string{"approved-by-change-board"} })
	w.Condition("dangerous", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDependencyNotFound)
	const spec = `{suspend: true, nodes: {selector: {matchLabels: {no: node}}}, task: {script: "true"}}`
	object := jobFromYAML(t, w.Namespace, "approved-by-change-board", spec)
	manifest, err := json.Marshal(object)
	must(t, err)
	if got, failed := w.callTool(w.assistant(w.kubeconfigOf()), "propose", map[string]any{"manifest": string(manifest)}); failed {
		t.Fatalf("propose: %s", got)
	}
	w.Condition("dangerous", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDependencyNotFound)
	must(t, admin.Create(w.Ctx, object))
	c := w.Condition("dangerous", v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonInProgress)
	wantText(t, c.Message, "waiting: 1 WaitingForDependency (waits)")
	w.NoPods()
}
