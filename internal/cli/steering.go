// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/apply"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// newSteering returns what changes the NodeJob with this name, for the commands promote, suspend, resume, retry, rerun, skip and
// abort.
func newSteering(f *console.Factory, name string) (*apply.Steering, error) {
	key, c, err := f.Target(name)
	if err != nil {
		return nil, err
	}
	return &apply.Steering{Printer: f, Client: c, Key: key}, nil
}

// eachJob does the same for several NodeJobs. If one fails, the others are still done, and the exit code is the highest one.
func eachJob(ctx context.Context, f *console.Factory, names []string, do func(context.Context, *apply.Steering) error) error {
	jobs := make([]steered, 0, len(names))
	for _, name := range names {
		jobs = append(jobs, steered{name, func() (*apply.Steering, error) { return newSteering(f, name) }})
	}
	return eachSteered(ctx, f, jobs, do)
}

// steered is a NodeJob that is to be changed.
type steered struct {
	// name is the name in messages.
	name string
	get  func() (*apply.Steering, error)
}

func eachSteered(ctx context.Context, f *console.Factory, jobs []steered, do func(context.Context, *apply.Steering) error) error {
	worst := cmdutil.ExitOK
	for _, job := range jobs {
		s, err := job.get()
		if err == nil {
			err = do(ctx, s)
		}
		if len(jobs) == 1 || ctx.Err() != nil {
			return err
		}
		err = cmdutil.Explain(err)
		if err != nil && !cmdutil.IsSilent(err) {
			f.Tell(text.Of("nodejob "+job.name+": ").Tone(text.Bad, "error: ").With(err.Error()))
		}
		worst = max(worst, cmdutil.CodeOf(err))
	}
	return cmdutil.Exit(worst)
}

// possible is a decision that is always possible.
func possible(decide func(*v1alpha1.NodeJob) steer.Decision) func(*v1alpha1.NodeJob) (steer.Decision, error) {
	return func(job *v1alpha1.NodeJob) (steer.Decision, error) { return decide(job), nil }
}
