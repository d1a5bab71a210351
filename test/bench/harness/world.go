// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	_ "embed" // stages and manifests
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/bench/measure"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

//go:embed stages.yaml
var stages []byte

// joinWorkers limits the nodes that are created at once.
const joinWorkers = 16

// patience is how long nothing may happen. A machine that is busy with many nodes shows nothing for longer.
func (b *Bench) patience() time.Duration {
	return 90*time.Second + time.Duration(b.Nodes)*10*time.Millisecond
}

// world is the control plane of one run, with its observers.
type world struct {
	*Bench
	cluster *cluster.Cluster
	config  *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	tracker *tracker
	// dir contains the logs of the run's processes, and their files.
	dir string
	// stopWatching ends the tracker.
	stopWatching context.CancelFunc
}

// everything makes the API server log all requests, without their contents.
const everything = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// renewals of its lease by a node while the lease lasts, as by kubelets and kwok.
const renewals = 4

// stagesFor are the stages of the simulator. A node reports its status after 1 second to twice the interval, so that the
// reports of many nodes are spread from the beginning on.
func stagesFor(nodes int) []byte {
	_, status := report.Heartbeats(nodes)
	return bytes.ReplaceAll(stages, []byte("STATUS_JITTER_MS"), fmt.Append(nil, (2*status-time.Second).Milliseconds()))
}

// newWorld starts a control plane. If that fails, it removes it.
func (b *Bench) newWorld(ctx context.Context, counted bool, doneLabel string) (*world, error) {
	w := &world{Bench: b, tracker: newTracker(doneLabel)}
	var err error
	if w.dir, err = os.MkdirTemp(b.temp, "run-"); err != nil {
		return nil, err
	}
	lease, _ := report.Heartbeats(b.Nodes)
	options := cluster.Options{
		Name: ClusterName(), PodStages: stagesFor(b.Nodes), SimulatedLease: renewals * lease,
		// A machine that is busy for minutes must not make nodes unreachable.
		NodeMonitorGracePeriod: max(10*time.Minute, 2*renewals*lease), NodeMonitorPeriod: 5 * time.Second,
	}
	if counted {
		options.AuditPolicy = filepath.Join(w.dir, "audit-policy.yaml")
		if err := os.WriteFile(options.AuditPolicy, []byte(everything), 0o600); err != nil {
			return nil, err
		}
	}
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
	config.UserAgent = "everynode-bench-harness"
	w.config = config
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	if w.client, err = kubernetes.NewForConfig(typed); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if w.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	version, err := w.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	w.kubernetes = version.GitVersion
	if err := CreateNamespace(ctx, w.client); err != nil {
		return err
	}
	err = w.eventually(ctx, "the namespace has its service account", func() error {
		_, err := w.client.CoreV1().ServiceAccounts(subject.Namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if err := w.warmUp(ctx); err != nil {
		return err
	}
	if err := w.widenWatches(ctx); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	w.stopWatching = stop
	return w.tracker.start(watching, w.client)
}

// CreateNamespace creates the namespace of all subjects, which may have NodeJobs.
func CreateNamespace(ctx context.Context, client kubernetes.Interface) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: subject.Namespace, Labels: map[string]string{v1alpha1.EnabledLabel: v1alpha1.EnabledValue}}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	return nil
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
	return w.cluster.Remove(ctx, name)
}

// widenWatches gives watches of pods about the buffer that they have in a real cluster of this size. The API server
// buffers as many events for a slow watch as there were recently in one second, but at least 10, and closes a watch
// that is further behind. A new API server has seen no events, so any burst would close all watches, including that of
// the simulator, which then repeats what it has simulated. widenWatches itself closes existing watches, which are then
// reopened. Source: suggestedWatchChannelSize of k8s.io/apiserver/pkg/storage/cacher.
func (w *world) widenWatches(ctx context.Context) error {
	pods := w.client.CoreV1().Pods(metav1.NamespaceDefault)
	group, ctx := errgroup.WithContext(ctx)
	for i := range joinWorkers {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("changes-%d", i)}, Spec: corev1.PodSpec{
			SchedulerName: "none", Containers: []corev1.Container{{Name: "none", Image: "registry.local/none"}},
		}}
		group.Go(func() error {
			if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating a pod to change: %w", err)
			}
			for i := range podChanges / joinWorkers {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench":"%d"}}}`, i)
				if _, err := pods.Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					return fmt.Errorf("changing a pod: %w", err)
				}
			}
			if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("deleting the pod that was changed: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// podChanges result in a buffer of 55 events for a watch of pods: the history, which grows by doubling, over 75
// seconds.
const podChanges = 4160

func (w *world) down(ctx context.Context) error {
	if w.stopWatching != nil {
		w.stopWatching()
	}
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
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// join creates the nodes.
func (w *world) join(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(joinWorkers)
	for i := range w.Nodes {
		name := fmt.Sprintf("node-%05d", i)
		group.Go(func() error {
			w.tracker.joined(name)
			return w.cluster.Join(ctx, cluster.NodeOptions{Name: name, Simulated: true})
		})
	}
	return group.Wait()
}

// processes are the measured processes, by name.
func (w *world) processes(s contender) (map[string]int, error) {
	pids, err := w.cluster.Processes()
	if err != nil {
		return nil, err
	}
	pids[report.Harness] = os.Getpid()
	for name, p := range s.processes() {
		if err := p.alive(); err != nil {
			return nil, err
		}
		pids[name] = p.pid()
	}
	return pids, nil
}

// reading is the usage up to a point in time.
type reading struct {
	at       time.Time
	cpu      map[string]float64
	machine  float64
	requests measure.Counts
}

// read reads the requests outside of the measured period: to report them costs the API server more than many requests.
func (w *world) read(ctx context.Context, s contender, begin bool) (reading, error) {
	var r reading
	var err error
	if begin {
		if r.requests, err = w.requests(ctx); err != nil {
			return r, err
		}
	}
	pids, err := w.processes(s)
	if err != nil {
		return r, err
	}
	r.at, r.cpu = time.Now(), map[string]float64{}
	for name, pid := range pids {
		if r.cpu[name], err = measure.CPUSeconds(pid); err != nil {
			return r, fmt.Errorf("reading what %s has cost: %w", name, err)
		}
	}
	if r.machine, err = measure.MachineCPUSeconds(); err != nil {
		return r, err
	}
	if !begin {
		r.requests, err = w.requests(ctx)
	}
	return r, err
}

func (w *world) requests(ctx context.Context) (measure.Counts, error) {
	text, err := w.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	return measure.RequestCounts(strings.NewReader(string(text)))
}

// since returns the cost of a period.
func (r reading) since(before reading) report.Cost {
	cost := report.Cost{
		Seconds: r.at.Sub(before.at).Seconds(), CPU: map[string]float64{},
		MachineCPU: r.machine - before.machine, Requests: r.requests.Since(before.requests),
	}
	for name, used := range r.cpu {
		cost.CPU[name] = used - before.cpu[name]
	}
	return cost
}

func (w *world) peaks(s contender) (map[string]float64, error) {
	pids, err := w.processes(s)
	if err != nil {
		return nil, err
	}
	peaks := map[string]float64{}
	for name, pid := range pids {
		if peaks[name], err = measure.PeakMiB(pid); err != nil {
			return nil, fmt.Errorf("reading the memory of %s: %w", name, err)
		}
	}
	return peaks, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
