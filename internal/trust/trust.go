// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trust decides which certificates an HTTP client of Everynode accepts.
package trust

import (
	"crypto/x509"
	"errors"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// ErrNoCertificate is returned for a text that has no certificate.
var ErrNoCertificate = errors.New("it contains no certificate in PEM format")

// Roots returns the certificates in ca, which sign those of servers. Without any, they are those of the system. The images of
// Everynode have none, so its programs use those that Mozilla trusts.
func Roots(ca []byte) (*x509.CertPool, error) {
	if len(ca) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return nil, ErrNoCertificate
		}
		return pool, nil
	}
	if pool, err := x509.SystemCertPool(); err == nil && !pool.Equal(x509.NewCertPool()) {
		return pool, nil
	}
	return mozilla()
}

// mozilla returns the certificates that Mozilla trusts.
func mozilla() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("reading the certificates of Mozilla: %w", err)
		}
		if root.Constraint == nil {
			pool.AddCert(certificate)
		} else {
			pool.AddCertWithConstraint(certificate, root.Constraint)
		}
	}
	return pool, nil
}
