// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
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

// TestDashboardsHaveOnlyFieldsOfGrafana decodes each dashboard with the types that Grafana generates from its own schemas.
func TestDashboardsHaveOnlyFieldsOfGrafana(t *testing.T) {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(bargauge.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	runtime.RegisterPanelcfgVariant(table.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(promquery.VariantConfig())

	for name := range readDashboards(t) {
		content, err := os.ReadFile(filepath.Join("../config/monitoring/dashboards", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if found := unset.FindAll(content, -1); len(found) > 0 {
			t.Errorf("%s has %d times %s", name, len(found), found[0])
		}
		var d dashboard.Dashboard                                                   //nolint:staticcheck // the classic schema, see docs/monitoring.md
		if err := d.UnmarshalJSONStrict(content); err != nil && err.Error() != "" { // an empty list is an error, too
			t.Errorf("%s: %v", name, err)
		}
	}
}
