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

func (c *Cluster) prefix() string { return fmt.Sprintf("10.%d", firstSlotOctet+c.state.Slot) }

// apiAddress is where the API server listens: never beyond the machine, and where nodes reach it.
func (c *Cluster) apiAddress() string {
	if c.state.Real {
		return c.prefix() + ".0.1"
	}
	return "127.0.0.1"
}

func (c *Cluster) apiHostPort() string {
	return net.JoinHostPort(c.apiAddress(), strconv.Itoa(c.state.APIPort))
}
func (c *Cluster) apiURL() string { return "https://" + c.apiHostPort() }

// nodeAddress is that of the node with an index, from 1.
func (c *Cluster) nodeAddress(index int) string { return fmt.Sprintf("%s.0.%d", c.prefix(), index+1) }
func (c *Cluster) podCIDR(index int) string     { return fmt.Sprintf("%s.%d.0/24", c.prefix(), index) }
func (c *Cluster) clusterCIDR() string          { return c.prefix() + ".0.0/16" }

// Names of links have at most 15 characters.
func (c *Cluster) linkPrefix() string { return "en" + c.state.ID }
func (c *Cluster) bridgeName() string { return c.linkPrefix() + "br" }

// cgroup is the control group of all nodes of the cluster.
func (c *Cluster) cgroup() string { return "everynode-local-" + c.state.ID }
