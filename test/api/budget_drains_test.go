// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/uninstall"
)

const (
	karpenterTaint  = "karpenter.sh/disrupted"
	autoscalerTaint = "ToBeDeletedByClusterAutoscaler"
	// refused is what the API server answers to an eviction that a PodDisruptionBudget does not allow.
	refused = "Cannot evict pod as it would violate the pod's disruption budget."
)

var errWaits = errors.New("the tool waits")

// TestABudgetBindsOtherTools : tools that drain nodes, in the order of their requests to the API server, while a user has drained a node
// of a cluster in which one node, and one of each zone, may be unavailable.
func TestABudgetBindsOtherTools(t *testing.T) {
	b := newBudgeted(t)
	for _, name := range []string{"a0", "a1", "b0", "b1"} {
		b.join(name, inZone(name))
	}
	b.startManager()
	b.budget("one", func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
		spec.Limits = append(spec.Limits, v1alpha1.BudgetLimit{MaxUnavailable: number(1), TopologyKey: corev1.LabelTopologyZone})
	})
	b.has("one", 4, 0, 1)
	most := b.watchAway()
	for _, tt := range []struct {
		name string
		play func(*tool)
		// sees is a part of what the tool reports while it must wait. by is who waits for a node, according to the budget; "" if the
		// tool has chosen no node yet.
		sees, by string
	}{
		{"Karpenter", karpenter, "a0: PodDisruptionBudget everynode-seats-", ""},
		{"cluster-autoscaler", clusterAutoscaler, ": " + refused, "tainted by cluster-autoscaler"},
		{"kured", kured, refused, "cordoned"},
		{"a surge upgrade", surgeUpgrade, ": " + refused, "cordoned"},
	} {
		b.has("one", 4, 0, 1)
		b.granting(1)
		p := &tool{budgeted: b, by: tt.by, away: b.nodeNames()[3]}
		must(t, b.kubectl("drain "+p.away+" --timeout=30s"))
		b.has("one", 3, 1, 0)
		tt.play(p)
		if !strings.Contains(p.saw, tt.sees) {
			t.Errorf("%s sees %q while it waits, want %q", tt.name, p.saw, tt.sees)
		}
	}
	b.has("one", 4, 0, 1)
	b.granting(1)
	b.overlapped(b.nodeNames()[0])
	if got := most(); got != 1 {
		t.Errorf("at most %d nodes were unavailable at the same time, want 1", got)
	}
}

// overlapped has a user create a PodDisruptionBudget that selects all pods of the namespace of the manager, and drain a node.
func (b *budgeted) overlapped(node string) {
	b.T.Helper()
	theirs := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: uninstall.Namespace, Name: "theirs"}}
	theirs.Spec.Selector, theirs.Spec.MaxUnavailable = &metav1.LabelSelector{}, number(1)
	must(b.T, b.admin.Create(b.Ctx, theirs))
	b.Within(time.Minute, 50*time.Millisecond, "the budget is Stalled because of the PodDisruptionBudget of a user", func() error {
		var ndb v1alpha1.NodeDisruptionBudget
		if err := b.admin.Get(b.Ctx, client.ObjectKey{Name: "one"}, &ndb); err != nil {
			return err
		}
		c := meta.FindStatusCondition(ndb.Status.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonOverlappingBudget ||
			!strings.Contains(c.Message, "theirs") {
			return fmt.Errorf("the status is %+v", ndb.Status)
		}
		return nil
	})
	if err := b.kubectl(
		"drain " + node + " --timeout=4s",
	); err == nil ||
		!strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		b.T.Errorf("the drain of a node whose seat has two PodDisruptionBudgets: %v", err)
	}
	must(b.T, b.admin.Delete(b.Ctx, theirs))
	must(b.T, b.kubectl("drain "+node+" --timeout=60s"))
	must(b.T, b.kubectl("uncordon "+node))
	b.has("one", 4, 0, 1)
}

func inZone(node string) map[string]string {
	return map[string]string{corev1.LabelTopologyZone: node[:1]}
}

// tool plays a tool that drains nodes.
type tool struct {
	*budgeted
	// by is who waits, according to the budget. away is a node that a user has drained. It returns when the tool has to wait.
	by, away string
	// saw is what the tool reported when it had to wait.
	saw string
}

// waits is called when the tool cannot continue.
func (p *tool) waits(format string, args ...any) {
	p.T.Helper()
	if p.saw != "" {
		return
	}
	p.saw = fmt.Sprintf(format, args...)
	if p.by != "" {
		p.Within(30*time.Second, 50*time.Millisecond, "the budget says that "+p.by+" waits", func() error {
			var ndb v1alpha1.NodeDisruptionBudget
			if err := p.admin.Get(p.Ctx, client.ObjectKey{Name: "one"}, &ndb); err != nil {
				return err
			}
			for _, w := range ndb.Status.Waiting {
				if w.By == p.by && w.Reason == v1alpha1.ReasonMaxUnavailableReached && strings.Contains(w.Message, p.away) {
					return nil
				}
			}
			return fmt.Errorf("the status is %+v", ndb.Status)
		})
	}
	must(p.T, p.kubectl("uncordon "+p.away))
}

// karpenter replaces a node. It ignores nodes with pods whose PodDisruptionBudget allows no eviction (pkg/utils/pdb). It then taints the
// node, creates another one, and deletes the Node, whose finalizer waits until all pods are evicted.
func karpenter(p *tool) {
	var node string
	p.Within(time.Minute, 50*time.Millisecond, "Karpenter finds a candidate", func() error {
		for _, name := range p.nodeNames() {
			blocking := p.blocking(name)
			if blocking == "" {
				node = name
				return nil
			}
			p.waits("%s: PodDisruptionBudget %s prevents pod evictions", name, blocking)
		}
		return errWaits
	})
	const finalizer = "karpenter.sh/termination"
	p.patch(node, `{"metadata":{"finalizers":[%q]},"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, finalizer, karpenterTaint)
	p.join(node+"-new", inZone(node))
	must(p.T, p.admin.Delete(p.Ctx, p.node(node)))
	p.evictAll(time.Minute, node)
	p.patch(node, `{"metadata":{"finalizers":null}}`)
}

// clusterAutoscaler removes a node, and adds another one. It ignores the PodDisruptionBudgets of pods with the annotation
// cluster-autoscaler.kubernetes.io/safe-to-evict, such as seats (simulator/drainability/rules). If the evictions do not succeed within
// --max-pod-eviction-time, it removes its taint and tries another node.
func clusterAutoscaler(p *tool) {
	p.Within(time.Minute, 0, "cluster-autoscaler removes a node", func() error {
		for _, node := range p.nodeNames() {
			if node == p.away {
				continue
			}
			p.patch(node, `{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, autoscalerTaint)
			if !p.evictAll(time.Second, node) {
				p.patch(node, `{"spec":{"taints":null}}`)
				continue
			}
			must(p.T, p.admin.Delete(p.Ctx, p.node(node)))
			p.join(node+"-up", inZone(node))
			return nil
		}
		return errWaits
	})
}

// kured reboots two nodes, one after the other, with a lock in an annotation of its DaemonSet. Its drain is that of kubectl. If this
// fails within --drain-timeout, kured uncordons the node, and tries again later.
func kured(p *tool) {
	lock := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kured"}}
	lock.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "kured"}}
	lock.Spec.Template.Labels = lock.Spec.Selector.MatchLabels
	lock.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kured", Image: "registry.test/kured:1"}}
	must(p.T, p.admin.Create(p.Ctx, lock))
	for _, node := range p.nodeNames()[:2] {
		p.Within(time.Minute, 0, "kured drains "+node, func() error {
			p.setLock(lock, `"`+node+`"`)
			must(p.T, p.kubectl("cordon "+node))
			err := p.kubectl("drain " + node + " --force --ignore-daemonsets --delete-emptydir-data --timeout=7s")
			if err != nil {
				p.waits("%v", err)
				must(p.T, p.kubectl("uncordon "+node))
				p.setLock(lock, "null")
			}
			return err
		})
		p.setReady(node, corev1.ConditionFalse, "boot-1")
		p.setReady(node, corev1.ConditionTrue, "boot-2")
		must(p.T, p.kubectl("uncordon "+node))
		p.setLock(lock, "null")
	}
}

func (p *tool) setLock(lock *appsv1.DaemonSet, holder string) {
	p.T.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"weave.works/kured-node-lock":%s}}}`, holder)
	must(p.T, p.admin.Patch(p.Ctx, lock, client.RawPatch(types.MergePatchType, patch)))
}

func (p *tool) setReady(name string, status corev1.ConditionStatus, boot string) {
	p.T.Helper()
	node := p.node(name)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()}}
	node.Status.NodeInfo.BootID = boot
	must(p.T, p.admin.Status().Update(p.Ctx, node))
}

// surgeUpgrade replaces all nodes, two at a time: it adds two nodes, cordons and drains two old ones, and deletes each that is empty.
func surgeUpgrade(p *tool) {
	for pair := range slices.Chunk(p.nodeNames(), 2) {
		for _, node := range pair {
			p.join(node+"-v2", inZone(node))
			must(p.T, p.kubectl("cordon "+node))
		}
		for len(pair) > 0 {
			pair = slices.DeleteFunc(pair, func(node string) bool {
				empty := p.evictAll(0, node)
				if empty {
					must(p.T, p.admin.Delete(p.Ctx, p.node(node)))
				}
				return empty
			})
		}
	}
}

// evictAll evicts all pods of a node, and reports whether none is left after a limited time.
func (p *tool) evictAll(limit time.Duration, node string) (empty bool) {
	p.T.Helper()
	for deadline := time.Now().Add(limit); ; {
		var pods corev1.PodList
		must(p.T, p.admin.List(p.Ctx, &pods, client.MatchingFields{"spec.nodeName": node}))
		if len(pods.Items) == 0 {
			return true
		}
		for i := range pods.Items {
			switch err := p.admin.SubResource("eviction").Create(p.Ctx, &pods.Items[i], &policyv1.Eviction{}); {
			case apierrors.IsTooManyRequests(err):
				p.waits("%s: %v", node, err)
			case client.IgnoreNotFound(err) != nil:
				p.T.Fatalf("evicting a pod of %s: %v", node, err)
			}
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// blocking returns the PodDisruptionBudget that allows no eviction of a pod of a node; "" if there is none.
func (p *tool) blocking(node string) string {
	p.T.Helper()
	var pods corev1.PodList
	var budgets policyv1.PodDisruptionBudgetList
	must(p.T, p.admin.List(p.Ctx, &pods, client.MatchingFields{"spec.nodeName": node}))
	must(p.T, p.admin.List(p.Ctx, &budgets))
	for _, pod := range pods.Items {
		for _, pdb := range budgets.Items {
			selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
			must(p.T, err)
			if pdb.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) && pdb.Status.DisruptionsAllowed == 0 {
				return pdb.Name
			}
		}
	}
	return ""
}

func (p *tool) patch(node, format string, args ...any) {
	p.T.Helper()
	must(p.T, p.admin.Patch(p.Ctx, p.node(node), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))))
}

func (p *tool) node(name string) *corev1.Node {
	p.T.Helper()
	node := &corev1.Node{}
	must(p.T, p.admin.Get(p.Ctx, client.ObjectKey{Name: name}, node))
	return node
}

// nodeNames are the names of all nodes, sorted.
func (b *budgeted) nodeNames() []string {
	b.T.Helper()
	var nodes corev1.NodeList
	must(b.T, b.admin.List(b.Ctx, &nodes))
	names := make([]string, 0, len(nodes.Items))
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	return names
}
