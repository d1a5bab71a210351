// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	rulesFile       = "../config/monitoring/rules.yaml"
	testsFile       = "alerts.yaml"
	troubleshooting = "../docs/troubleshooting.md"
	runbooks        = "https://github.com/everynode/everynode/blob/main/docs/troubleshooting.md#"
)

// ruleFile is a file of rules, as Prometheus reads it.
type ruleFile struct {
	Groups []struct{ Rules []rule }
}

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

func readRules(t *testing.T) []rule {
	t.Helper()
	var file ruleFile
	readYAML(t, rulesFile, &file)
	var found []rule
	for _, group := range file.Groups {
		found = append(found, group.Rules...)
	}
	if len(found) == 0 {
		t.Fatalf("%s has no rules", rulesFile)
	}
	return found
}

// promtool runs promtool without the service discoveries, which are most of what it compiles. go keeps the program in its cache.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"run", "-tags=remove_all_sd", "github.com/prometheus/prometheus/cmd/promtool"}, args...)
	if output, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, output)
	}
}

func TestPromtoolAcceptsTheRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rulesFile)
}

func TestAlertsFireAndResolve(t *testing.T) {
	promtool(t, "test", "rules", testsFile)
}

// TestEachAlertIsExpectedToFireAndNotToFire checks the tests of promtool.
func TestEachAlertIsExpectedToFireAndNotToFire(t *testing.T) {
	var tests struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	readYAML(t, testsFile, &tests)
	story := map[string]string{}
	for _, test := range tests.Tests {
		for _, expected := range test.AlertRuleTest {
			step := "quiet "
			if len(expected.ExpAlerts) > 0 {
				step = "fires "
			}
			story[expected.Alertname] += step
		}
	}
	for _, r := range readRules(t) {
		got, want := story[r.Alert], "quiet fires quiet "
		// When failed nodes stall the NodeJob, another alert fires instead.
		if r.Alert == "EverynodeNodesFailed" {
			want = "quiet fires "
		}
		if got != want {
			t.Errorf("the tests of %s are %q, want %q", r.Alert, got, want)
		}
	}
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range heading.FindAllStringSubmatch(string(content), -1) {
		found = append(found, strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return found
}

func TestEachAlertHasASectionInTheDocumentation(t *testing.T) {
	known := anchors(t, troubleshooting)
	for _, r := range readRules(t) {
		section, is := strings.CutPrefix(r.Annotations["runbook_url"], runbooks)
		if !is || !slices.Contains(known, section) || section != strings.ToLower(r.Alert) {
			t.Errorf("%s has no section: %s", r.Alert, r.Annotations["runbook_url"])
		}
	}
}

// number is the time at the end of an expression, in seconds.
var number = regexp.MustCompile(`> ([0-9]+)$`)

// TestThePageHasTheTableOfAlerts compares docs/monitoring.md with the rules. Each rule has its time in exactly one of the places where
// the chart sets it.
func TestThePageHasTheTableOfAlerts(t *testing.T) {
	content, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range readRules(t) {
		after := strings.TrimSuffix(r.For, "s")
		if r.For == "" {
			after = number.FindStringSubmatch(r.Expr)[1]
		}
		row := fmt.Sprintf(
			`(?m)^\| \[%s\]\(troubleshooting\.md#%s\) \| %s \| [^|]+ \| %s s \|$`,
			r.Alert,
			strings.ToLower(r.Alert),
			r.Labels["severity"],
			after,
		)
		if !regexp.MustCompile(row).Match(content) {
			t.Errorf("the page has no row %s", row)
		}
	}
}

// limits of annotations, before their templates are replaced.
var limits = map[string]int{"summary": 120, "description": 200, "runbook_url": 150}

func TestAnnotationsAreBounded(t *testing.T) {
	for _, r := range readRules(t) {
		if len(r.Annotations) != len(limits) {
			t.Errorf("%s has %d annotations, want %d", r.Alert, len(r.Annotations), len(limits))
		}
		for name, limit := range limits {
			if n := len(r.Annotations[name]); n == 0 || n > limit {
				t.Errorf("%s of %s has %d bytes, want 1 to %d", name, r.Alert, n, limit)
			}
		}
	}
}
