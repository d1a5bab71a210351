// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"strconv"
)

// Each cluster with real nodes has a /16 of its own, 10.<128+slot>.0.0: nodes are in its first /24,
// behind a bridge whose address .0.1 the API server listens on, and the pods of node i in the i-th.
const (
	firstSlotOctet = 128
	slots          = 96
	maxRealNodes   = 250
)

// network is the plan of a cluster's addresses and of its names on this machine, and makes its links.
type network struct {
	// ID is short and differs between clusters: it is in the names of links and control groups.
	ID string `json:"id"`
	// Real says whether the cluster has a network for real nodes; Slot numbers it.
	Real bool `json:"real"`
	Slot int  `json:"slot"`
	// APIPort is where the API server listens.
	APIPort int `json:"apiPort"`
}

func (n *network) prefix() string { return fmt.Sprintf("10.%d", firstSlotOctet+n.Slot) }

// apiAddress is where the API server listens: never beyond the machine, and where nodes reach it.
func (n *network) apiAddress() string {
	if n.Real {
		return n.prefix() + ".0.1"
	}
	return "127.0.0.1"
}

func (n *network) apiHostPort() string {
	return net.JoinHostPort(n.apiAddress(), strconv.Itoa(n.APIPort))
}
func (n *network) apiURL() string { return "https://" + n.apiHostPort() }

// nodeAddress is that of the node with an index, from 1.
func (n *network) nodeAddress(index int) string { return fmt.Sprintf("%s.0.%d", n.prefix(), index+1) }
func (n *network) podCIDR(index int) string     { return fmt.Sprintf("%s.%d.0/24", n.prefix(), index) }
func (n *network) clusterCIDR() string          { return n.prefix() + ".0.0/16" }

// Names of links have at most 15 characters.
func (n *network) linkPrefix() string { return "en" + n.ID }
func (n *network) bridgeName() string { return n.linkPrefix() + "br" }

// cgroup is the control group of all nodes of the cluster.
func (n *network) cgroup() string { return "everynode-local-" + n.ID }
