// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// registry is a registry on the machine, with a certificate of an authority of its own. It holds one image
// under every name.
type registry struct {
	w       *world
	address string
	// ca is the certificate of the authority.
	ca string

	image  v1.Image
	mu     sync.Mutex
	served []string
}

// registry starts a registry that only the nodes of the cluster can reach: at the address of its API server.
func (w *world) registry() *registry {
	w.T.Helper()
	config, err := real.RESTConfig()
	must(w.T, err)
	server, err := url.Parse(config.Host)
	must(w.T, err)
	listener, err := net.Listen("tcp", net.JoinHostPort(server.Hostname(), "0"))
	must(w.T, err)
	r := &registry{w: w, address: listener.Addr().String()}
	// An image that no node has: containerd would not ask for what it has.
	file, err := images.Runner.ConfigFile()
	must(w.T, err)
	file = file.DeepCopy()
	file.Config.Labels = map[string]string{"registry": r.address}
	r.image, err = mutate.ConfigFile(images.Runner, file)
	must(w.T, err)
	certificate, ca := authority(w.T, net.ParseIP(server.Hostname()))
	r.ca = ca
	https := httptest.NewUnstartedServer(r)
	https.Config.ErrorLog = log.New(io.Discard, "", 0) // nodes that do not trust it are part of the tests
	https.Listener.Close()
	https.Listener = listener
	https.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	https.StartTLS()
	w.T.Cleanup(https.Close)
	return r
}

// authority makes a CA, and a certificate for an address that it has signed.
func authority(t *testing.T, address net.IP) (server tls.Certificate, caPEM string) {
	t.Helper()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			BasicConstraintsValid: true,
		}
	}
	sign := func(cert, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, by)
		must(t, err)
		return der
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := template(time.Now().UnixNano(), "a test of Everynode")
	ca.IsCA, ca.KeyUsage = true, x509.KeyUsageCertSign
	leaf := template(2, address.String())
	leaf.IPAddresses, leaf.ExtKeyUsage = []net.IP{address}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	caPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sign(ca, ca, caKey, caKey)}))
	return tls.Certificate{Certificate: [][]byte{sign(leaf, ca, key, caKey)}, PrivateKey: key}, caPEM
}

// ServeHTTP is as much of the distribution protocol as a pull needs.
func (r *registry) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	r.served = append(r.served, request.URL.Path)
	r.mu.Unlock()
	path := strings.TrimSuffix(request.URL.Path, "/")
	parts := strings.Split(path, "/")
	var body []byte
	var err error
	switch {
	case path == "/v2":
	case len(parts) > 3 && parts[len(parts)-2] == "manifests":
		var digest v1.Hash
		if digest, err = r.image.Digest(); err == nil {
			response.Header().Set("Docker-Content-Digest", digest.String())
			response.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
			body, err = r.image.RawManifest()
		}
	case len(parts) > 3 && parts[len(parts)-2] == "blobs":
		response.Header().Set("Content-Type", "application/octet-stream")
		body, err = r.blob(parts[len(parts)-1])
	default:
		err = errors.New("no such path")
	}
	if err != nil {
		http.Error(response, err.Error(), http.StatusNotFound)
		return
	}
	response.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = response.Write(body) // an error means that the client has disconnected
}

func (r *registry) blob(digest string) ([]byte, error) {
	if config, err := r.image.ConfigName(); err == nil && config.String() == digest {
		return r.image.RawConfigFile()
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, err
	}
	layer, err := r.image.LayerByDigest(hash)
	if err != nil {
		return nil, err
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	return io.ReadAll(content)
}

func (r *registry) wantServed(path string) {
	r.w.T.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.served, path) {
		r.w.T.Errorf("the registry was not asked for %s, but for %q", path, r.served)
	}
}

// pull makes a pod whose image the node has to pull.
func (w *world) pull(node, image string) *corev1.Pod {
	w.T.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("pull-%d", serial.Add(1))},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "x", Image: image, Args: []string{"--version"}}},
		},
	}
	must(w.T, admin.Create(w.Ctx, pod))
	return pod
}

// pulled waits until the image was pulled and has run.
func (w *world) pulled(pod *corev1.Pod) {
	w.T.Helper()
	w.Eventually(pod.Spec.Containers[0].Image+" is pulled and runs", func() error {
		must(w.T, admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), pod))
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("the pod is %+v", pod.Status)
		}
		return nil
	})
}

// notPulled waits until the pull has failed with these words, and ends the attempts.
func (w *world) notPulled(pod *corev1.Pod, words string) {
	w.T.Helper()
	w.Eventually(pod.Spec.Containers[0].Image+" cannot be pulled: "+words, func() error {
		must(w.T, admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), pod))
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil && strings.Contains(c.State.Waiting.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("the pod is %+v", pod.Status)
	})
	must(w.T, admin.Delete(w.Ctx, pod))
}
