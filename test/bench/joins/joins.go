// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package joins measures how many pods start on nodes that join before the task of a NodeJob with a gate has succeeded
// there, for each way in which a node can get the taint of the gate.
package joins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/install"
)

// Options say what to measure.
type Options struct {
	// Nodes is the number of nodes that join in each variant.
	Nodes int
	// Real makes them real nodes, which join in groups of four. Otherwise they are simulated, and 16 are created at once.
	Real bool
	// Kubernetes is the minor version, such as "1.34"; "" for the default.
	Kubernetes string
	// Only names the variants to measure; nil for all.
	Only []string
	// Root is the checkout.
	Root string
	// Progress gets a line per step.
	Progress io.Writer
}

// Limits of the steps of a variant.
const (
	patience     = 15 * time.Minute
	simulatedSet = 16
	realSet      = 4
	// away is how long no manager works after it was killed: the time until another one may take over its lease.
	away = 30 * time.Second
)

// startupTaint is the taint of a node pool that is also the gate.
var startupTaint = corev1.Taint{Key: "example.com/not-set-up", Value: "pool", Effect: corev1.TaintEffectNoSchedule}

// unregistered is the taint with which nodes of Karpenter register. It is removed in the write that adds the startup taints.
var unregistered = corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}

// variant is a way in which nodes get the taint of the gate.
type variant struct {
	name, description string
	// gate is the YAML of spec.gate; "" for a NodeJob without a gate.
	gate string
	// registers are the taints with which a node registers.
	registers []corev1.Taint
	// controller adds startupTaint to each node, as a controller of a node pool does.
	controller bool
	// policy binds the admission policies of the gate to the namespace.
	policy bool
	// killed kills the manager before the nodes join.
	killed bool
}

var variants = []variant{
	{name: "no-gate", description: "no gate, to show that the measurement finds pods that start too early"},
	{name: "manager", description: "the manager adds the taint when it sees the node", gate: "{}"},
	{name: "manager-killed", description: "the same, and the manager is killed before the nodes join", gate: "{}", killed: true},
	{name: "registered", description: "the kubelet registers with the taint (`registerWithTaints`)", gate: "{key: " + startupTaint.Key + "}", registers: []corev1.Taint{startupTaint}},
	{
		name: "registered-killed", description: "the same, and the manager is killed before the nodes join",
		gate: "{key: " + startupTaint.Key + "}", registers: []corev1.Taint{startupTaint}, killed: true,
	},
	{
		name: "node-pool", description: "a controller adds the taint after the registration, as Karpenter does with `startupTaints`",
		gate: "{key: " + startupTaint.Key + "}", registers: []corev1.Taint{unregistered}, controller: true,
	},
	{name: "policy", description: "the API server adds the taint (MutatingAdmissionPolicy)", gate: "{}", policy: true},
	{name: "policy-killed", description: "the same, and the manager is killed before the nodes join", gate: "{}", policy: true, killed: true},
}

// Variants returns the names of the variants, in their order.
func Variants() []string {
	names := make([]string, 0, len(variants))
	for i := range variants {
		names = append(names, variants[i].name)
	}
	return names
}

// run is the measurement on one cluster.
type run struct {
	Options
	cluster *cluster.Cluster
	client  kubernetes.Interface
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Progress, time.Now().Format("15:04:05")+"  "+format+"\n", args...)
}

// Run measures all variants on one cluster, and removes the cluster. If an error occurs, the result contains the earlier
// variants.
func Run(ctx context.Context, o Options) (_ *report.Joins, err error) {
	r := &run{Options: o}
	for _, name := range o.Only {
		if !slices.Contains(Variants(), name) {
			return nil, fmt.Errorf("unknown variant %q: there are %v", name, Variants())
		}
	}
	options := cluster.Options{
		Name: fmt.Sprintf("joins-%d", os.Getpid()), KubernetesVersion: o.Kubernetes, Progress: o.Progress,
		NodeMonitorGracePeriod: 10 * time.Minute,
	}
	if o.Real {
		options.Nodes = 1 // for the manager
	}
	if r.cluster, err = cluster.Up(ctx, options); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.down(ctx)) }()
	if err := errors.Join(r.connect(), r.install(ctx)); err != nil {
		return nil, err
	}
	return r.measureAll(ctx)
}

// measureAll measures the variants that the API server supports.
func (r *run) measureAll(ctx context.Context) (*report.Joins, error) {
	version, err := r.client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking for the API server's version: %w", err)
	}
	policies, err := install.ServesPolicies(version.GitVersion)
	if err != nil {
		return nil, err
	}
	result := &report.Joins{Kubernetes: version.GitVersion, Nodes: r.Nodes, Real: r.Real}
	for i := range variants {
		v := &variants[i]
		if (len(r.Only) > 0 && !slices.Contains(r.Only, v.name)) || (v.policy && !policies) {
			continue
		}
		measured, err := r.measure(ctx, v)
		if err != nil {
			return result, fmt.Errorf("measuring %s: %w", v.name, err)
		}
		result.Variants = append(result.Variants, *measured)
	}
	return result, nil
}

func (r *run) connect() (err error) {
	config, err := r.cluster.RESTConfig()
	if err != nil {
		return err
	}
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

// install installs Everynode. Simulated nodes run no containers, so the manager runs beside them.
func (r *run) install(ctx context.Context) error {
	if !r.Real {
		return install.Outside(ctx, r.cluster, r.Root)
	}
	images, err := install.Build(ctx, r.Root)
	if err != nil {
		return err
	}
	return install.Install(ctx, r.cluster, r.Root, images)
}

func (r *run) down(ctx context.Context) error {
	return errors.Join(install.StopOutside(r.cluster), r.cluster.Down(context.WithoutCancel(ctx)))
}

// kubectl applies or deletes what standard input describes, or runs another command of kubectl.
func (r *run) kubectl(ctx context.Context, stdin string, args ...string) error {
	_, err := install.Kubectl(ctx, r.cluster, stdin, args...)
	return err
}

// eventually polls until there is no error.
func eventually(ctx context.Context, what string, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
