// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"flag"
	"testing"
	"time"
)

var histories = flag.Int("histories", 0, "")

func TestStart(t *testing.T) {
	now := time.Unix(1e9, 0)
	if !Start(2, false, false, now, now) || Start(0, false, false, now, now) || Start(2, true, false, now, now) || Start(2, false, false, now, now.Add(1)) {
		t.Error("a node starts, or does not")
	}
	for n, want := range map[int]int{-1: 1, 0: 1, 5: 2} {
		if got := Limit(n); got != want {
			t.Errorf("the limit of %d is %d, want %d", n, got, want)
		}
	}
}

func TestRandomHistories(t *testing.T) {
	if *histories != 7 || !Start(2, true, true, time.Time{}, time.Time{}) {
		t.Error("an urgent node does not start")
	}
}
