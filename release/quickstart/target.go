// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/everynode/everynode/release"
)

// target is how the images come to the nodes.
type target struct {
	what  string
	bring func(context.Context) error
}

// target chooses the registry, or the command that loads images into the nodes of a local cluster.
func (i *installer) target() (target, error) {
	if i.Registry != "" {
		return target{"pushed to " + i.Registry, func(ctx context.Context) error {
			_, err := release.Publish(ctx, i.Release.Dir, i.Registry)
			if err != nil {
				err = fmt.Errorf("%w\nRun docker login if the registry asks for credentials", err)
			}
			return err
		}}, nil
	}
	tool, name := i.cluster.tool()
	if tool == "" || !clusterName.MatchString(name) {
		return target{}, errNoTarget
	}
	if len(i.cluster.architectures) > 1 {
		return target{}, fmt.Errorf("the nodes of this cluster have the architectures %s, and %s loads images of one: give a registry, REGISTRY=…",
			strings.Join(i.cluster.architectures, ", "), tool)
	}
	file := filepath.Join(i.Release.Dir, "images.tar")
	command := load(tool, name, file, i.Release.Root)
	if err := checkInstalled(command[0]); err != nil {
		return target{}, err
	}
	return target{fmt.Sprintf("loaded into the nodes with %s, cluster %q", tool, name), func(ctx context.Context) error {
		defer os.Remove(file)
		if err := release.Archive(i.Release.Dir, i.cluster.platforms()[0], file); err != nil {
			return err
		}
		_, err := run(ctx, command[0], command[1:]...)
		return err
	}}, nil
}

// tool returns the program that made the cluster, if it is a known one, and the name of the cluster there.
func (c *clusterInfo) tool() (tool, name string) {
	first := c.nodes[0]
	if id, ok := strings.CutPrefix(first.Spec.ProviderID, "kind://"); ok { // kind://docker/CLUSTER/NODE
		if parts := strings.Split(id, "/"); len(parts) == 3 {
			return "kind", parts[1]
		}
	}
	if name := first.Labels["minikube.k8s.io/name"]; name != "" {
		return "minikube", name
	}
	if name, ok := strings.CutPrefix(c.context, "k3d-"); ok && strings.HasPrefix(first.Name, "k3d-"+name+"-") {
		return "k3d", name
	}
	if name, ok := strings.CutPrefix(c.context, "everynode-local-"); ok {
		return "everynode-local", name
	}
	return "", ""
}

// load returns the command that loads an archive into all nodes.
func load(tool, name, file, root string) []string {
	switch tool {
	case "kind":
		return []string{"kind", "load", "image-archive", file, "--name", name}
	case "k3d":
		return []string{"k3d", "image", "import", file, "--cluster", name}
	case "minikube":
		return []string{"minikube", "image", "load", file, "--profile", name}
	}
	return []string{"go", "-C", filepath.Join(root, "local"), "run", "./cmd/everynode-local", "load-image", file, "--name", name}
}
