// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"regexp"
	"slices"
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

// described are the labels of the metrics that are registered, by name.
type described struct {
	prometheus.Registerer
	labels map[string][]string
}

// description is what a prometheus.Desc prints. It has no other access to its fields.
var description = regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)

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
			d.labels[found[1]] = strings.FieldsFunc(found[2], func(r rune) bool { return r == ',' })
		}
	}
}

var (
	metricSection = regexp.MustCompile("(?ms)^### `(everynode_[a-z_]+)`\n(.*?)^##")
	labelsOfOne   = regexp.MustCompile(`Labels: (.*?)\.(?: |\n|$)`)
	values        = regexp.MustCompile(`\([^)]*\)`)
	quoted        = regexp.MustCompile("`([a-z_]+)`")
)

// TestThePageOfMetricsHasAllMetricsAndLabels compares the names and labels of the manager's metrics with docs/metrics.md. The tests of
// alerts and dashboards compare these with the page.
func TestThePageOfMetricsHasAllMetricsAndLabels(t *testing.T) {
	want := described{labels: map[string][]string{}}
	controller.NewMetrics(want)
	guardcontroller.NewMetrics(want)
	budgetcontroller.NewMetrics(want)
	notify.New(notify.Config{URL: "http://endpoint.test"}, want)

	content, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	// A section ends where the next one begins.
	for _, section := range metricSection.FindAllStringSubmatch(strings.ReplaceAll(string(content), "\n##", "\n##\n##"), -1) {
		var labels []string
		if line := labelsOfOne.FindStringSubmatch(strings.ReplaceAll(section[2], "\n", " ")); line != nil {
			for _, label := range quoted.FindAllStringSubmatch(values.ReplaceAllString(line[1], ""), -1) {
				labels = append(labels, label[1])
			}
		}
		got[section[1]] = labels
	}
	if diff := cmp.Diff(want.labels, got, sorted); diff != "" {
		t.Errorf("labels by metric (-registered +docs/metrics.md):\n%s", diff)
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
	registered := described{labels: map[string][]string{}}
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
