// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/requirements"
)

// oneBudget reads a NodeDisruptionBudget.
type oneBudget struct {
	client.Reader
	*v1alpha1.NodeDisruptionBudget
}

func (r oneBudget) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.DeepCopyInto(o.(*v1alpha1.NodeDisruptionBudget))
	return nil
}

// TestRequirementsOfAnAlertmanager : alerts that fire, end and are silenced, matchers, and the end of the Alertmanager, with the API of
// Alertmanager itself.
func TestRequirementsOfAnAlertmanager(t *testing.T) {
	url, stop := startAlertmanager(t)
	b := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "u", Generation: 1}}
	registry := claims.New()
	allowed, err := requirements.ParseAddresses("127.0.0.1")
	must(t, err)
	checker, err := requirements.New(oneBudget{NodeDisruptionBudget: b}, asManager, admin, allowed, registry, time.Now)
	must(t, err)
	is := func(want string, matchers ...string) {
		t.Helper()
		b.Spec.Requirements = []v1alpha1.BudgetRequirement{{Name: "a", Alerts: &v1alpha1.RequiredAlerts{URL: url, Matchers: matchers}}}
		_, err := checker.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		must(t, err)
		a := registry.AnswersOf("b").Of[0]
		got := strings.TrimSuffix(fmt.Sprintf("%s: %s", a.State, a.Message), ": ")
		if a.Invalid {
			got = "Invalid " + got
		}
		if !strings.HasPrefix(got, want) || want == "Met" && got != want {
			t.Errorf("with %q, the answer is %q, want %q", matchers, got, want)
		}
	}
	post := func(path, body string) {
		t.Helper()
		response, err := http.Post(url+"/api/v2/"+path, "application/json", strings.NewReader(body))
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusOK {
			t.Fatalf("POST %s: %s", path, response.Status)
		}
	}
	at := func(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339Nano) }

	is("Met", "severity=critical")
	post("alerts", `[{"labels": {"alertname": "Fire", "severity": "critical", "zone": "a"}}]`)
	is("NotMet: 1 alert is active: Fire", "severity=critical")
	is("NotMet: 1 alert is active: Fire", "severity=critical", `zone=~"a|b"`)
	is("Met", "severity=critical", "zone!=a") // all of them must match
	is("Met", "severity=warning")
	is("Invalid Unknown: the Alertmanager rejects alerts.matchers (400 Bad Request)", "severity")

	post("silences", fmt.Sprintf(`{"matchers": [{"name": "zone", "value": "a", "isRegex": false}], "startsAt": %q, "endsAt": %q,
		"createdBy": "x", "comment": "y"}`, at(0), at(time.Hour)))
	is("Met", "severity=critical")
	post("alerts", `[{"labels": {"alertname": "Flood", "severity": "critical", "zone": "b"}}]`)
	is("NotMet: 1 alert is active: Flood", "severity=critical")
	post("alerts", fmt.Sprintf(`[{"labels": {"alertname": "Flood", "severity": "critical", "zone": "b"}, "startsAt": %q, "endsAt": %q}]`,
		at(-time.Minute), at(-time.Second)))
	is("Met", "severity=critical")
	stop()
	is("Unknown: connection refused by alerts.url", "severity=critical")
}

// startAlertmanager runs the program of the module monitoring until stop is called.
func startAlertmanager(t *testing.T) (url string, stop func()) {
	t.Helper()
	cmd := exec.Command(buildProgram(t, "monitoring", "./alertmanager"))
	out, err := cmd.StdoutPipe()
	must(t, err)
	stop = startProgram(t, cmd)
	url, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(url), stop
}

// buildProgram builds a program from a folder of the repository that contains a module, and returns its path.
func buildProgram(t *testing.T, module, of string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(of))
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-o", program}, flags...), of)...)
	cmd.Dir = filepath.Join("..", "..", module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", of, err, out)
	}
	return program
}

// startProgram runs a program until stop is called, or the test ends. If the test fails, it prints what the program has written to stderr.
func startProgram(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stderr = &log
	must(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // that it was killed is an error
		if t.Failed() {
			t.Logf("%s:\n%s", cmd.Path, &log)
		}
	})
	t.Cleanup(stop)
	return stop
}
