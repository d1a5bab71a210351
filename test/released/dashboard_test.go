// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package released_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/test/install"
)

// forwarding is what kubectl says when it forwards a port.
var forwarding = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+)`)

// TestTheDashboardRunsInTheCluster installs the dashboard in a namespace with the Pod Security level restricted, and reads the nodes
// with the token of a service account.
func TestTheDashboardRunsInTheCluster(t *testing.T) {
	u := newUser(t)
	u.kubectl("create namespace " + install.Namespace)
	u.kubectl("label namespace " + install.Namespace + " pod-security.kubernetes.io/enforce=restricted app.kubernetes.io/name=everynode")
	u.helm("install everynode " + chart(site.old) + " --set dashboard.enabled=true --wait")
	u.kubectl("create namespace node-setup")
	u.kubectl("-n node-setup create serviceaccount viewer")
	u.kubectl("create clusterrolebinding viewer-all --clusterrole=everynode-view-all --serviceaccount=node-setup:viewer")
	u.kubectl("create clusterrolebinding viewer-nodes --clusterrole=everynode-view-nodes --serviceaccount=node-setup:viewer")
	t.Cleanup(func() { u.kubectl("delete clusterrolebinding viewer-nodes --ignore-not-found") })
	token := strings.TrimSpace(u.kubectl("-n node-setup create token viewer"))

	address := u.forward("service/everynode-dashboard", "443")
	client := &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	} //nolint:gosec // the dashboard made its own certificate
	t.Cleanup(client.CloseIdleConnections)
	u.eventually("the dashboard shows the nodes", func() error {
		r, err := http.NewRequestWithContext(u.ctx, http.MethodGet, "https://"+address+"/api/stream?since=0", nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		said := ""
		for lines := bufio.NewReader(answer.Body); !strings.Contains(said, `"node:node-2"`); {
			line, err := lines.ReadString('\n')
			if said += line; err != nil {
				return fmt.Errorf("answer %d: %s: %w", answer.StatusCode, said, err)
			}
		}
		return nil
	})
	if mounted := u.kubectl(
		"-n " + install.Namespace + " get pods -l app.kubernetes.io/component=dashboard -o jsonpath={.items[*].spec.volumes[*].projected}",
	); mounted != "" {
		t.Errorf("the pod has a token: %s", mounted)
	}
	if log := u.kubectl(
		"-n " + install.Namespace + " logs deployment/everynode-dashboard",
	); strings.Contains(log, token) ||
		!strings.Contains(log, `"msg":"starting"`) {
		t.Errorf("the log is %s", log)
	}
	u.uninstallWithNamespace()
}

// forward forwards a free port of this machine to a Service until the test ends, and returns its address.
func (u *user) forward(service, port string) string {
	u.t.Helper()
	cmd := exec.CommandContext(u.ctx, site.cluster.Kubectl(), "-n", install.Namespace, "port-forward", service, ":"+port)
	cmd.Env = site.cluster.Environ(u.plugin.Bin)
	out, err := cmd.StdoutPipe()
	u.must("", err)
	u.must("", cmd.Start())
	u.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, _ := bufio.NewReader(out).ReadString('\n')
	match := forwarding.FindStringSubmatch(line)
	if match == nil {
		u.t.Fatal(errors.New("kubectl port-forward says: " + line))
	}
	return "127.0.0.1:" + match[1]
}
