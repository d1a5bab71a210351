// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestTheAPIRejectsNodeGuardsThatCannotWork sends what a user would write. Each message must say what to write instead.
func TestTheAPIRejectsNodeGuardsThatCannotWork(t *testing.T) {
	w := newWorld(t)
	with := func(rest string) string { return `{target: {daemonSet: a}, ` + rest + `}` }
	for name, test := range map[string]struct{ name, spec, want string }{
		"no target":                              {spec: `{maxUnavailable: 1}`, want: "spec.target: Required value"},
		"an empty target":                        {spec: `{target: {}}`, want: "set exactly one of target.daemonSet and target.podSelector"},
		"two targets":                            {spec: `{target: {daemonSet: a, podSelector: {matchLabels: {a: b}}}}`, want: "set exactly one of"},
		"a selector of everything":               {spec: `{target: {podSelector: {}}}`, want: "target.podSelector is empty"},
		"a template without containers":          {spec: with(`template: {spec: {containers: []}}`), want: "template.spec.containers is empty"},
		"a template without spec":                {spec: with(`template: {}`), want: "template.spec.containers is empty"},
		"a template that chooses nodes":          {spec: with(`template: {spec: {nodeSelector: {a: b}, containers: [{name: a, image: b}]}}`), want: "a companion is where the target's pods are"},
		"a template that runs once":              {spec: with(`template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}`), want: "restartPolicy must be Always or omitted"},
		"fewer than zero nodes":                  {spec: with(`maxUnavailable: -1`), want: "maxUnavailable must be a number of nodes"},
		"more than all nodes":                    {spec: with(`maxUnavailable: "101%"`), want: "maxUnavailable must be a number of nodes"},
		"a number that is a string":              {spec: with(`maxUnavailable: "2"`), want: "maxUnavailable must be a number of nodes"},
		"another kind of approval":               {spec: with(`release: {approval: Never}`), want: `supported values: "Required"`},
		"a check with nothing in it":             {spec: with(`release: {check: {}}`), want: "set exactly one of release.check.script and release.check.container"},
		"a check with both":                      {spec: with(`release: {check: {script: "true", container: {image: a}}}`), want: "set exactly one of release.check.script"},
		"a check with Windows line endings":      {spec: with(`release: {check: {script: "true\r\n"}}`), want: "release.check.script has Windows line endings (CRLF)"},
		"a check with only blanks":               {spec: with(`release: {check: {script: " "}}`), want: "release.check.script is empty"},
		"a check without an image":               {spec: with(`release: {check: {container: {command: [a]}}}`), want: "spec.release.check.container.image: Required value"},
		"a script with an account":               {spec: with(`release: {check: {script: "true", serviceAccountName: a}}`), want: "works with release.check.container only"},
		"a check with a timeout of zero":         {spec: with(`release: {check: {script: "true", timeoutSeconds: 0}}`), want: "greater than or equal to 1"},
		"a check once a day":                     {spec: with(`release: {check: {script: "true", periodSeconds: 86400}}`), want: "less than or equal to 3600"},
		"a deadline of zero":                     {spec: with(`release: {deadlineSeconds: 0}`), want: "greater than or equal to 1"},
		"an action without a deadline":           {spec: with(`release: {onDeadline: Release}`), want: "release.onDeadline needs release.deadlineSeconds"},
		"an unknown action at the deadline":      {spec: with(`release: {deadlineSeconds: 5, onDeadline: Kill}`), want: `supported values: "Hold", "Release"`},
		"a name that is not a valid label value": {name: strings.Repeat("n", 64), spec: with(`maxUnavailable: 1`), want: "metadata.name must have at most 63 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			o := jobFromYAML(t, w.Namespace, test.name, test.spec)
			o.SetKind("NodeGuard")
			if err := admin.Create(w.Ctx, o); !apierrors.IsInvalid(err) {
				t.Fatalf("the API server answered %v, want Invalid", err)
			} else {
				wantText(t, err.Error(), test.want)
			}
		})
	}
	for name, spec := range map[string]string{
		"the minimum":    `{target: {daemonSet: a}}`,
		"no nodes":       with(`maxUnavailable: 0`),
		"zero percent":   with(`maxUnavailable: "0%"`),
		"a percentage":   with(`maxUnavailable: "25%"`),
		"a check":        with(`release: {check: {container: {image: a, command: [b], env: [{name: A, value: b}]}, serviceAccountName: c}, deadlineSeconds: 5}`),
		"a pod selector": `{target: {podSelector: {matchLabels: {a: b}}}, template: {metadata: {labels: {c: d}}, spec: {containers: [{name: a, image: b}]}}}`,
	} {
		o := jobFromYAML(t, w.Namespace, "", spec)
		o.SetKind("NodeGuard")
		if err := admin.Create(w.Ctx, o, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNodesAreReleasedOneAfterTheOther(t *testing.T) {
	g := newGuarded(t, "one-1", "one-2", "one-3")
	startGuards(t, noFaults)
	g.guard(nil)
	g.ready(3)
	if err := g.evict("one-1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the companion of a node that does not request release may be evicted: %v", err)
	}
	g.cordon("one-2", true)
	g.goes("one-2")
	g.cordon("one-1", true)
	held := g.held("one-1", v1alpha1.ReasonMaxUnavailableReached)
	wantText(t, held.Message, "one-2", "released")
	if err := g.evict("one-1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the companion of a node that is held may be evicted: %v", err)
	}
	// A companion that ends on a held node is created again. A companion that was evicted from a released node is not.
	pod := g.companion("one-1")
	must(t, admin.Delete(g.Ctx, pod, client.GracePeriodSeconds(0)))
	g.Eventually("the companion of a held node exists again", func() error {
		if again := g.companion("one-1"); again == nil || again.UID == pod.UID {
			return fmt.Errorf("there is %v", again)
		}
		return nil
	})
	if g.companion("one-2") != nil {
		t.Error("the companion of a released node was recreated")
	}
	g.cordon("one-2", false)
	g.goes("one-1")
	g.cordon("one-1", false)
	g.ready(3)

	// A user's own budget over the companions, by a label that they all have.
	theirs := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "theirs"}}
	theirs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/managed-by": "everynode"}}
	theirs.Spec.MinAvailable = new(intstr.FromInt32(1))
	must(t, admin.Create(g.Ctx, theirs))
	g.cordon("one-3", true)
	wantText(t, g.held("one-3", v1alpha1.ReasonOverlappingBudget).Message, "PodDisruptionBudget theirs")
	must(t, admin.Delete(g.Ctx, theirs))
	g.goes("one-3")
	// A deleted node is not unavailable any more.
	must(t, admin.Delete(g.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one-3"}}))
	must(
		t,
		admin.Delete(
			g.Ctx,
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "storage-one-3"}},
			client.GracePeriodSeconds(0),
		),
	)
	g.ready(2)
}

// TestTwoNodeGuardsWithOneTarget : a node is released when both NodeGuards release it, without a deadlock of two drains.
func TestTwoNodeGuardsWithOneTarget(t *testing.T) {
	g := newGuarded(t, "two-1", "two-2")
	startGuards(t, noFaults)
	g.guard(nil)
	other := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "other"}}
	other.Spec.Target.DaemonSet = "storage"
	must(t, admin.Create(g.Ctx, other))
	g.ready(2)
	g.Eventually("the status says that there are two", func() error {
		if c := meta.FindStatusCondition(
			g.live().Status.Conditions,
			v1alpha1.ConditionReady,
		); c == nil ||
			!strings.Contains(c.Message, g.Namespace+"/other") {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
	if n := used.watches()["/api/v1/namespaces/"+g.Namespace+"/pods"]; n != 1 {
		t.Errorf("the manager watches the pods of the target %d times", n)
	}
	g.cordon("two-1", true)
	g.cordon("two-2", true)
	// A drain evicts all companions of a node; one of the two goes.
	gone := ""
	g.Eventually("one of the two companions is evicted", func() error {
		for _, node := range []string{"two-1", "two-2"} {
			if pod := g.companion(node); pod != nil {
				_ = g.evict(node)
			}
			if g.companion(node) == nil {
				gone = node
				return nil
			}
		}
		return fmt.Errorf("none is")
	})
	g.cordon(gone, false)
	g.Eventually("the other companion is evicted as well", func() error {
		for _, node := range []string{"two-1", "two-2"} {
			if node != gone {
				if g.companion(node) == nil {
					return nil
				}
				_ = g.evict(node)
			}
		}
		return fmt.Errorf("it has not: %+v", g.live().Status)
	})
	g.cordon("two-1", false)
	g.cordon("two-2", false)
	g.ready(2)
}

// TestAManagerThatDiesAtAnyWriteOfARelease checks that the next manager continues, and that two nodes are never
// released at once.
func TestAManagerThatDiesAtAnyWriteOfARelease(t *testing.T) {
	whole := &counted{}
	letOneGo := func(t *testing.T, c *counted, name string) {
		a, b := name+"-a", name+"-b"
		g := newGuarded(t, a, b)
		stop := startGuards(t, noFaults)
		g.guard(func(s *v1alpha1.NodeGuardSpec) { s.Release.Approval = v1alpha1.ApprovalRequired })
		g.ready(2)
		stop()
		must(
			t,
			admin.Patch(
				g.Ctx,
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a}},
				mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ApproveReleaseAnnotation, g.Namespace+"/storage")),
			),
		)
		g.cordon(a, true)
		stop = startGuards(t, c.funcs())
		step := func(what string, done func() error) {
			t.Helper()
			g.Eventually(what, func() error {
				if len(g.live().Status.Released) > 1 {
					t.Fatal("two nodes are released")
				}
				if c.cut > 0 && c.total.Load() >= c.cut {
					stop()
					c.cut = 0
					stop = startGuards(t, c.funcs())
				}
				return done()
			})
		}
		step("the companion is deleted", func() error { return g.drain(a) })
		g.cordon(b, true)
		g.cordon(a, false)
		step("it is back", func() error {
			if s := g.live().Status; len(s.Released) > 0 {
				return fmt.Errorf("the status is %+v", s)
			}
			return nil
		})
		g.held(b, v1alpha1.ReasonAwaitingApproval)
		g.cordon(b, false)
		g.ready(2)
		var node corev1.Node
		must(t, admin.Get(g.Ctx, client.ObjectKey{Name: a}, &node))
		if node.Annotations[v1alpha1.ApproveReleaseAnnotation] != "" {
			t.Error("the approval is not used up")
		}
	}
	letOneGo(t, whole, "whole")
	t.Logf("writes from the cordon of one node to its return, while another one requests release: %d %v", whole.total.Load(), whole)
	for cut := int32(1); cut <= min(whole.total.Load(), 10); cut++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("write %d, before it: %v", cut, before), func(t *testing.T) {
				letOneGo(t, &counted{cut: cut, before: before}, fmt.Sprintf("cut-%d-%v", cut, before))
			})
		}
	}
}

// TestADrainAmongAThousandNodes : it is decided within a second, at the cost of few writes.
func TestADrainAmongAThousandNodes(t *testing.T) {
	const nodes = 1000
	g := newGuarded(t)
	began := time.Now()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := i; n < nodes; n += 8 {
				g.node(fmt.Sprintf("many-%d", n))
				g.target(fmt.Sprintf("many-%d", n))
			}
		})
	}
	group.Wait()
	t.Logf("%d nodes are made after %s", nodes, time.Since(began).Round(time.Millisecond))
	c := &counted{}
	startGuards(t, c.funcs())
	g.guard(nil)
	began = time.Now()
	g.Within(4*time.Minute, 100*time.Millisecond, "all nodes are guarded", func() error {
		if status := g.live().Status.Nodes; int(status.Ready) < nodes {
			return fmt.Errorf("the status is %+v", status)
		}
		return nil
	})
	t.Logf("%d nodes are guarded after %s, with %d writes", nodes, time.Since(began).Round(time.Millisecond), c.total.Load())
	before := c.total.Load()
	began = time.Now()
	g.cordon("many-500", true)
	g.goes("many-500")
	t.Logf("from the cordon to the deletion of the companion: %s", time.Since(began).Round(time.Millisecond))
	var budgets policyv1.PodDisruptionBudgetList
	must(t, admin.List(g.Ctx, &budgets, client.InNamespace(g.Namespace)))
	if len(budgets.Items) != 1 {
		t.Errorf("there are %d PodDisruptionBudgets", len(budgets.Items))
	}
	g.cordon("many-500", false)
	g.ready(nodes)
	writes := c.total.Load() - before
	t.Logf("writes for the whole drain: %d %v", writes, c)
	if writes > 12 {
		t.Errorf("a drain costs %d writes: %v", writes, c)
	}
}
