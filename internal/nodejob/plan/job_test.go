// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A DaemonSet that labels its node, and whose affinity excludes nodes with the label, is often converted literally. Each
// node would then leave the NodeJob with its success.
func TestASelectorOfAPublishedLabelIsAnObstacle(t *testing.T) {
	const configured = "x.example/configured"
	reads := func(r metav1.LabelSelectorRequirement) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}, MatchExpressions: []metav1.LabelSelectorRequirement{r}}
	}
	missing := reads(metav1.LabelSelectorRequirement{Key: configured, Operator: metav1.LabelSelectorOpDoesNotExist})
	tests := map[string]struct {
		selector *metav1.LabelSelector
		result   v1alpha1.PublishedResult
		deleted  bool
		stalled  bool
	}{
		"DoesNotExist": {
			selector: missing,
			result:   v1alpha1.PublishedResult{Result: "r", Label: configured},
			stalled:  true,
		},
		"matchLabels": {
			selector: &metav1.LabelSelector{MatchLabels: map[string]string{configured: "no"}},
			result:   v1alpha1.PublishedResult{Result: "r", Label: configured},
			stalled:  true,
		},
		"another label":                   {selector: missing, result: v1alpha1.PublishedResult{Result: "r", Label: "x.example/other"}},
		"an annotation with the same key": {selector: missing, result: v1alpha1.PublishedResult{Result: "r", Annotation: configured}},
		"no selector":                     {result: v1alpha1.PublishedResult{Result: "r", Label: configured}},
		"a NodeJob that is being deleted": {
			selector: missing,
			result:   v1alpha1.PublishedResult{Result: "r", Label: configured},
			deleted:  true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Selector, j.Spec.Publish = tt.selector, []v1alpha1.PublishedResult{tt.result}
			})
			if tt.deleted {
				job.DeletionTimestamp = &metav1.Time{Time: now}
			}
			node := newNode("a")
			node.Labels = map[string]string{"pool": "a", "stage": "yes"}
			if tt.selector != nil && tt.selector.MatchLabels[configured] != "" {
				node.Labels[configured] = "no"
			}
			in := see(job, []Node{node})
			in.Drains = map[types.UID][]DrainPod{}
			p := Next(in)
			stalled := false
			for _, c := range p.Status.Conditions {
				if c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue {
					stalled = c.Reason == v1alpha1.ReasonInvalidSelector
					if !strings.Contains(c.Message, "spec.nodes.selector reads the label x.example/configured, which spec.publish sets") {
						t.Errorf("message %q", c.Message)
					}
				}
			}
			if stalled != tt.stalled {
				t.Errorf("Stalled because of it: %v, want %v; %+v", stalled, tt.stalled, p.Status.Conditions)
			}
			for _, action := range p.Actions {
				if _, starts := action.(Start); starts && tt.stalled {
					t.Errorf("it starts %+v", action)
				}
			}
		})
	}
}
