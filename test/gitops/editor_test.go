// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestNoScriptOfAnEditorRunsWhileFluxInstallsOrPrunes : while Flux creates and deletes all objects in its order, a user who may
// edit NodeJobs, and has none of the rights to their effects, writes scripts all the time.
func TestNoScriptOfAnEditorRunsWhileFluxInstallsOrPrunes(t *testing.T) {
	u := newUser(t)
	u.namespace()
	u.kubectl("-n node-setup create rolebinding editor --clusterrole=everynode-nodejob-editor --user=mallory")
	e := u.editor()
	u.install(site.old)
	e.isRefused()
	u.kubectl("-n " + fluxNamespace + " delete kustomization everynode --timeout=120s")
	u.eventually("everything is removed", u.left)
	u.install(site.old)
	e.isRefused()
	e.stop()
	for _, node := range []string{"node-1", "node-2"} {
		if ran := u.sh(node, "ls /var/tmp"); strings.Contains(ran, "hostile") {
			t.Errorf("a script has run on %s", node)
		}
	}
}

// editor is a user who writes NodeJobs in a loop.
type editor struct {
	u        *user
	quit     chan struct{}
	ended    chan struct{}
	refusals atomic.Int32
	writes   atomic.Int32
}

func (u *user) editor() *editor {
	e := &editor{u: u, quit: make(chan struct{}), ended: make(chan struct{})}
	go e.write()
	u.t.Cleanup(e.stop)
	return e
}

func (e *editor) write() {
	defer close(e.ended)
	for i := 0; ; i++ {
		select {
		case <-e.quit:
			return
		case <-time.After(50 * time.Millisecond): // how often the editor writes
		}
		manifest := nodeJob(fmt.Sprintf("hostile-%d", i), `rollout: {steps: [{name: all}]}, task: {script: "echo ran >> /var/tmp/hostile"}`)
		out, err := e.u.command(manifest, site.cluster.Kubectl(), "create", "--as=mallory", "-f", "-")
		switch {
		case err == nil:
			e.writes.Add(1)
		case strings.Contains(out, "everynode-nodejobs"):
			e.refusals.Add(1)
		}
	}
}

// isRefused waits until a policy refuses what the editor writes.
func (e *editor) isRefused() {
	e.u.t.Helper()
	before := e.refusals.Load()
	e.u.eventually("a policy refuses scripts of the editor", func() error {
		if e.refusals.Load() < before+3 {
			return errors.New("it has refused too few")
		}
		return nil
	})
}

func (e *editor) stop() {
	select {
	case <-e.quit:
	default:
		close(e.quit)
		<-e.ended
		e.u.t.Logf("the editor wrote %d NodeJobs while no policy existed, and the policy refused %d", e.writes.Load(), e.refusals.Load())
	}
}
