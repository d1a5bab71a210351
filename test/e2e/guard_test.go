// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
)

func TestR24_ACompanionIsBesideEachPodOfADaemonSet(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, 1, nil)
	first := g.nodes[0]

	// A node joins, and is removed again.
	joined := g.join(cluster.NodeOptions{})
	g.ready(first, joined)
	must(t, real.Remove(g.Ctx, joined))
	g.ready(first)

	// A node that comes under the DaemonSet's selection, and one that leaves it.
	label := func(value string) {
		must(
			t,
			admin.Patch(
				g.Ctx,
				&corev1.Node{ObjectMeta: g.node("node-2").ObjectMeta},
				mergePatch(`{"metadata":{"labels":{"world":%s}}}`, value),
			),
		)
	}
	label(fmt.Sprintf("%q", g.Namespace))
	t.Cleanup(func() { label("null") })
	g.ready(first, "node-2")
	label("null")
	g.ready(first)

	// The DaemonSet's selector itself changes.
	g.kubectl(
		"-n",
		g.Namespace,
		"patch",
		"daemonset",
		"storage",
		"--type=merge",
		"-p",
		`{"spec":{"template":{"spec":{"nodeSelector":{"world":"nowhere"}}}}}`,
	)
	g.ready()
	g.kubectl(
		"-n",
		g.Namespace,
		"patch",
		"daemonset",
		"storage",
		"--type=merge",
		"-p",
		fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{"world":%q}}}}}`, g.Namespace),
	)
	g.ready(first)

	// The DaemonSet is missing for a while: guarded nodes stay guarded.
	g.kubectl("-n", g.Namespace, "delete", "daemonset", "storage", "--wait=true")
	g.Eventually("the NodeGuard says that its target is missing", func() error {
		if live := g.guard(); len(live.Status.Conditions) == 0 || live.Status.Conditions[0].Reason != v1alpha1.ReasonTargetNotFound {
			return fmt.Errorf("the status is %+v", live.Status)
		}
		return nil
	})
	g.daemonSet(map[string]string{"world": g.Namespace})
	g.ready(first)

	// When the NodeGuard is deleted, all its objects are deleted.
	g.kubectl("-n", g.Namespace, "delete", "nodeguard", "storage")
	g.Eventually("nothing is left", func() error {
		if left := g.kubectl(
			"-n",
			g.Namespace,
			"get",
			"pdb,pods",
			"-l",
			v1alpha1.NodeGuardLabel,
			"-o",
			"name",
		); strings.TrimSpace(left) != "No resources found in "+g.Namespace+" namespace." &&
			strings.TrimSpace(left) != "" {
			return fmt.Errorf("there are %s", left)
		}
		return nil
	})
	g.neverTwo()
}

func TestR25_TwoDrainsGoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, 2, func(s *v1alpha1.NodeGuardSpec) {
		s.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(20)),
			Containers: []corev1.Container{{Name: "guard", Image: pauseImage, Lifecycle: &corev1.Lifecycle{
				PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}},
			}}},
		}}
	})
	before := g.companions()
	drains := map[string]<-chan error{}
	for _, node := range g.nodes {
		drains[node] = g.drain(node)
	}
	// Regardless of which node is first, the other waits for it, and the message says so.
	first, second := g.nodes[0], g.nodes[1]
	select {
	case err := <-drains[first]:
		must(t, err)
	case err := <-drains[second]:
		must(t, err)
		first, second = second, first
	case <-g.Ctx.Done():
		t.Fatal("no drain ends")
	}
	held := g.held(second, v1alpha1.ReasonMaxUnavailableReached)
	wantText(t, held.Message, first, "released")
	notEnded(t, "the other drain", drains[second])
	if pod, there := g.companions()[second]; !there || pod.UID != before[second].UID || !pod.DeletionTimestamp.IsZero() {
		t.Errorf("the companion of %s, which is held, is not there as it was", second)
	}
	g.Eventually("an event of the node says why it is held", func() error {
		if out := g.kubectl(
			"get",
			"events",
			"-A",
			"--field-selector",
			"involvedObject.kind=Node,involvedObject.name="+second,
		); !strings.Contains(
			out,
			"holds node "+second,
		) {
			return fmt.Errorf("there is %s", out)
		}
		return nil
	})
	// The first one is there again.
	g.uncordon(first)
	g.drained(second, drains[second])
	if back, there := g.companions()[first]; !there || back.CreationTimestamp.Time.Before(before[first].CreationTimestamp.Time) {
		t.Errorf("%s was released before the companion of %s was back", second, first)
	}
	g.uncordon(second)
	g.ready(g.nodes...)
	g.Eventually("no node is unavailable", func() error {
		if live := g.guard(); live.Status.Nodes.Released+live.Status.Nodes.Waiting+live.Status.Nodes.Unavailable > 0 {
			return fmt.Errorf("the status is %+v", live.Status)
		}
		return nil
	})
	for node, pod := range before {
		if took := g.log.gone[string(pod.UID)]; took < 2500*time.Millisecond {
			t.Errorf("the companion of %s ended within %s: its preStop takes 3 s", node, took)
		}
	}
	g.neverTwo()
}

func TestR26_CompanionsAreReplacedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, 2, nil)
	for node, pod := range g.companions() {
		if pod.Spec.PriorityClassName != "system-node-critical" {
			t.Errorf("the companion of %s has priority class %q, want the target's", node, pod.Spec.PriorityClassName)
		}
		found := false
		for _, toleration := range pod.Spec.Tolerations {
			found = found || toleration.Key == "storage-only"
		}
		if !found {
			t.Errorf("the companion of %s does not tolerate what the target does: %v", node, pod.Spec.Tolerations)
		}
	}
	// An image that cannot be pulled stops at the first companion.
	g.spec(
		`{"spec":{"template":{"spec":{"containers":[{"name":"guard","image":"registry.invalid/none:1"}],"terminationGracePeriodSeconds":1}}}}`,
	)
	g.Eventually("one companion is replaced, and cannot start", func() error {
		live := g.guard()
		if live.Status.Nodes.Updated != 1 || live.Status.Nodes.Ready != 1 ||
			!strings.Contains(live.Status.Conditions[0].Message, "ImagePullBackOff: image ") {
			return fmt.Errorf("the status is %+v", live.Status)
		}
		return nil
	})
	// A user fixes the template, with further settings.
	g.spec(
		`{"spec":{"template":{"spec":{"priorityClassName":"system-cluster-critical","tolerations":[{"operator":"Exists"}],"containers":[{"name":"guard","image":%q}]}}}}`,
		pauseImage,
	)
	g.ready(g.nodes...)
	for node, pod := range g.companions() {
		if pod.Spec.PriorityClassName != "system-cluster-critical" || pod.Spec.Containers[0].Image != pauseImage ||
			*pod.Spec.TerminationGracePeriodSeconds != 1 {
			t.Errorf("the companion of %s is not as the user wants it: %+v", node, pod.Spec)
		}
	}
	g.neverTwo()
}

func TestR27_TheUsersCheckDecidesWhenANodeMayGo(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, 1, func(s *v1alpha1.NodeGuardSpec) {
		s.Release = v1alpha1.ReleaseSpec{Check: &v1alpha1.ReleaseCheck{
			Script: `[ -e /run/may-go ] || { echo "3 volumes are rebuilding"; exit 7; }`, PeriodSeconds: new(int32(10)),
		}}
	})
	node := g.nodes[0]
	done := g.drain(node)
	held := g.held(node, v1alpha1.ReasonCheckFailed)
	wantText(t, held.Message, "exit code 7", "3 volumes are rebuilding")
	notEnded(t, "the drain", done)
	g.sh(node, "touch /run/may-go")
	g.drained(node, done)
	g.uncordon(node)
	g.ready(node)

	// Approval by a user: the command in the status works unchanged.
	g.spec(`{"spec":{"release":{"approval":"Required","check":null}}}`)
	done = g.drain(node)
	held = g.held(node, v1alpha1.ReasonAwaitingApproval)
	g.asTold(held.Message, "annotate")
	g.drained(node, done)
	g.uncordon(node)
	g.ready(node)
	g.Eventually("the approval is used up", func() error {
		if live := g.node(node); live.Annotations[v1alpha1.ApproveReleaseAnnotation] != "" {
			return errNotYet
		}
		return nil
	})

	// A deadline, and the break-glass annotation.
	g.spec(`{"spec":{"release":{"deadlineSeconds":4,"onDeadline":"Release"}}}`)
	done = g.drain(node)
	g.drained(node, done)
	if live := g.guard(); len(live.Status.Released) != 1 || live.Status.Released[0].Reason != v1alpha1.ReasonDeadlineReached {
		t.Errorf("the node was released for another reason: %+v", live.Status.Released)
	}
	g.uncordon(node)
	g.ready(node)
	g.spec(`{"spec":{"maxUnavailable":0}}`)
	done = g.drain(node)
	g.held(node, v1alpha1.ReasonReleasesDisabled)
	g.annotate(node, v1alpha1.BreakGlassAnnotation, "the rack burns")
	g.drained(node, done)
	g.toldOf("Node", node, v1alpha1.ReasonNodeReleased, "the rack burns")
	g.uncordon(node)
	g.ready(node)
	g.Eventually("the break-glass annotation is removed", func() error {
		if live := g.node(node); live.Annotations[v1alpha1.BreakGlassAnnotation] != "" {
			return errNotYet
		}
		return nil
	})
	g.neverTwo()
}
