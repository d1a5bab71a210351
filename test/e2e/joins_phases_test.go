// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
)

// TestHowLongAJoiningNodeIsClosed never fails: it prints the figures of docs/gate.md.
func TestHowLongAJoiningNodeIsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("setup", "true", gated)
	w.bindGate("setup")
	log := w.logJoins("setup")
	phases := w.logPhases("setup")
	var names []string
	for range 3 {
		names = append(names, w.join(cluster.NodeOptions{}))
	}
	for _, node := range names {
		w.Done("setup", node)
	}
	w.complete("setup")
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, name := range names {
		live := w.node(name)
		var ready time.Time
		for _, c := range live.Status.Conditions {
			if c.Type == corev1.NodeReady {
				ready = c.LastTransitionTime.Time
			}
		}
		registered := log.seen[name]
		t.Logf("node %s: open %.1f s after it registered, and Ready %.0f s after (to the second); %s",
			name, log.opened[name].Sub(registered).Seconds(), ready.Sub(live.CreationTimestamp.Time).Seconds(), phases.of(name, registered))
	}
}

// phaseLog notes when a watch first shows each phase of the pod of a task.
type phaseLog struct {
	mu   sync.Mutex
	seen map[string]map[string]time.Time // by node and phase
}

// podPhases are in the order of a pod's life. A kubelet may report several at once.
var podPhases = []string{"pod created", "sandbox ready", "container running", "container ended", "pod deleted"}

func (w *world) logPhases(job string) *phaseLog {
	w.T.Helper()
	cfg, err := real.RESTConfig()
	must(w.T, err)
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: admin.Scheme()})
	must(w.T, err)
	log := &phaseLog{seen: map[string]map[string]time.Time{}}
	w.follow(c, &log.mu, &corev1.PodList{}, func(o client.Object, _ uint64) { log.pod(o.(*corev1.Pod)) },
		client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.NodeJobLabel: job})
	return log
}

func (l *phaseLog) pod(pod *corev1.Pod) {
	reached := map[string]bool{"pod created": true, "pod deleted": !pod.DeletionTimestamp.IsZero()}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue {
			reached["sandbox ready"] = true
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		reached["container ended"] = c.State.Terminated != nil
		reached["container running"] = c.State.Running != nil || c.State.Terminated != nil
	}
	if l.seen[pod.Spec.NodeName] == nil {
		l.seen[pod.Spec.NodeName] = map[string]time.Time{}
	}
	for phase, now := range reached {
		if _, known := l.seen[pod.Spec.NodeName][phase]; now && !known {
			l.seen[pod.Spec.NodeName][phase] = time.Now()
		}
	}
}

// of lists the phases that were seen on a node, in seconds after a time.
func (l *phaseLog) of(node string, since time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var said []string
	for _, phase := range podPhases {
		if at, ok := l.seen[node][phase]; ok {
			said = append(said, fmt.Sprintf("%s %.2f", phase, at.Sub(since).Seconds()))
		}
	}
	return strings.Join(said, ", ")
}
