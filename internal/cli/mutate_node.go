// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/text"
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
func (m *mutation) changeNode(ctx context.Context, name string, decide func(nodeMetadata) nodeChange) (nodeChange, error) {
	key := v1alpha1.RecordKey(m.key.Namespace, m.key.Name)
	for try := 1; ; try++ {
		node := newNodeMetadata(name)
		if err := m.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return nodeChange{}, m.nodeError(ctx, name, err)
		}
		if m.nodeUID != "" && node.UID != m.nodeUID {
			return nodeChange{}, cmdutil.Failf(cmdutil.ExitNotFound, "node %s was deleted, and another node with this name was created. Nothing was changed: check the new one first", name)
		}
		c := decide(nodeMetadata{record.Read(node.Labels, node.Annotations, key), node.Labels})
		if c.nothing != "" {
			return c, nil
		}
		patch, err := c.patch(node)
		if err != nil {
			return c, err
		}
		err = m.client.Patch(ctx, newNodeMetadata(name), client.RawPatch(types.MergePatchType, patch))
		if apierrors.IsConflict(err) && try < maxChangeTries {
			continue
		}
		return c, cmdutil.Explain(err)
	}
}

func (m *mutation) nodeError(ctx context.Context, name string, err error) error {
	if !apierrors.IsNotFound(err) {
		return cmdutil.Explain(err)
	}
	if m.client.Get(ctx, client.ObjectKey{Namespace: m.key.Namespace, Name: name}, &v1alpha1.NodeJob{}) == nil {
		return cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s, but a NodeJob: this command takes one NodeJob, and then nodes. Repeat it for each NodeJob", name)
	}
	all := cmdutil.NodeNames(ctx, m.client)
	if len(all) == 0 {
		return cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s", name)
	}
	return cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s; there are %s", name, cmdutil.JoinNames(cmdutil.Nearest(name, all)))
}

// eachNode does the same for several nodes, and prints each result. If one node cannot be changed, the others still
// are. changed reports whether any was changed.
func (m *mutation) eachNode(ctx context.Context, names []string, decide func(nodeMetadata) nodeChange) (changed bool, err error) {
	var first error
	for _, name := range names {
		c, err := m.changeNode(ctx, name, decide)
		line := text.Of("node " + name + ": ")
		switch {
		case err != nil:
			if first == nil {
				first = err
			}
			m.Tell(line.Tone(text.Bad, err.Error()))
			continue
		case c.nothing != "":
			line = line.With("nothing to change: " + c.nothing)
		default:
			changed, line = true, line.Tone(text.Strong, c.did)
		}
		if err := m.Say(line); err != nil {
			return changed, err
		}
	}
	if first != nil {
		return changed, cmdutil.Exit(cmdutil.CodeOf(first))
	}
	return changed, nil
}

// rejectTerminating rejects the removal of records for a NodeJob that is being deleted. The manager needs these records
// to roll the task back.
func rejectTerminating(job *v1alpha1.NodeJob) error {
	if job.DeletionTimestamp.IsZero() {
		return nil
	}
	return cmdutil.Failf(cmdutil.ExitUsage, "NodeJob %s/%s is being deleted, so its task does not run again. To retry a failed rollback: kubectl everynode retry %[2]s -n %[1]s", job.Namespace, job.Name)
}
