// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

// at is when expressions are evaluated. Samples begin at the epoch.
var at = time.Unix(0, 0).Add(2 * time.Hour)

// someValues are values of labels that do not have a fixed set.
var someValues = map[string][]string{
	"job": {"everynode-metrics"}, "instance": {"10.0.0.1:8080", "10.0.0.2:8080"},
	"namespace": {"node-setup"}, "nodeguard": {"storage"}, "nodedisruptionbudget": {"production"}, "verb": {"create"}, "resource": {"pods"},
	"result": {"success"}, "controller": {"nodejob"}, "priority": {"0"},
	"code": {"200", "409"}, "method": {"GET"}, "host": {"10.96.0.1:443"}, "le": {"1", "+Inf"},
}

// samples returns samples of all metrics, for promqltest: one value each minute. There is a NodeJob for each reason.
func samples(t *testing.T, known map[string]metric) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("load 1m\n")
	for _, name := range slices.Sorted(maps.Keys(known)) {
		m := known[name]
		sets := []string{""}
		for _, l := range slices.Sorted(maps.Keys(m)) {
			if l == "le" || l == "nodejob" && m["reason"] != nil {
				continue
			}
			some := slices.Concat(m[l], someValues[l])
			if l == "nodejob" {
				some = known["everynode_nodejob_status_reason"]["reason"]
			}
			if len(some) == 0 {
				t.Fatalf("the label %s of %s has no values", l, name)
			}
			var longer []string
			for _, set := range sets {
				for _, v := range some {
					added := fmt.Sprintf(`%s="%s",`, l, v)
					if l == "reason" && name == "everynode_nodejob_status_reason" {
						added += fmt.Sprintf(`nodejob="%s",`, v)
					}
					longer = append(longer, set+added)
				}
			}
			sets = longer
		}
		_, isHistogram := m["le"]
		for _, set := range sets {
			if !isHistogram {
				fmt.Fprintf(&text, "  %s{%s} 1+1x120\n", name, set)
				continue
			}
			for _, le := range someValues["le"] {
				fmt.Fprintf(&text, "  %s_bucket{%sle=%q} 1+1x120\n", name, set, le)
			}
			fmt.Fprintf(&text, "  %s_sum{%s} 1+1x120\n  %s_count{%s} 1+1x120\n", name, set, name, set)
		}
	}
	return text.String()
}

// evaluator evaluates expressions with the samples.
type evaluator struct {
	storage storage.Storage
	engine  *promql.Engine
}

func newEvaluator(t *testing.T, known map[string]metric) evaluator {
	t.Helper()
	loaded := promqltest.LoadedStorage(t, samples(t, known))
	t.Cleanup(func() { _ = loaded.Close() })
	return evaluator{loaded, promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000)}
}

func (e evaluator) at(t *testing.T, expression string) promql.Vector {
	t.Helper()
	query, err := e.engine.NewInstantQuery(t.Context(), e.storage, nil, expression, at)
	if err != nil {
		t.Errorf("%v in %s", err, expression)
		return nil
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if result.Err != nil || len(result.Warnings) > 0 {
		t.Errorf("%v, %v in %s", result.Err, result.Warnings, expression)
		return nil
	}
	vector, err := result.Vector()
	if err != nil {
		t.Errorf("%v in %s", err, expression)
	}
	return slices.Clone(vector)
}

var labelValues = regexp.MustCompile(`^label_values\((.+), ([a-z]+)\)$`)

// variables returns what Grafana inserts for the variables of a dashboard: all values, or the first one.
func (e evaluator) variables(t *testing.T, name string, d grafana) *strings.Replacer {
	t.Helper()
	values := []string{"$__rate_interval", "5m"}
	for _, v := range d.Templating.List[1:] {
		query := labelValues.FindStringSubmatch(strings.NewReplacer(values...).Replace(v.Query))
		if query == nil {
			t.Fatalf("%s: the query of %s is %s", name, v.Name, v.Query)
		}
		var found []string
		for _, sample := range e.at(t, fmt.Sprintf("group by (%s) (%s)", query[2], query[1])) {
			found = append(found, sample.Metric.Get(query[2]))
		}
		slices.Sort(found)
		if len(found) == 0 || found[0] == "" {
			t.Fatalf("%s: the variable %s has the values %q", name, v.Name, found)
		}
		all := v.AllValue
		if all == "" {
			all = "(" + strings.Join(found, "|") + ")"
		}
		if !v.IncludeAll {
			all = found[0]
		}
		values = append(values, "$"+v.Name, all)
	}
	return strings.NewReplacer(values...)
}

func TestDashboardsUseMetricsOfTheManager(t *testing.T) {
	known := documented(t)
	interval := strings.NewReplacer("$__rate_interval", "5m")
	for name, d := range readDashboards(t) {
		for _, v := range d.Templating.List[1:] {
			query := labelValues.FindStringSubmatch(v.Query)
			for _, problem := range problemsOf(known, fmt.Sprintf("group by (%s) (%s)", query[2], query[1])) {
				t.Errorf("%s: the variable %s: %s", name, v.Name, problem)
			}
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				for _, problem := range problemsOf(known, interval.Replace(target.Expr)) {
					t.Errorf("%s: %q: %s", name, p.Title, problem)
				}
			}
		}
	}
}

// inLegend is a label in the name of a series.
var inLegend = regexp.MustCompile(`\{\{([^}]*)\}\}`)

// TestPanelsShowSomething evaluates the expressions of panels with samples of all metrics. The labels that a panel shows exist.
func TestPanelsShowSomething(t *testing.T) {
	e := newEvaluator(t, documented(t))
	for name, d := range readDashboards(t) {
		inserted := e.variables(t, name, d)
		for _, p := range d.Panels {
			t.Run(fmt.Sprintf("%s/%d %s", name, p.ID, p.Title), func(t *testing.T) {
				names, columns := map[string]bool{}, map[string]bool{"Time": true, "Value": true}
				for _, target := range p.Targets {
					for _, part := range alternatives(t, inserted.Replace(target.Expr)) {
						if len(e.at(t, part)) == 0 {
							t.Errorf("nothing matches %s", part)
						}
					}
					for _, sample := range e.at(t, inserted.Replace(target.Expr)) {
						if math.IsNaN(sample.F) {
							t.Errorf("%s is not a number", sample.Metric)
						}
						sample.Metric.Range(func(l labels.Label) { columns[l.Name] = true })
						names[inLegend.ReplaceAllStringFunc(target.LegendFormat, func(shown string) string {
							value := sample.Metric.Get(inLegend.FindStringSubmatch(shown)[1])
							if value == "" {
								t.Errorf("%s does not have %s", sample.Metric, shown)
							}
							return value
						})] = true
					}
				}
				p.checkNames(t, names, columns)
			})
		}
	}
}

// alternatives returns an expression, and the operands of each "or" in it, which can hide that one of them has no result.
func alternatives(t *testing.T, expression string) []string {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Fatal(err)
	}
	found := []string{expression}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if binary, is := node.(*parser.BinaryExpr); is && binary.Op == parser.LOR {
			found = append(found, binary.LHS.String(), binary.RHS.String())
		}
		return nil
	})
	return found
}

// checkNames compares what overrides, transformations and links name with the series and columns of the panel.
func (p panel) checkNames(t *testing.T, series, columns map[string]bool) {
	t.Helper()
	known := series
	if p.Type == "table" {
		known = columns
	}
	for _, override := range p.FieldConfig.Overrides {
		if !known[override.Matcher.Options] {
			t.Errorf("no series or column is %q", override.Matcher.Options)
		}
	}
	for _, transformation := range p.Transformations {
		for _, names := range []map[string]any{transformation.Options.ExcludeByName, transformation.Options.IndexByName, transformation.Options.RenameByName} {
			for column := range names {
				if !columns[column] {
					t.Errorf("no column is %q", column)
				}
			}
		}
	}
	for _, url := range p.targets() {
		for _, found := range parameter.FindAllStringSubmatch(url, -1) {
			if !columns[found[2]] {
				t.Errorf("no column is %q", found[2])
			}
		}
	}
}
