// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

func fromNode(name, path string) v1alpha1.EnvVar {
	return v1alpha1.EnvVar{Name: name, ValueFrom: &v1alpha1.EnvVarSource{NodeFieldRef: &v1alpha1.NodeFieldSelector{FieldPath: path}}}
}

func TestReadNodeValues(t *testing.T) {
	const key = "topology.kubernetes.io/zone"
	node := NodeFields{
		Labels: map[string]string{
			key:     "eu-1a",
			"empty": "",
		},
		Annotations:  map[string]string{key: "other"},
		ProviderID:   "cloud://1",
		Architecture: "arm64",
	}
	tests := map[string]struct {
		path   string
		node   NodeFields
		want   string
		reason string
	}{
		"a label":                   {path: "metadata.labels['" + key + "']", node: node, want: "eu-1a"},
		"an annotation":             {path: "metadata.annotations['" + key + "']", node: node, want: "other"},
		"the provider ID":           {path: "spec.providerID", node: node, want: "cloud://1"},
		"the architecture":          {path: "status.nodeInfo.architecture", node: node, want: "arm64"},
		"an empty label":            {path: "metadata.labels['empty']", node: node},
		"a label that is missing":   {path: "metadata.labels['x']", node: node, reason: v1alpha1.ReasonNodeFieldNotFound},
		"a provider ID not set yet": {path: "spec.providerID", reason: v1alpha1.ReasonNodeFieldNotFound},
		"an architecture not known": {path: "status.nodeInfo.architecture", reason: v1alpha1.ReasonNodeFieldNotFound},
		"another field":             {path: "metadata.name", node: node, reason: v1alpha1.ReasonNodeFieldNotFound},
	}
	for name, tt := range tests {
		got := ReadNodeValues([]v1alpha1.EnvVar{{Name: "A", Value: "1"}, fromNode("X", tt.path)}, tt.node)
		want := map[string]string{"X": tt.want}
		if tt.reason != "" {
			want = nil
		}
		if diff := cmp.Diff(want, got.Values); diff != "" || got.Reason != tt.reason {
			t.Errorf("%s: %+v, want %q (%s)", name, got, tt.want, tt.reason)
		}
		if tt.reason != "" && (!strings.Contains(got.Message, "X takes "+tt.path) || got.Hash() != "") {
			t.Errorf("%s: %+v does not name the variable and its source", name, got)
		}
	}
}

func TestHashOfNodeValues(t *testing.T) {
	hashes := map[string]bool{}
	for _, values := range []map[string]string{nil, {"A": ""}, {"A": "1"}, {"B": "1"}, {"A": "1", "B": ""}, {"A": "1\",\"B\":\""}} {
		hash := NodeValues{Values: values}.Hash()
		if hashes[hash] || (hash == "") != (values == nil) || len(hash) > 10 {
			t.Errorf("%v has the hash %q", values, hash)
		}
		hashes[hash] = true
	}
}

// What a node writes is a value of a variable. Kubernetes expands nothing in it.
func TestValuesOfANodeAreNotExpanded(t *testing.T) {
	job := scriptJob()
	job.Spec.Task.Env = append(
		job.Spec.Task.Env,
		fromNode("ZONE", "metadata.labels['zone']"),
		v1alpha1.EnvVar{Name: "URL", Value: "http://$(ZONE)"},
	)
	a := attempt()
	a.NodeValues = NodeValues{Values: map[string]string{"ZONE": "$(WANT) $WANT $$\nx"}}
	for phase, want := range map[Phase][]corev1.EnvVar{
		Task: {
			{Name: "WANT", Value: "262144"}, {Name: "COPY", Value: "$(WANT)"}, {Name: "ZONE", Value: "$$(WANT) $$WANT $$$$\nx"}, {Name: "URL", Value: "http://$(ZONE)"},
		},
		Reboot: {{Name: "EVERYNODE_REBOOT", Value: "Now"}, {Name: "EVERYNODE_BOOT_ID", Value: "boot"}},
	} {
		a.Phase = phase
		pod := Pod(job, Source{Script: "true"}, a, options)
		if diff := cmp.Diff(want, pod.Spec.Containers[0].Env[:len(want)]); diff != "" {
			t.Errorf("%s: variables (-want +got):\n%s", phase, diff)
		}
	}
	pod := Pod(job, Source{Script: "true"}, attempt(), options)
	if _, there := pod.Annotations[v1alpha1.InputsAnnotation]; there {
		t.Error("a pod without values of the node has a hash of them")
	}
	a.Phase = Task
	pod = Pod(job, Source{Script: "true"}, a, options)
	if hash := a.NodeValues.Hash(); hash == "" || pod.Annotations[v1alpha1.InputsAnnotation] != hash || !options.Key.MadePod(pod) {
		t.Errorf("the annotations are %v, want the hash %q and a valid seal", pod.Annotations, hash)
	}
}
