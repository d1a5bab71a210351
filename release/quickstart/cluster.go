// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/release"
)

// Minor versions of Kubernetes 1: docs/kubernetes-versions.md.
const (
	oldest, newest = 34, 37
	policiesSince  = 36 // MutatingAdmissionPolicy
)

// clusterInfo is the cluster of the current context.
type clusterInfo struct {
	context, server, version string
	minor                    int
	nodes                    []corev1.Node // with Linux
	architectures            []string
}

// inspect reads the current context and its cluster, and refuses what is not supported.
func inspect(ctx context.Context) (*clusterInfo, error) {
	if err := checkInstalled("kubectl"); err != nil {
		return nil, err
	}
	current, err := run(ctx, "kubectl", "config", "current-context")
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig has no current context: set KUBECONFIG, or run kubectl config use-context NAME\n%w", err)
	}
	c := &clusterInfo{context: strings.TrimSpace(string(current))}
	var config struct {
		Clusters []struct{ Cluster struct{ Server string } }
	}
	if err := c.read(ctx, &config, "config", "view", "--minify"); err != nil {
		return nil, err
	}
	if len(config.Clusters) == 1 {
		c.server = config.Clusters[0].Cluster.Server
	}
	var version struct {
		ServerVersion struct{ Major, Minor, GitVersion string }
	}
	if err := c.read(ctx, &version, "version"); err != nil {
		return nil, err
	}
	c.version = version.ServerVersion.GitVersion
	if err := c.checkVersion(version.ServerVersion.Major, version.ServerVersion.Minor); err != nil {
		return nil, err
	}
	var list corev1.NodeList
	if err := c.read(ctx, &list, "get", "nodes"); err != nil {
		return nil, err
	}
	return c, c.setNodes(list.Items)
}

// checkVersion accepts the versions of docs/kubernetes-versions.md. Some clouds write the minor version as 34+.
func (c *clusterInfo) checkVersion(major, minor string) error {
	var err error
	c.minor, err = strconv.Atoi(strings.TrimSuffix(minor, "+"))
	if err != nil || major != "1" || c.minor < oldest || c.minor > newest {
		return fmt.Errorf("the API server of context %q has Kubernetes %q, and Everynode supports 1.%d to 1.%d: choose another cluster with "+
			"kubectl config use-context NAME", c.context, c.version, oldest, newest)
	}
	return nil
}

func (c *clusterInfo) setNodes(nodes []corev1.Node) error {
	for _, n := range nodes {
		info := n.Status.NodeInfo
		if info.OperatingSystem != "linux" {
			continue
		}
		if !slices.Contains(release.Platforms, "linux/"+info.Architecture) {
			return fmt.Errorf("node %q has the architecture %q, for which there is no image: choose a cluster with amd64 and arm64 only",
				n.Name, info.Architecture)
		}
		c.nodes = append(c.nodes, n)
		c.architectures = append(c.architectures, info.Architecture)
	}
	slices.Sort(c.architectures)
	c.architectures = slices.Compact(c.architectures)
	if len(c.nodes) == 0 {
		return fmt.Errorf("the cluster of context %q has no node with Linux: add one", c.context)
	}
	return nil
}

// String is what the user confirms.
func (c *clusterInfo) String() string {
	return fmt.Sprintf("context    %q\nserver     %q\nkubernetes %q\nnodes      %d with Linux (%s)",
		c.context, c.server, c.version, len(c.nodes), strings.Join(c.architectures, ", "))
}

// servesPolicies reports whether the API server serves the admission policies of gates.
func (c *clusterInfo) servesPolicies() bool { return c.minor >= policiesSince }

func (c *clusterInfo) platforms() []string {
	var platforms []string
	for _, architecture := range c.architectures {
		platforms = append(platforms, "linux/"+architecture)
	}
	return platforms
}

// resources are the kinds that an installation creates.
var resources = []string{
	"namespaces", "customresourcedefinitions.apiextensions.k8s.io", "clusterroles.rbac.authorization.k8s.io",
	"clusterrolebindings.rbac.authorization.k8s.io", "validatingadmissionpolicies.admissionregistration.k8s.io",
	"validatingadmissionpolicybindings.admissionregistration.k8s.io", "deployments.apps",
}

// refused matches the answer of kubectl auth can-i in the error of its exit code.
var refused = regexp.MustCompile(`(?m)^no( - .*)?$`)

// checkRights asks before anything is built. An installation has roles, so the user needs what they grant, too.
func (c *clusterInfo) checkRights(ctx context.Context) error {
	var missing []string
	for _, resource := range resources {
		out, err := c.kubectl(ctx, "auth", "can-i", "create", resource, "--all-namespaces")
		if err == nil && strings.HasPrefix(string(out), "yes") { // kubectl may add " - " and a reason
			continue
		}
		if err != nil && !refused.MatchString(err.Error()) {
			return err
		}
		missing = append(missing, resource)
	}
	if len(missing) > 0 {
		return fmt.Errorf("you may not create %s in this cluster: use a context of a cluster administrator", strings.Join(missing, ", "))
	}
	return nil
}

// kubectl uses the context that the user has confirmed, even if the current one changes meanwhile.
func (c *clusterInfo) kubectl(ctx context.Context, args ...string) ([]byte, error) {
	return run(ctx, "kubectl", append([]string{"--context", c.context}, args...)...)
}

func (c *clusterInfo) read(ctx context.Context, into any, args ...string) error {
	out, err := c.kubectl(ctx, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("reading the output of kubectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// clusterName matches what may be an argument of another program.
var clusterName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)

// errNoTarget names the choices.
var errNoTarget = errors.New("the nodes need a registry to pull the images from, because this is no cluster of kind, k3d, minikube or " +
	"everynode-local: make install REGISTRY=registry.example.com/everynode, after docker login if the registry asks for credentials")
