package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
)

func TestStripKeepsWhatThePlanReads(t *testing.T) {
	pod := livePod(func(p *corev1.Pod) {
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "EVERYNODE_SCRIPT", Value: strings.Repeat("x", 65536)}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{terminated("task", 3, "Error", "no")}
	})
	want := viewPod(seenPod{Pod: pod.DeepCopy()})
	if diff := cmp.Diff(want, viewPod(seenPod{Pod: strip(pod).(*corev1.Pod)})); diff != "" {
		t.Errorf("the plan sees another pod (-before +after):\n%s", diff)
	}
	if len(pod.ManagedFields) > 0 || len(pod.Spec.Containers[0].Env) > 0 {
		t.Error("the script and the managed fields are still there")
	}

	node := watchedNode()
	node.Spec.Unschedulable = true
	node.Annotations[v1alpha1.CordonedAnnotation] = "ns.everynode.dev/job"
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}}
	wantNode := observe.Node(node.DeepCopy())
	gotNode := observe.Node(strip(node).(*corev1.Node))
	if diff := cmp.Diff(wantNode, gotNode); diff != "" {
		t.Errorf("the plan sees another node (-before +after):\n%s", diff)
	}
	if len(node.Status.Images) > 0 {
		t.Error("the images are still there")
	}
	if other := (&corev1.Secret{}); strip(other) != any(other) {
		t.Error("an object of another kind is not left alone")
	}
}
