// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificate authorities: files <name>.crt and <name>.key.
const (
	clusterCA    = "ca"
	frontProxyCA = "front-proxy-ca"
	// etcd has one of its own: any certificate of the cluster's would open the database to each node.
	etcdCA = "etcd-ca"
)

// serviceAccountKey signs the tokens of service accounts.
const serviceAccountKey = "sa"

// Every process of the cluster has a certificate in its own name, as in a production cluster, so
// that RBAC and the node authorizer decide about real identities.
type certificate struct {
	file, authority string
	name            string
	groups          []string
	addresses       []net.IP
	hosts           []string
	server          bool
}

// The clocks of tests may be anywhere near now; a local cluster lives for hours, not for years.
const (
	certificateLead = time.Hour
	certificateLife = 5 * 365 * 24 * time.Hour
)

// pki is the folder with the authorities of a cluster, and the certificates of its control plane.
type pki string

func (p pki) file(name string) string { return filepath.Join(string(p), name) }

// create makes the authorities and the certificates of the control plane. The API server has the address.
func (p pki) create(address string) error {
	if err := os.MkdirAll(string(p), 0o700); err != nil {
		return fmt.Errorf("making the certificates: %w", err)
	}
	for _, name := range []string{clusterCA, frontProxyCA, etcdCA} {
		if err := p.makeAuthority(name); err != nil {
			return err
		}
	}
	key, err := newKey(p.file(serviceAccountKey + ".key"))
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("making the service account key: %w", err)
	}
	if err := writePEM(p.file(serviceAccountKey+".pub"), "PUBLIC KEY", public, 0o644); err != nil {
		return err
	}
	loopback := net.IPv4(127, 0, 0, 1)
	for _, cert := range []certificate{
		{
			file: "apiserver", authority: clusterCA, name: "kube-apiserver", server: true,
			addresses: []net.IP{loopback, net.ParseIP(address), net.ParseIP(kubernetesServiceIP)},
			hosts: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			},
		},
		{file: "apiserver-kubelet-client", authority: clusterCA, name: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
		{file: "apiserver-etcd-client", authority: etcdCA, name: "kube-apiserver-etcd-client"},
		{file: "etcd", authority: etcdCA, name: "etcd", addresses: []net.IP{loopback}, hosts: []string{"localhost"}, server: true},
		{file: "front-proxy-client", authority: frontProxyCA, name: "front-proxy-client"},
		{file: "admin", authority: clusterCA, name: "kubernetes-admin", groups: []string{"system:masters"}},
		{file: "controller-manager", authority: clusterCA, name: "system:kube-controller-manager"},
		{file: "scheduler", authority: clusterCA, name: "system:kube-scheduler"},
		{file: "kube-proxy", authority: clusterCA, name: "system:kube-proxy"},
		// kwok plays the kubelets of all simulated nodes, which no single node's rights cover. It is in their group, so that
		// admission policies treat it as a kubelet.
		{file: "kwok", authority: clusterCA, name: "everynode-local:kwok", groups: []string{"system:masters", "system:nodes"}},
	} {
		if err := p.issue(string(p), cert); err != nil {
			return err
		}
	}
	return nil
}

func (p pki) makeAuthority(name string) error {
	key, err := newKey(p.file(name + ".key"))
	if err != nil {
		return err
	}
	template := template(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("making the authority %s: %w", name, err)
	}
	return writePEM(p.file(name+".crt"), "CERTIFICATE", der, 0o644)
}

// issue makes a key and a certificate <file>.crt and <file>.key in a folder.
func (p pki) issue(dir string, cert certificate) error {
	authority, err := tls.LoadX509KeyPair(p.file(cert.authority+".crt"), p.file(cert.authority+".key"))
	if err != nil {
		return fmt.Errorf("reading the authority %s: %w", cert.authority, err)
	}
	key, err := newKey(filepath.Join(dir, cert.file+".key"))
	if err != nil {
		return err
	}
	template := template(cert.name, cert.groups...)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if cert.server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	template.IPAddresses, template.DNSNames = cert.addresses, cert.hosts
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		return fmt.Errorf("making the certificate %s: %w", cert.file, err)
	}
	return writePEM(filepath.Join(dir, cert.file+".crt"), "CERTIFICATE", der, 0o644)
}

func template(name string, groups ...string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // fails only without randomness
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: now.Add(-certificateLead), NotAfter: now.Add(certificateLife),
	}
}

func newKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return key, writePEM(file, "EC PRIVATE KEY", der, 0o600)
}

func writePEM(file, kind string, der []byte, mode os.FileMode) error {
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(file, data, mode); err != nil {
		return fmt.Errorf("writing a key or certificate: %w", err)
	}
	return nil
}
