// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// running is a run that is followed. All its fields belong to the goroutine of follow.
type running struct {
	ownJob
	key  string
	view view.Run
	// nodes are those of the view, and index has them by name.
	nodes []*node
	index map[string]*node
	// pods maps the pods that were observed to their nodes.
	pods map[types.UID]*node
	logs *logs
	// saved writes the output to files; nil without --save.
	saved   *saver
	parts   chan logPart
	display display
	// notes say what may be missing in the output of nodes. They are written when the live view has been removed: it is redrawn
	// relative to the cursor, so it would overwrite a line that is written below it.
	notes []text.Line

	// stops counts how often the user has pressed Ctrl-C.
	stops int
	// disconnected is the reason why the API server does not respond; "" if it does. logsForbidden is the reason why no
	// logs can be read.
	disconnected  string
	logsForbidden error
	// rest fires after the NodeJob has made no progress for long enough; then rested is true. logsOver fires after the logs were
	// waited for long enough. quiet counts the checks in which all remaining nodes were unavailable.
	rested         bool
	rest, logsOver <-chan time.Time
	quiet          int
}

const (
	// tickInterval is the minimum interval between two frames or printed lines.
	tickInterval = 200 * time.Millisecond
	// messageInterval is the minimum interval between progress messages if the output cannot be redrawn.
	messageInterval = time.Second
	// observeTimeout is the time within which a manager should observe the NodeJob.
	observeTimeout = 5 * time.Second
	// restTimeout is how long the NodeJob must make no progress before the run is over, because an obstacle may disappear
	// soon.
	restTimeout = 3 * time.Second
	// unreachableInterval is the interval at which the remaining nodes are checked for availability.
	unreachableInterval = 5 * time.Second
	// logsTimeout is how long the command waits for logs after all nodes have ended.
	logsTimeout = 20 * time.Second
	// slack is added to all timeouts of the run, for the end of the run.
	slack = 2 * time.Minute
)

func newRunning(o *options, job *v1alpha1.NodeJob, found targets) *running {
	r := &running{
		ownJob: ownJob{options: o, job: job, gone: map[string]bool{}, patience: requestTimeout}, key: v1alpha1.RecordKey(job.Namespace, job.Name),
		index: map[string]*node{}, pods: map[types.UID]*node{}, display: display{Factory: o.Factory}, parts: make(chan logPart),
	}
	r.view = view.Run{Namespace: job.Namespace, Name: job.Name, Command: o.whatExactly(), Selection: o.selection(), Began: o.Now()}
	for _, name := range found.names {
		r.view.Nodes = append(r.view.Nodes, view.RunNode{Name: name})
	}
	for name, why := range found.unreachable {
		r.view.Nodes = append(r.view.Nodes, view.RunNode{Name: name, State: view.RunUnreachable, Said: why})
	}
	slices.SortFunc(r.view.Nodes, func(a, b view.RunNode) int { return cmp.Compare(a.Name, b.Name) })
	room := 0
	if o.fold || o.output == console.OutputJSON || o.output == outputJSONLines {
		room = roomFor(len(r.view.Nodes))
	}
	for i := range r.view.Nodes {
		n := &node{RunNode: &r.view.Nodes[i], output: newNodeOutput(room), uid: found.uids[r.view.Nodes[i].Name]}
		r.nodes, r.index[n.Name] = append(r.nodes, n), n
	}
	if terminal := term.Of(o.ErrOut, o.Getenv); terminal.Interactive {
		r.display.screen = term.NewScreen(o.ErrOut, terminal)
	}
	return r
}

// follow shows the run until it is over or the user ends the command.
func (r *running) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pods, err := r.Pods(r.namespace)
	if err != nil {
		return err
	}
	r.logs = newLogs(pods, r.parts, r.After)
	r.tellBegin()
	over := r.loop(ctx)
	return r.end(ctx, over)
}

// ending is the reason why the loop has ended.
type ending int

const (
	endOver ending = iota
	endRest
	endDetached
	endGone
	endTimedOut
	endUnreachable
)

// loop handles events one at a time.
//
//nolint:cyclop // a case for each thing that may happen, and nothing else
func (r *running) loop(ctx context.Context) ending {
	observations := cmdutil.Follow(ctx, r.client, r.After, r.job)
	podChanges := watchPods(ctx, r.Factory, r.client, r.job)
	nodeChanges := watchNodes(ctx, r.Factory, r.client, slices.Collect(maps.Keys(r.index)))
	tick, check := r.After(tickInterval), r.After(unreachableInterval)
	deadline := r.After(r.startingDeadline + r.timeout + slack)
	for {
		switch {
		case r.overNow():
			return r.endingUnlessFinished(endRest)
		case r.display.closed():
			return endDetached
		}
		select {
		case observation := <-observations:
			if observation.Gone {
				return r.endingUnlessFinished(endGone)
			}
			r.observeJob(observation)
		case c := <-podChanges:
			r.observePods(ctx, c)
		case c := <-nodeChanges:
			r.observeNodes(c)
		case part := <-r.parts:
			r.observeLog(part)
		case s := <-r.signals:
			if r.signalled(ctx, s) {
				return endDetached
			}
		case <-tick:
			if r.excludeErr == nil {
				r.excludeGone(ctx)
			}
			r.draw()
			tick = r.After(tickInterval)
		case <-check:
			if r.checkPeriodically(ctx) {
				return endUnreachable
			}
			check = r.After(unreachableInterval)
		case <-r.rest:
			r.suspendWaitingNodes(ctx)
			r.rested = true
		case <-r.logsOver:
			return r.endingUnlessFinished(endRest)
		case <-deadline:
			return endTimedOut
		}
	}
}

// endingUnlessFinished returns endOver if all nodes have ended, because then nothing is missing, and how otherwise.
func (r *running) endingUnlessFinished(how ending) ending {
	if r.finished() {
		return endOver
	}
	return how
}

// overNow reports whether nothing more is expected. It sets the timers for events that may never occur.
func (r *running) overNow() bool {
	r.setRest()
	if !r.finished() && !r.rested {
		return false
	}
	if r.logsOver == nil {
		r.logsOver = r.After(logsTimeout)
	}
	return r.allRead()
}

// setRest sets the timer for a NodeJob that makes no further progress on its own.
func (r *running) setRest() {
	if r.rested && r.view.Count(view.RunRunning) > 0 {
		r.rested, r.logsOver = false, nil // another user has resumed it in the meantime
	}
	switch {
	case !r.atRest():
		r.rest = nil
	case r.rest != nil:
	case r.suspended:
		r.rest = r.After(messageInterval) // no obstacle will disappear, so there is no reason to wait longer
	default:
		r.rest = r.After(restTimeout)
	}
}

// finished reports whether no further result of any node is expected.
func (r *running) finished() bool {
	return !slices.ContainsFunc(r.view.Nodes, func(n view.RunNode) bool { return !n.State.Final() })
}

// allRead reports whether all expected logs have been read.
func (r *running) allRead() bool {
	return !slices.ContainsFunc(r.nodes, func(n *node) bool { return !r.logRead(n) })
}

// logRead reports whether no more of the log of a node is expected.
func (r *running) logRead(n *node) bool {
	if n.last != "" && !n.output.read {
		return false
	}
	// Nodes and pods have separate watches, so a record may be observed before its pod.
	return n.attemptSeen() || r.logsForbidden != nil
}

// started reports whether an attempt has started on any node, as far as it was observed.
func (r *running) started() bool {
	if len(r.pods) > 0 || r.job.Status.Nodes.Running > 0 {
		return true
	}
	return slices.ContainsFunc(r.nodes, func(n *node) bool {
		return n.record != nil || n.State != view.RunWaiting && n.State != view.RunUnreachable && n.State != view.RunDeleted
	})
}

// observeJob handles an observation of the NodeJob.
func (r *running) observeJob(observation cmdutil.Observation) {
	if observation.Err != nil {
		r.disconnected = cmdutil.Explain(observation.Err).Error()
		return
	}
	r.disconnected = ""
	r.setJob(observation.Job)
}

// atRest reports whether the NodeJob makes no progress on its own, according to its manager. A NodeJob that was suspended
// before a manager has seen it has not started and does not start.
func (r *running) atRest() bool {
	status := &r.job.Status
	switch {
	case r.view.Count(view.RunRunning) > 0:
		return false
	case r.suspended && !r.seen:
		return true
	case status.ObservedGeneration != r.job.Generation || status.Nodes.Running > 0:
		return false
	}
	for _, c := range status.Conditions {
		if c.Type == v1alpha1.ConditionReconciling {
			return c.Status == metav1.ConditionFalse
		}
	}
	return false
}

// signalled handles a signal, and reports whether the user does not want to wait any longer.
func (r *running) signalled(ctx context.Context, s os.Signal) bool {
	if s != os.Interrupt {
		return true // a process that ends this command from outside does not wait
	}
	if r.stops++; r.stops > 1 {
		return true
	}
	r.suspend(ctx)
	return false
}

// checkPeriodically does the periodic checks, and reports whether all remaining nodes are unavailable.
func (r *running) checkPeriodically(ctx context.Context) bool {
	if r.stops > 0 && !r.suspended {
		r.suspend(ctx) // it was not possible when the user pressed Ctrl-C
	}
	r.excludeGone(ctx)
	return r.onlyUnreachable(ctx)
}

// suspendWaitingNodes prevents waiting nodes from running the command later, when no user would notice.
func (r *running) suspendWaitingNodes(ctx context.Context) {
	if !r.suspended && r.view.Count(view.RunWaiting) > 0 {
		r.suspend(ctx)
	}
}
