// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/uninstall"
)

// TestRequiresWithPrometheus has all programs between a metric and a budget: the manager, whose metrics Prometheus scrapes, Prometheus with
// the rules of config/monitoring, and an Alertmanager, which the manager asks. While one budget is Stalled, an alert closes another one.
func TestRequiresWithPrometheus(t *testing.T) {
	b := newBudgeted(t, "n0")
	alertmanager, _ := startAlertmanager(t)
	startPrometheus(t, b, b.startProgramOfManager(), alertmanager)
	b.budget("careful", func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
		spec.Requirements = []v1alpha1.BudgetRequirement{{Name: "calm", Alerts: &v1alpha1.RequiredAlerts{
			URL: alertmanager, Matchers: []string{"severity=~warning|critical", "nodedisruptionbudget=broken"},
		}}}
	})
	b.says("careful", v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen, "1 disruption may begin")
	b.granting(1)

	b.budget("broken", func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"no-node": "has"}}
		spec.Requirements = []v1alpha1.BudgetRequirement{{Name: "invalid", Alerts: &v1alpha1.RequiredAlerts{
			URL: alertmanager, Matchers: []string{"severity"},
		}}}
	})
	b.says("broken", v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidSpec, "the Alertmanager rejects alerts.matchers")
	b.says(
		"careful",
		v1alpha1.ConditionReady,
		v1alpha1.ReasonRequirementNotMet,
		"requirement calm is not met (1 alert is active: EverynodeBudgetStalled)",
	)
	b.granting(0)

	must(t, b.kubectl(`patch nodedisruptionbudget broken --type=json -p [{"op":"remove","path":"/spec/requirements"}]`))
	b.says("careful", v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen, "1 disruption may begin")
	b.granting(1)
}

// startProgramOfManager runs cmd/everynode as the service account of the manager, and returns the address of its metrics. For it, a node is
// never joining, and it is available as soon as it is Ready.
func (b *budgeted) startProgramOfManager() (metrics string) {
	b.T.Helper()
	metrics = freeAddress(b.T)
	b.startManagerProcess("--metrics-bind-address="+metrics, "--budget-joining-time=1ns", "--budget-settle-time=1ns",
		"--requirements-allowed-addresses=127.0.0.1")
	return metrics
}

// startManagerProcess runs cmd/everynode with flags, as the service account of the manager and with the memory settings of config/manager.
func (b *budgeted) startManagerProcess(flags ...string) (stop func(), pid int) {
	b.T.Helper()
	user, err := b.env.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + uninstall.Namespace + ":" + uninstall.Manager,
		Groups: []string{"system:serviceaccounts"},
	}, nil)
	must(b.T, err)
	kubeconfig, err := user.KubeConfig()
	must(b.T, err)
	file := filepath.Join(b.T.TempDir(), "kubeconfig")
	must(b.T, os.WriteFile(file, kubeconfig, 0o600))
	cmd := exec.Command(buildProgram(b.T, ".", "./cmd/everynode"), append([]string{
		"--runner-image=registry.test/runner:1",
		"--health-probe-bind-address=0",
		fmt.Sprintf("--require-policies=%t", policiesServed),
		"--metrics-bind-address=0",
	}, flags...)...)
	cmd.Env = append(
		os.Environ(),
		"KUBECONFIG="+file,
		"POD_NAMESPACE="+uninstall.Namespace,
		"POD_NAME=manager",
		"GOMEMLIMIT=320MiB",
		"GOGC=200",
	)
	stop = startProgram(b.T, cmd)
	return stop, cmd.Process.Pid
}

// startPrometheus runs Prometheus, which scrapes the manager and evaluates the rules of config/monitoring each second. Only the alert of a
// Stalled budget fires as early.
func startPrometheus(t *testing.T, b *budgeted, manager, alertmanager string) {
	t.Helper()
	must(t, b.kubectl("create serviceaccount prometheus -n default"))
	must(t, b.kubectl("create clusterrolebinding prometheus --clusterrole=everynode-metrics-reader --serviceaccount=default:prometheus"))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prometheus"}}
	rules, err := os.ReadFile("../../config/monitoring/rules.yaml")
	must(t, err)
	before, after, found := strings.Cut(string(rules), "alert: EverynodeBudgetStalled\n")
	if !found || !strings.Contains(after, " for: 300s\n") {
		t.Fatal("config/monitoring/rules.yaml does not have EverynodeBudgetStalled with for: 300s")
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"token":      requestToken(t, b.admin, account),
		"rules.yaml": before + "alert: EverynodeBudgetStalled\n" + strings.Replace(after, " for: 300s\n", " for: 1s\n", 1),
		"prometheus.yaml": fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
- job_name: everynode
  scheme: https
  authorization: {credentials_file: token}
  tls_config: {insecure_skip_verify: true}
  honor_labels: true
  static_configs: [{targets: [%q]}]
alerting:
  alertmanagers: [{static_configs: [{targets: [%q]}]}]
`, manager, strings.TrimPrefix(alertmanager, "http://")),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	// Without the service discoveries, which are most of what is compiled. The test asks Prometheus nothing, so its address may be any.
	startProgram(t, exec.Command(
		buildProgram(t, "monitoring", "github.com/prometheus/prometheus/cmd/prometheus", "-tags=remove_all_sd"),
		"--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--rules.alert.resend-delay=1s"))
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	return listener.Addr().String()
}
