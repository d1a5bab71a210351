// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

// nobody is the contender of a run in which the harness creates the pods itself.
type nobody struct{ *world }

func (nobody) prepare(context.Context) error          { return nil }
func (nobody) processes() map[string]*process         { return nil }
func (nobody) complete(context.Context) (bool, error) { return false, errors.ErrUnsupported }
func (nobody) stop() error                            { return nil }

// begin creates a pod on each node, with as many workers as the subjects have.
func (n nobody) begin(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(joinWorkers)
	for i := range n.Nodes {
		name := fmt.Sprintf("node-%05d", i)
		group.Go(func() error {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "plain-" + name},
				Spec: corev1.PodSpec{
					NodeName: name, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
					Containers: []corev1.Container{{Name: "task", Image: "registry.local/task"}},
				},
			}
			if _, err := n.client.CoreV1().Pods(subject.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating a pod: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// simulator measures how fast the simulator of nodes is without other load: pods are created as fast as the API server
// accepts them, and nothing else is done.
func (b *Bench) simulator(ctx context.Context) (_ *report.Run, err error) {
	b.say("%s  the simulator of nodes alone, %d nodes", time.Now().Format("15:04:05"), b.Nodes)
	started := time.Now()
	w, err := b.newWorld(ctx, false, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.down(ctx)) }()
	s := nobody{w}
	if err := w.setUp(ctx, s, report.Existing); err != nil {
		return nil, err
	}
	run := &report.Run{Mode: report.Existing, SetUp: time.Since(started).Seconds()}
	before, err := w.read(ctx, s, true)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	run.Complete = time.Since(before.at).Seconds()
	err = w.until(ctx, s, "all pods have ended", func(c counts) bool { return c.ended == w.Nodes })
	if err != nil {
		return nil, err
	}
	after, err := w.read(ctx, s, false)
	if err != nil {
		return nil, err
	}
	run.Wall, run.Cost = after.at.Sub(before.at).Seconds(), after.since(before)
	run.Nodes, run.PodsCreated = w.tracker.rows(before.at), w.tracker.counts().created
	run.PeakMiB, err = w.peaks(s)
	b.say("      all pods were created after %.1f s, and had ended after %.1f s", run.Complete, run.Wall)
	return run, err
}
