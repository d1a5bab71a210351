// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestWhoHasBegunARevision is a NodeJob whose spec jane has changed last.
func TestWhoHasBegunARevision(t *testing.T) {
	type status = v1alpha1.NodeJobStatus
	for name, tt := range map[string]struct {
		was              status
		wantBy           string
		wantUnattributed int64
	}{
		"the first revision":                                       {status{}, "jane", 0},
		"the spec has changed":                                     {status{ObservedGeneration: 2, Revision: "old"}, "jane", 0},
		"the spec has changed, and began this revision":            {status{ObservedGeneration: 3, Revision: "new"}, "jane", 0},
		"a ConfigMap has changed":                                  {status{ObservedGeneration: 3, Revision: "old"}, "", 3},
		"a ConfigMap has begun this revision":                      {status{ObservedGeneration: 3, Revision: "new", UnattributedGeneration: 3}, "", 3},
		"the spec has changed without another revision":            {status{ObservedGeneration: 2, Revision: "new", UnattributedGeneration: 2}, "jane", 0},
		"the spec has changed after the one by ConfigMap":          {status{ObservedGeneration: 2, Revision: "old", UnattributedGeneration: 2}, "jane", 0},
		"a ConfigMap has changed again":                            {status{ObservedGeneration: 3, Revision: "old", UnattributedGeneration: 3}, "", 3},
		"the revision is the same, and the spec has changed twice": {status{ObservedGeneration: 3, Revision: "new", UnattributedGeneration: 2}, "jane", 0},
		"there was no revision yet":                                {status{ObservedGeneration: 3}, "jane", 0},
	} {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{
				ObjectMeta: metav1.ObjectMeta{Generation: 3, Annotations: map[string]string{v1alpha1.ChangedByAnnotation: "jane"}},
				Status:     tt.was,
			}
			in := Input{Job: job, Revision: "new"}
			if by, unattributed := in.author(), in.unattributed(); by != tt.wantBy || unattributed != tt.wantUnattributed {
				t.Errorf("by %q, unattributed %d; want %q, %d", by, unattributed, tt.wantBy, tt.wantUnattributed)
			}
			after := status{Revision: "new", UnattributedGeneration: in.unattributed()}
			wantText := "revision new begins; nodes to do: 0"
			if tt.wantBy != "" {
				wantText += "; last changed by jane"
			}
			if got := RevisionStarted(job, &after); got != wantText {
				t.Errorf("the event is %q", got)
			}
		})
	}
}

// TestAnAttemptNamesNobodyIfAConfigMapBeganTheRevision also for the pods of later passes, and until the spec changes.
func TestAnAttemptNamesNobodyIfAConfigMapBeganTheRevision(t *testing.T) {
	job := newJob(func(j *v1alpha1.NodeJob) {
		j.Generation, j.Annotations = 3, map[string]string{v1alpha1.ChangedByAnnotation: "jane"}
		j.Status.ObservedGeneration, j.Status.Revision = 3, "older"
	})
	for _, tt := range []struct {
		generation int64
		want       string
	}{{3, ""}, {3, ""}, {4, "jane"}} {
		job.Generation = tt.generation
		p := Next(see(job, []Node{newNode("n")}))
		var by []string
		for _, action := range p.Actions {
			if a, ok := action.(Start); ok {
				by = append(by, a.Attempt.ChangedBy)
			}
		}
		if diff := cmp.Diff([]string{tt.want}, by); diff != "" {
			t.Errorf("the attempts of generation %d are by (-want +got):\n%s", tt.generation, diff)
		}
		job.Status = p.Status
	}
}
