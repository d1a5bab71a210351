// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"sync"
	"time"
)

const (
	serviceCIDR         = "10.96.0.0/16"
	kubernetesServiceIP = "10.96.0.1"
	simulatedSelector   = "kwok.x-k8s.io/node"
	// clientQPS is far above the stock limits (20/s): with these, 1,000 simulated nodes would take
	// minutes to become Ready instead of seconds.
	clientQPS, clientBurst = "500", "1000"
)

// The control plane's processes, in the order they start.
const (
	etcdName              = "etcd"
	apiServerName         = "kube-apiserver"
	controllerManagerName = "kube-controller-manager"
	schedulerName         = "kube-scheduler"
	kwokName              = "kwok"
)

var components = []string{etcdName, apiServerName, controllerManagerName, schedulerName, kwokName}

// controlPlane are the processes of the control plane, and kwok.
type controlPlane struct {
	*state
	// simulator is held while kwok is started.
	simulator sync.Mutex
}

// arguments returns a component's command line.
func (p *controlPlane) arguments(name string) []string {
	switch name {
	case etcdName:
		return p.etcdArguments()
	case apiServerName:
		return p.apiServerArguments()
	case controllerManagerName:
		return p.controllerManagerArguments()
	case schedulerName:
		return []string{
			"--kubeconfig=" + p.path("scheduler.kubeconfig"),
			"--leader-elect=false", "--secure-port=0",
			"--kube-api-qps=" + clientQPS, "--kube-api-burst=" + clientBurst,
		}
	case kwokName:
		return []string{
			"--kubeconfig=" + p.path("kwok.kubeconfig"),
			"--config=" + p.path("kwok.yaml"),
			// The selector excludes real nodes. Without it, kwok would report for them too.
			"--manage-all-nodes=false",
			"--manage-nodes-with-annotation-selector=" + simulatedSelector + "=fake",
			fmt.Sprintf("--node-lease-duration-seconds=%.0f", p.Lease.Seconds()),
			"--node-ip=198.51.100.1", "--cidr=198.18.0.0/15",
			fmt.Sprintf("--server-address=127.0.0.1:%d", p.KwokPort),
		}
	}
	return nil
}

func (p *controlPlane) etcdArguments() []string {
	pki := p.pki().file
	client := fmt.Sprintf("https://127.0.0.1:%d", p.EtcdPort)
	peer := fmt.Sprintf("https://127.0.0.1:%d", p.EtcdPeerPort)
	return []string{
		"--name=local", "--data-dir=" + p.path("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=local=" + peer,
		"--client-cert-auth", "--trusted-ca-file=" + pki(etcdCA+".crt"),
		"--cert-file=" + pki("etcd.crt"), "--key-file=" + pki("etcd.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + pki(etcdCA+".crt"),
		"--peer-cert-file=" + pki("etcd.crt"), "--peer-key-file=" + pki("etcd.key"),
		// The data is not needed after a power cut, so etcd does not wait for the disk.
		"--unsafe-no-fsync", "--log-level=warn", "--quota-backend-bytes=8589934592",
	}
}

func (p *controlPlane) apiServerArguments() []string {
	pki := p.pki().file
	args := []string{
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", p.EtcdPort),
		"--etcd-cafile=" + pki(etcdCA+".crt"),
		"--etcd-certfile=" + pki("apiserver-etcd-client.crt"), "--etcd-keyfile=" + pki("apiserver-etcd-client.key"),
		fmt.Sprintf("--secure-port=%d", p.APIPort), "--bind-address=" + p.apiAddress(),
		"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki(clusterCA+".crt"),
		"--kubelet-certificate-authority=" + pki(clusterCA+".crt"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--requestheader-client-ca-file=" + pki(frontProxyCA+".crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"), "--proxy-client-key-file=" + pki("front-proxy-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki(serviceAccountKey+".pub"),
		"--service-account-signing-key-file=" + pki(serviceAccountKey+".key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--service-cluster-ip-range=" + serviceCIDR,
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
	}
	if p.Real {
		args = append(args, "--advertise-address="+p.apiAddress())
	} else {
		// A loopback address may not be a service's endpoint, and no pod is there to use it.
		args = append(args, "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none")
	}
	if p.AuditPolicy != "" {
		args = append(args, "--audit-policy-file="+p.path("audit-policy.yaml"), "--audit-log-path="+p.auditLog(),
			"--audit-log-mode=batch", "--audit-log-batch-max-wait=1s")
	}
	return args
}

func (p *controlPlane) controllerManagerArguments() []string {
	pki := p.pki().file
	return []string{
		"--kubeconfig=" + p.path("controller-manager.kubeconfig"),
		"--leader-elect=false", "--secure-port=0",
		"--root-ca-file=" + pki(clusterCA+".crt"),
		"--cluster-signing-cert-file=" + pki(clusterCA+".crt"), "--cluster-signing-key-file=" + pki(clusterCA+".key"),
		"--service-account-private-key-file=" + pki(serviceAccountKey+".key"),
		"--use-service-account-credentials=true",
		"--allocate-node-cidrs=false", "--service-cluster-ip-range=" + serviceCIDR,
		"--node-monitor-period=" + p.MonitorPeriod.String(), "--node-monitor-grace-period=" + p.MonitorGrace.Round(time.Second).String(),
		"--node-startup-grace-period=" + max(time.Minute, p.MonitorGrace).Round(time.Second).String(),
		"--kube-api-qps=" + clientQPS, "--kube-api-burst=" + clientBurst,
	}
}

// auditMetadataPolicy excludes reads of the control plane itself: they are most of the traffic and irrelevant for
// audits.
const auditMetadataPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*"]
- level: None
  users: ["system:apiserver"]
- level: Metadata
`
