// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/local/internal/nodespec"
)

// The daemons of a node.
const (
	containerdName = "containerd"
	kubeletName    = "kubelet"
	kubeProxyName  = "kube-proxy"
)

// pauseImage has a registry host in its name, or containerd would take it for one on Docker Hub.
const pauseImage = "registry.local/everynode/pause:1"

const cniFile = "etc/cni/net.d/10-everynode.conflist"

type object = map[string]any

// files are the files of a node that no other has, by path.
func (n *realNode) files() (map[string]string, error) {
	name := n.spec.Name
	kubelet, err := yaml.Marshal(n.kubeletConfig())
	if err != nil {
		return nil, fmt.Errorf("writing the kubelet's configuration: %w", err)
	}
	proxy, err := yaml.Marshal(n.proxyConfig())
	if err != nil {
		return nil, fmt.Errorf("writing kube-proxy's configuration: %w", err)
	}
	files := map[string]string{
		"etc/machine-id": randomHex(16) + "\n",
		"etc/hostname":   name + "\n",
		"etc/hosts":      fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", n.cluster.nodeAddress(n.spec.Index), name),
		// Nothing listens there, so that a look-up fails at once instead of after its time-out: a pull
		// from a registry that is not there must not hang a test.
		"etc/resolv.conf":             "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
		"etc/containerd/config.toml":  containerdConfig,
		"etc/kubernetes/kubelet.yaml": string(kubelet), "etc/kubernetes/kube-proxy.yaml": string(proxy),
	}
	if !n.options.WithoutCNI {
		config, err := n.cniConfig()
		if err != nil {
			return nil, err
		}
		files[cniFile] = config
	}
	return files, nil
}

// containerdConfig: no out-of-memory adjustments below the parent's, which takes a capability that
// root in a container lacks; the registry's folder is where a node's own certificates go.
const containerdConfig = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "` + pauseImage + `"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["` + nodespec.CNIBinPath + `"]
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "` + nodespec.ProgramsPath + `/runc"
      SystemdCgroup = false
`

func (n *realNode) kubeletConfig() object {
	config := object{
		"apiVersion":         "kubelet.config.k8s.io/v1beta1",
		"kind":               "KubeletConfiguration",
		"authentication":     object{"anonymous": object{"enabled": false}, "webhook": object{"enabled": true}, "x509": object{"clientCAFile": "/etc/kubernetes/ca.crt"}},
		"authorization":      object{"mode": "Webhook"},
		"tlsCertFile":        "/etc/kubernetes/kubelet.crt",
		"tlsPrivateKeyFile":  "/etc/kubernetes/kubelet.key",
		"rotateCertificates": false,

		"containerRuntimeEndpoint":      "unix:///run/containerd/containerd.sock",
		"cgroupDriver":                  "cgroupfs",
		"cgroupRoot":                    "/" + n.spec.Cgroup,
		"failCgroupV1":                  false,
		"failSwapOn":                    false,
		"localStorageCapacityIsolation": false,
		"enforceNodeAllocatable":        []string{},
		"oomScoreAdj":                   0,
		"podPidsLimit":                  -1,
		"maxPods":                       110,
		"resolvConf":                    "/etc/resolv.conf",
		// There is no name service; without an address here each pod gets a warning event.
		"clusterDNS":    []string{"127.0.0.1"},
		"clusterDomain": "cluster.local",

		// The disk is the host's: a node on it must neither evict for its fullness nor collect images
		// that no registry could bring back.
		"evictionHard": object{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"imageGCHighThresholdPercent": 100,

		// Everything that makes tests wait is shorter than in production.
		"nodeStatusUpdateFrequency": "5s",
		"nodeStatusReportFrequency": "1m",
		"nodeLeaseDurationSeconds":  20,
		"syncFrequency":             "10s",
		"serializeImagePulls":       false,
		"registryPullQPS":           0,
		"kubeAPIQPS":                200,
		"kubeAPIBurst":              400,
		"eventRecordQPS":            0,
	}
	if len(n.options.Taints) > 0 {
		config["registerWithTaints"] = n.options.Taints
	}
	return config
}

func (n *realNode) proxyConfig() object {
	return object{
		"apiVersion":       "kubeproxy.config.k8s.io/v1alpha1",
		"kind":             "KubeProxyConfiguration",
		"mode":             "nftables",
		"clientConnection": object{"kubeconfig": "/etc/kubernetes/kube-proxy.conf"},
		"hostnameOverride": n.spec.Name,
		"clusterCIDR":      n.cluster.clusterCIDR(),
		"oomScoreAdj":      0,
		// These sysctls belong to the machine, not to a network namespace.
		"conntrack": object{"maxPerCore": 0, "min": 0},
	}
}

// cniConfig gives the node's pods a bridge. There is no masquerading: nodes and host have routes to
// each node's pods, so a pod is seen by its own address everywhere.
func (n *realNode) cniConfig() (string, error) {
	data, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0",
		"name":       "everynode-local",
		"plugins": []object{{
			"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
			"ipam": object{"type": "host-local", "ranges": [][]object{{{"subnet": n.cluster.podCIDR(n.spec.Index)}}}},
		}},
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("writing the network configuration: %w", err)
	}
	return string(data) + "\n", nil
}
