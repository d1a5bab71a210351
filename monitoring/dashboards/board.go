// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

const documents = "https://github.com/everynode/everynode/blob/main/docs/"

// prometheus is the data source that the user has selected.
var prometheus = common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}

// name identifies a dashboard in links, and is the end of its title.
type name struct{ uid, title string }

var (
	fleetName      = name{"everynode-fleet", "Fleet"}
	nodeJobName    = name{"everynode-nodejob", "NodeJob"}
	nodeGuardsName = name{"everynode-nodeguards", "NodeGuards"}
	managerName    = name{"everynode-manager", "Manager"}

	names = []name{fleetName, nodeJobName, nodeGuardsName, managerName}
)

// link keeps the data source and the time. A link by tag would keep all variables, also "All" where it is not a value.
func (n name) link() cog.Builder[dashboard.DashboardLink] {
	return built[dashboard.DashboardLink]{dashboard.DashboardLink{
		Title: n.title, Type: dashboard.DashboardLinkTypeLink, Icon: "dashboard", Url: new("/d/" + n.uid + "?${datasource:queryparam}"),
		Tags: []string{}, KeepTime: true,
	}}
}

// board is a dashboard.
type board struct {
	name
	description string
	variables   []variable
	panels      []cog.Builder[dashboard.Panel]
}

// variable is a variable whose values are those of a label of a metric.
type variable struct {
	name, label, query string
	// all allows several values. With the regular expression allValue, "All" also matches what has no value yet.
	all      bool
	allValue string
}

// built is a part of a dashboard that needs no builder.
type built[T any] struct{ value T }

// Build implements cog.Builder.
func (b built[T]) Build() (T, error) { return b.value, nil }

// build uses the classic schema: the second one is an experiment in Grafana 12, and Grafana 13 converts classic dashboards.
//
//nolint:staticcheck // the types are deprecated in favor of those of the second schema
func (b board) build() (dashboard.Dashboard, error) {
	d := dashboard.NewDashboardBuilder("Everynode / "+b.title).
		Uid(b.uid).
		Description(b.description).
		Tags([]string{"everynode"}).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Time("now-6h", "now").
		Refresh("30s").
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"))
	for _, other := range names {
		if other.uid != b.uid {
			d.Link(other.link())
		}
	}
	d.Link(link("Documentation", documents+"monitoring.md#dashboards"))
	for _, v := range b.variables {
		d.WithVariable(v.build())
	}
	for i, p := range b.panels {
		panel, err := p.Build()
		if err != nil {
			return dashboard.Dashboard{}, err
		}
		panel.Id = new(uint32(i + 1))
		d.WithPanel(built[dashboard.Panel]{panel})
	}
	return d.Build()
}

func (v variable) build() cog.Builder[dashboard.VariableModel] {
	b := dashboard.NewQueryVariableBuilder(v.name).
		Label(v.label).
		Datasource(prometheus).
		Query(dashboard.StringOrMap{String: &v.query}).
		Definition(v.query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc)
	if !v.all {
		return b
	}
	b.Multi(true).IncludeAll(true).Current(dashboard.VariableOption{
		Text: dashboard.StringOrArrayOfString{String: new("All")}, Value: dashboard.StringOrArrayOfString{String: new("$__all")},
	})
	if v.allValue != "" {
		b.AllValue(v.allValue)
	}
	return b
}

func link(title, url string) cog.Builder[dashboard.DashboardLink] {
	return built[dashboard.DashboardLink]{dashboard.DashboardLink{
		Title: title, Type: dashboard.DashboardLinkTypeLink, Icon: "doc", Url: &url, Tags: []string{}, TargetBlank: true,
	}}
}
