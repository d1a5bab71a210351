// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
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
)

// written is what a command writes, which several goroutines may.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// against is a Factory for the namespace ns of a stand-in for an API server, in which no time passes while something is
// waited for, and what it writes.
func against(t *testing.T, server http.Handler) (f *Factory, out, errs *written) {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c, user: u, namespace: ns}}], users: [{name: u, user: {token: t}}]}`, s.URL)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs = &written{}, &written{}
	f = NewFactory(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errs})
	*f.Config.KubeConfig = config
	f.After = func(time.Duration) <-chan time.Time {
		over := make(chan time.Time)
		close(over)
		return over
	}
	return f, out, errs
}

// command runs a verb to its end, and returns its exit code.
func command(t *testing.T, f *Factory, args ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	root := NewCommand(f)
	root.SetArgs(args)
	err := Explain(root.ExecuteContext(ctx))
	if err != nil && !silent(err) {
		t.Log(err)
	}
	return CodeOf(err)
}

// answer answers with an object.
func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

// refuse answers with an error, as API servers do.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: reason, Code: int32(code), Message: message,
	})
}

const (
	pathJobs  = "/apis/everynode.dev/v1alpha1/namespaces/ns/nodejobs"
	pathPods  = "/api/v1/namespaces/ns/pods"
	pathNodes = "/api/v1/nodes"
)

// aJob is a NodeJob that a manager has looked at.
func aJob(name string) *v1alpha1.NodeJob {
	return &v1alpha1.NodeJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-of-j", Generation: 1, ResourceVersion: "1"},
		Spec:       v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{Script: "true"}},
		Status:     v1alpha1.NodeJobStatus{ObservedGeneration: 1, Revision: "new"},
	}
}

// aPod is a pod of the NodeJob j.
func aPod(name, node string, phase corev1.PodPhase) *corev1.Pod {
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
