// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/everynode/everynode/internal/manager/budgetcontroller"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/manager/guardcontroller"
	"github.com/everynode/everynode/internal/manager/notify"
)

// described are the labels of the metrics that are registered, and their rows of the page, by name.
type described struct {
	prometheus.Registerer
	labels map[string][]string
	rows   map[string]string
}

// description is what a prometheus.Desc prints. It has no other access to its fields.
var description = regexp.MustCompile(`fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*").*variableLabels: \{([^}]*)\}`)

// fixed are the values of labels that have a fixed set of them.
var fixed = map[string]string{
	"everynode_nodejob_nodes state":            "done, running, waiting, failed, rolled_back, rollback_failed, non_compliant, check_error, expired",
	"everynode_attempts_total phase":           "task, rollback, check-before, check-drift, check-expires",
	"everynode_attempts_total outcome":         "Succeeded, Failed, Disrupted, Needed, Expired",
	"everynode_archived_outputs_total outcome": "Stored, Failed",
	"everynode_guard_nodes state":              "total, waiting, released, unavailable",
	"everynode_guard_held_seconds reason":      "ConditionMet, DeadlineReached, BreakGlass",
	"everynode_notifications_total outcome":    "Delivered, Rejected, Expired, Overflowed",
	"everynode_budget_nodes state":             "total, exempt, unavailable, waiting, exceeding",
}

// MustRegister implements prometheus.Registerer.
func (d described) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			c.Describe(descs)
			close(descs)
		}()
		for desc := range descs {
			found := description.FindStringSubmatch(desc.String())
			name, labels := found[1], strings.FieldsFunc(found[3], func(r rune) bool { return r == ',' })
			d.labels[name] = labels
			d.rows[name] = row(name, labels, found[2], strings.Contains(fmt.Sprintf("%T", c), "Histogram"))
		}
	}
}

func row(name string, labels []string, help string, histogram bool) string {
	kind := "Gauge"
	if histogram {
		kind = "Histogram"
	} else if strings.HasSuffix(name, "_total") {
		kind = "Counter"
	}
	shown := make([]string, 0, len(labels))
	for _, label := range labels {
		text := "`" + label + "`"
		if values := fixed[name+" "+label]; values != "" {
			text += " (`" + strings.ReplaceAll(values, ", ", "`, `") + "`)"
		}
		shown = append(shown, text)
	}
	text, _ := strconv.Unquote(help)
	return "| `" + name + "` | " + strings.Join(shown, ", ") + " | " + kind + ". " + text + " |\n"
}

var (
	values = regexp.MustCompile(`\([^)]*\)`)
	quoted = regexp.MustCompile("`([a-z_]+)`")
)

const metricsHead = "# Metrics of Everynode\n\n" +
	"`make generate` writes this page from the metrics that the manager registers. [metrics.md](../metrics.md) says how to read them.\n\n" +
	"| Metric | Labels | Meaning |\n|---|---|---|\n"

// TestThePageOfMetrics compares docs/reference/metrics.md with the manager's metrics. The tests of alerts and dashboards compare these with
// the page.
func TestThePageOfMetrics(t *testing.T) {
	registered := described{labels: map[string][]string{}, rows: map[string]string{}}
	controller.NewMetrics(registered)
	guardcontroller.NewMetrics(registered)
	budgetcontroller.NewMetrics(registered)
	notify.New(notify.Config{URL: "http://endpoint.test"}, registered)

	want := metricsHead
	for _, name := range slices.Sorted(maps.Keys(registered.rows)) {
		want += registered.rows[name]
	}
	const page = "../../docs/reference/metrics.md"
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil { //nolint:gosec // others may read pages
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("make generate writes another page (-want +got):\n%s", diff)
	}
}

// sorted compares labels in any order.
var sorted = cmp.Transformer("sorted", func(labels []string) string {
	return strings.Join(slices.Sorted(slices.Values(labels)), ", ")
})

// metricRow is a metric of controller-runtime in the page: its name and its labels.
var metricRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([^|]*)\\|")

// TestThePageOfMetricsHasMetricsOfControllerRuntime compares those that the page has, which are not all, with the registry of the
// manager.
func TestThePageOfMetricsHasMetricsOfControllerRuntime(t *testing.T) {
	registered := described{labels: map[string][]string{}, rows: map[string]string{}}
	registered.MustRegister(metrics.Registry.(*prometheus.Registry))

	content, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(content), "\n## Metrics of controller-runtime\n")
	rows := metricRow.FindAllStringSubmatch(table, -1)
	if len(rows) < 10 {
		t.Fatalf("only %d metrics were found", len(rows))
	}
	for _, row := range rows {
		want, exists := registered.labels[row[1]]
		if !exists {
			t.Errorf("the manager has no metric %s", row[1])
		}
		var got []string
		for _, label := range quoted.FindAllStringSubmatch(values.ReplaceAllString(row[2], ""), -1) {
			got = append(got, label[1])
		}
		if diff := cmp.Diff(want, got, sorted); diff != "" {
			t.Errorf("labels of %s (-registered +docs/metrics.md):\n%s", row[1], diff)
		}
	}
}

// TestTheValuesOfLabelsAreInTheCode finds values of labels that no code sets any more.
func TestTheValuesOfLabelsAreInTheCode(t *testing.T) {
	var code strings.Builder
	for _, root := range []string{"../manager", "../nodejob", "../../api/v1alpha1"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			code.Write(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for label, all := range fixed {
		for value := range strings.SplitSeq(all, ", ") {
			if !strings.Contains(code.String(), strconv.Quote(value)) {
				t.Errorf("%s: no code has the value %s", label, value)
			}
		}
	}
}
