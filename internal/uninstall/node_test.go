// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

func job(name string, change func(*v1alpha1.NodeJobSpec)) v1alpha1.NodeJob {
	j := v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if change != nil {
		change(&j.Spec)
	}
	return j
}

func TestNodeChange(t *testing.T) {
	const key, seal = "ns.everynode.dev/a", "ns.everynode.node-restriction.kubernetes.io/a"
	taint := func(key, value string) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
	}
	retain := func(s *v1alpha1.NodeJobSpec) { s.DeletionPolicy = v1alpha1.DeletionRetain }
	gated := func(labels map[string]string) func(*v1alpha1.NodeJobSpec) {
		return func(s *v1alpha1.NodeJobSpec) {
			s.Gate = &v1alpha1.GateSpec{Key: "x.test/up"}
			s.Nodes.Selector = &metav1.LabelSelector{MatchLabels: labels}
		}
	}
	recorded := func(node *corev1.Node) {
		node.Labels = map[string]string{key: "rev", seal: "seal", "x.test/site": "a"}
		node.Annotations = map[string]string{key: "{}"}
	}
	published := func(value string) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Labels = map[string]string{"x.test/fact": "1", "node-role.kubernetes.io/x": ""}
			node.Annotations = map[string]string{v1alpha1.PublishedAnnotation: value}
		}
	}
	tests := map[string]struct {
		node  func(*corev1.Node)
		scope Scope
		want  string
	}{
		"a node with nothing of Everynode is left alone": {
			node: func(node *corev1.Node) {
				node.Labels = map[string]string{"x.test/site": "a", "x.node-restriction.kubernetes.io/y": "z"}
				node.Spec.Unschedulable, node.Spec.Taints = true, []corev1.Taint{taint("dedicated", "gpu")}
			},
			scope: Scope{Records: true},
		},
		"a gate is opened, and taints of others stay": {
			node: func(node *corev1.Node) {
				node.Spec.Taints = []corev1.Taint{taint("dedicated", "gpu"), taint("x.test/up", "everynode"), taint(key, "")}
			},
			want: `{"spec":{"taints":[{"key":"dedicated","value":"gpu","effect":"NoSchedule"}]}}`,
		},
		"a gate that a kubelet registered with is opened": {
			node:  func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{taint("x.test/up", "")} },
			scope: Scope{Jobs: []v1alpha1.NodeJob{job("a", gated(nil))}},
			want:  `{"spec":{"taints":[]}}`,
		},
		"a taint with the key of a gate stays on a node that the NodeJob does not select": {
			node:  func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{taint("x.test/up", "")} },
			scope: Scope{Jobs: []v1alpha1.NodeJob{job("a", gated(map[string]string{"pool": "b"}))}},
		},
		"a node that Everynode cordoned is uncordoned": {
			node: func(node *corev1.Node) {
				node.Spec.Unschedulable, node.Annotations = true, map[string]string{v1alpha1.CordonedAnnotation: key}
			},
			want: `{"metadata":{"annotations":{"everynode.dev/cordoned-by":null}},"spec":{"unschedulable":false}}`,
		},
		"the record of a NodeJob is removed with its seal": {
			node: recorded, scope: Scope{Jobs: []v1alpha1.NodeJob{job("a", nil)}},
			want: `{"metadata":{"labels":{"` + key + `":null,"` + seal + `":null},"annotations":{"` + key + `":null}}}`,
		},
		"the record of a NodeJob that retains it stays": {node: recorded, scope: Scope{Jobs: []v1alpha1.NodeJob{job("a", retain)}}},
		"all records are removed on request": {
			node: recorded, scope: Scope{Records: true, Jobs: []v1alpha1.NodeJob{job("a", retain)}},
			want: `{"metadata":{"labels":{"` + key + `":null,"` + seal + `":null},"annotations":{"` + key + `":null}}}`,
		},
		"the published results of a NodeJob are removed with it": {
			node: published(`{"labels":{"x.test/fact":"` + key + `"}}`), scope: Scope{Jobs: []v1alpha1.NodeJob{job("a", nil)}},
			want: `{"metadata":{"labels":{"x.test/fact":null},"annotations":{"everynode.dev/published":null}}}`,
		},
		"a node cannot have a label removed that no NodeJob may publish": {
			node: published(`{"labels":{"node-role.kubernetes.io/x":"` + key + `"}}`), scope: Scope{Records: true},
			want: `{"metadata":{"annotations":{"everynode.dev/published":null}}}`,
		},
		"a published label without a prefix is removed, also if its name looks like a domain of Kubernetes": {
			node: func(node *corev1.Node) {
				node.Labels = map[string]string{"x.k8s.io": "1"}
				node.Annotations = map[string]string{v1alpha1.PublishedAnnotation: `{"labels":{"x.k8s.io":"` + key + `"}}`}
			},
			scope: Scope{Records: true},
			want:  `{"metadata":{"labels":{"x.k8s.io":null},"annotations":{"everynode.dev/published":null}}}`,
		},
		"an invalid list of published results is removed with the records": {
			node: published(`what`), scope: Scope{Records: true},
			want: `{"metadata":{"annotations":{"everynode.dev/published":null}}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid", ResourceVersion: "7"}}
			tt.node(node)
			change := NodeChange(node, tt.scope)
			if change == nil {
				if tt.want != "" {
					t.Errorf("nothing changes, want %s", tt.want)
				}
				return
			}
			got, want := decode(t, change.Patch()), decode(t, []byte(tt.want))
			meta := got["metadata"].(map[string]any)
			if meta["uid"] != "uid" || meta["resourceVersion"] != "7" {
				t.Errorf("the patch does not name the node: %v", meta)
			}
			delete(meta, "uid")
			delete(meta, "resourceVersion")
			if annotations, ok := meta["annotations"].(map[string]any); ok {
				// Removing what does not exist changes nothing.
				maps.DeleteFunc(annotations, func(key string, _ any) bool { _, there := node.Annotations[key]; return !there })
			}
			dropEmpty(meta, "annotations")
			dropEmpty(got, "metadata")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func dropEmpty(of map[string]any, key string) {
	if inner, ok := of[key].(map[string]any); ok && len(inner) == 0 {
		delete(of, key)
	}
}

func decode(t *testing.T, patch []byte) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(patch, &all); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	return all
}

// Keys of the record package are recognized, regardless of the form of seals.
func TestRecordKeyOf(t *testing.T) {
	key := v1alpha1.RecordKey("a-namespace", "a.job")
	for name, tt := range map[string]struct {
		key  string
		want bool
	}{
		"a record":                 {key, true},
		"its seal":                 {record.SealKey(key), true},
		"a key without a NodeJob":  {"everynode.dev/published", false},
		"a label of someone else":  {"node-restriction.kubernetes.io/site", false},
		"a key without a prefix":   {"site", false},
		"a domain with our ending": {"noteverynode.dev/site", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := recordKeyOf(tt.key)
			if ok != tt.want || (ok && got != key) {
				t.Errorf("recordKeyOf(%q) = %q, %v", tt.key, got, ok)
			}
		})
	}
}
