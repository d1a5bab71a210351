// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import "testing"

func TestNumbersAndPercentages(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "100": true, "1%": true, "100%": true, "0": false, "0%": false, "101%": false, "-1": false, "many": false, "0.5%": false, "": false, "5 %": false} {
		if _, err := ParseNumberOrPercent("--x", value, 1); (err == nil) != want {
			t.Errorf("%q: %v", value, err)
		}
	}
}
