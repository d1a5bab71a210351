// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/text"
)

// The commands promote, suspend, resume, retry, rerun, skip and abort change what a user could also change with
// kubectl. They use the resource version that they have read, and print what they have changed. They are idempotent.

// mutation is the execution of one of these commands on a NodeJob.
type mutation struct {
	*cmdutil.Factory
	client client.WithWatch
	key    client.ObjectKey
	// uid is the UID that the NodeJob must have, and nodeUID that of its node; "" for any.
	uid, nodeUID types.UID
}

func newMutation(f *cmdutil.Factory, name string) (*mutation, error) {
	namespace, err := f.Namespace()
	if err != nil {
		return nil, err
	}
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	return &mutation{Factory: f, client: c, key: client.ObjectKey{Namespace: namespace, Name: name}}, nil
}

// eachJob does the same for several NodeJobs. If one fails, the others are still done, and the exit code is the highest one.
func eachJob(ctx context.Context, f *cmdutil.Factory, names []string, do func(context.Context, *mutation) error) error {
	worst := cmdutil.ExitOK
	for _, name := range names {
		m, err := newMutation(f, name)
		if err == nil {
			err = do(ctx, m)
		}
		if len(names) == 1 || ctx.Err() != nil {
			return err
		}
		err = cmdutil.Explain(err)
		if err != nil && !cmdutil.IsSilent(err) {
			f.Tell(text.Of("nodejob "+name+": ").Tone(text.Bad, "error: ").With(err.Error()))
		}
		worst = max(worst, cmdutil.CodeOf(err))
	}
	return cmdutil.Exit(worst)
}

// job reads the NodeJob.
func (m *mutation) job(ctx context.Context) (*v1alpha1.NodeJob, error) {
	job, err := cmdutil.GetJob(ctx, m.client, m.key)
	if err == nil && m.uid != "" && job.UID != m.uid {
		return nil, cmdutil.Failf(cmdutil.ExitNotFound, "NodeJob %s was deleted, and another NodeJob with this name was created. Nothing was changed: check the new one first", m.key)
	}
	return job, err
}

// maxChangeTries limits how often a change is decided again because the NodeJob was modified in the meantime. The
// status of a NodeJob is written up to once a second.
const maxChangeTries = 10

// decision is the result of a command's decision: a description of the change, or the reason why there is nothing to
// change.
type decision struct {
	did     string
	nothing string
	// commit is the change to make in Git instead.
	commit string
	// then describes the effect; "" if it is obvious.
	then string
}

// change applies the change that decide returns. After a conflict with another writer, it calls decide again.
func (m *mutation) change(ctx context.Context, decide func(*v1alpha1.NodeJob) (decision, error)) error {
	for try := 1; ; try++ {
		job, err := m.job(ctx)
		if err != nil {
			return err
		}
		changed := job.DeepCopy()
		d, err := decide(changed)
		if err != nil {
			return err
		}
		if d.nothing != "" {
			return m.tellNothing(d.nothing)
		}
		err = m.client.Patch(ctx, changed, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{}))
		switch {
		case apierrors.IsConflict(err) && try < maxChangeTries:
			continue
		case apierrors.IsConflict(err):
			return cmdutil.Failf(cmdutil.ExitError, "NodeJob %s is being modified concurrently and was not changed: try again", m.key)
		case err != nil:
			return cmdutil.Explain(err)
		}
		return m.tell(job, d)
	}
}

func (m *mutation) tell(job *v1alpha1.NodeJob, d decision) error {
	if err := m.Say(text.Of("nodejob "+m.key.Name+": ").Tone(text.Strong, d.did)); err != nil {
		return err
	}
	if d.then != "" {
		m.tellDim(d.then)
	}
	if d.commit != "" {
		m.tellCommit(job, d.commit)
	}
	return nil
}

func (m *mutation) tellNothing(why string) error {
	return m.Say(text.Of("nodejob " + m.key.Name + ": nothing to change: ").With(why))
}

func (m *mutation) tellDim(message string) { m.Tell(text.Toned(text.Dim, message)) }

// tellUntilResumed says that a change of nodes has no effect yet if the NodeJob is suspended.
func (m *mutation) tellUntilResumed(job *v1alpha1.NodeJob) {
	if message := untilResumed(job); message != "" {
		m.tellDim(message)
	}
}

// tellCommit prints what to change in Git, and which tool otherwise reverts the change.
func (m *mutation) tellCommit(job *v1alpha1.NodeJob, commit string) {
	if owner := managedBy(job); owner != "" {
		m.Tell(text.Toned(text.Warn, "note: ").With("this NodeJob is managed by " + owner + ", which may revert the change. Commit: " + commit))
		return
	}
	m.tellDim("With GitOps, commit this instead: " + commit)
}

// managedBy returns the name of the tool that applies the NodeJob; "" if none is known. Sources: Argo CD, resource
// tracking; Flux, labels of the kustomize and helm controllers; Helm, the annotations of a release.
func managedBy(job *v1alpha1.NodeJob) string {
	l, a := job.Labels, job.Annotations
	switch {
	case a["argocd.argoproj.io/tracking-id"] != "":
		return "Argo CD"
	case l["kustomize.toolkit.fluxcd.io/name"] != "":
		return "Flux (Kustomization " + l["kustomize.toolkit.fluxcd.io/namespace"] + "/" + l["kustomize.toolkit.fluxcd.io/name"] + ")"
	case l["helm.toolkit.fluxcd.io/name"] != "":
		return "Flux (HelmRelease " + l["helm.toolkit.fluxcd.io/namespace"] + "/" + l["helm.toolkit.fluxcd.io/name"] + ")"
	case a["meta.helm.sh/release-name"] != "":
		return "Helm (release " + a["meta.helm.sh/release-name"] + ")"
	}
	return ""
}
