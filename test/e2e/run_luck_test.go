// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
)

// TestR22_TheAPIServerIsAwayInMidRun checks that attempts continue and end while the API server does not respond. No
// output is lost or shown twice. The test does not run in parallel, because all tests share the API server.
func TestR22_TheAPIServerIsAwayInMidRun(t *testing.T) {
	w := newWorld(t)
	at := w.terminal("run", "node-2", "--", "sh", "-c", "echo begun; "+w.hold()+"; echo over")
	at.await("node-2: begun")
	w.began("node-2")
	w.stopAPIServer()
	at.await("the API server does not answer")
	w.letGo("node-2")
	w.sh("node-2", "while pgrep -x everynode-runne >/dev/null; do sleep 0.1; done")
	w.startAPIServer()
	got := at.end()
	if got.code != 0 {
		t.Errorf("exit code %d", got.code)
	}
	wantText(t, got.out, "1 of 1 succeeded in SECONDS")
	for _, line := range []string{"node-2: begun\n", "node-2: over\n"} {
		if n := strings.Count(got.out, line); n != 1 {
			t.Errorf("%q is shown %d times:\n%s", line, n, got.out)
		}
	}
	w.wantRan("node-2", 1)
}

// TestR22_ANodeIsLostInMidRun : the node fails after its timeout, and the other nodes are not affected.
func TestR22_ANodeIsLostInMidRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	at := w.terminal("run", node, "node-2", "--yes", "--max-concurrent", "100%", "--timeout", "25s", "--",
		"sh", "-c", fmt.Sprintf(`[ "$EVERYNODE_NODE_NAME" = %s ] || { echo fine; exit 0; }; echo begun; sleep 300`, node))
	at.await(node + ": begun")
	at.await("node-2: fine")
	must(t, real.StopKubelet(w.Ctx, node))
	must(t, real.KillRuntime(w.Ctx, node))
	got := at.end()
	if got.code != 10 {
		t.Errorf("exit code %d", got.code)
	}
	wantText(t, got.out, "1 of 2 succeeded, 1 failed in SECONDS", "failed      "+node+": "+v1alpha1.ReasonNodeUnreachable)
	if rec := w.On(
		w.runJob().Name,
		node,
	).Record; rec == nil || rec.Outcome != record.Failed ||
		rec.Reason != v1alpha1.ReasonNodeUnreachable {
		t.Errorf("the record is %+v", rec)
	}
}
