// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/everynode/everynode/local/internal/filelock"
	"github.com/everynode/everynode/local/internal/wholefile"
)

// StateVariable names the folder that holds the clusters' state. It must be on a plain file system,
// since an overlay cannot lie on another.
const StateVariable = "EVERYNODE_STATE"

const stateFile = "cluster.json"

// state is what another process needs to know about a cluster. It is written before anything else is created, so that
// everything can be removed after a crash.
type state struct {
	// dir is the folder of the record, and of everything else of the cluster.
	dir string
	network

	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	// Kubernetes is Options.KubernetesVersion.
	Kubernetes string `json:"kubernetes"`

	EtcdPort     int    `json:"etcdPort"`
	EtcdPeerPort int    `json:"etcdPeerPort"`
	KwokPort     int    `json:"kwokPort"`
	AuditPolicy  string `json:"auditPolicy,omitempty"`
	// MonitorGrace is Options.NodeMonitorGracePeriod, MonitorPeriod is Options.NodeMonitorPeriod, and Lease is
	// Options.SimulatedLease.
	MonitorGrace  time.Duration `json:"monitorGrace"`
	MonitorPeriod time.Duration `json:"monitorPeriod"`
	Lease         time.Duration `json:"lease"`
	// Programs and Helpers are folders of the cache.
	Programs string `json:"programs"`
	Helpers  string `json:"helpers"`
}

// heartbeats remembers the options that are about the heartbeats of nodes.
func (s *state) heartbeats(options Options) {
	s.MonitorGrace, s.MonitorPeriod, s.Lease = options.NodeMonitorGracePeriod, options.NodeMonitorPeriod, options.SimulatedLease
}

// stateRoot is the folder that holds one folder per cluster.
func stateRoot() (string, error) {
	if dir := os.Getenv(StateVariable); dir != "" {
		return filepath.Abs(dir)
	}
	if canHaveRealNodes() {
		return "/var/lib/everynode-local", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "everynode-local"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding a folder for the clusters' state (set %s instead): %w", StateVariable, err)
	}
	return filepath.Join(home, ".local", "state", "everynode-local"), nil
}

func clusterID(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:])[:6]
}

// lockAll prevents other clusters from being set up or removed at the same time.
func lockAll(ctx context.Context) (func(), error) {
	root, err := stateRoot()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(root, ".lock")
	if canHaveRealNodes() {
		// Address ranges belong to the machine, regardless of the folder of the state.
		file = "/run/everynode-local.lock"
	}
	return filelock.Lock(ctx, file)
}

func (s *state) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func (s *state) pki() pki { return pki(s.path("pki")) }

func (s *state) images() images { return images(s.path("images")) }

func (s *state) save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("recording the cluster: %w", err)
	}
	if err := wholefile.Write(s.path(stateFile), append(data, '\n')); err != nil {
		return fmt.Errorf("recording the cluster: %w", err)
	}
	return nil
}

// load reads a cluster's record. The error is fs.ErrNotExist where there is none.
func load(dir string) (*Cluster, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's record: %w", err)
	}
	s := state{dir: dir}
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, stateFile), err)
	}
	return newCluster(s, nil), nil
}

// Open finds a cluster that was brought up by this or another process.
func Open(name string) (*Cluster, error) {
	root, err := stateRoot()
	if err != nil {
		return nil, err
	}
	c, err := load(filepath.Join(root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no cluster %q (see: everynode-local list)", name)
	}
	return c, err
}

// List returns the clusters of this machine's user, by name. Those that a crash left half-built are
// among them, so that they can be taken down.
func List() ([]*Cluster, error) {
	root, err := stateRoot()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "*", stateFile))
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	slices.Sort(files)
	var clusters []*Cluster
	for _, file := range files {
		c, err := load(filepath.Dir(file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, c)
	}
	return clusters, nil
}
