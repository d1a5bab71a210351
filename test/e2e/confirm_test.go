// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// confirmed makes a node wait for its confirmation for some seconds. The rollback also notes on the disk that it ran.
func (w *world) confirmed(seconds int32, rollback string) func(*v1alpha1.NodeJobSpec) {
	return func(s *v1alpha1.NodeJobSpec) {
		s.Rollback = &v1alpha1.RollbackSpec{
			ScriptBlock:    v1alpha1.ScriptBlock{Script: rollback + "\necho reverted >> " + w.markFile() + ".reverted"},
			TimeoutSeconds: new(int32(30)),
		}
		s.Confirm = &v1alpha1.ConfirmSpec{TimeoutSeconds: new(seconds)}
	}
}

// wantReverts checks how often the rollback ran on a node.
func (w *world) wantReverts(node string, want int) {
	w.T.Helper()
	if got := w.sh(node, "cat "+w.markFile()+".reverted 2>/dev/null | wc -l"); got != fmt.Sprint(want) {
		w.T.Errorf("the rollback ran %s times on %s, want %d", got, node, want)
	}
}

// wantNothingKept waits until a node has nothing left of what would have reverted it.
func (w *world) wantNothingKept(node string) {
	w.T.Helper()
	w.Eventually("nothing is left on "+node, func() error {
		if left := w.sh(
			node,
			"find /var/lib/everynode /etc/systemd/system/everynode-* /etc/systemd/system/*/everynode-* 2>/dev/null; pgrep -af -- '--[k]eep='; true",
		); left != "" {
			return errors.New(left)
		}
		return nil
	})
}

// TestConfirmANodeThatStillResponds measures from the end of the script to the end of the pod, which includes the confirmation.
func TestConfirmANodeThatStillResponds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("good", w.mark()+"; date +%s.%N > "+w.markFile()+".ended", onNode2, w.confirmed(60, "true"))
	rec := w.Done("good", "node-2")
	if rec.Attempts != 1 || rec.Rollback != nil || rec.Reverted {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("good")
	w.wantRan("node-2", 1)
	w.wantReverts("node-2", 0)
	w.wantNothingKept("node-2")
	var ended float64
	if _, err := fmt.Sscan(w.sh("node-2", "cat "+w.markFile()+".ended"), &ended); err != nil {
		t.Fatal(err)
	}
	t.Logf("recorded as ended %.1f s after the script", float64(rec.FinishedAt.Unix())-ended)
}

const (
	saveRoutes = `set -e
server=$(sed -n 's#.*server: *https://\([^:]*\):.*#\1#p' /etc/kubernetes/kubelet.conf)
dev=$(ip -o route get "$server" | sed -n 's/.* dev \([^ ]*\).*/\1/p'); echo "dev=$dev" >> "$EVERYNODE_RESULTS"
ip -4 route save table main > /var/tmp/routes
`
	restoreLink = `ip link set "$EVERYNODE_RESULT_DEV" up; ip route restore < /var/tmp/routes || true`
)

// TestConfirmRevertsWhatCutsANodeOff : each of these tasks succeeds, and nothing can reach the node after it.
func TestConfirmRevertsWhatCutsANodeOff(t *testing.T) {
	t.Parallel()
	const kubeletConfig = `config=$(tr '\0' '\n' < /proc/$(pgrep -x kubelet)/cmdline | sed -n 's/^--config=//p'); echo "config=$config" >> "$EVERYNODE_RESULTS"
cp "$config" /var/tmp/kubelet.before; `
	for name, tt := range map[string]struct{ task, rollback string }{
		"link": {
			task:     saveRoutes + `ip link set "$dev" down`,
			rollback: restoreLink,
		},
		"route": {
			task:     saveRoutes + `ip -4 route flush dev "$dev"`,
			rollback: `ip route restore < /var/tmp/routes`,
		},
		"nftables": {
			task: `nft -f - <<'END'
table inet cut {
  chain in { type filter hook input priority -300; policy drop; }
  chain out { type filter hook output priority -300; policy drop; }
}
END`,
			rollback: `nft delete table inet cut`,
		},
		"kubelet": {
			task:     kubeletConfig + `echo ": this is no YAML" > "$config"; pkill -x kubelet`,
			rollback: `cp /var/tmp/kubelet.before "$EVERYNODE_RESULT_CONFIG"; pkill -x kubelet; true`,
		},
		"containerd": {
			task: `cp /etc/containerd/config.toml /var/tmp/containerd.before; echo "this is no TOML" > /etc/containerd/config.toml
pkill -x containerd`,
			rollback: `cp /var/tmp/containerd.before /etc/containerd/config.toml`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			node := w.join(cluster.NodeOptions{})
			before := w.sh(node, "ip route; ip -o link | cut -d, -f1-3; nft list tables inet")
			w.job("bad", w.mark()+"\n"+tt.task, w.confirmed(60, tt.rollback))
			rec := w.failed("bad", node)
			if rec.Reason != v1alpha1.ReasonReverted || !rec.Reverted || rec.Attempts != 1 {
				t.Errorf("the record is %+v", rec)
			}
			if rb := rec.Rollback; rb == nil || rb.Outcome != record.Succeeded || rb.PodUID != rec.PodUID {
				t.Errorf("the rollback is %+v", rb)
			}
			wantText(
				t,
				rec.Message,
				"the node was not confirmed within 1m0s",
				"the rollback ran on the node itself and ended with exit code 0",
			)
			w.Eventually("the node is Ready", func() error { return isReady(w.node(node)) })
			w.NoPods()
			w.wantRan(node, 1)
			w.wantReverts(node, 1)
			w.wantNothingKept(node)
			if after := w.sh(node, "ip route; ip -o link | cut -d, -f1-3; nft list tables inet"); after != before {
				t.Errorf("the node is not as before:\n%s\n--- before:\n%s", after, before)
			}
			w.Condition("bad", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
		})
	}
}

func isReady(node corev1.Node) error {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not Ready", node.Name)
}

// TestConfirmProbes : the kubelet still responds, and what the probe tests does not.
func TestConfirmProbes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	probe := func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Confirm.Probes = []v1alpha1.ConfirmProbe{
			{Name: "lo", Script: "ip -o link show lo | grep -q LOOPBACK,UP || { echo lo is down; exit 5; }"},
		}
	}
	w.job("bad", w.mark()+"; ip link set lo down", w.confirmed(60, "ip link set lo up"), probe)
	rec := w.failed("bad", node)
	if rec.Reason != v1alpha1.ReasonReverted {
		t.Errorf("the record is %+v", rec)
	}
	wantText(t, rec.Message, "the node was not confirmed within 1m0s: probe lo failed with exit code 5: lo is down")
	w.wantReverts(node, 1)
	w.job("good", "true", w.confirmed(60, "true"), probe)
	w.Done("good", node)

	w.sh(node, "ip link set lo down")
	w.job("never", w.mark(), w.confirmed(60, "true"), probe)
	if rec := w.failed(
		"never",
		node,
	); rec.Reason != v1alpha1.ReasonProbeFailed || rec.ExitCode == nil || *rec.ExitCode != 5 ||
		!rec.NeverStarted {
		t.Errorf("the record is %+v", rec)
	}
	w.wantRan(node, 1)

	// In another run, the probe fails before the task: the effect of the run before stays.
	w.sh(node, "nft add table inet mine")
	w.unlabel("good", node)
	if rec := w.failed("good", node); rec.Reason != v1alpha1.ReasonProbeFailed || !rec.NotStarted {
		t.Errorf("the record is %+v", rec)
	}
	root, err := install.Root()
	must(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "confirm.md"))
	must(t, err)
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	var described v1alpha1.NodeJob
	must(t, yaml.UnmarshalStrict([]byte(example), &described))
	w.job("example", "", func(s *v1alpha1.NodeJobSpec) {
		selector := s.Nodes.Selector
		*s = described.Spec
		s.Nodes.Selector = selector
	}, probe)
	w.failed("example", node)
	w.NoPods()
	w.wantReverts(node, 1)
	wantText(t, w.sh(node, "nft list tables"), "table inet mine")
	w.sh(node, "ip link set lo up")
	w.wantNothingKept(node)
}

// TestConfirmAfterTheTaskHasRestartedTheKubelet : the change is good, and the kubelet that reports it is another one.
func TestConfirmAfterTheTaskHasRestartedTheKubelet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("restart", w.mark()+"; pkill -x kubelet; pkill -x containerd; true", w.confirmed(60, "true"))
	if rec := w.Done("restart", node); rec.Attempts != 1 {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("restart")
	w.wantRan(node, 1)
	w.wantReverts(node, 0)
}

// waitsForConfirmation waits until a kubelet has reported that a task waits for its confirmation.
func (w *world) waitsForConfirmation() {
	w.T.Helper()
	w.Eventually("the kubelet has reported that the task waits", func() error {
		for _, pod := range w.Pods() {
			if len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].Ready {
				return nil
			}
		}
		return errors.New("it has not")
	})
}

// TestConfirmWithoutAManager : while no manager runs, no node is confirmed. The next one confirms those that still wait.
func TestConfirmWithoutAManager(t *testing.T) {
	w := newWorld(t)
	w.job("alone", w.hold(), onNode2, w.confirmed(120, "true"))
	w.runningPod("node-2")
	w.began("node-2")
	w.scaleManager(0)
	w.letGo("node-2")
	w.waitsForConfirmation()
	w.scaleManager(1)
	if rec := w.Done("alone", "node-2"); rec.Attempts != 1 {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("alone")
	w.wantReverts("node-2", 0)
}

// TestConfirmSurvivesARestartOfTheManager : a manager that ends without releasing its lease, in each phase of an attempt, has no node revert
// within the shortest window. The test logs how long a node waited for the next manager.
func TestConfirmSurvivesARestartOfTheManager(t *testing.T) {
	lost := func(w *world) { // its node is gone: the next one waits until the lease has expired
		pod := w.manager()
		w.signal(&pod, "STOP")
		must(w.T, admin.Delete(w.Ctx, &pod, client.GracePeriodSeconds(0)))
	}
	for name, tt := range map[string]struct {
		ends          func(w *world)
		whileTaskRuns bool
	}{
		"killed while the task runs": {func(w *world) { pod := w.manager(); w.signal(&pod, "KILL") }, true},
		"killed in the window":       {func(w *world) { pod := w.manager(); w.signal(&pod, "KILL") }, false},
		"lost while the task runs":   {lost, true},
		"lost in the window":         {lost, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.job("lives", w.hold(), onNode2, w.confirmed(task.MinConfirmSeconds, "true"))
			w.runningPod("node-2")
			w.began("node-2")
			if tt.whileTaskRuns {
				tt.ends(w)
				w.letGo("node-2")
				w.waitsForConfirmation()
			} else {
				// A manager that is frozen does not confirm before it ends.
				pod := w.manager()
				w.signal(&pod, "STOP")
				w.letGo("node-2")
				w.waitsForConfirmation()
				tt.ends(w)
			}
			ended := time.Now()
			if rec := w.Done("lives", "node-2"); rec.Attempts != 1 || rec.Reverted {
				t.Errorf("the record is %+v", rec)
			}
			t.Logf("the node was confirmed, and its attempt recorded, within %.1f s", time.Since(ended).Seconds())
			w.wantReverts("node-2", 0)
		})
	}
}

// TestConfirmPodDeletedInTheWindow : the pod reverts at once, and the task is repeated.
func TestConfirmPodDeletedInTheWindow(t *testing.T) {
	w := newWorld(t)
	// Without a manager, the window does not end.
	w.job("deleted", w.hold(), onNode2, w.confirmed(600, "true"))
	pod := w.runningPod("node-2")
	w.began("node-2")
	w.scaleManager(0)
	w.letGo("node-2")
	w.waitsForConfirmation()
	must(t, admin.Delete(w.Ctx, &pod))
	deleted := time.Now()
	w.Eventually("the pod has ended", func() error {
		for _, pod := range w.Pods() {
			for _, status := range pod.Status.ContainerStatuses {
				if s := status.State.Terminated; s != nil {
					wantText(t, s.Message, "the rollback ran on the node itself and ended with exit code 0")
					return nil
				}
			}
		}
		return errors.New("it has not")
	})
	if took := time.Since(deleted); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	w.scaleManager(1)
	w.Done("deleted", "node-2")
	w.complete("deleted")
	if got := strings.TrimSpace(w.sh("node-2", "wc -l < "+w.markFile()+".reverted")); got != "1" {
		t.Errorf("reverted %s times", got)
	}
}

// TestConfirmRebootInTheWindow : the node reboots without a shutdown. With systemd, a unit reverts it, and otherwise the next pod. Then
// the task runs again and is confirmed.
func TestConfirmRebootInTheWindow(t *testing.T) {
	for name, systemd := range map[string]bool{"with systemd": true, "without systemd": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node := w.join(cluster.NodeOptions{})
			if systemd { // the nodes of tests do not run it, and the test does what it would do
				w.sh(node, "mkdir -p /run/systemd/system")
			}
			w.job("boot", w.hold(), w.confirmed(600, "true"))
			w.runningPod(node)
			w.began(node)
			w.scaleManager(0)
			w.letGo(node)
			w.waitsForConfirmation()
			must(t, real.RebootReady(w.Ctx, node))
			w.wantReverts(node, 0)
			if systemd {
				w.sh(
					node,
					"cd /etc/systemd/system/multi-user.target.wants && eval \"$(sed -n s/^ExecStart=//p everynode-revert-*.service)\"",
				)
				w.wantReverts(node, 1)
				w.wantNothingKept(node)
			}
			w.scaleManager(1)
			if rec := w.Done("boot", node); rec.Attempts != 1 || rec.Reverted {
				t.Errorf("the record is %+v", rec)
			}
			w.complete("boot")
			w.wantRan(node, 2)
			w.wantReverts(node, 1)
			w.wantNothingKept(node)
		})
	}
}

// TestConfirmWithoutARunner : the task cuts its node off and ends what waits for the confirmation. The keeper reverts, and the failed
// attempt is rolled back in the usual way.
func TestConfirmWithoutARunner(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pid  string
		code int32
	}{
		"the runner": {pid: "$PPID", code: 137},
		"its shim":   {pid: `$(sed 's/.*) . \([0-9]*\) .*/\1/' /proc/$PPID/stat)`, code: 255}, // containerd does not know how it has ended
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			node := w.join(cluster.NodeOptions{})
			before := w.sh(node, "ip route; ip -o link | cut -d, -f1-3")
			w.job("bad", w.mark()+"\n"+saveRoutes+`ip link set "$dev" down; sync; kill -9 `+tt.pid+`; sleep 100`,
				w.confirmed(600, restoreLink), func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) })
			rec := w.failed("bad", node)
			if rec.ExitCode == nil || *rec.ExitCode != tt.code || rec.Attempts != 1 {
				t.Errorf("the record is %+v", rec)
			}
			w.Eventually("the node is Ready", func() error { return isReady(w.node(node)) })
			w.NoPods()
			w.wantRan(node, 1)
			if after := w.sh(node, "ip route; ip -o link | cut -d, -f1-3"); after != before {
				t.Errorf("the node is not as before:\n%s\n--- before:\n%s", after, before)
			}
			w.wantNothingKept(node)
		})
	}
}

// TestConfirmWithoutAnAPIServer : a node that nothing can confirm reverts, also if the API server is the reason.
func TestConfirmWithoutAnAPIServer(t *testing.T) {
	w := newWorld(t)
	w.job("away", w.hold(), onNode2, w.confirmed(60, "true"))
	w.runningPod("node-2")
	w.began("node-2")
	w.stopAPIServer()
	w.letGo("node-2")
	w.sh("node-2", "while pgrep -x everynode-runne >/dev/null; do sleep 0.1; done")
	w.startAPIServer()
	if rec := w.failed("away", "node-2"); rec.Reason != v1alpha1.ReasonReverted || rec.Attempts != 1 {
		t.Errorf("the record is %+v", rec)
	}
	w.NoPods()
	w.wantReverts("node-2", 1)
	w.wantRan("node-2", 1)
}
