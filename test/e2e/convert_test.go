// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	must(
		t,
		admin.Patch(
			w.Ctx,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: before}},
			mergePatch(`{"metadata":{"labels":{"example.com/configured":"true"}}}`),
		),
	)
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
        command: [nsenter, -t, "1", -m, -u, -n, -i, --, sh, -c]
        args:
        - |
          hostname > /run/configured-by-%[1]s
          kubectl() { echo "kubectl $*"; } # there is none on this node
          kubectl label node "$NODE" example.com/configured=true
`, w.Namespace)
	converted := w.raw(daemonSet, "convert", "-f", "-")
	if strings.Contains(converted, "TODO") {
		t.Errorf("a part of the DaemonSet is not converted:\n%s", converted)
	}
	plan := w.sayWith(converted, "plan", "-f", "-")
	wantText(t, plan.out, "1 assumed to be done (spec.nodes.assumeDone)")
	_, err := install.Kubectl(w.Ctx, real, converted, "apply", "-f", "-")
	must(t, err)
	if got := w.say("resume", "configures"); got.code != 0 {
		t.Fatalf("resume: %+v", got)
	}
	if rec := w.Done("configures", after); rec.Assumed || rec.Attempts != 1 {
		t.Errorf("the record of the new node is %+v", rec)
	}
	if rec := w.Done("configures", before); !rec.Assumed || rec.Attempts != 0 {
		t.Errorf("the record of the node that the DaemonSet has set up is %+v", rec)
	}
	w.complete("configures")
	w.wantMissing(before, "/run/configured-by-"+w.Namespace)
	wantText(t, w.say("explain", "configures", before).out, "without a run, because it matched spec.nodes.assumeDone")
}

// conversions are init containers whose effect is a file. The container has the programs of its node, below /, and the root directory of
// the node at /host.
var conversions = map[string]string{
	"script":    `{command: [nsenter, -t, "1", -m, -u, -n, -i, -p, --, sh, -c, "printf '%s|' \"$NODE\" 'a  b' \"$(echo '$X')\" $LEVEL > $OUT\ncat >> $OUT <<'E'\n$(date) \\ \"'\nE\n"]}`,
	"options":   `{command: [nsenter, -t, "1", -m, --, bash, -euo, pipefail, -c, "[[ -d /var ]] && a=(1 2 3) && echo ${#a[@]} > $OUT"]}`,
	"root":      `{command: [chroot, /host, bash, -c, "echo \"$LEVEL $PWD $(id -u)\" > $OUT"]}`,
	"program":   `{command: [nsenter, --target=1, --mount, --, cp, /etc/passwd, "OUTFILE"]}`,
	"variable":  `{command: [nsenter, -t, "1", -m, --, sh, -c, "$(SETUP)"]}`,
	"expanded":  `{command: [nsenter, -t, "1", -m, --, cp, /etc/passwd, "$(OUT)"]}`,
	"dollars":   `{command: [nsenter, -t, "1", -m, --, sh, -c, "echo $$(echo $(LEVEL)) > $OUT"]}`,
	"arguments": `{command: [nsenter, -t, "1", -m, --, sh, -c, "echo $0 $1 $# > $OUT", name, "b  c"]}`,
	"mixed":     `{command: [sh, -c, "echo one > /host$OUT; nsenter -t 1 -m -- sh -c 'echo two >> $OUT'"]}`,
}

// TestWhatIsConvertedHasTheEffectOfItsSource runs DaemonSets, and then the NodeJobs that convert writes for them.
func TestWhatIsConvertedHasTheEffectOfItsSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	out := func(name string) string { return "/var/tmp/" + w.Namespace + "." + name }
	content := func(name string) string {
		text := ""
		w.Eventually("the effect of "+name, func() error {
			if text = w.sh(node, "cat "+out(name)+" 2>/dev/null || true"); text == "" {
				return errors.New("there is no file")
			}
			return nil
		})
		return text
	}
	manifests, want := map[string]string{}, map[string]string{}
	for name, container := range conversions {
		manifests[name] = fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      nodeSelector: {world: %[2]s}
      hostPID: true
      initContainers:
      - %[3]s
      containers: [{name: pause, image: %[4]s}]
      volumes: [{name: root, hostPath: {path: /}}, {name: usr, hostPath: {path: /usr}}, {name: lib, hostPath: {path: /usr/lib}}, {name: lib64, hostPath: {path: /usr/lib64}}, {name: bin, hostPath: {path: /usr/bin}}]
`, name, w.Namespace, strings.ReplaceAll(strings.Replace(container, "{command", fmt.Sprintf(`{name: c, image: %s, securityContext: {privileged: true, runAsUser: 0},
          volumeMounts: [{name: root, mountPath: /host}, {name: usr, mountPath: /usr}, {name: lib, mountPath: /lib}, {name: lib64, mountPath: /lib64}, {name: bin, mountPath: /bin}],
          env: [{name: PATH, value: "/usr/sbin:/usr/bin"}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}, {name: LEVEL, value: "3"}, {name: OUT, value: %s}, {name: SETUP, value: "echo \"$LEVEL\" '&&' > $OUT"}], command`,
			install.RunnerImage, out(name)), 1), "OUTFILE", out(name)), pauseImage)
		_, err := install.Kubectl(w.Ctx, real, manifests[name], "apply", "-f", "-")
		must(t, err)
	}
	for name := range conversions {
		// Its file is complete when the init container has ended.
		w.kubectl("-n", w.Namespace, "rollout", "status", "daemonset/"+name, "--timeout=150s")
		want[name] = content(name)
	}
	for name, manifest := range manifests {
		_, err := install.Kubectl(w.Ctx, real, "", "delete", "daemonset", name, "-n", w.Namespace)
		must(t, err)
		w.sh(node, "rm "+out(name))
		_, err = install.Kubectl(
			w.Ctx,
			real,
			strings.ReplaceAll(w.raw(manifest, "convert", "-f", "-"), "suspend: true", "suspend: false"),
			"apply",
			"-f",
			"-",
		)
		must(t, err)
	}
	for name := range conversions {
		w.Done(name, node)
		if diff := cmp.Diff(want[name], content(name)); diff != "" {
			t.Errorf("%s: -DaemonSet +NodeJob\n%s", name, diff)
		}
	}
}
