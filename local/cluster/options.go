// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on one machine: a control plane of plain processes,
// real nodes made of Linux namespaces, and simulated ones. It needs no Docker and no registry.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/local/binaries"
)

// Options describe a cluster to bring up.
type Options struct {
	// Name of the cluster: lower-case letters, digits and dashes, at most 40. Default: "everynode".
	Name string
	// KubernetesVersion is a minor version of binaries.KubernetesVersions, such as "1.36". Default:
	// binaries.DefaultKubernetes.
	KubernetesVersion string
	// Nodes is the number of real nodes to start with, named node-1, node-2, …
	Nodes int
	// Simulated is the number of simulated nodes to start with, named sim-1, sim-2, …
	Simulated int
	// AuditPolicy switches the API server's audit log on. AuditMetadata logs who did what to which
	// object with which result; anything else is the path of an audit policy file.
	AuditPolicy string
	// NodeMonitorGracePeriod is how long a node may send no status before its Ready condition becomes Unknown. Default: 20
	// s. On a busy machine with many simulated nodes, it may have to be increased.
	NodeMonitorGracePeriod time.Duration
	// NodeMonitorPeriod is how often the controller manager looks at the heartbeats of all nodes. Default: 2 s; that of
	// Kubernetes is 5 s.
	NodeMonitorPeriod time.Duration
	// SimulatedLease is the duration of the lease of a simulated node, which is renewed four times in that time. Default:
	// 40 s. The renewals of many thousand nodes keep a small machine busy.
	SimulatedLease time.Duration
	// PodStages replaces what happens to pods on simulated nodes: kwok Stage objects in YAML. More stages of nodes,
	// and a KwokConfiguration, may be among them.
	PodStages []byte
	// Progress gets a line per step. Default: nothing is written.
	Progress io.Writer
	// KeepOnFailure leaves an incomplete cluster in place, to inspect its logs, instead of removing it.
	KeepOnFailure bool
}

// AuditMetadata as Options.AuditPolicy logs each request's metadata.
const AuditMetadata = "metadata"

// NodeOptions describe a node that joins.
type NodeOptions struct {
	// Name of the node. At most 63 characters for a real one (it is its host name), 253 otherwise.
	Name string
	// Simulated asks for a node without a machine behind it.
	Simulated bool
	// WithoutCNI leaves a real node without a pod network: it stays NotReady until InstallCNI.
	WithoutCNI bool
	// Labels are on the node when it registers, but for those that only an administrator may set:
	// these follow at once after.
	Labels map[string]string
	// Annotations follow at once after registration.
	Annotations map[string]string
	// Taints are on the node when it registers.
	Taints []corev1.Taint
}

var (
	clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
	nodeName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

func (o *Options) complete() error {
	if o.Name == "" {
		o.Name = "everynode"
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	o.NodeMonitorGracePeriod = cmp.Or(o.NodeMonitorGracePeriod, 20*time.Second)
	o.NodeMonitorPeriod = cmp.Or(o.NodeMonitorPeriod, 2*time.Second)
	o.SimulatedLease = cmp.Or(o.SimulatedLease, 40*time.Second)
	version, err := binaries.ResolveKubernetes(o.KubernetesVersion)
	if err != nil {
		return err
	}
	o.KubernetesVersion = version
	if !clusterName.MatchString(o.Name) {
		return fmt.Errorf("the cluster's name %q is not made of at most 40 lower-case letters, digits and inner dashes", o.Name)
	}
	if o.Nodes < 0 || o.Nodes > maxRealNodes || o.Simulated < 0 {
		return fmt.Errorf("%d real nodes and %d simulated ones were asked for: there may be 0 to %d real ones", o.Nodes, o.Simulated, maxRealNodes)
	}
	return nil
}

// nodes are the nodes to start with. Without what real nodes need, all of them are simulated.
func (o *Options) nodes(canBeReal bool) (machines, simulated []NodeOptions) {
	for i := range o.Nodes {
		node := NodeOptions{Name: fmt.Sprintf("node-%d", i+1), Simulated: !canBeReal}
		if node.Simulated {
			simulated = append(simulated, node)
		} else {
			machines = append(machines, node)
		}
	}
	for i := range o.Simulated {
		simulated = append(simulated, NodeOptions{Name: fmt.Sprintf("sim-%d", i+1), Simulated: true})
	}
	return machines, simulated
}

func (o *NodeOptions) validate() error {
	limit := 63
	if o.Simulated {
		limit = 253
	}
	if !nodeName.MatchString(o.Name) || len(o.Name) > limit {
		return fmt.Errorf("the node's name %q is not a host name of at most %d characters", o.Name, limit)
	}
	if o.Simulated && o.WithoutCNI {
		return errors.New("a simulated node has no network to leave out")
	}
	return nil
}
