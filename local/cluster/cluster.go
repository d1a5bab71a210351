// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/local/binaries"
	"github.com/everynode/everynode/local/internal/procs"
	"github.com/everynode/everynode/local/prereq"
)

// Cluster is a local cluster, running or not. Its methods may be used by several goroutines.
type Cluster struct {
	state *state
	nodes realNodes
	// control is the control plane.
	control controlPlane

	progress progress

	mu      sync.Mutex
	clients kubernetes.Interface
	// prepared is set once this process has made sure of what real nodes need.
	prepared bool
}

func newCluster(s state, w io.Writer) *Cluster {
	return &Cluster{state: &s, nodes: realNodes{&s}, control: controlPlane{state: &s}, progress: progress{to: w}}
}

// Name of the cluster.
func (c *Cluster) Name() string { return c.state.Name }

// Dir is the folder of the cluster's state: logs, certificates, the nodes' file systems.
func (c *Cluster) Dir() string { return c.state.dir }

// KubernetesVersion is the minor version of the cluster, such as "1.36".
func (c *Cluster) KubernetesVersion() string { return c.state.Kubernetes }

// Real reports whether the cluster can have real nodes. They require root and Linux.
func (c *Cluster) Real() bool { return c.state.Real }

// Created is when the cluster was brought up.
func (c *Cluster) Created() time.Time { return c.state.Created }

// State is "running" while the process of the API server exists, otherwise "stopped".
func (c *Cluster) State() string {
	if c.control.died(apiServerName) == nil {
		return "running"
	}
	return "stopped"
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.state.path("kubeconfig") }

// Kubectl is the path of a kubectl of the cluster's own version.
func (c *Cluster) Kubectl() string { return filepath.Join(c.state.Programs, "kubectl") }

// Environ is the environment of this process for a command that uses the cluster: with the administrator's kubeconfig,
// kubectl's cache in the cluster's folder, and the folders with kubectl and these first in PATH.
func (c *Cluster) Environ(folders ...string) []string {
	folders = append(folders, c.state.Programs, os.Getenv("PATH"))
	return append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+c.state.path("kubectl-cache"),
		"PATH="+strings.Join(folders, string(os.PathListSeparator)))
}

// AuditLog is the path of the API server's audit log: one JSON event per line, each at most about a
// second after its request.
func (c *Cluster) AuditLog() string { return c.control.auditLog() }

// Processes are the process IDs of the control plane's parts that run, kwok among them, by their programs' names.
func (c *Cluster) Processes() (map[string]int, error) {
	pids := map[string]int{}
	for _, name := range components {
		record, err := procs.Load(c.control.recordFile(name))
		if err != nil {
			return nil, err
		}
		if record.Alive() {
			pids[name] = record.PID
		}
	}
	return pids, nil
}

// SetProgress sends progress lines of later calls to a writer.
func (c *Cluster) SetProgress(w io.Writer) {
	c.progress.mu.Lock()
	defer c.progress.mu.Unlock()
	c.progress.to = w
}

// progress prints the steps of a cluster; nothing without a writer.
type progress struct {
	mu sync.Mutex
	to io.Writer
}

func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.to == nil {
		return len(line), nil
	}
	return p.to.Write(line)
}

func (p *progress) say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// Up starts a cluster, and returns when all its nodes are Ready. If real nodes are not possible, the first line of
// progress says so, and all nodes are simulated. If Up fails or ctx ends, it removes what it has started.
func Up(ctx context.Context, options Options) (*Cluster, error) {
	if err := options.complete(); err != nil {
		return nil, fmt.Errorf("bringing a cluster up: %w", err)
	}
	started := time.Now()
	if options.Nodes > 0 && !canHaveRealNodes() {
		fmt.Fprintf(options.Progress, "nodes are simulated: real ones need Linux and root (%s)\n", whyNoRealNodes())
	}
	c, err := create(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("bringing cluster %q up: %w", options.Name, err)
	}
	if err := c.up(ctx, options); err != nil {
		err = fmt.Errorf("bringing cluster %q up: %w", options.Name, err)
		if options.KeepOnFailure {
			return nil, fmt.Errorf("%w\nit is left in %s", err, c.state.dir)
		}
		// ctx may have ended, but the removal must be done anyway.
		if downErr := c.Down(context.WithoutCancel(ctx)); downErr != nil {
			err = errors.Join(err, downErr)
		}
		return nil, err
	}
	c.progress.say("cluster %q is ready after %.1f s", c.state.Name, time.Since(started).Seconds())
	return c, nil
}

// create builds what is missing and makes the record of a new cluster, and its network.
func create(ctx context.Context, options Options) (*Cluster, error) {
	capable := canHaveRealNodes()
	programs, err := ensurePrograms(ctx, options, capable && options.Nodes > 0)
	if err != nil {
		return nil, err
	}
	helpers := ""
	if capable {
		if helpers, err = binaries.EnsureHelpers(ctx, options.Progress); err != nil {
			return nil, err
		}
	}
	c, err := record(ctx, options, state{network: network{Real: capable}, Programs: programs, Helpers: helpers})
	if err != nil && c != nil {
		err = errors.Join(err, c.Down(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// record assigns to a cluster what no other one may have at the same time: its name, ports and addresses. If record
// returns both a cluster and an error, the caller must remove the cluster.
func record(ctx context.Context, options Options, s state) (*Cluster, error) {
	root, err := stateRoot()
	if err != nil {
		return nil, err
	}
	unlock, err := lockAll(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := filepath.Join(root, options.Name)
	if err := refuseExisting(dir, options.Name); err != nil {
		return nil, err
	}
	s.dir, s.Name, s.ID, s.Created, s.Kubernetes = dir, options.Name, clusterID(dir), time.Now(), options.KubernetesVersion
	s.AuditPolicy = options.AuditPolicy
	s.heartbeats(options)
	if err := s.choosePlace(); err != nil {
		return nil, err
	}
	c := newCluster(s, options.Progress)
	c.prepared = s.Real && options.Nodes > 0
	for _, folder := range []string{"logs", "processes", "nodes", "images"} {
		if err := os.MkdirAll(c.state.path(folder), 0o755); err != nil {
			return nil, fmt.Errorf("making the cluster's folder: %w", err)
		}
	}
	if err := c.state.save(); err != nil {
		return nil, err
	}
	if s.Real {
		return c, c.state.setUpNetwork()
	}
	return c, nil
}

// refuseExisting returns an error if the folder contains a cluster, or one that cannot be read.
func refuseExisting(dir, name string) error {
	old, err := load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("it exists since %s; take it down first: everynode-local down --name %s",
		old.state.Created.Format(time.DateTime), name)
}

// choosePlace finds ports and, for real nodes, addresses that are free; callers hold the lock of all
// clusters.
func (s *state) choosePlace() error {
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	s.APIPort, s.EtcdPort, s.EtcdPeerPort, s.KwokPort = ports[0], ports[1], ports[2], ports[3]
	if !s.Real {
		return nil
	}
	// Each cluster has an address of its own, so the port can be the usual one.
	s.APIPort = 6443
	s.Slot, err = freeSlot()
	return err
}

// ensurePrograms checks the machine and builds, before anything is started.
func ensurePrograms(ctx context.Context, options Options, realNodes bool) (dir string, err error) {
	names := binaries.ControlPlane()
	if options.Simulated > 0 || !realNodes {
		names = append(names, binaries.SimulatedNode()...)
	}
	if realNodes {
		names = append(names, binaries.RealNode()...)
		if err := prereq.Ensure(ctx, options.Progress, Prerequisites(ctx)); err != nil {
			return "", err
		}
	}
	return binaries.Ensure(ctx, options.Progress, options.KubernetesVersion, names...)
}

// Prerequisites lists what real nodes need on this machine, compilers only where runc is not built.
func Prerequisites(ctx context.Context) []prereq.Requirement {
	requirements := prereq.ForNodes()
	// runc is the same with each version of Kubernetes.
	if missing, err := binaries.Missing(ctx, binaries.DefaultKubernetes, "runc"); err == nil && len(missing) > 0 {
		requirements = append(requirements, prereq.ForBuildingRunc()...)
	}
	return requirements
}

// up starts the control plane and the nodes at the same time: the runtimes of the nodes come up
// while the API server does, and the kubelets wait for its port.
func (c *Cluster) up(ctx context.Context, options Options) error {
	c.progress.say("starting the control plane …")
	if err := c.control.prepare(options); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	machines, simulated := options.nodes(c.state.Real)
	control := make(chan error, 1)
	go func() {
		err := c.startControlPlane(ctx)
		if err != nil {
			cancel(err)
		}
		control <- err
	}()
	var err error
	if len(machines) > 0 {
		if err = c.prepareRealNodes(ctx); err == nil {
			err = c.nodes.start(ctx, machines...)
		}
	}
	if err := errors.Join(<-control, err); err != nil {
		return err
	}
	c.progress.say("the API server is at %s", c.state.apiURL())
	if err := c.joinSimulated(ctx, simulated...); err != nil {
		return err
	}
	var names []string
	for _, node := range append(machines, simulated...) {
		names = append(names, node.Name)
	}
	if len(names) == 0 {
		return nil
	}
	c.progress.say("waiting for %d real and %d simulated nodes …", len(machines), len(simulated))
	wait, stop := within(ctx, startLimit+time.Duration(len(simulated))*time.Second/2)
	defer stop()
	return c.WaitReady(wait, names...)
}

// forEach runs a function for 0 to n-1 at the same time and joins the errors.
func forEach(n int, do func(int) error) error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = do(i) })
	}
	group.Wait()
	return errors.Join(errs...)
}
