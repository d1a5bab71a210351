// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/cli/view"
	"github.com/everynode/everynode/internal/record"
)

// running is a run that is followed. Everything in it belongs to the one goroutine of follow.
type running struct {
	*runOptions
	job     *v1alpha1.NodeJob
	key     string
	view    view.Run
	index   map[string]int
	outputs []*nodeOutput
	records []*record.Record
	// pods are those that were seen, of each the node.
	pods map[types.UID]int
	// last is the pod of each node whose log counts.
	last   []types.UID
	logs   *logs
	parts  chan logPart
	screen *term.Screen
	// printed are lines that are to be written to where data goes.
	printed strings.Builder
	said    string
	saidAt  time.Time

	// stops counts how often the user has said that it is enough.
	stops     int
	suspended bool
	// stopErr is why nothing could be stopped, the last time that it was tried.
	stopErr error
	// broken is true when nobody reads what is printed any more, and writeErr why it could not be written.
	broken   bool
	writeErr error
	// seen is true once a manager has the NodeJob.
	seen bool
	// away is why the API server does not answer; "" when it does. logsForbidden is why no logs can be read.
	away          string
	logsForbidden error
	// runFinished is true while nothing of it goes on by itself; rest tells when that has been so for long enough, logsOver
	// when logs have been waited for for long enough. quiet counts the looks at which all that is left was away.
	runFinished    bool
	rest, logsOver <-chan time.Time
	quiet          int
	// patience bounds each request.
	patience time.Duration
}

const (
	// runTick is how often something is drawn, or printed, at most.
	runTick = 200 * time.Millisecond
	// runSay is how often progress is told where nothing can be drawn over.
	runSay = time.Second
	// pickUp is how long a manager may take to see the NodeJob.
	pickUp = 5 * time.Second
	// restFor is how long it must be at rest to be over: an obstacle may go at once.
	restFor = 3 * time.Second
	// lookAway is how often nodes are looked at that are all that is left.
	lookAway = 5 * time.Second
	// logsFor is how long logs are waited for when all nodes have ended.
	logsFor = 20 * time.Second
	// runSlack is what the end of a run may take beyond all of its times.
	runSlack = 2 * time.Minute
)

func newRunning(o *runOptions, job *v1alpha1.NodeJob, found targets) *running {
	r := &running{
		runOptions: o, job: job, key: v1alpha1.RecordKey(job.Namespace, job.Name),
		index: map[string]int{}, pods: map[types.UID]int{}, parts: make(chan logPart), patience: requestFor,
	}
	r.view = view.Run{Name: job.Name, Began: o.Now()}
	for _, name := range found.names {
		r.view.Nodes = append(r.view.Nodes, view.RunNode{Name: name})
	}
	for name, why := range found.away {
		r.view.Nodes = append(r.view.Nodes, view.RunNode{Name: name, State: view.RunUnreachable, Said: why})
	}
	slices.SortFunc(r.view.Nodes, func(a, b view.RunNode) int { return cmp.Compare(a.Name, b.Name) })
	room := 0
	if o.fold || o.output == outputJSON {
		room = roomFor(len(r.view.Nodes))
	}
	for i := range r.view.Nodes {
		r.index[r.view.Nodes[i].Name] = i
		r.outputs = append(r.outputs, newNodeOutput(room))
	}
	r.records, r.last = make([]*record.Record, len(r.outputs)), make([]types.UID, len(r.outputs))
	if terminal := term.Of(o.ErrOut, o.Getenv); terminal.Interactive {
		r.screen = term.NewScreen(o.ErrOut, terminal)
	}
	return r
}

// follow shows the run until it is over, or the user has enough.
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

// ending is why the loop has ended.
type ending int

const (
	endOver ending = iota
	endRest
	endDetached
	endGone
	endTimedOut
	endAway
)

// loop takes in what happens, one thing after the other.
//
//nolint:cyclop // a case for each thing that may happen, and nothing else
func (r *running) loop(ctx context.Context) ending {
	observations := r.Follow(ctx, r.client, r.job)
	podChanges := r.watchPods(ctx, r.client, r.job)
	nodeChanges := r.watchNodes(ctx, r.client, r.names())
	tick, look := r.After(runTick), r.After(lookAway)
	deadline := r.After(r.startingDeadline + r.timeout + runSlack)
	for {
		if r.overNow() {
			return endOver
		}
		select {
		case observation := <-observations:
			if observation.Gone {
				return r.goneAs()
			}
			r.seeJob(observation)
		case c := <-podChanges:
			r.seePods(ctx, c)
		case c := <-nodeChanges:
			r.seeNodes(c)
		case part := <-r.parts:
			r.seeLog(part)
		case s := <-r.signals:
			if r.signalled(ctx, s) {
				return endDetached
			}
		case <-tick:
			r.draw()
			tick = r.After(runTick)
		case <-look:
			if r.lookAround(ctx) {
				return endAway
			}
			look = r.After(lookAway)
		case <-r.rest:
			r.leaveNothing(ctx)
			return endRest
		case <-r.logsOver:
			return endOver
		case <-deadline:
			return endTimedOut
		}
	}
}

// goneAs is how the run ends when its NodeJob is gone: where all nodes have ended, nothing is missing.
func (r *running) goneAs() ending {
	if r.finished() {
		return endOver
	}
	return endGone
}

// overNow is true when nothing more is to come, and sets the alarms for what may never come.
func (r *running) overNow() bool {
	finished := r.finished()
	switch {
	case finished && r.allRead():
		return true
	case finished && r.logsOver == nil:
		r.logsOver = r.After(logsFor)
	case r.runFinished && r.rest == nil && r.suspended:
		r.rest = r.After(runSay) // no obstacle will go, and nobody waits for one
	case r.runFinished && r.rest == nil:
		r.rest = r.After(restFor)
	case !r.runFinished:
		r.rest = nil
	}
	return false
}

func (r *running) names() []string {
	names := make([]string, 0, len(r.view.Nodes))
	for i := range r.view.Nodes {
		names = append(names, r.view.Nodes[i].Name)
	}
	return names
}

// finished is true when nothing is to come from any node.
func (r *running) finished() bool {
	return !slices.ContainsFunc(r.view.Nodes, func(n view.RunNode) bool { return !n.State.Final() })
}

// allRead is true when every log that is to come has come.
func (r *running) allRead() bool {
	for i, o := range r.outputs {
		if r.last[i] != "" && !o.read {
			return false
		}
		// Nodes and pods are watched apart: a record may come before its pod is seen.
		if rec := r.records[i]; rec != nil && rec.PodUID != "" && r.last[i] != rec.PodUID && r.logsForbidden == nil {
			return false
		}
	}
	return true
}

// seeJob takes in what is seen of the NodeJob.
func (r *running) seeJob(observation Observation) {
	if observation.Err != nil {
		r.away = Explain(observation.Err).Error()
		return
	}
	r.away = ""
	r.job = observation.Job
	r.seen = r.seen || slices.Contains(observation.Job.Finalizers, v1alpha1.NodeJobFinalizer)
	r.runFinished = r.atRest()
}

// atRest is true when nothing of the NodeJob goes on by itself, as its manager says.
func (r *running) atRest() bool {
	status := &r.job.Status
	if status.ObservedGeneration != r.job.Generation || status.Nodes.Running > 0 || r.count(view.RunRunning) > 0 {
		return false
	}
	for _, c := range status.Conditions {
		if c.Type == v1alpha1.ConditionReconciling {
			return c.Status == metav1.ConditionFalse
		}
	}
	return false
}

func (r *running) count(state view.RunState) int {
	n := 0
	for i := range r.view.Nodes {
		if r.view.Nodes[i].State == state {
			n++
		}
	}
	return n
}

// signalled is true when the user does not want to wait any longer.
func (r *running) signalled(ctx context.Context, s os.Signal) bool {
	switch {
	case s == syscall.SIGPIPE:
		r.broken = true
		return true
	case s != os.Interrupt:
		return true // whoever ends this command from outside does not wait
	}
	if r.stops++; r.stops > 1 {
		return true
	}
	r.suspend(ctx)
	return false
}

// lookAround does what is done now and then, and is true when all that is left is away.
func (r *running) lookAround(ctx context.Context) bool {
	if r.stops > 0 && !r.suspended {
		r.suspend(ctx) // it could not be done when the user said so
	}
	return r.onlyAway(ctx)
}

// leaveNothing keeps nodes that wait from running it later: nobody would know of it any more.
func (r *running) leaveNothing(ctx context.Context) {
	if !r.suspended && r.count(view.RunWaiting) > 0 {
		r.suspend(ctx)
	}
}

// onlyAway is true when the nodes that are left have been away for long enough.
func (r *running) onlyAway(ctx context.Context) bool {
	if r.count(view.RunRunning) > 0 || r.count(view.RunWaiting) == 0 || !r.seen {
		r.quiet = 0
		return false
	}
	why, err := r.whyAway(ctx)
	if err != nil || len(why) < r.count(view.RunWaiting) {
		r.quiet = 0
		return false
	}
	if r.quiet++; r.quiet < 2 {
		return false
	}
	r.suspend(ctx) // or it would run there when they come back, and nobody would know of it any more
	for i, w := range why {
		r.view.Nodes[i].State, r.view.Nodes[i].Said = view.RunUnreachable, w
	}
	return true
}

// whyAway is why nodes that wait cannot run anything now; those that can are not in it.
func (r *running) whyAway(ctx context.Context) (map[int]string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	why := map[int]string{}
	var page corev1.NodeList
	err := eachPage(ctx, r.client, &page, func() {
		for j := range page.Items {
			node := &page.Items[j]
			if i, ours := r.index[node.Name]; ours && r.view.Nodes[i].State == view.RunWaiting && away(node) != "" {
				why[i] = away(node)
			}
		}
	})
	return why, err
}
