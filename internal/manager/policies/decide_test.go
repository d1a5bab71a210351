// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	since := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	installed := Installed{ID: "new", Since: since}
	at := func(state, policies string, generation int64, retry, contents string) *v1alpha1.Authorization {
		return &v1alpha1.Authorization{State: state, Policies: policies, Generation: generation, Retry: retry, Contents: contents}
	}
	const (
		yes = v1alpha1.AuthorizationAuthorized
		no  = v1alpha1.AuthorizationUnconfirmed
	)
	old, recent := since.Add(-time.Hour), since.Add(Enforced+time.Second)
	tests := map[string]struct {
		before   *v1alpha1.Authorization
		written  Written
		after    time.Duration // since the policies were installed
		want     string
		wantWait time.Duration
	}{
		"a new object, long after the policies": {
			written: Written{Generation: 1, Created: recent},
			after:   time.Hour,
			want:    yes,
		},
		"an object of which nothing is known, older than the policies": {
			written: Written{Generation: 1, Created: old},
			after:   time.Hour,
			want:    no,
		},
		"an object that was created before the API server enforced them": {
			written: Written{Generation: 1, Created: since.Add(Enforced)},
			after:   time.Hour,
			want:    no,
		},
		"nothing is decided before the API server enforces the policies": {
			written:  Written{Generation: 1, Created: old},
			after:    2 * time.Second,
			wantWait: 3 * time.Second,
		},
		"a change under the same policies": {
			before:  at(yes, "new", 1, "", ""),
			written: Written{Generation: 2, Created: old},
			after:   time.Hour,
			want:    yes,
		},
		"other contents under the same policies": {
			before:  at(yes, "new", 1, "", "a"),
			written: Written{Generation: 1, Contents: "b", Created: old},
			after:   time.Hour,
			want:    yes,
		},
		"the policies were installed again, and it is unchanged": {
			before:  at(yes, "old", 1, "r", "a"),
			written: Written{Generation: 1, Retry: "r", Contents: "a", Created: old},
			after:   time.Hour,
			want:    yes,
		},
		"the policies were installed again a moment ago": {
			before:   at(yes, "old", 1, "", ""),
			written:  Written{Generation: 1, Created: old},
			wantWait: Enforced,
		},
		"it was changed, and the policies were installed again": {
			before:  at(yes, "old", 1, "", ""),
			written: Written{Generation: 2, Created: old},
			after:   time.Hour,
			want:    no,
		},
		"a retry was requested, and the policies were installed again": {
			before:  at(yes, "old", 1, "", ""),
			written: Written{Generation: 1, Retry: "r", Created: old},
			after:   time.Hour,
			want:    no,
		},
		"a script was changed, and the policies were installed again": {
			before:  at(yes, "old", 1, "", "a"),
			written: Written{Generation: 1, Contents: "b", Created: old},
			after:   time.Hour,
			want:    no,
		},
		"not authorized, and nothing has changed": {
			before:  at(no, "new", 2, "", ""),
			written: Written{Generation: 2, Created: old},
			after:   time.Hour,
			want:    no,
		},
		"not authorized, and only a script has changed": {
			before:  at(no, "new", 2, "", "a"),
			written: Written{Generation: 2, Contents: "b", Created: old},
			after:   time.Hour,
			want:    no,
		},
		"not authorized, and then the spec has changed": {
			before:  at(no, "new", 2, "", ""),
			written: Written{Generation: 3, Created: old},
			after:   time.Hour,
			want:    yes,
		},
		"not authorized, and then a retry was requested": {
			before:  at(no, "new", 2, "", ""),
			written: Written{Generation: 2, Retry: "r", Created: old},
			after:   time.Hour,
			want:    yes,
		},
		"not authorized, and the policies were installed again": {
			before:  at(no, "old", 2, "", ""),
			written: Written{Generation: 2, Created: old},
			after:   time.Hour,
			want:    no,
		},
		"policies were not required when it was written": {
			before:  at(v1alpha1.AuthorizationNotRequired, "", 0, "", ""),
			written: Written{Generation: 1, Created: old},
			after:   time.Hour,
			want:    no,
		},
		"created and changed after the policies had been installed again": {
			before:  at(yes, "older", 1, "", ""),
			written: Written{Generation: 2, Created: recent},
			after:   time.Hour,
			want:    yes,
		},
		"not authorized, created after the policies were installed again": {
			before:  at(no, "older", 1, "", ""),
			written: Written{Generation: 1, Created: recent},
			after:   time.Hour,
			want:    yes,
		},
		"not authorized, confirmed while the policies were installed again": {
			before:  at(no, "old", 1, "", ""),
			written: Written{Generation: 1, Retry: "r", Created: old},
			after:   time.Hour,
			want:    no,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, wait := Decide(tt.before, tt.written, installed, since.Add(tt.after))
			if wait != tt.wantWait {
				t.Fatalf("waits %s, want %s", wait, tt.wantWait)
			}
			if wait > 0 {
				if tt.before != nil && got != *tt.before {
					t.Errorf("it waits, and the authorization is %+v", got)
				}
				return
			}
			want := v1alpha1.Authorization{
				State:      tt.want,
				Policies:   "new",
				Generation: tt.written.Generation,
				Retry:      tt.written.Retry,
				Contents:   tt.written.Contents,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if again, _ := Decide(&got, tt.written, installed, since.Add(tt.after+time.Hour)); again != got {
				t.Errorf("the second time: %+v", again)
			}
			if !covers(&got, tt.written, installed) {
				t.Error("the answer does not cover its question")
			}
		})
	}
}
