// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	checker := requirements.New(oneBudget{NodeDisruptionBudget: b}, nil, registry, time.Now)
	is := func(want string, matchers ...string) {
		t.Helper()
		b.Spec.Requires = []v1alpha1.BudgetRequirement{{Name: "a", Alerts: &v1alpha1.RequiredAlerts{URL: url, Matchers: matchers}}}
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
	is("Invalid Unknown: the Alertmanager rejects the request: bad matcher format", "severity")

	post("silences", fmt.Sprintf(`{"matchers": [{"name": "zone", "value": "a", "isRegex": false}], "startsAt": %q, "endsAt": %q,
		"createdBy": "x", "comment": "y"}`, at(0), at(time.Hour)))
	is("Met", "severity=critical")
	post("alerts", `[{"labels": {"alertname": "Flood", "severity": "critical", "zone": "b"}}]`)
	is("NotMet: 1 alert is active: Flood", "severity=critical")
	post("alerts", fmt.Sprintf(`[{"labels": {"alertname": "Flood", "severity": "critical", "zone": "b"}, "startsAt": %q, "endsAt": %q}]`,
		at(-time.Minute), at(-time.Second)))
	is("Met", "severity=critical")
	stop()
	is("Unknown: dial tcp", "severity=critical")
}

// startAlertmanager runs the program of the module monitoring until stop is called.
func startAlertmanager(t *testing.T) (url string, stop func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "alertmanager")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./alertmanager")
	build.Dir = filepath.Join("..", "..", "monitoring")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building it: %v: %s", err, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	stop = func() { cancel(); _ = cmd.Wait() } // it is killed, which is an error
	t.Cleanup(stop)
	url, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(url), stop
}
