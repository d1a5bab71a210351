// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// leader waits until a manager other than the given one holds the lease, and returns its pod's name. The
// number grows each time that the lease changes hands.
func (w *world) leader(other string) (holder string, transitions int32) {
	w.T.Helper()
	w.Eventually("a manager leads", func() error {
		var lease coordinationv1.Lease
		if err := admin.Get(w.Ctx, client.ObjectKey{Namespace: install.Namespace, Name: install.Deployment}, &lease); err != nil {
			return err
		}
		if h := lease.Spec.HolderIdentity; h == nil || *h == "" || *h == other {
			return fmt.Errorf("the lease is %+v", lease.Spec)
		}
		holder, transitions = *lease.Spec.HolderIdentity, *lease.Spec.LeaseTransitions
		return nil
	})
	return holder, transitions
}

// twoManagers runs two, until the end of the test. They have no liveness probe: it would have the one that
// is frozen restarted, at about the time when its lease has run out.
func (w *world) twoManagers() {
	w.T.Helper()
	change := func(replicas int, patch string) {
		w.T.Helper()
		w.kubectl("-n", install.Namespace, "patch", "deployment", install.Deployment, "-p", patch)
		w.kubectl("-n", install.Namespace, "rollout", "status", "deployment", install.Deployment, "--timeout=60s")
		w.Eventually(fmt.Sprintf("%d managers are there", replicas), func() error {
			var pods corev1.PodList
			if err := admin.List(w.Ctx, &pods, client.InNamespace(install.Namespace), managerPods); err != nil {
				return err
			}
			if len(pods.Items) != replicas {
				return fmt.Errorf("%d are", len(pods.Items))
			}
			return nil
		})
	}
	var before appsv1.Deployment
	must(w.T, admin.Get(w.Ctx, client.ObjectKey{Namespace: install.Namespace, Name: install.Deployment}, &before))
	probe, err := json.Marshal(before.Spec.Template.Spec.Containers[0].LivenessProbe)
	must(w.T, err)
	const patch = `{"spec":{"replicas":%d,"template":{"spec":{"containers":[{"name":"manager","livenessProbe":%s}]}}}}`
	w.T.Cleanup(func() { change(1, fmt.Sprintf(patch, 1, probe)) })
	change(2, fmt.Sprintf(patch, 2, "null"))
}

// signal sends a signal to the manager of a pod, of which there may be several on a node.
func (w *world) signal(pod *corev1.Pod, signal string) {
	w.T.Helper()
	w.sh(pod.Spec.NodeName, fmt.Sprintf(`
for p in $(pgrep -x everynode); do
  if tr '\0' '\n' < /proc/$p/environ | grep -qx POD_NAME=%s; then kill -%s $p; exit; fi
done
echo there is none >&2; exit 1`, pod.Name, signal))
}

// TestTwoManagersWithForcedLeaderChanges freezes the leading manager until its lease has expired, and resumes it after
// the other manager has become the leader: the first one still assumes that it leads. Then the other manager is
// deleted, and releases its lease. No task is lost, repeated, or started too early.
func TestTwoManagersWithForcedLeaderChanges(t *testing.T) {
	w := newWorld(t)
	held := []string{"node-1", "node-2", w.join(cluster.NodeOptions{Name: "slow-lead"})}
	nodes := append([]string{}, held...)
	// Nodes start in the order of their names: the nodes in held, with simulated ones in between.
	for i := range 3 {
		nodes = append(nodes, w.join(cluster.NodeOptions{Name: fmt.Sprintf("quick-lead-%d", i), Simulated: true}),
			w.join(cluster.NodeOptions{Name: fmt.Sprintf("the-last-lead-%d", i), Simulated: true}))
	}
	w.twoManagers()
	log := w.logPods()
	w.job("led", w.hold(), onNodes(nodes...), func(s *v1alpha1.NodeJobSpec) { s.Rollout.MaxConcurrent = new(intstr.FromInt32(2)) })
	w.began("node-1")
	w.began("node-2")

	first, _ := w.leader("")
	var frozen corev1.Pod
	must(t, admin.Get(w.Ctx, client.ObjectKey{Namespace: install.Namespace, Name: first}, &frozen))
	w.signal(&frozen, "STOP")
	w.letGo("node-1")
	silent := time.Now()
	second, transitions := w.leader(first)
	t.Logf("%s leads %.1f s after %s was frozen", second, time.Since(silent).Seconds(), first)
	w.Done("led", "node-1")
	w.signal(&frozen, "CONT")
	thawed := time.Now()
	w.Eventually("the manager that was frozen has noticed that it does not lead", func() error {
		var now corev1.Pod
		if err := admin.Get(w.Ctx, client.ObjectKeyFromObject(&frozen), &now); err != nil {
			return err
		}
		// It may be a while before the kubelet starts it again.
		if restarts(&now) == restarts(&frozen) && now.Status.ContainerStatuses[0].State.Running != nil {
			return errors.New("it continues")
		}
		return nil
	})
	if took := time.Since(thawed); took > 10*time.Second {
		t.Errorf("the manager that was frozen went on to lead for %s beside the other", took)
	}
	if now, changes := w.leader(""); now != second || changes != transitions {
		t.Errorf("%s leads after %d changes: the manager that was frozen has taken the lease from %s", now, changes, second)
	}

	w.began("slow-lead")
	if live := w.Get("led"); live.Status.Nodes.Waiting == 0 {
		t.Error("nothing is left for another leader to start")
	}
	must(t, admin.Delete(w.Ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: second}}))
	w.letGo("node-2")
	silent = time.Now()
	third, _ := w.leader(second)
	t.Logf("%s leads %.1f s after %s was deleted", third, time.Since(silent).Seconds(), second)
	w.Done("led", "node-2")
	w.letGo("slow-lead")
	w.complete("led")

	if story := log.story("led"); len(story) != len(nodes) {
		t.Errorf("for %d nodes the pods were %q", len(nodes), story)
	}
	for _, node := range nodes {
		if rec := w.Done("led", node); rec.Attempts != 1 {
			t.Errorf("the record of %s is %+v", node, rec)
		}
	}
	for _, node := range held {
		w.wantRan(node, 1)
	}
	if most := log.mostAtOnce(); most != 2 {
		t.Errorf("%d nodes ran at once, and 2 may", most)
	}
}
