// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func pod(name string) string {
	return map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}[name]
}

func TestFlags(t *testing.T) {
	tests := map[string]struct {
		args   []string
		getenv func(string) string
		want   []string // API server, hosts, cluster, namespace
		err    string
	}{
		"in a pod":           {nil, pod, []string{"https://[fd00::1]:443", "", "", "node-setup"}, ""},
		"another API server": {[]string{"--api-server=https://a.example"}, pod, []string{"https://a.example", "", "", "node-setup"}, ""},
		"all": {
			[]string{"--hosts=a.example,b.example:8443", "--cluster-name=c", "--default-namespace=team-a"},
			pod,
			[]string{"https://[fd00::1]:443", "a.example b.example:8443", "c", "team-a"},
			"",
		},
		"not in a pod":         {nil, func(string) string { return "" }, nil, "--api-server is empty, and this is not a pod"},
		"TLS and none":         {[]string{"--plain-http", "--tls-dir=/d"}, pod, nil, "--plain-http has no certificate"},
		"an invalid namespace": {[]string{"--default-namespace=A"}, pod, nil, "lower case"},
		"an argument":          {[]string{"x"}, pod, nil, `unexpected argument "x"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := parse(tt.args, tt.getenv)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(
				tt.want,
				[]string{f.APIServer, strings.Join(f.Hosts, " "), f.Cluster, f.Namespace},
			); err != nil ||
				diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestThePageIsServedWithTLSUntilTheProgramEnds serves it with the certificate that the program makes.
func TestThePageIsServedWithTLSUntilTheProgramEnds(t *testing.T) {
	f, err := parse([]string{"--api-server=https://127.0.0.1:1"}, pod)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the server
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, f, listener, slog.New(slog.DiscardHandler)) }()
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	} //nolint:gosec // it made its own certificate
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/": http.StatusOK, "/healthz": http.StatusOK, "/api/stream": http.StatusUnauthorized} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		_, _ = said.ReadFrom(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: answer %d: %s", path, answer.StatusCode, said.String())
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
