// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// TestRevisionsOfDifferentWorkDiffer covers two scripts with the same short hash.
func TestRevisionsOfDifferentWorkDiffer(t *testing.T) {
	src := task.Source{Script: "true"}
	digest := task.Digest(&v1alpha1.NodeJobSpec{}, src)
	short, long, other := digest[:10], digest[:40], digest[:10]+strings.Repeat("0", 54)
	on := func(revision, digest string) []plan.Node {
		return []plan.Node{{Name: "a"}, {Name: "b", On: record.NodeRecord{Record: &record.Record{Revision: revision, Digest: digest}}}}
	}
	tests := map[string]struct {
		status v1alpha1.NodeJobStatus
		nodes  []plan.Node
		want   string
	}{
		"nothing has run": {want: short},
		"it is in the status": {
			status: v1alpha1.NodeJobStatus{Revision: short, RevisionDigest: digest},
			want:   short,
		},
		"it is in a status without revision": {status: v1alpha1.NodeJobStatus{RevisionDigest: digest}, want: short},
		"it is in a status with the revision of other work": {
			status: v1alpha1.NodeJobStatus{Revision: "0123456789", RevisionDigest: digest},
			want:   short,
		},
		"it is in a status without digest": {status: v1alpha1.NodeJobStatus{Revision: short}, want: short},
		"it is on record":                  {nodes: on(short, digest), want: short},
		"it is on record without digest":   {nodes: on(short, ""), want: short},
		"other work is on record":          {nodes: on("0123456789", other), want: short},
		"other work has it in the status": {
			status: v1alpha1.NodeJobStatus{Revision: short, RevisionDigest: other},
			want:   long,
		},
		"other work has it on record": {nodes: on(short, other), want: long},
		"it has a longer revision from before": {
			status: v1alpha1.NodeJobStatus{Revision: long, RevisionDigest: digest},
			want:   long,
		},
		"it has a longer revision, and the status was removed": {nodes: append(on(long, digest), on(short, other)...), want: long},
		"the other work has a longer revision": {
			status: v1alpha1.NodeJobStatus{Revision: other[:40], RevisionDigest: other},
			nodes:  on(other[:40], other),
			want:   short,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			revision, got := Revision(&v1alpha1.NodeJob{Status: tt.status}, src, tt.nodes)
			if revision != tt.want || got != digest {
				t.Errorf("revision %q and digest %q, want %q and %q", revision, got, tt.want, digest)
			}
		})
	}
}
