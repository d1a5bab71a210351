// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	_ "embed" // the DaemonSets
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
	"github.com/everynode/everynode/test/install"
)

var (
	//go:embed daemonset.yaml
	daemonSet []byte
	//go:embed real-daemonset.yaml
	realDaemonSet []byte
)

// doneLabel is on a node that is done with the subject, or with its NodeJob.
func doneLabel(of report.Subject, job string) string {
	switch of {
	case report.Floor, report.Recorded:
		return subject.FloorLabel
	case report.DaemonSet:
		return subject.ConfiguredLabel
	default:
		return v1alpha1.RecordKey(subject.Namespace, job)
	}
}

// start starts the subject's own process, before nodes are created.
func (w *world) start(ctx context.Context) (err error) {
	switch w.subject {
	case report.Plain:
		return nil
	case report.CommandLine:
		if _, err := install.Plugin(ctx, w.Root, w.temp); err != nil {
			return err
		}
		return w.installManager(ctx)
	case report.Floor, report.Recorded:
		settings, err := w.goSettings() // those of the manager, so that the floor remains the minimum
		if err != nil {
			return err
		}
		return w.helper(ctx, "floor", settings, fmt.Sprint(w.Nodes), fmt.Sprint(w.subject == report.Recorded))
	case report.DaemonSet:
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: subject.DaemonSetName, Namespace: subject.Namespace}}
		if err := w.objects.Create(ctx, account); err != nil {
			return fmt.Errorf("creating the service account: %w", err)
		}
		return w.helper(ctx, "labeler", nil)
	default:
		return w.installManager(ctx)
	}
}

// begin creates the object, or what is in its place.
func (w *world) begin(ctx context.Context) error {
	switch w.subject {
	case report.Plain:
		return inParallel(ctx, w.Nodes, w.createPod)
	case report.CommandLine:
		return w.runCommand(ctx)
	case report.Many:
		return w.measureMany(ctx)
	case report.Budget:
		return w.measureBudget(ctx)
	case report.Checks:
		return w.measureChecks(ctx)
	case report.Floor, report.Recorded:
		return w.program.tell()
	case report.DaemonSet:
		return w.create(ctx, map[bool][]byte{false: daemonSet, true: realDaemonSet}[w.real])
	default:
		if err := w.create(ctx, w.nodeJob()); err != nil || w.subject != report.Gated {
			return err
		}
		return w.untilGated(ctx)
	}
}

// createPod creates a pod on a node.
func (w *world) createPod(ctx context.Context, i int) error {
	if err := w.objects.Create(ctx, subject.LeastPod(nodeName(i))); err != nil {
		return fmt.Errorf("creating a pod: %w", err)
	}
	return nil
}

// nodeJob is the NodeJob of the subject. On real nodes, its task does nothing.
func (w *world) nodeJob() []byte {
	script := subject.Script
	if w.real {
		script = "true"
	}
	spec := allAtOnce
	switch w.subject {
	case report.Default:
		spec = ""
	case report.Gated:
		spec += "\n  gate: {}"
	case report.Confirmed, report.Reverted:
		var more string
		script, more = confirming(w.subject)
		spec = "rollout: {maxConcurrent: 100%, maxFailures: 100%, steps: [{name: all}]}\n  " + more
	default:
	}
	return nodeJob(w.job, fmt.Sprintf("{script: %q}", script), spec)
}

// nodeJob returns a NodeJob with more fields of its spec than the task.
func nodeJob(name, task, spec string) []byte {
	return fmt.Appendf(nil, `apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: %s, namespace: %s}
spec:
  nodes: {selector: {matchExpressions: [{key: example.com/none, operator: DoesNotExist}]}}
  task: %s
  %s
`, name, subject.Namespace, task, spec)
}

// create makes an object from YAML.
func (w *world) create(ctx context.Context, manifest []byte) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manifest, &o.Object); err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	if err := w.objects.Create(ctx, o); err != nil {
		return fmt.Errorf("creating the %s: %w", o.GetKind(), err)
	}
	return nil
}

// untilGated waits for the admission of the API server, which observes a NodeJob with a delay. The gate is measured, not
// that delay.
func (w *world) untilGated(ctx context.Context) error {
	return w.eventually(ctx, "the API server taints a node", func() error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		err := w.objects.Create(ctx, node, client.DryRunAll)
		if err == nil && !hasTaint(node, doneLabel(w.subject, w.job)) {
			err = fmt.Errorf("its taints are %v", node.Spec.Taints)
		}
		return err
	})
}

// untilComplete waits until the object reports completion, if it does so: a DaemonSet whose pods are created and deleted does not.
func (w *world) untilComplete(ctx context.Context, run *report.Run, begin time.Time) error {
	switch w.subject {
	case report.Floor, report.Recorded, report.DaemonSet, report.Reverted, report.Many, report.Budget, report.Checks, report.Plain:
		return nil
	default:
	}
	err := w.eventually(ctx, "the object says so", func() error {
		job := &v1alpha1.NodeJob{}
		err := w.objects.Get(ctx, client.ObjectKey{Namespace: subject.Namespace, Name: w.job}, job)
		if err == nil && !isComplete(job) {
			err = fmt.Errorf("its conditions are %v", job.Status.Conditions)
		}
		return err
	})
	run.Set(report.Times, report.Complete, time.Since(begin).Seconds())
	return err
}

func isComplete(job *v1alpha1.NodeJob) bool {
	return meta.IsStatusConditionTrue(job.Status.Conditions, v1alpha1.ConditionComplete)
}

// remove deletes the object, and waits until it and all pods are gone.
func (w *world) remove(ctx context.Context) error {
	var o client.Object = &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: w.job, Namespace: subject.Namespace}}
	if w.subject == report.DaemonSet {
		o = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: subject.DaemonSetName, Namespace: subject.Namespace}}
	}
	if err := w.objects.Delete(ctx, o); err != nil {
		return fmt.Errorf("deleting %s: %w", o.GetName(), err)
	}
	return w.untilSeen(ctx, o.GetName()+" is gone", func(c counts) bool {
		return c.pods == 0 && apierrors.IsNotFound(w.objects.Get(ctx, client.ObjectKeyFromObject(o), o))
	})
}

// goSettings returns the settings of the Go runtime in the manager's Deployment: the environment variables that begin with GO.
func (b *Bench) goSettings() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(b.Root, "config", "manager", "deployment.yaml"))
	if err != nil {
		return nil, err
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		return nil, fmt.Errorf("reading the manager's Deployment: %w", err)
	}
	var settings []string
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		if strings.HasPrefix(variable.Name, "GO") {
			settings = append(settings, variable.Name+"="+variable.Value)
		}
	}
	return settings, nil
}

// helper starts one of this program's own subcommands (see cmd/everynode-bench), with additional environment variables.
func (w *world) helper(ctx context.Context, name string, env []string, args ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	w.program, err = startProcess(ctx, w.dir, name, append(env, "KUBECONFIG="+w.cluster.Kubeconfig()), append([]string{program, name}, args...)...)
	return err
}
