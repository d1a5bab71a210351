// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// node is a node of a run, with what was observed of it.
type node struct {
	*view.RunNode
	output *nodeOutput
	record *record.Record
	// uid is its UID when the run began; "" if not known.
	uid types.UID
	// last is the pod whose log counts.
	last types.UID
}

// The observations that a run handles: pods, the records of nodes, pieces of logs.

// observePods handles observations of pods.
func (r *running) observePods(ctx context.Context, c change) {
	switch {
	case c.err != nil:
		r.noteForbidden(c.err)
	case c.fresh:
		for _, o := range c.all {
			r.observePod(ctx, o.(*corev1.Pod), false)
		}
	default:
		r.observePod(ctx, c.one.(*corev1.Pod), c.deleted)
	}
}

func (r *running) observePod(ctx context.Context, pod *corev1.Pod, deleted bool) {
	n, ours := r.index[pod.Spec.NodeName]
	if !ours || !cmdutil.Owns(r.job, pod) {
		return
	}
	r.logs.see(ctx, pod)
	if r.logs.knows(pod.UID) && n.last != pod.UID {
		if _, known := r.pods[pod.UID]; !known {
			r.pods[pod.UID], n.last, n.output.read = n, pod.UID, false
		}
	}
	if deleted {
		r.logs.gone(pod.UID)
		return
	}
	ended := kube.PodEnded(pod.Status.Phase)
	if n.State.Final() || ended {
		return
	}
	n.State, n.Since, n.Said = view.RunRunning, pod.CreationTimestamp.Time, cmdutil.AttemptOf(pod).Waiting
}

// observeNodes handles the records of nodes.
func (r *running) observeNodes(c change) {
	switch {
	case c.err != nil:
		r.noteForbidden(c.err)
	case !c.fresh:
		r.observeNode(c.one, c.deleted)
	default:
		there := map[string]bool{}
		for _, o := range c.all {
			there[o.GetName()] = true
			r.observeNode(o, false)
		}
		for _, n := range r.nodes {
			if !there[n.Name] {
				r.nodeGone(n, "the Node is gone")
			}
		}
	}
}

func (r *running) observeNode(node client.Object, deleted bool) {
	n, ours := r.index[node.GetName()]
	if !ours {
		return
	}
	if why := n.whyGone(node, deleted); why != "" {
		r.nodeGone(n, why)
		return
	}
	rec := record.Read(node.GetLabels(), node.GetAnnotations(), r.key).Record
	if rec == nil || isLost(n.State) {
		return
	}
	n.record = rec
	switch rec.Outcome {
	case record.Succeeded:
		n.State, n.Said, n.Reason = view.RunSucceeded, "", ""
	case record.Failed:
		n.State, n.ExitCode, n.Reason, n.Said = view.RunFailed, rec.ExitCode, rec.Reason, lastLine(rec.Message)
	case record.Disrupted:
		if n.State == view.RunRunning {
			n.State, n.Said = view.RunWaiting, rec.Reason
		}
	case record.Rebooting, record.Needed, record.Expired:
	}
}

// whyGone returns why a Node is not that of the run; "" if it is.
func (n *node) whyGone(node client.Object, deleted bool) string {
	switch {
	case deleted:
		return "the Node was deleted"
	case n.uid != "" && node.GetUID() != n.uid:
		return "the Node was deleted, and another one has its name"
	}
	return ""
}

// nodeGone notes that the Node of the run does not exist any more. The state of a node on which the run has ended stays.
func (r *running) nodeGone(n *node, why string) {
	if !r.gone[n.Name] {
		r.gone[n.Name], r.toExclude = true, true
	}
	if !n.State.Final() {
		n.State, n.Said = view.RunDeleted, why
	}
}

// isLost reports whether records of a node no longer count: it was skipped or deleted, and a Node that registers with its
// name may be another machine.
func isLost(state view.RunState) bool {
	return state == view.RunUnreachable || state == view.RunDeleted
}

// lastLine returns the last line of a message that is not empty.
func lastLine(message string) string {
	lines := strings.Split(strings.TrimRight(message, "\n \t"), "\n")
	return lines[len(lines)-1]
}

func (r *running) noteForbidden(err error) {
	if explained := cmdutil.Explain(err); cmdutil.CodeOf(explained) == cmdutil.ExitForbidden {
		r.logsForbidden = explained
	}
}

// observeLog handles a piece of a log.
func (r *running) observeLog(part logPart) {
	n, known := r.pods[part.pod]
	if !known {
		return
	}
	o := n.output
	if len(part.data) > 0 {
		r.saved.add(n.Name, part.data)
	}
	lines := o.add(part.data)
	if part.end {
		lines = append(lines, o.flush()...)
		if n.last == part.pod {
			o.read, o.err = true, part.err
		}
	}
	r.display.printLines(n.Name, lines)
}
