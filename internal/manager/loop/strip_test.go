// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// largest is as much as the API server accepts in one object.
const largest = 1 << 20

// manyEntries is a map with as many small entries as an object can have.
func manyEntries(prefix string) map[string]string {
	all := map[string]string{}
	for i := range 20_000 {
		all[fmt.Sprintf("%s%d", prefix, i)] = strings.Repeat("x", 40)
	}
	return all
}

// TestWhatIsCachedOfStrangersIsBounded strips objects that are as large as the API server accepts, in each place that a user or a kubelet can
// fill.
func TestWhatIsCachedOfStrangersIsBounded(t *testing.T) {
	const most = 64 << 10
	text := strings.Repeat("x", largest)
	containers := func(number int) (all []corev1.ContainerStatus) {
		for i := range number {
			all = append(
				all,
				corev1.ContainerStatus{Name: fmt.Sprint(i), Image: text[:largest/number], ImageID: text, State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{Message: text[:largest/number], Reason: text[:largest/number]},
				}},
			)
		}
		return all
	}
	var tolerations []corev1.Toleration
	for i := range 20_000 {
		tolerations = append(tolerations, corev1.Toleration{Key: fmt.Sprint(i), Operator: corev1.TolerationOpExists})
	}
	var conditions []corev1.PodCondition
	for range 5000 {
		conditions = append(conditions, corev1.PodCondition{Type: corev1.PodReady, Reason: text[:200]})
	}
	for name, o := range map[string]client.Object{
		"annotations of a pod":               &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text}}},
		"annotations of a pod with our keys": &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: manyEntries("everynode.dev/")}},
		"labels of a pod":                    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: manyEntries("a/")}},
		"finalizers of a pod":                &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: strings.Split(strings.Repeat("a/b ", 100_000), " ")}},
		"owners of a pod":                    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: make([]metav1.OwnerReference, 10_000)}},
		"the spec of a pod":                  &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: []string{text}}}}},
		"the status of a pod":                &corev1.Pod{Status: corev1.PodStatus{Message: text, Reason: text, ContainerStatuses: containers(1)}},
		"many containers of a pod":           &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: containers(1000)}},
		"many conditions of a pod":           &corev1.Pod{Status: corev1.PodStatus{Conditions: conditions}},
		"managed fields":                     &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`"` + text + `"`)}}}},
		"arguments of a DaemonSet": &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{NodeSelector: map[string]string{"no": "where"}, Containers: []corev1.Container{{Args: []string{text}}}},
		}}},
		"the node selector of a DaemonSet": &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{NodeSelector: manyEntries("a/")},
		}}},
		"tolerations of a DaemonSet": &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Tolerations: tolerations},
		}}},
		"tolerations of a pod with the label of seats": &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.BudgetGroupLabel: "g"}}, Spec: corev1.PodSpec{Tolerations: tolerations},
		},
		"annotations of a DaemonSet":                           &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text}}},
		"the selector of a PodDisruptionBudget":                &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: manyEntries("a/")}}},
		"the status of a PodDisruptionBudget":                  &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{Conditions: []metav1.Condition{{Message: text}}, DisruptedPods: map[string]metav1.Time{text: {}}}},
		"annotations of a PodDisruptionBudget":                 &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text}}},
		"annotations of a PodDisruptionBudget with our prefix": &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Annotations: manyEntries("everynode.dev/")}},
	} {
		t.Run(name, func(t *testing.T) {
			o.SetName("name")
			o.SetUID("uid")
			if sizeOf(o) < largest/8 {
				t.Fatalf("the object has %d bytes only", sizeOf(o))
			}
			stripped, err := Strip(o)
			if err != nil {
				t.Fatal(err)
			}
			if stripped, err = Strip(stripped); err != nil { // as informers do
				t.Fatal(err)
			}
			kept := stripped.(client.Object)
			if size := sizeOf(kept); size > most || kept.GetName() != "name" || kept.GetUID() != "uid" {
				t.Errorf("%d bytes of %s are cached, want at most %d", size, kept.GetName(), most)
			}
		})
	}
}

// What is read stays, and what is written back as it was read stays whole.
func TestWhatIsCached(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace:       "ns",
		Name:            "n",
		UID:             "u",
		ResourceVersion: "1",
		Generation:      2,
		Labels:          map[string]string{"a": "b"},
		Annotations: map[string]string{
			"theirs": "x",
		},
		Finalizers:      []string{"a/b"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "a"}},
	}
	tolerations := []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	seat := metav1.ObjectMeta{Labels: map[string]string{v1alpha1.BudgetGroupLabel: "g"}}
	one, digest := intstr.FromInt32(1), "sha256:"+strings.Repeat("0a", 32)
	for name, tt := range map[string]struct{ o, want client.Object }{
		"a DaemonSet": {
			&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       corev1.PodSpec{NodeSelector: map[string]string{"pool": "a"}, PriorityClassName: "p", ServiceAccountName: "s"},
			}}},
			&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n", UID: "u", ResourceVersion: "1", Generation: 2}, Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": "a"}, PriorityClassName: "p"}},
			}},
		},
		"a PodDisruptionBudget": {
			&policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, DisruptedPods: map[string]metav1.Time{"seat": meta.CreationTimestamp}}},
			&policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, DisruptedPods: map[string]metav1.Time{"seat": meta.CreationTimestamp}}},
		},
		"a seat": {
			&corev1.Pod{ObjectMeta: seat, Spec: corev1.PodSpec{Tolerations: tolerations, ServiceAccountName: "s"}},
			&corev1.Pod{ObjectMeta: seat, Spec: corev1.PodSpec{Tolerations: tolerations}},
		},
		"tolerations of another pod": {&corev1.Pod{Spec: corev1.PodSpec{Tolerations: tolerations}}, &corev1.Pod{}},
		"a pod": {
			&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node", ServiceAccountName: "s"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{
				{
					Name: "c", ImageID: strings.Repeat("r", 200) + "@" + digest, ContainerID: "containerd://" + digest, RestartCount: 1,
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "x"}},
				},
			}}},
			&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{
					Name: "c", ImageID: digest, ContainerID: digest, RestartCount: 1,
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
				},
			}}},
		},
	} {
		stripped, err := Strip(tt.o)
		if diff := cmp.Diff(tt.want, stripped); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := Strip(&corev1.Secret{}); err == nil {
		t.Error("a kind without a list of fields is cached")
	}
	large := &appsv1.DaemonSet{
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: manyEntries("a/")}}},
	}
	if _, err := Strip(large); err != nil || !IsTrimmed(large) {
		t.Errorf("a DaemonSet that is too large is not marked: %v", err)
	}
}
