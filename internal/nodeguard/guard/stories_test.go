// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testing/plantest"
)

var update = flag.Bool("update", false, "write the stories in testdata")

// story is a simulation of a small cluster with a NodeGuard, like those of NodeJobs in internal/nodejob/plan.
type story struct {
	file, about, spec string
	script            func(*cluster)
}

var stories = []story{
	{
		file: "two-drains-take-turns.txt",
		about: "Two drains take turns. The first drained node is released, because all other nodes are available. The second one is held, " +
			"because maxUnavailable is 1, until the first node is available again: uncordoned, Ready, with a ready pod of the DaemonSet and a ready companion.",
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeGuard
metadata:
  name: disks
  namespace: storage
spec:
  target:
    daemonSet: disks
  maxUnavailable: 1
`,
		script: func(c *cluster) {
			c.happens(
				"The cluster has the nodes node-1, node-2 and node-3, with a ready pod of the DaemonSet disks on each. A user creates the NodeGuard.",
				func() {},
			)
			c.later(5*time.Second, "The companions are ready.", c.startCompanions)
			c.later(60*time.Second, "kubectl drain node-1 cordons the node.", func() { c.cordon("node-1", true) })
			c.later(time.Second, "kubectl drain node-2 cordons the node.", func() { c.cordon("node-2", true) })
			c.evict("node-1")
			c.evict("node-2")
			c.later(20*time.Second, "node-1 reboots, and is not Ready.", func() { c.setReady("node-1", false) })
			c.later(40*time.Second, "node-1 is Ready, and the pod of the DaemonSet is ready.", func() { c.setReady("node-1", true) })
			c.evict("node-2")
			c.later(5*time.Second, "kubectl uncordon node-1", func() { c.cordon("node-1", false) })
			c.later(5*time.Second, "The companion on node-1 is ready.", c.startCompanions)
			c.evict("node-2")
			c.later(30*time.Second, "kubectl uncordon node-2", func() { c.cordon("node-2", false) })
			c.later(5*time.Second, "The companion on node-2 is ready.", c.startCompanions)
		},
	},
	{
		file: "break-glass.txt",
		about: "Break glass. A node is held until a user approves its release. In an emergency, the annotation everynode.dev/break-glass " +
			"releases the node at once, without the approval. When the node is uncordoned, the annotation is removed, so that it does not count for the next drain.",
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeGuard
metadata:
  name: disks
  namespace: storage
spec:
  target:
    daemonSet: disks
  release:
    approval: Required
`,
		script: func(c *cluster) {
			c.happens(
				"The cluster has the nodes node-1, node-2 and node-3, with a ready pod of the DaemonSet disks on each. A user creates the NodeGuard.",
				func() {},
			)
			c.later(5*time.Second, "The companions are ready.", c.startCompanions)
			c.later(60*time.Second, "kubectl drain node-2 cordons the node.", func() { c.cordon("node-2", true) })
			c.evict("node-2")
			c.later(30*time.Second, `kubectl annotate node node-2 everynode.dev/break-glass="the disk controller burns, Ada"`, func() {
				c.change("node-2").BreakGlass = "the disk controller burns, Ada"
			})
			c.evict("node-2")
			c.later(10*time.Minute, "kubectl uncordon node-2", func() { c.cordon("node-2", false) })
			c.later(5*time.Second, "The companion on node-2 is ready.", c.startCompanions)
		},
	},
}

// TestStories compares the stories with testdata/stories.
func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(s.file, func(t *testing.T) {
			c := newCluster(t, s.spec)
			s.script(c)
			got := strings.Join(plantest.Wrap("", s.about), "\n") + "\n\n" + strings.TrimLeft(s.spec, "\n") + c.text.String()
			plantest.CompareStory(t, filepath.Join("testdata", "stories", s.file), got, *update, "internal/nodeguard/guard")
		})
	}
}
