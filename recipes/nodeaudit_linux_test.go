// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"os"
	"strings"
	"testing"
)

const (
	goodConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
  anonymous:
    enabled: false
  webhook:
    enabled: true
authorization:
  mode: Webhook
readOnlyPort: 0
`
	badConfig = `{"kind":"KubeletConfiguration","authentication":{"anonymous":{"enabled":true},"webhook":{"enabled":false}},
"authorization":{"mode":"AlwaysAllow"},"readOnlyPort":10255,"rotateCertificates":false,"streamingConnectionIdleTimeout":"0"}
`
)

// TestNodeAudit finds what is wrong with a node, and changes nothing.
func TestNodeAudit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: files of root and of another user")
	}
	kubelet := func(arguments ...string) func(r *root) {
		return func(r *root) {
			r.write("proc/9/cmdline", strings.Join(append([]string{"/usr/bin/kubelet"}, arguments...), "\x00")+"\x00")
		}
	}
	for name, tt := range map[string]struct {
		prepare func(r *root)
		want    string
	}{
		"everything is in order": {func(*root) {}, "none"},
		"a configuration in JSON": {
			func(r *root) { r.write("etc/kubernetes/kubelet.yaml", badConfig) },
			"kubelet-anonymous kubelet-authorization kubelet-read-only-port kubelet-streaming-timeout kubelet-rotate-certificates",
		},
		"flags override the configuration": {
			func(r *root) {
				kubelet("--config", r.dir+"/etc/kubernetes/kubelet.yaml", "--anonymous-auth", "--read-only-port=1")(r)
			},
			"kubelet-anonymous kubelet-read-only-port",
		},
		"without a configuration, other defaults apply": {kubelet(), "kubelet-anonymous kubelet-authorization kubelet-read-only-port"},
		"a file that others may read":                   {func(r *root) { _ = os.Chmod(r.dir+"/etc/shadow", 0o644) }, "shadow"},
		"a file of another user":                        {func(r *root) { _ = os.Chown(r.dir+"/etc/kubernetes/kubelet.yaml", 1, 0) }, "kubelet-config"},
		"a kernel setting":                              {func(r *root) { r.write("proc/sys/kernel/randomize_va_space", "0\n") }, "kernel-aslr"},
		"SSH as root":                                   {func(r *root) { r.write("etc/ssh/sshd_config.d/x.conf", "permitrootlogin yes\n") }, "ssh-root-login"},
		"a rule that does not count": {
			func(r *root) {
				r.env["SKIP"] = "kernel-aslr other"
				r.write("proc/sys/kernel/randomize_va_space", "0\n")
			}, "none",
		},
		"a node without a kubelet": {func(r *root) { _ = os.RemoveAll(r.dir + "/proc/9") }, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoot(t, "node-audit.yaml", "/proc/", "/etc/", "/var/lib/kubelet")
			r.write("etc/kubernetes/kubelet.yaml", goodConfig)
			r.write("etc/shadow", "")
			r.write("etc/ssh/sshd_config", "# PermitRootLogin yes\nPermitRootLogin prohibit-password\n")
			r.write("proc/sys/kernel/randomize_va_space", "2\n")
			r.write("proc/9/comm", "kubelet\n")
			r.write("proc/9/status", "Uid:\t0\t0\t0\t0\n")
			_ = os.Chmod(r.dir+"/etc/shadow", 0o640)
			kubelet("--config=" + r.dir + "/etc/kubernetes/kubelet.yaml")(r)
			tt.prepare(r)
			results := r.succeeds(r.job.Spec.Task.Script)
			if results["findings"] != tt.want {
				t.Errorf("it finds %q, want %q", results["findings"], tt.want)
			}
			r.env["FINDINGS_EXIT"] = "1"
			if code, _, out := r.run(r.job.Spec.Task.Script); (code == 1) != (tt.want != "none") {
				t.Errorf("as a check, it ends with %d: %s", code, out)
			}
		})
	}
}
