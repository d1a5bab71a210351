// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	_ "embed" // stages
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

//go:embed stages.yaml
var stages []byte

// joinWorkers limits the nodes that are created at once.
const joinWorkers = 16

// harnessAgent is the name of this program in the audit log.
const harnessAgent = "everynode-bench-harness"

// patience is how long nothing may happen. A machine that is busy with many nodes shows nothing for longer.
func (b *Bench) patience() time.Duration {
	return 90*time.Second + time.Duration(b.Nodes)*10*time.Millisecond
}

// world is a cluster with a subject and its observers.
type world struct {
	*Bench
	subject report.Subject
	// job is the name of the NodeJob, if the subject is one.
	job string
	// real is true if the nodes are, and audited if the requests are counted.
	real, audited bool
	cluster       *cluster.Cluster
	client        kubernetes.Interface
	objects       client.Client
	tracker       *tracker
	// program is the subject's own process; nil if it has none.
	program *process
	// result is the run that is measured.
	result *report.Run
	// dir contains the logs of the run's processes, and their files.
	dir string
	// stopWatching ends the tracker.
	stopWatching context.CancelFunc
}

// renewals of its lease by a node while the lease lasts, as by kubelets and kwok.
const renewals = 4

// stagesFor are the stages of the simulator. A node reports its status after 1 second to twice the interval, so that the
// reports of many nodes are spread from the beginning on.
func stagesFor(nodes int) []byte {
	_, status := report.Heartbeats(nodes)
	return bytes.ReplaceAll(stages, []byte("STATUS_JITTER_MS"), fmt.Append(nil, (2*status-time.Second).Milliseconds()))
}

// simulatedNodes are the options of a cluster whose nodes are simulated, and created later.
func (b *Bench) simulatedNodes(counted bool) cluster.Options {
	lease, _ := report.Heartbeats(b.Nodes)
	options := cluster.Options{
		PodStages: stagesFor(b.Nodes), SimulatedLease: renewals * lease,
		// A machine that is busy for minutes must not make nodes unreachable.
		NodeMonitorGracePeriod: max(10*time.Minute, 2*renewals*lease), NodeMonitorPeriod: 5 * time.Second,
	}
	if counted {
		options.AuditPolicy = cluster.AuditMetadata
	}
	return options
}

// newWorld starts a cluster. If that fails, it removes it.
func (b *Bench) newWorld(ctx context.Context, s report.Subject, options cluster.Options) (*world, error) {
	w := &world{Bench: b, subject: s, job: "bench", real: options.Nodes > 0, audited: options.AuditPolicy != ""}
	w.tracker = newTracker(doneLabel(w.subject, w.job))
	var err error
	if w.dir, err = os.MkdirTemp(b.temp, "run-"); err != nil {
		return nil, err
	}
	options.Name = "bench" // one at a time: two benchmarks would disturb each other
	if w.cluster, err = cluster.Up(ctx, options); err != nil {
		return nil, err
	}
	if err := w.connect(ctx); err != nil {
		return nil, errors.Join(err, w.down(ctx))
	}
	return w, nil
}

func (w *world) connect(ctx context.Context) error {
	config, err := w.cluster.RESTConfig()
	if err != nil {
		return err
	}
	config.UserAgent, config.WarningHandler = harnessAgent, rest.NewWarningWriter(w.Progress, rest.WarningWriterOptions{})
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	if w.client, err = kubernetes.NewForConfig(typed); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if w.objects, err = client.New(config, client.Options{Scheme: cmdutil.Scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	version, err := w.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	w.Machine.Kubernetes = version.GitVersion
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: subject.Namespace, Labels: map[string]string{v1alpha1.EnabledLabel: v1alpha1.EnabledValue}}}
	if err := w.objects.Create(ctx, namespace); err != nil {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	err = w.eventually(ctx, "the namespace has its service account", func() error {
		_, err := w.client.CoreV1().ServiceAccounts(subject.Namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if !w.real {
		if err := w.warmUp(ctx); err != nil {
			return err
		}
	}
	watching, stop := context.WithCancel(ctx)
	w.stopWatching = stop
	return w.tracker.start(watching, w.client)
}

// warmUp starts the simulator and waits until it is ready. It starts with the first node, which is then removed again.
func (w *world) warmUp(ctx context.Context) error {
	const name = "warm-up"
	if err := w.cluster.Join(ctx, cluster.NodeOptions{Name: name, Simulated: true}); err != nil {
		return err
	}
	if err := w.cluster.WaitReady(ctx, name); err != nil {
		return err
	}
	if err := w.cluster.Remove(ctx, name); err != nil {
		return err
	}
	return inParallel(ctx, joinWorkers, w.widenWatches)
}

// inParallel calls a function with 0 to n-1, with a limited number of calls at once.
func inParallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(joinWorkers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// podChanges result in a buffer of 55 events for a watch of pods: the history, which grows by doubling, over 75
// seconds.
const podChanges = 4160

// widenWatches gives watches of pods about the buffer that they have in a real cluster of this size. The API server
// buffers as many events for a slow watch as there were recently in one second, but at least 10, and closes a watch
// that is further behind. A new API server has seen no events, so any burst would close all watches, including that of
// the simulator, which then repeats what it has simulated. widenWatches itself closes existing watches, which are then
// reopened. Source: suggestedWatchChannelSize of k8s.io/apiserver/pkg/storage/cacher.
func (w *world) widenWatches(ctx context.Context, worker int) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("changes-%d", worker), Namespace: metav1.NamespaceDefault},
		Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "none", Image: "registry.local/none"}}},
	}
	err := w.objects.Create(ctx, pod)
	for i := 0; err == nil && i < podChanges/joinWorkers; i++ {
		err = w.objects.Patch(ctx, pod, mergePatch(`{"metadata":{"annotations":{"bench":"%d"}}}`, i))
	}
	if err == nil {
		err = w.objects.Delete(ctx, pod)
	}
	if err != nil {
		return fmt.Errorf("changing a pod: %w", err)
	}
	return nil
}

// mergePatch returns a JSON merge patch.
func mergePatch(format string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
}

// note adds a figure that only some subjects have.
func (w *world) note(name string, value float64) { w.result.Set(report.More, name, value) }

// down ends the subject, and removes the cluster.
func (w *world) down(ctx context.Context) error {
	if w.stopWatching != nil {
		w.stopWatching()
	}
	w.program.stop()
	return w.cluster.Down(context.WithoutCancel(ctx))
}

// eventually polls until there is no error.
func (w *world) eventually(ctx context.Context, what string, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// join creates the nodes.
func (w *world) join(ctx context.Context) error {
	return inParallel(ctx, w.Nodes, func(ctx context.Context, i int) error {
		w.tracker.joined(nodeName(i))
		return w.cluster.Join(ctx, cluster.NodeOptions{Name: nodeName(i), Simulated: true})
	})
}

// progressEvery is the interval of lines about the progress.
const progressEvery = 10 * time.Second

// until waits for an observation, and reports the progress at intervals. It gives up if nothing has changed for long.
func until[T comparable](ctx context.Context, w *world, what string, every time.Duration, observe func() (T, error), reached func(T) bool) error {
	var last T
	for changed, said := time.Now(), time.Now(); ; {
		now, err := observe()
		switch {
		case err != nil || reached(now):
			return err
		case now != last:
			last, changed = now, time.Now()
		case time.Since(changed) > w.patience():
			return fmt.Errorf("waiting until %s: nothing has happened for %v; %v", what, w.patience(), last)
		}
		if time.Since(said) > progressEvery {
			said = time.Now()
			if _, err := w.processes(); err != nil {
				return err
			}
			w.say("      %v", last)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// untilSeen waits until the tracker has seen something.
func (w *world) untilSeen(ctx context.Context, what string, reached func(counts) bool) error {
	return until(ctx, w, what, 10*time.Millisecond, func() (counts, error) { return w.tracker.counts(), nil }, reached)
}
