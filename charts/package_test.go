// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	releasechart "github.com/everynode/everynode/release/chart"
)

// TestThePackagedChartIsThatOfTheCheckout has helm load the chart of a release. Only its versions and images differ.
func TestThePackagedChartIsThatOfTheCheckout(t *testing.T) {
	const version = "v0.7.3-test.1"
	var images []string
	for _, name := range []string{"manager", "runner", "runner-archive"} {
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
}

func text(t *testing.T, object map[string]any) string {
	t.Helper()
	content, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestTheAnnotationsForArtifactHub names each CRD.
// Source: https://artifacthub.io/docs/topics/annotations/helm/.
func TestTheAnnotationsForArtifactHub(t *testing.T) {
	chart, err := loader.LoadDir("everynode")
	if err != nil {
		t.Fatal(err)
	}
	var crds []struct{ Kind, Version, Name, DisplayName, Description string }
	if err := yaml.UnmarshalStrict([]byte(chart.Metadata.Annotations["artifacthub.io/crds"]), &crds); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, crd := range crds {
		got = append(got, crd.Name+" "+crd.Kind+" "+crd.Version)
		if crd.DisplayName == "" || crd.Description == "" {
			t.Errorf("%s has no displayName or description", crd.Name)
		}
	}
	var want []string
	for _, o := range kustomization(t, "crd") {
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		want = append(want, fmt.Sprint(o.GetName(), " ", kind, " ", versions[0].(map[string]any)["name"]))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("artifacthub.io/crds (-CRDs +annotation):\n%s", diff)
	}
	var links []struct{ Name, URL string }
	if err := yaml.UnmarshalStrict([]byte(chart.Metadata.Annotations["artifacthub.io/links"]), &links); err != nil || len(links) == 0 {
		t.Errorf("links %v: %v", links, err)
	}
}
