// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// pollInterval is how often a condition is looked at: it bounds the time lost, not the time waited.
const pollInterval = 100 * time.Millisecond

// kubeconfig makes a self-contained kubeconfig for the identity <file>.crt, <file>.key in a folder.
func (s *state) kubeconfig(dir, file string) ([]byte, error) {
	var data [3][]byte
	for i, path := range []string{
		s.pki().file(clusterCA + ".crt"), filepath.Join(dir, file+".crt"), filepath.Join(dir, file+".key"),
	} {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("making a kubeconfig: %w", err)
		}
		data[i] = content
	}
	name := "everynode-local-" + s.Name
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.apiURL(), CertificateAuthorityData: data[0]}
	config.AuthInfos[file] = &clientcmdapi.AuthInfo{ClientCertificateData: data[1], ClientKeyData: data[2]}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: file}
	config.CurrentContext = name
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("making a kubeconfig: %w", err)
	}
	return text, nil
}

// RESTConfig is the administrator's client configuration, without client-side rate limits.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}

func (c *Cluster) client() (kubernetes.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clients != nil {
		return c.clients, nil
	}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = 30 * time.Second
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	c.clients = clients
	return clients, nil
}

// poll checks a condition until it is met, returns an error, or ctx ends. The condition returns a description of what
// is still missing, which becomes part of the error.
func poll(ctx context.Context, condition func() (missing string, err error)) error {
	for {
		missing, err := condition()
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), missing)
		case <-time.After(pollInterval):
		}
	}
}

// WaitReady waits until the named nodes are Ready and the scheduler may use them, or all nodes of the cluster without a
// name.
func (c *Cluster) WaitReady(ctx context.Context, names ...string) error {
	return c.waitNodes(ctx, names, notReady)
}

// notReady returns the reason why a node is not Ready, or an empty string. A node that reports Ready is not ready for
// the scheduler until the node lifecycle controller has removed the taint of a new node.
func notReady(node *corev1.Node) string {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status != corev1.ConditionTrue {
			return condition.Message
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady {
				return "it still has the taint " + taint.Key
			}
		}
		return ""
	}
	return "no status was reported yet"
}

// waitNodes waits until a condition, which says what is missing, holds for each node.
func (c *Cluster) waitNodes(ctx context.Context, names []string, condition func(*corev1.Node) string) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if names, err = c.NodeNames(ctx); err != nil {
			return err
		}
	}
	late := ""
	err = poll(ctx, func() (string, error) {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return "listing nodes: " + err.Error(), nil //nolint:nilerr // the API server may be restarting
		}
		name, missing := firstLate(names, list.Items, condition)
		if missing == "" {
			return "", nil
		}
		late = name
		if err := c.nodes.failure(name); err != nil {
			return "", err
		}
		return missing, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for nodes: %w%s", err, c.nodes.logs(late))
	}
	return nil
}

// firstLate returns the first node that has not registered or does not meet the condition, with what is missing; an
// empty string if there is none.
func firstLate(names []string, nodes []corev1.Node, condition func(*corev1.Node) string) (name, missing string) {
	found := map[string]*corev1.Node{}
	for i := range nodes {
		found[nodes[i].Name] = &nodes[i]
	}
	for _, name := range names {
		node := found[name]
		if node == nil {
			return name, "node " + name + " has not registered"
		}
		if missing := condition(node); missing != "" {
			return name, "node " + name + ": " + missing
		}
	}
	return "", ""
}

// NodeNames lists the nodes that the API server knows.
func (c *Cluster) NodeNames(ctx context.Context) ([]string, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var names []string
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	return names, nil
}

var errTimeout = errors.New("the time for it ran out")

// within limits the duration of one step.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, errTimeout)
}
