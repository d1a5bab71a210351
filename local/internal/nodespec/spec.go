// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodespec is what the library, the keeper outside a node and the init program inside it
// tell each other: the node's description on disk, and the requests on its sockets.
package nodespec

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/everynode/everynode/local/internal/wholefile"
)

// Names of files in a node's folder on the host.
const (
	SpecFile     = "node.json"
	BootIDFile   = "boot_id"
	UUIDFile     = "product_uuid"
	KeeperRecord = "keeper.pid.json"
	InitRecord   = "init.pid.json"
	KeeperSocket = "keeper.sock"
	InitSocket   = "init.sock"
	UpperDir     = "upper"
	WorkDir      = "work"
	RootDir      = "root"
	DataDir      = "data"
	LogDir       = "logs"
)

// Places inside a node.
const (
	ProgramsPath = "/opt/everynode/bin"
	ImagesPath   = "/opt/everynode/images"
	LogPath      = "/var/log/everynode"
	CNIBinPath   = "/opt/cni/bin"
)

// Marker is the environment variable every process of a cluster carries, with the cluster's folder
// as its value: so what a crash left behind is found again even where no pid was recorded.
const Marker = "EVERYNODE_LOCAL_CLUSTER"

// Service is one supervised program of a node.
type Service struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	// NeedsRuntime holds the start back until containerd answers and the images are imported: a
	// kubelet that starts earlier exits, and its restart costs more than the wait.
	NeedsRuntime bool `json:"needsRuntime,omitempty"`
	// NeedsAPIServer holds it back until the API server's port is open, for a bounded time: a client
	// that meets a closed port first backs off for longer than the server takes to start.
	NeedsAPIServer bool `json:"needsAPIServer,omitempty"`
}

// Spec describes a real node. It is written once, when the node joins.
type Spec struct {
	Name    string `json:"name"`
	Index   int    `json:"index"`
	Dir     string `json:"dir"`
	Cluster string `json:"cluster"` // the cluster's folder, also the value of Marker
	// StateRoot is hidden inside the node: a node must not see its sisters' files.
	StateRoot string `json:"stateRoot"`

	Cgroup   string  `json:"cgroup"` // path below each hierarchy's root, no leading slash
	Bridge   string  `json:"bridge"`
	HostLink string  `json:"hostLink"` // the veth end at the bridge
	PeerLink string  `json:"peerLink"` // the other end until the node renames it eth0
	Address  string  `json:"address"`  // CIDR notation
	Routes   []Route `json:"routes"`
	Programs string  `json:"programs"`
	Images   string  `json:"images"`
	// APIServer is host:port.
	APIServer string    `json:"apiServer"`
	Services  []Service `json:"services"`
}

// Route is a route inside the node; without Via it is on the link.
type Route struct {
	To  string `json:"to"`
	Via string `json:"via,omitempty"`
}

// Load reads the description in a node's folder.
func Load(dir string) (*Spec, error) {
	data, err := os.ReadFile(filepath.Join(dir, SpecFile))
	if err != nil {
		return nil, fmt.Errorf("reading the node's description: %w", err)
	}
	spec := &Spec{}
	if err := json.Unmarshal(data, spec); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, SpecFile), err)
	}
	return spec, nil
}

// Save writes the description into the node's folder.
func (s *Spec) Save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the node's description: %w", err)
	}
	if err := wholefile.Write(filepath.Join(s.Dir, SpecFile), append(data, '\n')); err != nil {
		return fmt.Errorf("writing the node's description: %w", err)
	}
	return nil
}
