// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"

	releasechart "github.com/everynode/everynode/release/chart"
)

// TestThePackagedChartIsThatOfTheCheckout has helm load the chart of a release. Only its versions and images differ.
func TestThePackagedChartIsThatOfTheCheckout(t *testing.T) {
	const version = "v0.7.3-test.1"
	var images []string
	for _, name := range []string{"manager", "runner", "runner-archive", "dashboard"} {
		images = append(images, "registry.example:5000/a/"+name+":"+version+"@"+digest)
	}
	dir := t.TempDir()
	if err := releasechart.Package("..", dir, version, images, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	chart, err := loader.LoadFile(filepath.Join(dir, releasechart.FileName(version)))
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil || chart.Metadata.Version != "0.7.3-test.1" || chart.Metadata.AppVersion != version {
		t.Errorf("the metadata is %+v: %v", chart.Metadata, err)
	}
	everything := release{apis: []string{policyAPI}, values: teamA + `
manager: {replicas: 2}
metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboards: {enabled: true}}
networkPolicy: {enabled: true}
dashboard: {enabled: true}
`}
	got, err := renderChart(t, chart, everything)
	if err != nil {
		t.Fatal(err)
	}
	want, err := render(t, everything)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("objects (-checkout +package):\n%s", diff)
	}
	stamped := strings.NewReplacer(
		"ghcr.io/everynode/manager:v0.0.0-dev",
		images[0],
		"ghcr.io/everynode/runner:v0.0.0-dev",
		images[1],
		"ghcr.io/everynode/runner-archive:v0.0.0-dev",
		images[2],
		"ghcr.io/everynode/dashboard:v0.0.0-dev",
		images[3],
		"0.0.0-dev",
		"0.7.3-test.1",
	)
	for key := range want {
		if diff := cmp.Diff(stamped.Replace(text(t, want[key].Object)), text(t, got[key].Object)); diff != "" {
			t.Errorf("%s (-checkout +package):\n%s", key, diff)
		}
	}
	if deployment := text(
		t,
		got[manager].Object,
	); !strings.Contains(deployment, images[0]) || !strings.Contains(deployment, images[1]) ||
		!strings.Contains(deployment, images[2]) {
		t.Errorf("the Deployment does not have the images of the release:\n%s", deployment)
	}
	if deployment := text(t, got[page].Object); !strings.Contains(deployment, images[3]) {
		t.Errorf("the Deployment of the dashboard does not have the image of the release:\n%s", deployment)
	}
}

func text(t *testing.T, object map[string]any) string {
	t.Helper()
	content, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
