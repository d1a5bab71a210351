// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// grafana is what the tests read of a dashboard.
type grafana struct {
	UID, Title, Description string
	Tags                    []string
	SchemaVersion           int
	Links                   []linkOfGrafana
	Templating              struct{ List []variable }
	Panels                  []panel
}

type linkOfGrafana struct{ Title, Type, URL string }

type source struct{ UID string }

type variable struct {
	Name, Type, Query, AllValue string
	IncludeAll                  bool
	Datasource                  source
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               source
	Links                    []linkOfGrafana
	Targets                  []struct {
		Expr, LegendFormat string
		Datasource         source
	}
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Thresholds struct {
				Steps []struct {
					Value *float64
					Color string
				}
			}
		}
		Overrides []struct {
			Matcher    struct{ ID, Options string }
			Properties []struct {
				ID    string
				Value any
			}
		}
	}
	Transformations []struct {
		ID      string
		Options struct{ ExcludeByName, IndexByName, RenameByName map[string]any }
	}
}

// readDashboards returns the dashboards by the names of their files.
func readDashboards(t *testing.T) map[string]grafana {
	t.Helper()
	files, err := filepath.Glob("../config/monitoring/dashboards/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	found := map[string]grafana{}
	for _, file := range files {
		var d grafana
		readYAML(t, file, &d) // JSON is YAML
		found[strings.TrimSuffix(filepath.Base(file), ".json")] = d
	}
	return found
}

// maxDescription is the number of bytes of a description, which Grafana shows in a small window.
const maxDescription = 160

func TestDashboardsAreComplete(t *testing.T) {
	page, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range readDashboards(t) {
		// The uid is a part of links, so it is not that of another dashboard.
		if d.UID != "everynode-"+name {
			t.Errorf("%s has the uid %s", name, d.UID)
		}
		if d.SchemaVersion != 42 || !slices.Contains(d.Tags, "everynode") || len(d.Links) != 4 {
			t.Errorf("%s has schema version %d, tags %v, links %v", name, d.SchemaVersion, d.Tags, d.Links)
		}
		if !strings.Contains(string(page), "| "+d.Title+" |") {
			t.Errorf("docs/monitoring.md has no row for %q", d.Title)
		}
		if first := d.Templating.List[0]; first.Name != "datasource" || first.Type != "datasource" || first.Query != "prometheus" {
			t.Errorf("%s begins with the variable %+v, want one for the data source", name, first)
		}
		for _, v := range d.Templating.List[1:] {
			if v.Type != "query" || v.Datasource.UID != "${datasource}" {
				t.Errorf("%s has the variable %+v", name, v)
			}
		}
		checkDescription(t, name, d.Title, d.Description)
		for i, p := range d.Panels {
			if p.ID != i+1 {
				t.Errorf("%s: panel %d has the number %d", name, i+1, p.ID)
			}
			p.check(t, name)
		}
		checkGrid(t, name, d.Panels)
	}
}

func checkDescription(t *testing.T, dashboard, title, description string) {
	t.Helper()
	if title == "" || !strings.HasSuffix(description, ".") || len(description) > maxDescription {
		t.Errorf("%s: the description of %q has %d bytes: %q", dashboard, title, len(description), description)
	}
}

func (p panel) check(t *testing.T, dashboard string) {
	t.Helper()
	checkDescription(t, dashboard, p.Title, p.Description)
	if p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
		t.Errorf("%s: %q has the unit %q and %d queries", dashboard, p.Title, p.FieldConfig.Defaults.Unit, len(p.Targets))
	}
	sources := []source{p.Datasource}
	for _, target := range p.Targets {
		sources = append(sources, target.Datasource)
	}
	for _, s := range sources {
		if s.UID != "${datasource}" {
			t.Errorf("%s: %q has the data source %q", dashboard, p.Title, s.UID)
		}
	}
}

// checkGrid compares the places of panels: 24 columns, and no panel on another one.
func checkGrid(t *testing.T, dashboard string, panels []panel) {
	t.Helper()
	taken := map[[2]int]string{}
	for _, p := range panels {
		at := p.GridPos
		if at.W < 1 || at.H < 1 || at.X+at.W > 24 {
			t.Errorf("%s: %q is at %+v", dashboard, p.Title, at)
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other, exists := taken[[2]int{x, y}]; exists {
					t.Fatalf("%s: %q is on %q", dashboard, p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// documents are pages that links of dashboards show.
const documents = "https://github.com/everynode/everynode/blob/main/docs/"

var parameter = regexp.MustCompile(`var-([a-z]+)=\$\{__data\.fields\.([a-z]+)\}`)

func TestLinksOfDashboardsExist(t *testing.T) {
	dashboards := readDashboards(t)
	for name, d := range dashboards {
		links := d.Links
		for _, p := range d.Panels {
			links = append(links, p.Links...)
		}
		for _, link := range links {
			if path, _, is := strings.Cut(strings.TrimPrefix(link.URL, "/d/everynode-"), "?${datasource:queryparam}"); is {
				if _, exists := dashboards[path]; !exists {
					t.Errorf("%s: no dashboard has %s", name, link.URL)
				}
				continue
			}
			page, anchor, _ := strings.Cut(strings.TrimPrefix(link.URL, documents), "#")
			if !strings.HasPrefix(link.URL, documents) || !slices.Contains(anchors(t, filepath.Join("../docs", page)), anchor) {
				t.Errorf("%s: no page has %s", name, link.URL)
			}
		}
		for _, p := range d.Panels {
			for _, url := range p.targets() {
				path, _, _ := strings.Cut(strings.TrimPrefix(url, "/d/everynode-"), "?")
				target, exists := dashboards[path]
				if !exists || len(parameter.FindAllString(url, -1)) == 0 {
					t.Errorf("%s: no dashboard has %s", name, url)
				}
				for _, found := range parameter.FindAllStringSubmatch(url, -1) {
					if !slices.ContainsFunc(target.Templating.List, func(v variable) bool { return v.Name == found[1] }) {
						t.Errorf("%s has no variable %s", path, found[1])
					}
				}
			}
		}
	}
}

// targets returns the links of cells.
func (p panel) targets() []string {
	var found []string
	for _, override := range p.FieldConfig.Overrides {
		for _, property := range override.Properties {
			if property.ID != "links" {
				continue
			}
			for _, link := range property.Value.([]any) {
				found = append(found, link.(map[string]any)["url"].(string))
			}
		}
	}
	return found
}

// TestThresholdsAreThoseOfTheAlerts compares panels that link to an alert with the rule: the panel changes its color where the
// expression of the alert becomes true, and to the color of the severity.
func TestThresholdsAreThoseOfTheAlerts(t *testing.T) {
	rules := map[string]rule{}
	for _, r := range readRules(t) {
		rules[r.Alert] = r
	}
	shown := map[string]bool{}
	for name, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, link := range p.Links {
				r, exists := rules[link.Title]
				if !exists || r.Annotations["runbook_url"] != link.URL {
					t.Errorf("%s: %q links to %+v", name, p.Title, link)
					continue
				}
				steps := p.FieldConfig.Defaults.Thresholds.Steps
				if len(steps) == 1 {
					continue
				}
				shown[r.Alert] = true
				limit := 1.0 // of numbers of objects
				if r.For == "" {
					limit, _ = strconv.ParseFloat(number.FindStringSubmatch(r.Expr)[1], 64)
				}
				color := map[string]string{"warning": "orange", "critical": "red"}[r.Labels["severity"]]
				if *steps[1].Value != limit || steps[0].Color != color && steps[1].Color != color {
					t.Errorf(
						"%s: %q turns %s at %v, then %s, want %s at %v",
						name,
						p.Title,
						steps[0].Color,
						*steps[1].Value,
						steps[1].Color,
						color,
						limit,
					)
				}
			}
		}
	}
	// A threshold needs a value: these alerts compare two times.
	delete(rules, "EverynodeNoProgress")
	delete(rules, "EverynodeBudgetBlocked")
	delete(rules, "EverynodeBudgetFrozen") // a day of one reason: a panel shows the present
	for alert := range rules {
		if !shown[alert] {
			t.Errorf("no panel has the threshold of %s", alert)
		}
	}
}
