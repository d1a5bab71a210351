// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// certificateInterval is the time after which the files of a certificate are read again, because they may have been renewed.
const certificateInterval = time.Minute

// certificate is the certificate of the server.
type certificate struct {
	dir string
	now func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	read    time.Time
}

// newCertificate reads tls.crt and tls.key in a folder. Without a folder, it makes a certificate that lasts as long as the
// program.
func newCertificate(dir string, now func() time.Time) (*certificate, error) {
	c := &certificate{dir: dir, now: now}
	if dir != "" {
		return c, c.load()
	}
	const service = "everynode-dashboard.everynode-system"
	content, private, err := cert.GenerateSelfSignedCertKey("everynode-dashboard", []net.IP{net.IPv4(127, 0, 0, 1)}, []string{service, service + ".svc", "localhost"})
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	own, err := tls.X509KeyPair(content, private)
	c.current = &own
	return c, err
}

func (c *certificate) load() error {
	loaded, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "tls.crt"), filepath.Join(c.dir, "tls.key"))
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	c.current, c.read = &loaded, c.now()
	return nil
}

// get implements tls.Config.GetCertificate. If a renewed certificate cannot be read, the last one is used.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir != "" && c.now().Sub(c.read) >= certificateInterval {
		c.read = c.now()
		_ = c.load()
	}
	return c.current, nil
}
