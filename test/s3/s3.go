// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package s3 runs versitygw, a server that is compatible with S3, on this machine for tests. It checks signatures as S3 does.
package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Credentials of the server, and its region.
const (
	AccessKeyID     = "AKIDEVERYNODETEST"
	SecretAccessKey = "a-secret-key-that-no-node-knows"
	Region          = "eu-central-1"
)

// Server is a server with one bucket.
type Server struct {
	// Endpoint is its URL.
	Endpoint string
	// Bucket is the name of the bucket.
	Bucket string

	client *http.Client
	cmd    *exec.Cmd
	log    bytes.Buffer
	ended  chan error
}

// Options say how a server is started.
type Options struct {
	// Root is the checkout, and Dir an empty folder for the program and its objects.
	Root, Dir string
	// Address is a host and a port that is free.
	Address string
	// Certificate and Key are files in PEM format, and CA the certificate that signs them; all empty for plain HTTP.
	Certificate, Key string
	CA               []byte
}

// Start builds and starts a server, and creates its bucket.
func Start(ctx context.Context, o Options) (*Server, error) {
	program := filepath.Join(o.Dir, "versitygw")
	build := exec.CommandContext(ctx, "go", "-C", filepath.Join(o.Root, "test", "s3", "versitygw"), "build", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building versitygw: %w\n%s", err, out)
	}
	s := &Server{Endpoint: "http://" + o.Address, Bucket: "outputs", client: &http.Client{}, ended: make(chan error, 1)}
	args := []string{o.Dir, o.Address}
	if o.Certificate != "" {
		args = append(args, o.Certificate, o.Key)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(o.CA)
		s.Endpoint = "https://" + o.Address
		s.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	}
	s.cmd = exec.Command(program, args...) // it outlives the start
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKeyID, "ROOT_SECRET_KEY="+SecretAccessKey, "VGW_REGION="+Region)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting versitygw: %w", err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	if err := s.createBucket(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// createBucket also waits until the server responds.
func (s *Server) createBucket(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		code, content, err := s.Do(ctx, http.MethodPut, "", nil)
		switch {
		case err == nil && code == http.StatusOK:
			return nil
		case err == nil:
			return fmt.Errorf("creating the bucket: %d %s", code, content)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case ended := <-s.ended:
			s.ended <- ended
			return fmt.Errorf("versitygw has ended: %w\n%s", ended, s.log.String())
		case <-ctx.Done():
			return fmt.Errorf("waiting for versitygw: %w", err)
		}
	}
}

// Stop ends the server.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	s.ended <- <-s.ended // for the next call
	return nil
}

// Do sends a request for an object of the bucket with the credentials, and returns the response.
func (s *Server) Do(ctx context.Context, method, key string, body []byte) (code int, content []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, s.Endpoint+"/"+s.Bucket+"/"+key, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if key == "" {
		request.URL.Path = "/" + s.Bucket
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	request.Header.Set("X-Amz-Content-Sha256", hash)
	credentials := aws.Credentials{AccessKeyID: AccessKeyID, SecretAccessKey: SecretAccessKey}
	if err := v4.NewSigner().SignHTTP(ctx, credentials, request, hash, "s3", Region, time.Now()); err != nil {
		return 0, nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err = io.ReadAll(response.Body)
	return response.StatusCode, content, err
}
