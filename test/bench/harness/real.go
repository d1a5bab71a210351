// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/local/image"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
	"github.com/everynode/everynode/test/install"
)

// labelNodeImage is in real-daemonset.yaml.
const labelNodeImage = "registry.local/everynode/bench-labelnode:dev"

// RunOnRealNodes measures Everynode and the DaemonSet pattern in turn on real nodes of one cluster: real kubelets with containerd
// and runc. The first turn of each fills caches, and is not part of the report.
func (b *Bench) RunOnRealNodes(ctx context.Context) (_ *report.Report, err error) {
	w, err := b.newWorld(ctx, report.Everynode, cluster.Options{
		Nodes: b.Nodes, AuditPolicy: cluster.AuditMetadata, Progress: b.Progress,
		// As production has it: a node that is busy for some seconds is not unreachable.
		NodeMonitorGracePeriod: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		w.cluster.SetProgress(io.Discard)
		err = errors.Join(err, w.down(ctx))
	}()
	if !w.cluster.Real() {
		return nil, errors.New("this benchmark needs real nodes, and real nodes need Linux and root")
	}
	if err := w.installOnRealNodes(ctx); err != nil {
		return nil, err
	}
	r := &report.Report{Head: b.Head}
	for round := range b.Pairs + 1 {
		for _, s := range []report.Subject{report.DaemonSet, report.Everynode, report.Confirmed, report.Reverted} {
			run, err := w.turn(ctx, s, round)
			if err != nil {
				return r, fmt.Errorf("measuring %s: %w", s, err)
			}
			if round > 0 {
				r.Runs = append(r.Runs, *run)
			}
		}
	}
	return r, nil
}

// installOnRealNodes installs both subjects, so that only the creation of an object remains. The manager also runs, and is
// idle, while the DaemonSet is measured.
func (w *world) installOnRealNodes(ctx context.Context) error {
	images, err := install.Build(ctx, w.Root)
	if err != nil {
		return err
	}
	program := filepath.Join(w.dir, "labelnode")
	err = install.Program(ctx, filepath.Join(w.Root, "test"), "everynode-bench/labelnode", program, []string{"GOOS=linux", "GOARCH=" + runtime.GOARCH})
	if err != nil {
		return err
	}
	labelNode, err := image.FromBinary(program, image.Options{})
	if err != nil {
		return fmt.Errorf("making the image of the DaemonSet: %w", err)
	}
	if err := w.cluster.LoadImage(ctx, labelNodeImage, labelNode); err != nil {
		return fmt.Errorf("loading the image of the DaemonSet: %w", err)
	}
	account := filepath.Join(w.Root, "test", "bench", "harness", "real-account.yaml")
	if _, err := install.Kubectl(ctx, w.cluster, "", "apply", "-f", account); err != nil {
		return err
	}
	w.say("installing Everynode …")
	return install.Install(ctx, w.cluster, w.Root, images)
}

// window is how long a node waits for a confirmation that does not come.
const window = task.MinConfirmSeconds * time.Second

// confirming returns the task and more fields of a NodeJob whose nodes wait for a confirmation. The task reports when it has ended, by the
// clock that the nodes share with this program.
func confirming(s report.Subject) (script, spec string) {
	const now = `echo "at=$(date +%s.%N)" >> $EVERYNODE_RESULTS`
	if s == report.Confirmed {
		return now, "confirm: {timeoutSeconds: 60}\n  rollback: {script: \"true\"}"
	}
	const cut = "table inet cut { chain in { type filter hook input priority -300; policy drop; }; chain out { type filter hook output priority -300; policy drop; }; }"
	return "set -e\nnft '" + cut + "'\n" + now, fmt.Sprintf(`confirm: {timeoutSeconds: %d}
  rollback: {timeoutSeconds: 30, script: "nft delete table inet cut"}
  retry: {limit: 0}`, int(window.Seconds()))
}

// setConfirmations sets how long nodes needed for their confirmations, or to come back without one: until the API server has the end of
// the pod.
func (w *world) setConfirmations(ctx context.Context, run *report.Run) error {
	name, wait := "task end to pod ended", time.Duration(0)
	switch w.subject {
	case report.Confirmed:
	case report.Reverted:
		name, wait = "window end to pod ended", window
	default:
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := w.objects.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var all []float64
	for i := range nodes.Items {
		node := &nodes.Items[i]
		rec, _ := record.Decode(node.Annotations[v1alpha1.RecordKey(subject.Namespace, w.job)])
		var seconds float64
		if _, err := fmt.Sscan(rec.Results["at"], &seconds); err != nil || rec.Reverted != (w.subject == report.Reverted) {
			return fmt.Errorf("the record of node %s is not as expected: %+v", node.Name, rec)
		}
		end := time.UnixMicro(int64(seconds * 1e6)).Add(wait)
		all = append(all, w.tracker.ended(node.Name).Sub(end).Seconds())
	}
	run.Set(report.Times, name+" p50", report.Percentile(all, 50))
	run.Set(report.Times, name+" p99", report.Percentile(all, 99))
	return nil
}

// turn measures a subject once, and removes what it has left. The NodeJob has another name in each round, so that the records of one
// round do not count for the next.
func (w *world) turn(ctx context.Context, s report.Subject, round int) (*report.Run, error) {
	nodes, err := w.cluster.NodeNames(ctx)
	if err != nil {
		return nil, err
	}
	w.subject, w.job = s, fmt.Sprintf("%s-%d", s, round)
	w.tracker.reset(doneLabel(w.subject, w.job), nodes)
	run := &report.Run{Subject: s, Mode: report.Real, Pair: round - 1}
	w.result = run
	err = w.run(ctx, run)
	if err == nil {
		err = w.setConfirmations(ctx, run)
	}
	if err != nil {
		objects, objectsErr := install.Kubectl(context.WithoutCancel(ctx), w.cluster, "", "get", "nodejobs,daemonsets,pods", "--all-namespaces")
		return nil, errors.Join(fmt.Errorf("%w\nthe objects then:\n%s", err, objects), objectsErr)
	}
	w.say("%s  %s, round %d of %d: all nodes done after %.2f s, no pod left after %.2f s", time.Now().Format("15:04:05"), s, round, w.Pairs,
		run.Figures[report.Times]["node done p99"], run.Figures[report.Times][report.Wall])
	if err := w.remove(ctx); err != nil || s != report.DaemonSet {
		return run, err
	}
	// The labels are removed last: a node without the label gets a pod.
	for _, name := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err = errors.Join(err, w.objects.Patch(ctx, node, mergePatch(`{"metadata":{"labels":{%q:null}}}`, subject.ConfiguredLabel)))
	}
	return run, err
}
