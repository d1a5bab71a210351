// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// metric is a metric of the pages about metrics: its labels, and the values of those that have a fixed set.
type metric map[string][]string

var (
	rowOfPage = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([^|]*)\\| (.*) \\|$")
	label     = regexp.MustCompile("`([a-z_]+)`(?: \\(([^)]*)\\))?")
	value     = regexp.MustCompile("`([A-Za-z_-]+)`")
	suffix    = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// documented returns the metrics of the pages. internal/docs compares them with what the manager registers.
func documented(t *testing.T) map[string]metric {
	t.Helper()
	found := map[string]metric{}
	for _, page := range []string{"../docs/reference/metrics.md", "../docs/metrics.md"} {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rowOfPage.FindAllStringSubmatch(string(content), -1) {
			found[row[1]] = labelsIn(row[2], strings.HasPrefix(strings.ToLower(row[3]), "histogram"))
		}
	}
	found["everynode_nodejob_status_reason"]["reason"] = reasonsIn(
		t,
		"../docs/status.md",
		`(?m)^\| (`+"`[A-Za-z`, ]+`"+`) \| (?:True|False|Unknown) \|`,
		20,
	)
	found["everynode_budget_status_reason"]["reason"] = reasonsIn(
		t,
		"../docs/nodedisruptionbudget.md",
		`(?m)^\| (`+"`[A-Za-z`, ]+`"+`) \| `+"`(?:Ready|Reconciling|Stalled)`",
		12,
	)
	if len(found) < 20 {
		t.Fatalf("only %d metrics were found", len(found))
	}
	return found
}

// labelsIn returns the labels in a text, and those that Prometheus adds.
func labelsIn(text string, histogram bool) metric {
	m := metric{"job": nil, "instance": nil}
	for _, l := range label.FindAllStringSubmatch(text, -1) {
		m[l[1]] = submatches(value, l[2])
	}
	if histogram {
		m["le"] = nil
	}
	return m
}

// reasonsIn returns the reasons in the rows of a table in a page, of which each can have several.
func reasonsIn(t *testing.T, page, row string, atLeast int) []string {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range regexp.MustCompile(row).FindAllStringSubmatch(string(content), -1) {
		found = append(found, submatches(value, match[1])...)
	}
	if len(found) < atLeast {
		t.Fatalf("only %d reasons were found in %s", len(found), page)
	}
	return found
}

func submatches(pattern *regexp.Regexp, text string) []string {
	var found []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// problemsOf returns the metrics, labels and values in an expression that the documentation does not have.
func problemsOf(known map[string]metric, expression string) []string {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	all := metric{}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			m, exists := known[selector.Name]
			if !exists {
				m, exists = known[suffix.ReplaceAllString(selector.Name, "")]
			}
			if !exists {
				problems = append(problems, "no metric "+selector.Name)
				return nil
			}
			for name := range m {
				all[name] = nil
			}
			problems = append(problems, m.problemsOf(selector)...)
		}
		return nil
	})
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		var names []string
		switch n := node.(type) {
		case *parser.AggregateExpr:
			names = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include)
			}
		}
		for _, name := range names {
			if _, exists := all[name]; !exists {
				problems = append(problems, "no metric has the label "+name)
			}
		}
		return nil
	})
	return problems
}

func (m metric) problemsOf(selector *parser.VectorSelector) []string {
	var problems []string
	for _, matcher := range selector.LabelMatchers {
		values, exists := m[matcher.Name]
		switch {
		case matcher.Name == "__name__":
		case !exists:
			problems = append(problems, fmt.Sprintf("%s has no label %s", selector.Name, matcher.Name))
		case values != nil && !strings.Contains(matcher.Value, "$"):
			for v := range strings.SplitSeq(matcher.Value, "|") {
				if !slices.Contains(values, v) {
					problems = append(problems, fmt.Sprintf("%s has no %s=%q", selector.Name, matcher.Name, v))
				}
			}
		}
	}
	return problems
}

func TestAlertsUseMetricsOfTheManager(t *testing.T) {
	known := documented(t)
	for _, r := range readRules(t) {
		for _, problem := range problemsOf(known, r.Expr) {
			t.Errorf("%s: %s", r.Alert, problem)
		}
	}
}

func TestProblemsOfExpressionsAreFound(t *testing.T) {
	known := documented(t)
	tests := map[string]struct{ expression, want string }{
		"a renamed metric": {`everynode_nodejobs_stalled > 0`, "no metric everynode_nodejobs_stalled"},
		"a label of others": {
			`everynode_pending_pod_releases{namespace="a"}`,
			"everynode_pending_pod_releases has no label namespace",
		},
		"a value that is unused": {`everynode_nodejob_nodes{state=~"done|lost"}`, `everynode_nodejob_nodes has no state="lost"`},
		"a grouping label":       {`sum by (node) (everynode_nodejob_nodes)`, "no metric has the label node"},
		"a label that matches":   {`everynode_nodejob_stalled and on (node) everynode_nodejob_nodes`, "no metric has the label node"},
		"a reason that is none": {
			`everynode_nodejob_status_reason{reason="Waiting"}`,
			`everynode_nodejob_status_reason has no reason="Waiting"`,
		},
		"a label of Prometheus":  {`max by (instance) (everynode_pending_pod_releases{job="a"})`, ""},
		"an invalid expression":  {`sum(`, "1:5: parse error: unclosed left parenthesis"},
		"a bucket":               {`sum by (le) (rate(everynode_attempt_duration_seconds_bucket[5m]))`, ""},
		"a metric of the client": {`sum by (code) (rest_client_requests_total{method="GET"})`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(problemsOf(known, tt.expression), "; "); got != tt.want {
				t.Errorf("problems %q, want %q", got, tt.want)
			}
		})
	}
}
