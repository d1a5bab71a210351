// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/everynode/everynode/local/internal/procs"
)

//go:embed stages/node.yaml
var nodeStages []byte

//go:embed stages/pod.yaml
var podStages []byte

// startLimit is the timeout for the start of one process on a busy machine.
const startLimit = 60 * time.Second

// prepare writes all files that the control plane's processes read.
func (p *controlPlane) prepare(options Options) error {
	if err := p.pki().create(p.apiAddress()); err != nil {
		return err
	}
	for file, identity := range map[string]string{
		"kubeconfig": "admin", "controller-manager.kubeconfig": "controller-manager",
		"scheduler.kubeconfig": "scheduler", "kwok.kubeconfig": "kwok",
	} {
		config, err := p.kubeconfig(string(p.pki()), identity)
		if err != nil {
			return err
		}
		if err := os.WriteFile(p.path(file), config, 0o600); err != nil {
			return fmt.Errorf("writing a kubeconfig: %w", err)
		}
	}
	pods := options.PodStages
	if len(pods) == 0 {
		pods = podStages
	}
	stages := append(append(append([]byte{}, nodeStages...), "\n---\n"...), pods...)
	if err := os.WriteFile(p.path("kwok.yaml"), stages, 0o644); err != nil {
		return fmt.Errorf("writing the stages of simulated nodes: %w", err)
	}
	return p.writeAuditPolicy()
}

func (p *controlPlane) writeAuditPolicy() error {
	policy := []byte(auditMetadataPolicy)
	switch p.AuditPolicy {
	case "":
		return nil
	case AuditMetadata:
	default:
		data, err := os.ReadFile(p.AuditPolicy)
		if err != nil {
			return fmt.Errorf("reading the audit policy: %w", err)
		}
		policy = data
	}
	if err := os.WriteFile(p.path("audit-policy.yaml"), policy, 0o644); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	return nil
}

// startControlPlane starts all of it. The simulator of nodes starts with the first simulated node.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := c.control.start(etcdName); err != nil {
		return err
	}
	if err := c.control.waitListening(ctx, etcdName, fmt.Sprintf("127.0.0.1:%d", c.state.EtcdPort)); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	for _, name := range []string{controllerManagerName, schedulerName} {
		if err := c.control.start(name); err != nil {
			return err
		}
	}
	return nil
}

func (p *controlPlane) recordFile(component string) string {
	return p.path("processes", component+".json")
}
func (p *controlPlane) auditLog() string                { return p.path("logs", "audit.log") }
func (p *controlPlane) logFile(component string) string { return p.path("logs", component+".log") }

// start starts a process of the control plane unless it runs.
func (p *controlPlane) start(name string) error {
	record, err := procs.Load(p.recordFile(name))
	if err != nil {
		return err
	}
	if record.Alive() {
		return nil
	}
	record, err = p.spawn(p.logFile(name), filepath.Join(p.Programs, name), p.arguments(name)...)
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	return record.Save(p.recordFile(name))
}

func (p *controlPlane) stop(name string) error {
	record, err := procs.Load(p.recordFile(name))
	if err != nil {
		return err
	}
	if err := record.Stop(0); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	return nil
}

// died returns an error with the end of the log when the process of a component has ended.
func (p *controlPlane) died(name string) error {
	record, err := procs.Load(p.recordFile(name))
	if err != nil {
		return err
	}
	if record.Alive() {
		return nil
	}
	return fmt.Errorf("%s ended; %s", name, logTail(p.logFile(name)))
}

func (p *controlPlane) waitListening(ctx context.Context, name, address string) error {
	ctx, cancel := within(ctx, startLimit)
	defer cancel()
	err := poll(ctx, func() (string, error) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return "", conn.Close()
		}
		return err.Error(), p.died(name)
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	return nil
}

// StopAPIServer kills the API server. Clients see refused connections until StartAPIServer. One that ends in
// an orderly way drains for up to a minute, and takes its address out of its service: each kube-proxy would
// refuse connections there until it has reached the next API server, for which it waits longer each time.
func (c *Cluster) StopAPIServer(context.Context) error {
	return c.control.stop(apiServerName)
}

// StartAPIServer starts the API server, where it is not running, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.control.start(apiServerName); err != nil {
		return err
	}
	ctx, cancel := within(ctx, startLimit)
	defer cancel()
	client, err := c.client()
	if err != nil {
		return err
	}
	err = poll(ctx, func() (string, error) {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return "", nil
		}
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			return "", fmt.Errorf("another program answers at %s: %w", c.state.apiURL(), err)
		}
		return err.Error(), c.control.died(apiServerName)
	})
	if err != nil {
		return fmt.Errorf("starting kube-apiserver: %w", err)
	}
	return nil
}

// RestartAPIServer stops the API server and starts it again at the same address.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	if err := c.StopAPIServer(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// freePorts finds unused ports of the loopback address. All of them stay open until the last one is found, so that they
// differ. Callers must hold the lock of all clusters.
func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
