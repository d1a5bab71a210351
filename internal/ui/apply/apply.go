// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apply makes the changes that package steer decides, with the permissions of a user, and says what it has changed. They are
// changes that a user could also make with kubectl. They are made under the resource version that was read, and are idempotent.
package apply

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// Printer prints sentences: Say to the data output, and Tell beside it.
type Printer interface {
	Say(sentences ...text.Line) error
	Tell(sentences ...text.Line)
}

// Steering changes a NodeJob and its nodes.
type Steering struct {
	Printer
	Client client.Client
	Key    client.ObjectKey
	// UID is the UID that the NodeJob must have, and NodeUID that of its node; "" for any.
	UID, NodeUID types.UID
}

// Job reads the NodeJob.
func (s *Steering) Job(ctx context.Context) (*v1alpha1.NodeJob, error) {
	job, err := cmdutil.GetJob(ctx, s.Client, s.Key)
	if err == nil && s.UID != "" && job.UID != s.UID {
		return nil, cmdutil.Failf(cmdutil.ExitNotFound, "NodeJob %s was deleted, and another NodeJob with this name was created. Nothing was changed: check the new one first", s.Key)
	}
	return job, err
}

// maxTries limits how often a change is decided again because the object was modified in the meantime. The status of a NodeJob is
// written up to once a second.
const maxTries = 10

// Change makes the change that decide returns. After a conflict with another writer, it calls decide again.
func (s *Steering) Change(ctx context.Context, decide func(*v1alpha1.NodeJob) (steer.Decision, error)) error {
	for try := 1; ; try++ {
		job, err := s.Job(ctx)
		if err != nil {
			return err
		}
		d, err := decide(job)
		if err != nil {
			return cmdutil.Explain(err)
		}
		if d.Job == nil {
			return s.SayNothing(d.Nothing)
		}
		err = s.Client.Patch(ctx, d.Job, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{}))
		switch {
		case apierrors.IsConflict(err) && try < maxTries:
			continue
		case apierrors.IsConflict(err):
			return cmdutil.Failf(cmdutil.ExitError, "NodeJob %s is being modified concurrently and was not changed: try again", s.Key)
		case err != nil:
			return cmdutil.Explain(err)
		}
		return s.SayDone(job, d)
	}
}

// SayDone says what a decision has changed.
func (s *Steering) SayDone(job *v1alpha1.NodeJob, d steer.Decision) error {
	if err := s.Say(text.Of("nodejob "+s.Key.Name+": ").Tone(text.Strong, d.Did)); err != nil {
		return err
	}
	if d.Then != "" {
		s.TellHint(d.Then)
	}
	if d.Commit != "" {
		s.TellCommit(job, d.Commit)
	}
	return nil
}

// SayNothing says why there is nothing to change.
func (s *Steering) SayNothing(why string) error {
	return s.Say(text.Of("nodejob " + s.Key.Name + ": nothing to change: ").With(why))
}

// TellHint prints what a user may want to know in addition.
func (s *Steering) TellHint(message string) { s.Tell(text.Toned(text.Dim, message)) }

// TellCommit prints what to change in Git, and which tool otherwise reverts the change.
func (s *Steering) TellCommit(job *v1alpha1.NodeJob, commit string) {
	if owner := steer.ManagedBy(job); owner != "" {
		s.Tell(text.Toned(text.Warn, "note: ").With("this NodeJob is managed by " + owner + ", which may revert the change. Commit: " + commit))
		return
	}
	s.TellHint("With GitOps, commit this instead: " + commit)
}

// TellUntilResumed says that a change of nodes has no effect yet if the NodeJob is suspended.
func (s *Steering) TellUntilResumed(job *v1alpha1.NodeJob) {
	if message := steer.UntilResumed(job); message != "" {
		s.TellHint(message)
	}
}

// Retry requests a retry on nodes. With alone, other nodes wait for its end.
func (s *Steering) Retry(ctx context.Context, names []string, alone bool) error {
	job, err := s.jobFor(ctx, steer.MayChangeNodes)
	if err != nil {
		return err
	}
	changed, err := s.EachNode(ctx, job, names, func(node steer.Node) steer.NodeDecision { return steer.Retry(job, node, alone) })
	if changed {
		s.TellUntilResumed(job)
		s.TellHint("With GitOps, commit nothing: the change is on the nodes.")
	}
	return err
}

// Skip marks nodes as done.
func (s *Steering) Skip(ctx context.Context, names []string) error {
	job, err := s.jobFor(ctx, steer.MaySkip)
	if err != nil {
		return err
	}
	changed, err := s.EachNode(ctx, job, names, func(node steer.Node) steer.NodeDecision { return steer.Skip(job, node) })
	if changed {
		s.TellCommit(job, "a label of your own on such nodes, and a spec.nodes.selector that excludes it: skip applies to the current revision only")
	}
	return err
}

// jobFor reads the NodeJob, and checks that a decision about its nodes is possible.
func (s *Steering) jobFor(ctx context.Context, may func(*v1alpha1.NodeJob) error) (*v1alpha1.NodeJob, error) {
	job, err := s.Job(ctx)
	if err == nil {
		err = cmdutil.Explain(may(job))
	}
	return job, err
}

// EachNode changes several nodes, and prints each result. If one node cannot be changed, the others still are. changed reports
// whether any was changed.
func (s *Steering) EachNode(
	ctx context.Context, job *v1alpha1.NodeJob, names []string, decide func(steer.Node) steer.NodeDecision,
) (changed bool, err error) {
	var first error
	for _, name := range names {
		d, err := s.changeNode(ctx, job, name, decide)
		line := text.Of("node " + name + ": ")
		switch {
		case err != nil:
			if first == nil {
				first = err
			}
			s.Tell(line.Tone(text.Bad, err.Error()))
			continue
		case d.Nothing != "":
			line = line.With("nothing to change: " + d.Nothing)
		default:
			changed, line = true, line.Tone(text.Strong, d.Did)
		}
		if err := s.Say(line); err != nil {
			return changed, err
		}
	}
	if first != nil {
		return changed, cmdutil.Exit(cmdutil.CodeOf(first))
	}
	return changed, nil
}

// changeNode changes one node as decide says, under its resource version. The decision depends on the record, which may change at
// any time.
func (s *Steering) changeNode(
	ctx context.Context, job *v1alpha1.NodeJob, name string, decide func(steer.Node) steer.NodeDecision,
) (steer.NodeDecision, error) {
	for try := 1; ; try++ {
		node := nodeMetadata(name)
		if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return steer.NodeDecision{}, s.nodeError(ctx, name, err)
		}
		if s.NodeUID != "" && node.UID != s.NodeUID {
			return steer.NodeDecision{}, cmdutil.Failf(cmdutil.ExitNotFound, "node %s was deleted, and another node with this name was created. Nothing was changed: check the new one first", name)
		}
		d := decide(steer.ReadNode(job, node.Labels, node.Annotations))
		if d.Nothing != "" {
			return d, nil
		}
		patch, err := d.Patch(node)
		if err != nil {
			return d, err
		}
		err = s.Client.Patch(ctx, nodeMetadata(name), client.RawPatch(types.MergePatchType, patch))
		if apierrors.IsConflict(err) && try < maxTries {
			continue
		}
		return d, cmdutil.Explain(err)
	}
}

// nodeMetadata reads and writes the metadata of a node, without its large fields.
func nodeMetadata(name string) *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	node.Name = name
	return node
}

func (s *Steering) nodeError(ctx context.Context, name string, err error) error {
	if !apierrors.IsNotFound(err) {
		return cmdutil.Explain(err)
	}
	if s.Client.Get(ctx, client.ObjectKey{Namespace: s.Key.Namespace, Name: name}, &v1alpha1.NodeJob{}) == nil {
		return cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s, but a NodeJob: this command takes one NodeJob, and then nodes. Repeat it for each NodeJob", name)
	}
	all := cmdutil.NodeNames(ctx, s.Client)
	if len(all) == 0 {
		return cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s", name)
	}
	return cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s; there are %s", name, cmdutil.JoinNames(cmdutil.Nearest(name, all)))
}
