// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	promquery "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Units of Grafana.
const (
	count    = "short"
	seconds  = "s"
	percent  = "percentunit"
	inBytes  = "bytes"
	perSec   = "ops"
	requests = "reqps"
)

// Colors: warning and critical are those of the alerts with that severity.
const (
	good     = "green"
	active   = "blue"
	idle     = "#8e8e8e"
	warning  = "orange"
	critical = "red"
)

// panel is what panels of all types have.
type panel struct {
	// description says what the panel shows, and what to do.
	title, description string
	unit               string
	width, height      uint32
	queries            []query
	// alert is the alert that fires for the same reason. The panel links to its section in the documentation.
	alert string
	// base is the color below the first of the thresholds.
	base       string
	thresholds []dashboard.Threshold
	// colors are the colors of series with these names.
	colors []color
}

// query is an expression, and the names of its series.
type query struct{ expr, legend string }

// color is the color of a series.
type color struct{ series, color string }

// from is a threshold.
func from(value float64, color string) dashboard.Threshold {
	return dashboard.Threshold{Value: &value, Color: color}
}

// builder is what the builders of panels have in common.
type builder[B any] interface {
	Title(title string) B
	Description(description string) B
	Unit(unit string) B
	Span(width uint32) B
	Height(height uint32) B
	Datasource(source common.DataSourceRef) B
	WithTarget(target cog.Builder[variants.Dataquery]) B
	Thresholds(thresholds cog.Builder[dashboard.ThresholdsConfig]) B
	OverrideByName(name string, properties []dashboard.DynamicConfigValue) B
	Links(links []cog.Builder[dashboard.DashboardLink]) B
}

// with sets what panels of all types have. One with instant queries shows the current values.
func with[B builder[B]](b B, p panel, instant bool) B {
	if p.base == "" {
		p.base = good
	}
	steps := append([]dashboard.Threshold{{Color: p.base}}, p.thresholds...)
	b.Title(p.title).Description(p.description).Unit(p.unit).Span(p.width).Height(p.height).Datasource(prometheus).
		Thresholds(built[dashboard.ThresholdsConfig]{dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute, Steps: steps}})
	for i, q := range p.queries {
		b.WithTarget(q.build(string(rune('A'+i)), instant))
	}
	for _, c := range p.colors {
		b.OverrideByName(c.series, []dashboard.DynamicConfigValue{{Id: "color", Value: dashboard.FieldColor{Mode: dashboard.FieldColorModeIdFixed, FixedColor: &c.color}}})
	}
	if p.alert != "" {
		b.Links([]cog.Builder[dashboard.DashboardLink]{link(p.alert, documents+"troubleshooting.md#"+strings.ToLower(p.alert))})
	}
	return b
}

func (q query) build(id string, instant bool) *promquery.DataqueryBuilder {
	b := promquery.NewDataqueryBuilder().RefId(id).Datasource(prometheus).Expr(q.expr).Range()
	if instant {
		b.Instant()
	}
	if q.legend != "" {
		b.LegendFormat(q.legend)
	}
	return b
}

// last reduces the values of a series to the last one.
var last = built[common.ReduceDataOptions]{common.ReduceDataOptions{Calcs: []string{"lastNotNull"}}}

// number shows one value, with the color of its threshold.
func number(p panel) *stat.PanelBuilder {
	p.height = 4
	return with(stat.NewPanelBuilder(), p, true).ColorMode(common.BigValueColorModeBackground).GraphMode(common.BigValueGraphModeNone).
		Orientation(common.VizOrientationAuto).ReduceOptions(last)
}

// bars shows a bar for each series, between 0 and 1.
func bars(p panel) *bargauge.PanelBuilder {
	return with(bargauge.NewPanelBuilder(), p, true).DisplayMode(common.BarGaugeDisplayModeBasic).Orientation(common.VizOrientationHorizontal).ReduceOptions(last).Min(0).Max(1)
}

// lines shows series over time, and the thresholds as lines.
func lines(p panel) *timeseries.PanelBuilder {
	if p.height == 0 {
		p.height = 8
	}
	b := with(timeseries.NewPanelBuilder(), p, false).
		Legend(legend(true)).
		Tooltip(tooltip(common.TooltipDisplayModeMulti)).
		ShowPoints(common.VisibilityModeNever).
		FillOpacity(10).
		Min(0)
	if len(p.thresholds) > 0 {
		b.ThresholdsStyle(built[common.GraphThresholdsStyleConfig]{common.GraphThresholdsStyleConfig{Mode: common.GraphThresholdsStyleModeDashed}})
	}
	return b
}

// areas shows series on top of each other.
func areas(p panel) *timeseries.PanelBuilder {
	return lines(p).FillOpacity(60).LineWidth(0).Stacking(built[common.StackingConfig]{
		common.StackingConfig{Mode: new(common.StackingModeNormal), Group: new("A")},
	})
}

func legend(show bool) cog.Builder[common.VizLegendOptions] {
	return built[common.VizLegendOptions]{common.VizLegendOptions{
		DisplayMode: common.LegendDisplayModeList, Placement: common.LegendPlacementBottom, ShowLegend: show, Calcs: []string{},
	}}
}

func tooltip(mode common.TooltipDisplayMode) cog.Builder[common.VizTooltipOptions] {
	return built[common.VizTooltipOptions]{common.VizTooltipOptions{Mode: mode, Sort: common.SortOrderDescending}}
}

// timeline shows during which times series had which value, with a text and a color for each value.
func timeline(p panel, values map[string]color) *statetimeline.PanelBuilder {
	mapping := dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: map[string]dashboard.ValueMappingResult{}}
	for value, c := range values {
		mapping.Options[value] = dashboard.ValueMappingResult{Text: &c.series, Color: &c.color}
	}
	return with(statetimeline.NewPanelBuilder(), p, false).ShowValue(common.VisibilityModeAuto).
		Legend(legend(false)).
		Tooltip(tooltip(common.TooltipDisplayModeSingle)).
		Mappings([]dashboard.ValueMapping{{ValueMap: &mapping}})
}

// rows shows a table with a row for each series: columns are labels in this order, and Value has the name of the value. The cells of
// the column that has a target link to it.
func rows(p panel, value string, columns []string, linked, target string) *table.PanelBuilder {
	order := map[string]int{"Value": len(columns)}
	for i, column := range columns {
		order[column] = i
	}
	return with(table.NewPanelBuilder(), p, true).
		Footer(built[common.TableFooterOptions]{common.TableFooterOptions{Reducer: []string{}}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]bool{"Time": true},
			"indexByName":   order,
			"renameByName":  map[string]string{"Value": value},
		}}).
		OverrideByName(linked, []dashboard.DynamicConfigValue{{Id: "links", Value: []map[string]string{{"title": "Show ${__value.raw}", "url": target}}}})
}
