// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command labelnode is what a pod of the DaemonSet pattern runs in the benchmark: a task that does nothing, and then the
// label on its own node, with one request and the pod's service account. The kubectl of the pattern needs several requests,
// and an image of a shell and kubectl.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// account is the folder in which a pod has its service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

func main() {
	if err := label(); err != nil {
		fmt.Fprintln(os.Stderr, "labelling the node:", err)
		os.Exit(1)
	}
}

func label() error {
	token, tokenErr := os.ReadFile(filepath.Join(account, "token"))
	ca, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err := errors.Join(tokenErr, err); err != nil {
		return fmt.Errorf("reading the service account: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	patch := []byte(`{"metadata":{"labels":{"` + os.Getenv("LABEL") + `":"1"}}}`)
	request, err := http.NewRequest(http.MethodPatch, "https://"+server+"/api/v1/nodes/"+os.Getenv("NODE_NAME"), bytes.NewReader(patch))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	request.Header.Set("Content-Type", "application/merge-patch+json")
	request.Header.Set("User-Agent", "everynode-bench-labelnode/v1")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return err
}
