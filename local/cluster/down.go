// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/everynode/everynode/local/internal/nodespec"
	"github.com/everynode/everynode/local/internal/procs"
)

// Down ends all processes of the cluster and removes its folder. It is not an error if there is no cluster, so Down may
// be called twice, and after any failure. The error names what could not be removed.
func (c *Cluster) Down(ctx context.Context) error {
	unlock, err := lockAll(ctx)
	if err == nil {
		defer unlock()
	} else if ctx.Err() != nil {
		return fmt.Errorf("taking cluster %q down: %w", c.state.Name, err)
	}
	if _, err := os.Stat(c.state.path(stateFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c.progress.say("taking cluster %q down …", c.state.Name)
	errs := []error{c.endProcesses(), c.state.removeNetwork(), removeGroup(c.state.cgroup()), unmountAll(c.state.dir)}
	var left []string
	for _, record := range procs.Marked(nodespec.Marker, c.state.dir) {
		left = append(left, fmt.Sprintf("process %d", record.PID))
	}
	if left = append(left, c.state.systemLeftovers()...); len(left) > 0 {
		errs = append(errs, fmt.Errorf("still there: %s", strings.Join(left, "; ")))
	}
	if err := errors.Join(errs...); err != nil {
		// The folder stays, so that Down can be retried.
		return fmt.Errorf("taking cluster %q down: %w", c.state.Name, err)
	}
	if err := os.RemoveAll(c.state.dir); err != nil {
		return fmt.Errorf("removing the folder of cluster %q: %w", c.state.Name, err)
	}
	c.progress.say("cluster %q is removed: no process, network link, control group or mount of it is left, nor its folder %s", c.state.Name, c.state.dir)
	return nil
}

// endProcesses kills all processes, because no data of a local cluster requires a clean end.
func (c *Cluster) endProcesses() error {
	errs := []error{
		forEach(len(components), func(i int) error { return c.control.stop(components[i]) }),
		c.nodes.switchOff(),
	}
	// Processes that a crash left unrecorded have the marker of the cluster.
	for _, record := range procs.Marked(nodespec.Marker, c.state.dir) {
		if err := record.Signal(syscall.SIGKILL); err != nil {
			errs = append(errs, err)
		}
	}
	for _, record := range procs.Marked(nodespec.Marker, c.state.dir) {
		errs = append(errs, record.Stop(0))
	}
	return errors.Join(errs...)
}
