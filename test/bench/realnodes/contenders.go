// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package realnodes

import (
	"context"
	_ "embed" // manifests
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	localimage "github.com/everynode/everynode/local/image"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

var (
	//go:embed account.yaml
	account []byte
	//go:embed daemonset.yaml
	daemonSetManifest []byte
)

// contender is a subject in the cluster.
type contender interface {
	subject() report.Subject
	// label is on a node that is done in this round.
	label(round int) string
	// begin creates the object.
	begin(ctx context.Context, round int) error
	// remove removes the object, and what would keep a later round from running.
	remove(ctx context.Context, round int) error
}

type image = v1.Image

// labelNodeImage is in daemonset.yaml.
const labelNodeImage = "registry.local/everynode/bench-labelnode:dev"

// buildLabelNode builds the image of the DaemonSet's pods from a static program.
func buildLabelNode(ctx context.Context, root string) (image, error) {
	dir, err := os.MkdirTemp("", "everynode-labelnode-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "labelnode")
	build := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "test"), "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./bench/realnodes/labelnode")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building labelnode: %w\n%s", err, out)
	}
	return localimage.FromBinary(program, localimage.Options{})
}

// The resources of the objects.
var (
	nodeJobs   = schema.GroupVersionResource{Group: v1alpha1.Group, Version: "v1alpha1", Resource: "nodejobs"}
	daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
)

// create makes an object from YAML with one request.
func (b *Bench) create(ctx context.Context, resource schema.GroupVersionResource, manifest []byte) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manifest, &o.Object); err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	if _, err := b.dynamic.Resource(resource).Namespace(subject.Namespace).Create(ctx, o, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the %s: %w", o.GetKind(), err)
	}
	return nil
}

// removeObject deletes an object, and waits until it and all pods are gone.
func (b *Bench) removeObject(ctx context.Context, resource schema.GroupVersionResource, name string) error {
	objects := b.dynamic.Resource(resource).Namespace(subject.Namespace)
	if err := objects.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting %s: %w", name, err)
	}
	return b.until(ctx, name+" is gone", func() (bool, string) {
		_, err := objects.Get(ctx, name, metav1.GetOptions{})
		_, pods := b.observer.counts()
		return apierrors.IsNotFound(err) && pods == 0, fmt.Sprintf("%d pods are left; reading the object: %v", pods, err)
	})
}

// daemonSet is the DaemonSet pattern.
type daemonSet struct{ *Bench }

func (*daemonSet) subject() report.Subject { return report.DaemonSet }

func (*daemonSet) label(int) string { return subject.ConfiguredLabel }

func (d *daemonSet) begin(ctx context.Context, _ int) error {
	return d.create(ctx, daemonSets, daemonSetManifest)
}

// remove removes the labels last: a node without the label gets a pod.
func (d *daemonSet) remove(ctx context.Context, _ int) error {
	if err := d.removeObject(ctx, daemonSets, subject.DaemonSetName); err != nil {
		return err
	}
	nodes, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var errs []error
	for i := range nodes.Items {
		errs = append(errs, d.removeLabel(ctx, &nodes.Items[i]))
	}
	return errors.Join(errs...)
}

func (d *daemonSet) removeLabel(ctx context.Context, node *corev1.Node) error {
	patch := []byte(`{"metadata":{"labels":{"` + subject.ConfiguredLabel + `":null}}}`)
	if _, err := d.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("removing the label of node %s: %w", node.Name, err)
	}
	return nil
}

// nodeJob is Everynode. Its manager also runs, and is idle, while the other contender is measured.
type nodeJob struct{ *Bench }

func (*nodeJob) subject() report.Subject { return report.Everynode }

// jobName differs from round to round, so that the records of one round do not count for the next.
func jobName(round int) string { return fmt.Sprintf("bench-%d", round) }

func (*nodeJob) label(round int) string {
	return v1alpha1.RecordKey(subject.Namespace, jobName(round))
}

func (n *nodeJob) begin(ctx context.Context, round int) error {
	return n.create(ctx, nodeJobs, []byte(`apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: `+jobName(round)+`, namespace: `+subject.Namespace+`}
spec:
  task: {script: "true"}
  rollout: {maxConcurrent: 100%, steps: [{name: all}]}
`))
}

func (n *nodeJob) remove(ctx context.Context, round int) error {
	return n.removeObject(ctx, nodeJobs, jobName(round))
}
