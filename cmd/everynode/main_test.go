// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePullSecrets(t *testing.T) {
	tests := map[string]struct {
		value   string
		want    []string
		wantErr string
	}{
		"none":                 {value: ""},
		"one":                  {value: "mirror", want: []string{"mirror"}},
		"two":                  {value: "mirror,other.example", want: []string{"mirror", "other.example"}},
		"a space":              {value: "mirror, other", wantErr: `" other" is not the name of a Secret`},
		"an empty name":        {value: "mirror,", wantErr: `"" is not the name of a Secret`},
		"a name in upper case": {value: "Mirror", wantErr: `"Mirror" is not the name of a Secret`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := parse([]string{"--runner-image=runner", "--runner-pull-secrets=" + tt.value})
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, f.pullSecrets); err != nil || diff != "" {
				t.Errorf("%v, the Secrets (-want +got):\n%s", err, diff)
			}
		})
	}
}
