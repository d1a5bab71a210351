// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestDigestOfExecutedRevisionIsRecorded tests that the digest is not that of a spec that has changed since.
func TestDigestOfARevision(t *testing.T) {
	a := &attemptReader{job: &job{policy: policy{in: Input{Revision: rev, Digest: "current"}}}}
	for revision, want := range map[string]string{rev: "current", "old": "of old", "older": ""} {
		if got := a.digestOf(revision, &record.Record{Revision: "old", Digest: "of old"}); got != want {
			t.Errorf("%s: %q, want %q", revision, got, want)
		}
	}
}

func TestDigestOfExecutedRevisionIsRecorded(t *testing.T) {
	now, before := strings.Repeat("a", 64), strings.Repeat("b", 64)
	tests := map[string]struct {
		node Node
		pod  func(*Pod)
		want string
	}{
		"the revision of the spec":             {newNode("n"), func(*Pod) {}, now},
		"an earlier revision without a record": {newNode("n"), func(p *Pod) { p.Revision = "old" }, ""},
		"an earlier revision with a record": {
			newNode("n", recorded(record.Failed, func(r *record.Record) { r.Revision, r.Digest = "old", before })),
			func(p *Pod) { p.Revision = "old" }, before,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(), []Node{tt.node}, newPod(tt.node, exited(1), tt.pod))
			in.Digest = now
			p := Next(in)
			var got []string
			for _, action := range p.Actions {
				if r, ok := action.(Record); ok {
					got = append(got, r.Record.Digest)
				}
			}
			if len(got) != 1 || got[0] != tt.want {
				t.Errorf("digests %q, want %q", got, tt.want)
			}
			if p.Status.RevisionDigest != now {
				t.Errorf("the status has %q", p.Status.RevisionDigest)
			}
		})
	}
}
