// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// TestAConvertedDaemonSetTakesOver covers a migration: a DaemonSet has set up and labelled one of two nodes.
func TestAConvertedDaemonSetTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.join(cluster.NodeOptions{}), w.join(cluster.NodeOptions{})
	must(t, admin.Patch(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: before}}, mergePatch(`{"metadata":{"labels":{"example.com/configured":"true"}}}`)))
	daemonSet := fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: configures, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: configures}}
  template:
    metadata: {labels: {app: configures}}
    spec:
      nodeSelector: {world: %[1]s}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{key: example.com/configured, operator: DoesNotExist}]
      hostPID: true
      serviceAccountName: configures
      containers:
      - name: configures
        image: registry.example/kubectl:1.30
        securityContext: {privileged: true}
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        command: [sh, -c]
        args:
        - |
          nsenter -t 1 -m -u -n -i -- sh -c 'hostname > /run/configured-by-%[1]s'
          kubectl label node "$NODE" example.com/configured=true
          sleep infinity
`, w.namespace)
	converted := w.raw(daemonSet, "convert", "-f", "-")
	if strings.Contains(converted, "TODO") {
		t.Errorf("a part of the DaemonSet is not converted:\n%s", converted)
	}
	plan := w.sayWith(converted, "plan", "-f", "-")
	wantText(t, plan.out, "1 assumed to be done (spec.nodes.assumeDone)")
	_, err := install.Kubectl(w.ctx, real, converted, "apply", "-f", "-")
	must(t, err)
	if got := w.say("resume", "configures"); got.code != 0 {
		t.Fatalf("resume: %+v", got)
	}
	if rec := w.done("configures", after); rec.Assumed || rec.Attempts != 1 {
		t.Errorf("the record of the new node is %+v", rec)
	}
	if rec := w.done("configures", before); !rec.Assumed || rec.Attempts != 0 {
		t.Errorf("the record of the node that the DaemonSet has set up is %+v", rec)
	}
	w.complete("configures")
	w.wantMissing(before, "/run/configured-by-"+w.namespace)
	wantText(t, w.say("explain", "configures", before).out, "without a run, because it matched spec.nodes.assumeDone")
}
