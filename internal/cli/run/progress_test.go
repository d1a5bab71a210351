// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testing/clitest"
)

// TestARunWithoutAManagerSaysSoOnce checks that the message has the remedy, and is not repeated.
func TestARunWithoutAManagerSaysSoOnce(t *testing.T) {
	r := newRun(t, &jobServer{uid: "uid-of-j"})
	waited := time.Duration(0)
	r.Now = func() time.Time { return r.view.Began.Add(waited) }
	for ; waited < time.Minute; waited += 2 * time.Second {
		if r.draw(); waited < observeTimeout && strings.Contains(r.ErrOut.(*clitest.Buffer).String(), "manager") {
			t.Errorf("it is said after %s", waited)
		}
	}
	const want = "0 of 2 succeeded, 2 waiting; the manager has not observed the NodeJob yet; check that it is running: kubectl everynode version. " +
		"When it runs again, the NodeJob starts, also if this command has ended; to prevent this: kubectl delete nodejob j -n ns\n"
	if said := r.ErrOut.(*clitest.Buffer).String(); strings.Count(said, want) != 1 || strings.Count(said, "manager") != 1 {
		t.Errorf("it says\n%s", said)
	}
}

// TestTheNodesThatAreLeftOutAreNotCounted checks the first line of a run with an unreachable node.
func TestTheNodesThatAreLeftOutAreNotCounted(t *testing.T) {
	o := newRun(t, &jobServer{}, func(o *options) { o.command = []string{"true"} }).options
	newRunning(
		o,
		clitest.NodeJob("j"),
		targets{names: []string{"node-1"}, unreachable: map[string]string{"node-2": "it is being deleted"}},
	).tellBegin()
	if got := o.ErrOut.(*clitest.Buffer).String(); got != "NodeJob ns/j runs true on 1 node\n" {
		t.Errorf("it says %q", got)
	}
}
