// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// bindGate makes the API server taint nodes for the gated NodeJobs of the test's namespace, as an
// administrator does once for a namespace, and waits until the job's status says that it does.
func (w *world) bindGate(job string) {
	w.T.Helper()
	w.needsPolicies()
	allow := admissionv1.AllowAction
	for _, policy := range []string{"everynode-gate", "everynode-manager"} {
		binding := &admissionv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: policy + "-" + w.Namespace},
			Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: policy,
				ParamRef: &admissionv1.ParamRef{
					Namespace:               w.Namespace,
					Selector:                &metav1.LabelSelector{},
					ParameterNotFoundAction: &allow,
				},
			},
		}
		must(w.T, admin.Create(w.Ctx, binding))
		w.T.Cleanup(func() { _ = admin.Delete(context.Background(), binding) })
	}
	w.Condition(job, v1alpha1.ConditionGateEnforced, metav1.ConditionTrue, v1alpha1.ReasonAdmissionPolicy)
	// The admission plugin observes bindings and NodeJobs shortly after the API server has stored them.
	w.Eventually("the API server taints a node", func() error {
		probe := w.probe()
		if err := admin.Create(w.Ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if !slices.ContainsFunc(probe.Spec.Taints, func(t corev1.Taint) bool { return t.Value == v1alpha1.GateValue }) {
			return fmt.Errorf("its taints are %v", probe.Spec.Taints)
		}
		return nil
	})
}

// needsPolicies skips a test of the policies of config/gate where the API server does not serve them.
func (w *world) needsPolicies() {
	w.T.Helper()
	served, err := install.ServesPolicies(real.KubernetesVersion())
	must(w.T, err)
	if !served {
		w.T.Skip(install.WhyNoPolicies(real.KubernetesVersion()))
	}
}

// probe is a node that would be selected if it were created.
func (w *world) probe() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "probe-" + w.Namespace, Labels: map[string]string{"world": w.Namespace, "kubernetes.io/hostname": "node-1"},
	}}
}

func tainted(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// waiting are pods that wait for any node of this test, one for each.
func (w *world) waiting(n int) {
	w.T.Helper()
	for i := range n {
		must(w.T, admin.Create(w.Ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.Namespace,
				Name:      fmt.Sprintf("waits-%d", i),
				Labels:    map[string]string{"app": "waits"},
			},
			Spec: corev1.PodSpec{
				NodeSelector:                  map[string]string{"world": w.Namespace},
				TerminationGracePeriodSeconds: new(int64(0)),
				Containers: []corev1.Container{{Name: "pause", Image: pauseImage,
					Ports: []corev1.ContainerPort{{ContainerPort: 8765, HostPort: 8765}}}}, // only one fits on a node
			},
		}))
	}
}

// joinLog notes at which resource versions, which are in one order for all objects, pods were bound to nodes,
// and nodes were done.
type joinLog struct {
	mu           sync.Mutex
	bound, done  map[string]uint64
	opened, seen map[string]time.Time
}

func (w *world) logJoins(job string) *joinLog {
	w.T.Helper()
	cfg, err := real.RESTConfig()
	must(w.T, err)
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: admin.Scheme()})
	must(w.T, err)
	log := &joinLog{bound: map[string]uint64{}, done: map[string]uint64{}, opened: map[string]time.Time{}, seen: map[string]time.Time{}}
	key := v1alpha1.RecordKey(w.Namespace, job)
	w.follow(
		c,
		&log.mu,
		&corev1.NodeList{},
		func(o client.Object, version uint64) { log.node(o.(*corev1.Node), key, version) },
		client.MatchingLabels{"world": w.Namespace},
	)
	w.follow(c, &log.mu, &corev1.PodList{}, func(o client.Object, version uint64) {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName != "" {
			if _, known := log.bound[pod.Spec.NodeName]; !known {
				log.bound[pod.Spec.NodeName] = version
			}
		}
	}, client.InNamespace(w.Namespace), client.MatchingLabels{"app": "waits"})
	return log
}

func (l *joinLog) node(node *corev1.Node, key string, version uint64) {
	if _, known := l.seen[node.Name]; !known {
		l.seen[node.Name] = time.Now()
	}
	if on := record.Read(node.Labels, node.Annotations, key); on.Label == "" || tainted(node, key) {
		return
	}
	if _, known := l.done[node.Name]; !known {
		l.done[node.Name], l.opened[node.Name] = version, time.Now()
	}
}

// follow calls see for each version of each object, one at a time.
func (w *world) follow(
	c client.WithWatch,
	mu sync.Locker,
	list client.ObjectList,
	see func(client.Object, uint64),
	options ...client.ListOption,
) {
	w.T.Helper()
	watcher, err := c.Watch(w.Ctx, list, options...)
	must(w.T, err)
	w.T.Cleanup(watcher.Stop)
	go func() {
		for e := range watcher.ResultChan() {
			o, ok := e.Object.(client.Object)
			if !ok || e.Type == watch.Error {
				continue
			}
			version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
			if err == nil {
				mu.Lock()
				see(o, version)
				mu.Unlock()
			}
		}
	}()
}

// wantBoundAfterDone fails when a pod was bound to a node before the node was done.
func (w *world) wantBoundAfterDone(log *joinLog, nodes int) {
	w.T.Helper()
	w.Eventually("each node has got its pod", func() error {
		log.mu.Lock()
		defer log.mu.Unlock()
		if len(log.bound) < nodes || len(log.done) < nodes {
			return fmt.Errorf("%d of %d have, and %d are done", len(log.bound), nodes, len(log.done))
		}
		return nil
	})
	log.mu.Lock()
	defer log.mu.Unlock()
	for node, bound := range log.bound {
		if done, ok := log.done[node]; !ok || bound < done {
			w.T.Errorf("a pod was bound to %s at version %d, and the node was done at %d", node, bound, done)
		}
	}
}

func gated(s *v1alpha1.NodeJobSpec) { s.Gate = &v1alpha1.GateSpec{} }

func TestR04_ATaintKeepsWorkloadsOffANodeUntilItIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("setup", w.hold(), gated)
	w.bindGate("setup")
	w.waiting(1)
	log := w.logJoins("setup")
	key := v1alpha1.RecordKey(w.Namespace, "setup")
	node := w.join(cluster.NodeOptions{})
	w.began(node)
	live := w.node(node)
	if !tainted(&live, key) {
		t.Fatalf("the node's taints are %v", live.Spec.Taints)
	}
	w.Eventually("the status counts the closed gate", func() error {
		if g := w.Get("setup").Status.Gate; g == nil || g.Closed != 1 || g.Key != key {
			return fmt.Errorf("it is %+v", g)
		}
		return nil
	})
	w.letGo(node)
	w.Done("setup", node)
	w.complete("setup")
	w.wantBoundAfterDone(log, 1)
	if live = w.node(node); tainted(&live, key) {
		t.Errorf("the node's taints are %v", live.Spec.Taints)
	}
	if other := w.node("node-2"); tainted(&other, key) {
		t.Error("a node that the NodeJob is not for has its taint")
	}

	// A rerun does not close the gate again.
	w.sh(node, "rm "+w.markFile()+".go")
	w.unlabel("setup", node)
	w.Eventually("it runs again", func() error {
		if w.On("setup", node).Label != "" || len(w.Pods()) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if live = w.node(node); tainted(&live, key) {
		t.Errorf("in its second run the node's taints are %v", live.Spec.Taints)
	}
	w.letGo(node)
	w.Done("setup", node)

	// The gate is removed with the NodeJob.
	job := w.Get("setup")
	must(t, admin.Delete(w.Ctx, &job))
	w.gone("setup", node)
	w.Eventually("nodes are not tainted any more", func() error {
		probe := w.probe()
		must(t, admin.Create(w.Ctx, probe, client.DryRunAll))
		if tainted(probe, key) {
			return fmt.Errorf("one would have %v", probe.Spec.Taints)
		}
		return nil
	})
}

// TestR04_AStartupTaintOpensWhenTheLastNodeJobIsDone is for a node whose kubelet registers with a taint of the
// user's, as those of Karpenter do.
func TestR04_AStartupTaintOpensWhenTheLastNodeJobIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const key = "example.com/not-set-up"
	startup := func(s *v1alpha1.NodeJobSpec) { s.Gate = &v1alpha1.GateSpec{Key: key} }
	w.job("first", "true", startup)
	w.job("last", w.hold(), startup)
	w.Condition("first", v1alpha1.ConditionGateEnforced, metav1.ConditionFalse, v1alpha1.ReasonNoAdmissionPolicy)
	node := w.join(cluster.NodeOptions{Taints: []corev1.Taint{
		{Key: key, Value: "theirs", Effect: corev1.TaintEffectNoSchedule},
		{Key: "example.com/stays", Effect: corev1.TaintEffectPreferNoSchedule},
	}})
	w.Done("first", node)
	w.began(node)
	live := w.node(node)
	if !tainted(&live, key) {
		t.Fatalf("it is open before the second NodeJob is done: %v", live.Spec.Taints)
	}
	w.letGo(node)
	w.Done("last", node)
	w.Eventually("the node is open", func() error {
		live := w.node(node)
		if tainted(&live, key) || !tainted(&live, "example.com/stays") {
			return fmt.Errorf("its taints are %v", live.Spec.Taints)
		}
		return nil
	})
}

// TestR23_NoPodStartsOnANodeThatJoinsWhileTheManagerIsAway runs with the API server alone, without a manager.
func TestR23_NoPodStartsOnANodeThatJoinsWhileTheManagerIsAway(t *testing.T) {
	w := newWorld(t)
	w.job("setup", "true", gated)
	w.bindGate("setup")
	w.waiting(1)
	log := w.logJoins("setup")
	w.scaleManager(0)
	t.Cleanup(func() { w.scaleManager(1) })
	node := w.join(cluster.NodeOptions{}) // and is Ready
	w.Eventually("the scheduler has failed to use the node", func() error {
		var pod corev1.Pod
		must(t, admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "waits-0"}, &pod))
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
				strings.Contains(c.Message, "1 node(s) had untolerated taint(s)") {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", pod.Status.Conditions)
	})
	live := w.node(node)
	if key := v1alpha1.RecordKey(w.Namespace, "setup"); !tainted(&live, key) {
		t.Fatalf("the node's taints are %v", live.Spec.Taints)
	}
	w.scaleManager(1)
	w.Done("setup", node)
	w.wantBoundAfterDone(log, 1)
}

// TestTheManagerIsLetOntoAGatedNode closes the only node that the manager may go to, and ends the manager.
func TestTheManagerIsLetOntoAGatedNode(t *testing.T) {
	w := newWorld(t)
	manager := w.manager()
	own := manager.Spec.NodeName
	w.job("setup", w.hold(), onNodes(own), func(s *v1alpha1.NodeJobSpec) { s.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll} })
	w.bindGate("setup")
	w.began(own)
	w.Eventually("the node is closed", func() error {
		if live := w.node(own); !tainted(&live, v1alpha1.RecordKey(w.Namespace, "setup")) {
			return fmt.Errorf("its taints are %v", live.Spec.Taints)
		}
		return nil
	})
	must(t, admin.Delete(w.Ctx, &manager))
	if again := w.manager(); again.UID == manager.UID || again.Spec.NodeName != own {
		t.Errorf("the manager is %s on %s", again.UID, again.Spec.NodeName)
	}
	w.letGo(own)
	w.Done("setup", own)
	w.Eventually("the node is open", func() error {
		if live := w.node(own); tainted(&live, v1alpha1.RecordKey(w.Namespace, "setup")) {
			return fmt.Errorf("its taints are %v", live.Spec.Taints)
		}
		return nil
	})
}

// TestR23_NoPodStartsOnAHundredJoiningNodesBeforeTheyAreDone has a pod ready for each node that joins, which the
// scheduler binds as soon as it may.
func TestR23_NoPodStartsOnAHundredJoiningNodesBeforeTheyAreDone(t *testing.T) {
	t.Parallel()
	const joins = 100
	w := newWorld(t)
	w.job("setup", "true", gated)
	w.bindGate("setup")
	w.waiting(joins)
	log := w.logJoins("setup")
	for i := range joins {
		w.join(cluster.NodeOptions{Name: fmt.Sprintf("sim-%s-%d", w.Namespace, i), Simulated: true})
	}
	w.complete("setup")
	w.wantBoundAfterDone(log, joins)
}
