// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clitest helps to test commands: it has a factory for a fake API server, responses of this server, and objects
// of the NodeJob j.
package clitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
)

// Buffer has the output of a command. Several goroutines may write to it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to the output.
func (w *Buffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// String returns the output.
func (w *Buffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// NewFactory returns a Factory that uses server as its API server and ns as its namespace, and its outputs. Its timers
// fire immediately.
func NewFactory(t *testing.T, server http.Handler) (f *console.Factory, out, errs *Buffer) {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c, user: u, namespace: ns}}], users: [{name: u, user: {token: t}}]}`, s.URL)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs = &Buffer{}, &Buffer{}
	f = console.NewFactory(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errs})
	*f.Config.KubeConfig = config
	f.After = func(time.Duration) <-chan time.Time {
		over := make(chan time.Time)
		close(over)
		return over
	}
	return f, out, errs
}

// Respond writes an object as the response.
func Respond(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

// RespondError writes an error in the form that API servers use.
func RespondError(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: reason, Code: int32(code), Message: message,
	})
}

// Paths of the API.
const (
	JobsPath  = "/apis/everynode.dev/v1alpha1/namespaces/ns/nodejobs"
	PodsPath  = "/api/v1/namespaces/ns/pods"
	NodesPath = "/api/v1/nodes"
)

// NodeJob returns a NodeJob that the manager has observed.
func NodeJob(name string) *v1alpha1.NodeJob {
	return &v1alpha1.NodeJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-of-j", Generation: 1, ResourceVersion: "1"},
		Spec:       v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}},
		Status:     v1alpha1.NodeJobStatus{ObservedGeneration: 1, Revision: "new"},
	}
}

// Pod returns a pod of the NodeJob j.
func Pod(name, node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "1",
			Labels: map[string]string{v1alpha1.NodeJobLabel: "j"}, OwnerReferences: []metav1.OwnerReference{{Kind: "NodeJob", Name: "j", UID: "uid-of-j"}},
		},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "task"}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// LogLine returns a line of a log with a timestamp, in milliseconds after a fixed time.
func LogLine(ms int, line string) string {
	return fmt.Sprintf("2026-07-01T12:30:%02d.%03d000000Z %s", ms/1000, ms%1000, line)
}

// BreakOff ends a response before it is complete.
func BreakOff(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
