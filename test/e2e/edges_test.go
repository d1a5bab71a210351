// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// What public bug reports of other tools tell, where only a real kubelet shows it.

func TestScriptsRunAsTheirAuthorsMeanThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, admin.Create(w.Ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "large"}, Data: map[string]string{"value": strings.Repeat("x", 140000)},
	}))
	once := func(s *v1alpha1.NodeJobSpec) { onNode2(s); s.Retry.Limit = new(int32(0)) }
	w.job("late-interpreter", "\n# Set things up.\n\n#!/bin/bash\n[[ $BASH_VERSION ]]", once)
	w.job("login", "set -u\n[ \"$USER\" = root ] && [ \"$LOGNAME\" = root ] && [ -x \"$SHELL\" ]", once)
	w.job("silent", "set -e\ntrue\ntest -e /nothing/is/here", once)
	w.job("large-variable", "true", once, func(s *v1alpha1.NodeJobSpec) {
		s.Task.Env = []v1alpha1.EnvVar{{Name: "LARGE", ValueFrom: &v1alpha1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "large"}, Key: "value"},
		}}}
	})
	w.Done("late-interpreter", "node-2")
	w.Done("login", "node-2")
	wantText(t, w.failed("silent", "node-2").Message, "exit code 1", "printed nothing")
	wantText(t, w.failed("large-variable", "node-2").Message, "argument list too long", "the task has not run", "put large values of env")
}

// TestAContainerThatAdmissionAddsDoesNotHoldTheRecord has an admission policy add a container to each pod, which never ends.
func TestAContainerThatAdmissionAddsDoesNotHoldTheRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.Namespace
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
					{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule: admissionregistrationv1.Rule{
							APIGroups:   []string{""},
							APIVersions: []string{"v1"},
							Resources:   []string{"pods"},
						},
					}},
				},
			},
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{
				{
					PatchType: admissionregistrationv1.PatchTypeJSONPatch,
					JSONPatch: &admissionregistrationv1.JSONPatch{
						Expression: fmt.Sprintf(`[JSONPatch{op: "add", path: "/spec/containers/0", value: Object.spec.containers{
					name: "added", image: %q, securityContext: Object.spec.containers.securityContext{privileged: true},
					env: [Object.spec.containers.env{name: "EVERYNODE_SCRIPT", value: "sleep 3600"}]}}]`, install.RunnerImage),
					},
				},
			},
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	must(t, admin.Create(w.Ctx, policy))
	must(t, admin.Create(w.Ctx, binding))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(w.Ctx)
		must(t, admin.Delete(ctx, binding))
		must(t, admin.Delete(ctx, policy))
	})
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "own", Image: install.RunnerImage}}},
	}
	w.Eventually("containers are added", func() error {
		pod := probe.DeepCopy()
		if err := admin.Create(w.Ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if len(pod.Spec.Containers) != 2 {
			return fmt.Errorf("a pod has %d containers", len(pod.Spec.Containers))
		}
		return nil
	})

	w.job("beside", w.mark(), onNode2, func(s *v1alpha1.NodeJobSpec) { s.Task.TimeoutSeconds = new(int32(600)) })
	rec := w.Done("beside", "node-2")
	if took := rec.FinishedAt.Sub(rec.StartedAt); took > time.Minute {
		t.Errorf("the attempt took %s", took)
	}
	w.complete("beside")
	w.wantRan("node-2", 1)
	w.NoPods()
}

// TestR22_ANodeThatRegistersAfterARunStartsNothing : the name that the run was for belongs to another machine now.
func TestR22_ANodeThatRegistersAfterARunStartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	if got := w.say("run", node, "node-2", "--yes", "--max-concurrent", "100%", "--", "sh", "-c", w.mark()); got.code != 0 {
		t.Fatalf("exit code %d:\n%s", got.code, got.err)
	}
	name := w.runJob().Name
	must(t, real.Remove(w.Ctx, node))
	w.join(cluster.NodeOptions{Name: node})
	w.job("after", "true", onNodes(node)) // the manager has seen the new node, and has planned for it
	w.Done("after", node)
	if run := w.Get(name); !run.Spec.Suspend {
		t.Errorf("the NodeJob of the run is not suspended: %+v", run.Spec)
	}
	w.wantRan(node, 0)
}

// TestAPodOfAnEarlierNodeJobDoesNotHoldTheOtherNodes : the kubelet of a node hangs while the NodeJob is deleted and created again.
func TestAPodOfAnEarlierNodeJobDoesNotHoldTheOtherNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hangs, other := w.join(cluster.NodeOptions{}), w.join(cluster.NodeOptions{})
	w.job("again", w.hold(), onNodes(hangs))
	w.began(hangs)
	must(t, real.StopKubelet(w.Ctx, hangs))
	must(t, admin.Delete(w.Ctx, &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "again"}}))
	w.Eventually("the NodeJob is gone", func() error {
		err := admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "again"}, &v1alpha1.NodeJob{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	w.job("again", "true", func(s *v1alpha1.NodeJobSpec) {
		s.Rollout.Steps = []v1alpha1.RolloutStep{
			{Name: "canary", Nodes: new(intstr.FromInt32(1))}, // the older node
			{Name: "all"},
		}
		s.Rollout.ProgressDeadlineSeconds = new(int32(60))
	})
	w.Done("again", other)
	must(t, real.StartKubelet(w.Ctx, hangs))
	w.Done("again", hangs)
	w.complete("again")
}

// TestAQuotaOfCPUAcceptsAllPodsOfARun : also the pod that reboots the node, and the check.
func TestAQuotaOfCPUAcceptsAllPodsOfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	must(t, admin.Create(w.Ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "cpu"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{
				corev1.ResourceLimitsCPU:   resource.MustParse("4"),
				corev1.ResourceRequestsCPU: resource.MustParse("4"),
			},
		},
	}))
	before := w.bootID(node)
	w.job("kernel", "true", func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Task.Resources = &v1alpha1.TaskResources{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10m"),
			},
			Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
		s.Maintenance = v1alpha1.MaintenanceSpec{Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, MinReadySeconds: new(int32(2))}}
	})
	if w.Done("kernel", node); w.bootID(node) == before {
		t.Error("the node has not rebooted")
	}
}
