// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	promquery "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// unset are choices that the types accept without a value.
var unset = regexp.MustCompile(`"(mode|sort|orientation)": ""`)

// TestTheFilesAreUpToDate compares config/monitoring/dashboards with what is built. Grafana's types accept each field.
func TestTheFilesAreUpToDate(t *testing.T) {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(bargauge.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	runtime.RegisterPanelcfgVariant(table.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(promquery.VariantConfig())

	folder := t.TempDir()
	for _, b := range boards() {
		if err := write(folder, b); err != nil {
			t.Fatal(err)
		}
	}
	built, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range built {
		want, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../config/monitoring/dashboards", file.Name()))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs (%v): run make generate", file.Name(), err)
		}
		if found := unset.FindAll(got, -1); len(found) > 0 {
			t.Errorf("%s has %d times %s", file.Name(), len(found), found[0])
		}
		var d dashboard.Dashboard                                               //nolint:staticcheck // the classic schema, see build
		if err := d.UnmarshalJSONStrict(got); err != nil && err.Error() != "" { // an empty list is an error, too
			t.Errorf("%s: %v", file.Name(), err)
		}
	}
	if files, err := filepath.Glob("../../config/monitoring/dashboards/*.json"); err != nil || len(files) != len(built) {
		t.Errorf("there are %d dashboards, want %d: %v", len(files), len(built), err)
	}
}
