// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestChangedBy(t *testing.T) {
	for name, tt := range map[string]struct{ annotation, want string }{
		"no user":                         {"", ""},
		"a user":                          {"jane@example.com", "jane@example.com"},
		"a ServiceAccount":                {"system:serviceaccount:flux-system:kustomize-controller", "system:serviceaccount:flux-system:kustomize-controller"},
		"control characters":              {"a\x1b[2J\nb\tc\u202e", `a\x1b[2J\nb\tc\u202e`},
		"a long name keeps its beginning": {"a" + strings.Repeat("b", 1<<18), "a" + strings.Repeat("b", MaxChangedBy-4) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			got := ChangedBy(map[string]string{v1alpha1.ChangedByAnnotation: tt.annotation})
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if again := boundUser(got); again != got {
				t.Errorf("cleaned once more, it is %q", again)
			}
		})
	}
}
