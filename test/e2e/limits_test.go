// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
)

// TestAScriptPastItsMemoryLimitFailsWithoutItsSecret : the kernel ends it, the reason says so, and what it has printed before
// shows no value of a Secret, regardless of which component reads it from the log.
func TestAScriptPastItsMemoryLimitFailsWithoutItsSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const token = "s3cr3t-t0ken-value"
	must(t, admin.Create(w.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "token"}, StringData: map[string]string{"value": token},
	}))
	limited := func(s *v1alpha1.NodeJobSpec) {
		onNode2(s)
		s.Retry.Limit = new(int32(0))
		s.Task.Env = []v1alpha1.EnvVar{{Name: "TOKEN", ValueFrom: &v1alpha1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "token"}, Key: "value"},
		}}}
		s.Task.Resources = &v1alpha1.TaskResources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
	}
	const leak = `echo "the token is $TOKEN"; echo "token=$TOKEN" >> "$EVERYNODE_RESULTS"; sleep 1; head -c 300000000 /dev/zero | tr '\0' x | tail -c 300000000 > /dev/null || exit 5; exit 6`
	w.job("leaks", leak, limited)
	w.job("leaks-silently", leak, limited, func(s *v1alpha1.NodeJobSpec) { s.Task.Output.Record = v1alpha1.OutputNone })

	rec := w.failed("leaks", "node-2")
	if rec.Reason != "OOMKilled" || !strings.Contains(rec.Message, "the token is ***") {
		t.Errorf("reason %s, message %q; want OOMKilled, with the token masked", rec.Reason, rec.Message)
	}
	rec = w.failed("leaks-silently", "node-2")
	if rec.Reason != "OOMKilled" || strings.Contains(rec.Message, "the token") {
		t.Errorf("reason %s, message %q; want OOMKilled, and no output", rec.Reason, rec.Message)
	}
	for _, kept := range []string{
		w.kubectl("get", "node", "node-2", "-o", "yaml"),
		w.kubectl("-n", w.Namespace, "get", "nodejobs", "-o", "yaml"),
		w.kubectl("get", "events", "-A", "-o", "yaml"),
	} {
		if strings.Contains(kept, token) {
			t.Errorf("the token is kept in\n%s", kept)
		}
	}
}

// TestKubectlDrainTakesATask : without --delete-emptydir-data and --force. The task runs once in its pod all the same, by what
// the runner notes in the file system that the containers of a pod share.
func TestKubectlDrainTakesATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("holds", w.hold())
	w.began(node)
	if found := w.sh(node, "find /run -path '*/shm/started' | wc -l"); found != "1" {
		t.Errorf("%s notes that a task has begun, want 1", found)
	}
	out := w.kubectl("drain", node, "--ignore-daemonsets", "--dry-run=server")
	if !strings.Contains(out, "holds-") || strings.Contains(out, "cannot delete") {
		t.Errorf("kubectl drain says\n%s", out)
	}
	w.letGo(node)
	w.Done("holds", node)
	w.wantRan(node, 1)
}
