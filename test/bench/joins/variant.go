// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package joins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/install"
)

const (
	jobName = "setup"
	// poolLabel is on each node that joins, with the name of the variant.
	poolLabel = "pool"
)

func namespaceOf(v *variant) string { return "joins-" + v.name }

// measure creates a NodeJob and pods that wait for nodes, lets the nodes join, and counts.
func (r *run) measure(ctx context.Context, v *variant) (_ *report.JoinVariant, err error) {
	r.say("%s: %s", v.name, v.description)
	defer func() {
		if ctx.Err() == nil { // otherwise the whole cluster is removed
			err = errors.Join(err, r.cleanUp(ctx, v))
		}
	}()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	log, err := r.follow(watching, v)
	if err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, v); err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	if v.killed {
		if err := r.killManager(ctx); err != nil {
			return nil, err
		}
		if !r.Real {
			group.Go(func() error { return r.startManagerLater(groupCtx) })
		}
	}
	group.Go(func() error { return r.joinAll(groupCtx, v, log) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	err = eventually(ctx, "all nodes are done, and have their pods", func() error { return log.missing(r.Nodes) })
	if err != nil {
		return nil, err
	}
	m := log.result(v.name, v.description)
	r.say("%s: %s", v.name, m.Summary())
	return m, nil
}

// prepare creates the namespace, the NodeJob and the waiting pods.
func (r *run) prepare(ctx context.Context, v *variant) error {
	var manifests strings.Builder
	fmt.Fprintf(&manifests, `apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {pod-security.kubernetes.io/enforce: privileged, everynode.dev/enabled: "true"}}
---
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  nodes: {selector: {matchLabels: {%[3]s: %[4]s}}}
  rollout: {maxConcurrent: 100%%, steps: [{name: all}]}
  task: {script: "true"}
`, namespaceOf(v), jobName, poolLabel, v.name)
	if v.gate != "" {
		manifests.WriteString("  gate: " + v.gate + "\n")
	}
	if v.policy {
		for _, policy := range []string{"everynode-gate", "everynode-manager"} {
			fmt.Fprintf(&manifests, `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %s-%s}
spec: {policyName: %[1]s, paramRef: {namespace: %[2]s, selector: {}, parameterNotFoundAction: Allow}}
`, policy, namespaceOf(v))
		}
	}
	if err := r.kubectl(ctx, manifests.String(), "apply", "-f", "-"); err != nil {
		return err
	}
	if v.policy {
		if err := r.untilPolicyWorks(ctx, v); err != nil {
			return err
		}
	}
	return r.createPods(ctx, v)
}

// untilPolicyWorks waits until the API server knows the binding and the NodeJob.
func (r *run) untilPolicyWorks(ctx context.Context, v *variant) error {
	return eventually(ctx, "the API server taints a node", func() error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{poolLabel: v.name}}}
		node, err := r.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if !isClosed(node, v) {
			return fmt.Errorf("its taints are %v", node.Spec.Taints)
		}
		return nil
	})
}

// The pods that wait for nodes: one of each kind fits on a node, because of its host port.
const (
	plainPods    = "plain"
	tolerantPods = "tolerates-not-ready"
)

// createPods creates the pods that wait for nodes: for each node a plain one, and one that tolerates that the node is not
// ready.
func (r *run) createPods(ctx context.Context, v *variant) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(simulatedSet)
	for kind, port := range map[string]int32{plainPods: 8765, tolerantPods: 8766} {
		for i := range r.Nodes {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%05d", kind, i), Labels: map[string]string{"app": kind}},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{poolLabel: v.name}, TerminationGracePeriodSeconds: new(int64(0)),
					AutomountServiceAccountToken: new(false),
					Containers:                   []corev1.Container{{Name: "pause", Image: install.PauseImage, Ports: []corev1.ContainerPort{{ContainerPort: port, HostPort: port}}}},
				},
			}
			if kind == tolerantPods {
				pod.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}}
			}
			group.Go(func() error {
				if _, err := r.client.CoreV1().Pods(namespaceOf(v)).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("creating pod %s: %w", pod.Name, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// joinAll lets all nodes join. Real nodes join in groups, and leave when they have been counted.
func (r *run) joinAll(ctx context.Context, v *variant, log *log) error {
	size := simulatedSet
	if r.Real {
		size = realSet
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(size)
	for i := range r.Nodes {
		group.Go(func() error { return r.joinOne(groupCtx, v, log, fmt.Sprintf("%s-%d", v.name, i)) })
	}
	return group.Wait()
}

func (r *run) joinOne(ctx context.Context, v *variant, log *log, name string) error {
	err := r.cluster.Join(ctx, cluster.NodeOptions{
		Name: name, Simulated: !r.Real, Labels: map[string]string{poolLabel: v.name}, Taints: v.registers,
	})
	if err != nil || !r.Real {
		return err
	}
	if err := eventually(ctx, name+" is done, and has its pods", func() error { return log.missingOn(name) }); err != nil {
		return err
	}
	return r.cluster.Remove(ctx, name)
}

// killManager ends the manager without letting it give up its lease.
func (r *run) killManager(ctx context.Context) error {
	if !r.Real {
		return install.StopOutside(r.cluster)
	}
	return r.kubectl(ctx, "", "-n", install.Namespace, "delete", "pods", "-l", "app.kubernetes.io/component=manager", "--force", "--grace-period=0")
}

// startManagerLater starts the manager that runs beside a cluster again. On real nodes, its Deployment does so, and the lease
// has the same effect.
func (r *run) startManagerLater(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(away):
	}
	return install.StartOutside(ctx, r.cluster, r.Root)
}

// cleanUp removes the nodes, and then the namespace with all that is in it.
func (r *run) cleanUp(ctx context.Context, v *variant) error {
	nodes, err := r.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: poolLabel + "=" + v.name})
	if err != nil {
		return fmt.Errorf("listing the nodes to remove: %w", err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(simulatedSet)
	for i := range nodes.Items {
		group.Go(func() error { return r.cluster.Remove(groupCtx, nodes.Items[i].Name) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if v.policy {
		err = r.kubectl(ctx, "", "delete", "mutatingadmissionpolicybindings", "everynode-gate-"+namespaceOf(v), "everynode-manager-"+namespaceOf(v))
	}
	// kubectl would delete thousands of pods one after the other.
	pods := r.client.CoreV1().Pods(namespaceOf(v)).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))},
		metav1.ListOptions{LabelSelector: "app in (" + plainPods + "," + tolerantPods + ")"})
	return errors.Join(err, pods, r.kubectl(ctx, "", "delete", "namespace", namespaceOf(v)))
}

// gateKey is the key of the gate of a variant.
func gateKey(v *variant) string {
	if v.registers != nil {
		return startupTaint.Key
	}
	return v1alpha1.RecordKey(namespaceOf(v), jobName)
}
