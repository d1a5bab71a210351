// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/cli/view"
	"github.com/everynode/everynode/internal/record"
)

// nodeChange is a change of the metadata of a node. A nil value removes the key.
type nodeChange struct {
	labels, annotations map[string]*string
	did                 string
	// nothing is the reason why there is nothing to change.
	nothing string
}

// patch returns the merge patch for the change. It never sets the whole map to null, which would remove every label of
// the node.
func (c nodeChange) patch(node *metav1.PartialObjectMetadata) ([]byte, error) {
	fields := map[string]any{"resourceVersion": node.ResourceVersion, "uid": node.UID}
	if c.labels != nil {
		fields["labels"] = c.labels
	}
	if c.annotations != nil {
		fields["annotations"] = c.annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return patch, nil
}

// newNodeMetadata extracts the metadata of a node, without its large fields.
func newNodeMetadata(name string) *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	node.Name = name
	return node
}

// changeNode changes one node as decide says, under its resource version. The decision depends on the record, which may
// change at any time.
func (s *mutation) changeNode(ctx context.Context, name string, decide func(nodeMetadata) nodeChange) (nodeChange, error) {
	key := v1alpha1.RecordKey(s.key.Namespace, s.key.Name)
	for try := 1; ; try++ {
		node := newNodeMetadata(name)
		if err := s.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return nodeChange{}, s.nodeError(ctx, name, err)
		}
		c := decide(nodeMetadata{record.Read(node.Labels, node.Annotations, key), node.Labels})
		if c.nothing != "" {
			return c, nil
		}
		patch, err := c.patch(node)
		if err != nil {
			return c, err
		}
		err = s.client.Patch(ctx, newNodeMetadata(name), client.RawPatch(types.MergePatchType, patch))
		if apierrors.IsConflict(err) && try < maxSteerTries {
			continue
		}
		return c, Explain(err)
	}
}

func (s *mutation) nodeError(ctx context.Context, name string, err error) error {
	if !apierrors.IsNotFound(err) {
		return Explain(err)
	}
	all := s.nodeNames(ctx, s.client, "")
	if len(all) == 0 {
		return Failf(ExitNotFound, "there is no node %s", name)
	}
	return Failf(ExitNotFound, "there is no node %s; there are %s", name, list(nearest(name, all)))
}

// eachNode does the same for several nodes, and prints each result. If one node cannot be changed, the others still
// are. changed reports whether any was changed.
func (s *mutation) eachNode(ctx context.Context, names []string, decide func(nodeMetadata) nodeChange) (changed bool, err error) {
	var first error
	for _, name := range names {
		c, err := s.changeNode(ctx, name, decide)
		line := text.Of("node " + name + ": ")
		switch {
		case err != nil:
			if first == nil {
				first = err
			}
			s.Tell(line.Tone(text.Bad, err.Error()))
			continue
		case c.nothing != "":
			line = line.With("nothing to change: " + c.nothing)
		default:
			changed, line = true, line.Tone(text.Strong, c.did)
		}
		if err := s.Print([]text.Line{line}); err != nil {
			return changed, err
		}
	}
	if first != nil {
		return changed, Exit(CodeOf(first))
	}
	return changed, nil
}

func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Failf(ExitUsage, "%s takes %s. See: %s --help", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

func newRetryCommand(f *Factory) *cobra.Command {
	var failed bool
	cmd := &cobra.Command{
		Use:   "retry NAME [NODE… | --failed]",
		Short: "Try again where it failed",
		Long: `Try again on nodes on which it failed, with the attempts counted from the beginning. Without nodes, on all of them: any
new value of the annotation everynode.dev/retry of the NodeJob asks for that. On nodes by their names it takes the record
off them, and puts back the labels of spec.removeLabels that are on it. Where it is done, see rerun.`,
		Example:           "  kubectl everynode retry somaxconn -n node-setup\n  kubectl everynode retry somaxconn -n node-setup node-7",
		Args:              atLeastOne("the name of a NodeJob"),
		ValidArgsFunction: f.completeJobThenNodes(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if failed && len(args) > 1 {
				return Failf(ExitUsage, "name nodes, or give --failed for all that have failed: not both")
			}
			s, err := f.steer(args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return s.change(cmd.Context(), func(job *v1alpha1.NodeJob) (decision, error) { return retryAll(job, f.Now()) })
			}
			return s.retryNodes(cmd.Context(), args[1:])
		},
	}
	cmd.Flags().BoolVar(&failed, "failed", false, "all nodes on which it failed, as without nodes")
	return cmd
}

func (s *mutation) retryNodes(ctx context.Context, names []string) error {
	job, err := GetJob(ctx, s.client, s.key)
	if err != nil {
		return err
	}
	if err := stays(job); err != nil {
		return err
	}
	changed, err := s.eachNode(ctx, names, newNodeActions(job).retry)
	if changed {
		s.tellDim("With GitOps, commit nothing: the change is on the nodes.")
	}
	return err
}

// stays rejects the removal of records for a NodeJob that is being deleted. The manager needs these records to roll the
// task back.
func stays(job *v1alpha1.NodeJob) error {
	if job.DeletionTimestamp.IsZero() {
		return nil
	}
	return Failf(ExitUsage, "NodeJob %s/%s is being deleted, and runs its task nowhere any more. To have a rollback tried again that has failed: kubectl everynode retry %[2]s -n %[1]s, without nodes", job.Namespace, job.Name)
}

func newRerunCommand(f *Factory) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rerun NAME [NODE…]",
		Short: "Run again where it is done",
		Long: `Run again on nodes on which it is done, by taking the record's label off them; without nodes, on all of them. It is a
run like the first, within rollout.maxConcurrent. Workloads that require the label are not scheduled there until it is
back. Where it failed, see retry.`,
		Example:           "  kubectl everynode rerun somaxconn -n node-setup node-7\n  kubectl everynode rerun somaxconn -n node-setup --yes",
		Args:              atLeastOne("the name of a NodeJob"),
		ValidArgsFunction: f.completeJobThenNodes(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.steer(args[0])
			if err != nil {
				return err
			}
			return s.rerun(cmd.Context(), args[1:], yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (s *mutation) rerun(ctx context.Context, names []string, yes bool) error {
	job, err := GetJob(ctx, s.client, s.key)
	if err != nil {
		return err
	}
	if err := stays(job); err != nil {
		return err
	}
	if len(names) == 0 {
		if names, err = s.labelled(ctx, v1alpha1.RecordKey(s.key.Namespace, s.key.Name)); err != nil {
			return err
		}
		if len(names) == 0 {
			return s.tellNothing("it is done on no node")
		}
		if !yes && len(names) > 1 {
			if err := s.ask(ctx, fmt.Sprintf("Run %s again on %s: %s", s.key, countNodes(len(names)), list(names)), "--yes"); err != nil {
				return err
			}
		}
	}
	changed, err := s.eachNode(ctx, names, newNodeActions(job).rerun)
	if !changed {
		return err
	}
	s.tellCommit(job, "a change of what is executed, such as spec.task.env: [{name: RUN, value: \"2\"}]: it runs again on all nodes")
	return err
}

// labelled returns the nodes that have the label of the record.
func (s *mutation) labelled(ctx context.Context, key string) ([]string, error) {
	var names []string
	page := newNodeMetadataList().(*metav1.PartialObjectMetadataList)
	err := eachPage(ctx, s.client, page, func() {
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
	}, client.HasLabels{key})
	return names, err
}

func newSkipCommand(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "skip NAME NODE…",
		Short: "Mark nodes as done without a run",
		Long: `Mark nodes as done with the current revision without a run, by setting the label of the record. The next revision runs
on them. A gate opens, and a node that this NodeJob quarantined is uncordoned.`,
		Example:           "  kubectl everynode skip somaxconn -n node-setup node-7",
		ValidArgsFunction: f.completeJobThenNodes(0),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return Failf(ExitUsage, "%s takes the name of a NodeJob and of nodes. See: %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.steer(args[0])
			if err != nil {
				return err
			}
			return s.skip(cmd.Context(), args[1:])
		},
	}
}

// revisionOf returns the revision with which nodes are done.
func revisionOf(job *v1alpha1.NodeJob) (string, error) {
	switch revision := job.Status.Revision; {
	case job.Status.ObservedGeneration != job.Generation:
		return "", Failf(ExitError, "the revision that the nodes would be done with is not known yet, since no manager has looked at the spec: wait, or see kubectl everynode status %s -n %s", job.Name, job.Namespace)
	case revision == "":
		_, reason, message := view.Situation(job)
		return "", Failf(ExitError, "the revision that the nodes would be done with is not known (%s): %s", reason, message)
	default:
		return revision, nil
	}
}

func (s *mutation) skip(ctx context.Context, names []string) error {
	job, err := GetJob(ctx, s.client, s.key)
	if err != nil {
		return err
	}
	if err := stays(job); err != nil {
		return err
	}
	revision, err := revisionOf(job)
	if err != nil {
		return err
	}
	key := v1alpha1.RecordKey(s.key.Namespace, s.key.Name)
	changed, err := s.eachNode(ctx, names, func(on nodeMetadata) nodeChange {
		if on.Label == revision {
			return nodeChange{nothing: "it counts as done with revision " + revision + " already"}
		}
		return nodeChange{labels: map[string]*string{key: &revision}, did: "counts as done without a run: label " + key + "=" + revision}
	})
	if !changed {
		return err
	}
	s.tellCommit(job, "a label of your own on such nodes, and a spec.nodeSelector that leaves it out: this one holds for the current revision only")
	return err
}
