// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/local/prereq"
	"github.com/everynode/everynode/test/browser/chromium"
)

// axe returns the source of axe-core, which npm installs once in the version of axe/package-lock.json.
func axe(t *testing.T) string {
	t.Helper()
	lock, err := os.ReadFile("axe/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var locked struct {
		Packages map[string]struct {
			Version string `json:"version"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(lock, &locked); err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "everynode", "axe-"+locked.Packages["node_modules/axe-core"].Version)
	path := filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(path); err != nil {
		install(t, dir, "package.json", "package-lock.json")
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// install installs the packages of a lock file in a folder.
func install(t *testing.T, dir string, files ...string) {
	t.Helper()
	if err := prereq.Ensure(t.Context(), os.Stdout, prereq.ForAccessibility()); err != nil {
		t.Fatalf("%v\nTo run the other tests: make test-browser SKIP=IsAccessible", err) // a test that is skipped is soon forgotten
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join("axe", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	npm := exec.CommandContext(
		t.Context(),
		"npm",
		"ci",
		"--ignore-scripts",
		"--no-audit",
		"--no-fund",
	) // it checks the hash of the lock file
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("installing axe-core: %v\n%s", err, out)
	}
}

func TestThePageIsAccessible(t *testing.T) {
	source := axe(t)
	rolling(t, 12)
	limited(t)
	address := dashboard(t, asAdmin, "--allow-changes")
	for width, themes := range map[int][]bool{1280: {false, true}, 390: {false}} {
		for _, dark := range themes {
			tab := open(t, "about:blank", width, 800, dark)
			if err := tab.BypassPolicy(); err != nil { // axe-core makes elements of text
				t.Fatal(err)
			}
			if err := tab.Go(address); err != nil {
				t.Fatal(err)
			}
			see(t, tab, cells+".length === 12")
			if err := tab.Evaluate(source+"; true", nil); err != nil {
				t.Fatal(err)
			}
			for _, view := range []struct{ address, shown, click string }{
				{"#/", cells + ".length === 12", ""},
				{"#/budgets", "document.querySelector('#budgets table a')", ""},
				{"#/job/default/max-map-count", "document.querySelector('#job-status .rows')", ""},
				{"#/job/default/max-map-count/node/node-6", "document.querySelector('#node .card .changes')", ""},
				{"#/job/default/max-map-count/node/node-6", dialog + ".open", button("Skip this node")},
			} {
				do(t, tab, fmt.Sprintf("location.hash = %q", view.address))
				if view.click != "" {
					do(t, tab, view.click+".click()")
				}
				see(t, tab, view.shown)
				isAccessible(t, tab, fmt.Sprintf("%s, %d pixels wide, dark: %t", view.address, width, dark))
			}
		}
	}
}

// isAccessible has axe-core check what a tab shows.
func isAccessible(t *testing.T, tab *chromium.Tab, what string) {
	t.Helper()
	var violations []string
	if err := tab.Evaluate(
		`axe.run().then((found) => found.violations.map((v) => v.id + ": " + v.help + "\n" + v.nodes.slice(0, 3).map((n) => n.html + "\n" + n.failureSummary).join("\n")))`,
		&violations,
	); err != nil {
		t.Fatal(err)
	}
	if len(violations) > 0 {
		t.Errorf("%s:\n%s", what, strings.Join(violations, "\n"))
	}
}

// TestASmallClusterIsAccessible has axe-core check tiles, runs, nodes that are not selected, and a search without a result.
func TestASmallClusterIsAccessible(t *testing.T) {
	source := axe(t)
	mixed(t)
	address := dashboard(t, asAdmin)
	for _, dark := range []bool{false, true} {
		tab := open(t, "about:blank", 390, 800, dark)
		if err := errors.Join(tab.BypassPolicy(), tab.Go(address)); err != nil {
			t.Fatal(err)
		}
		see(t, tab, cells+".length === 4")
		if err := tab.Evaluate(source+"; true", nil); err != nil {
			t.Fatal(err)
		}
		for _, view := range []struct{ address, search, shown string }{
			{"#/", "", says("#needs", "needs you")},
			{"#/", "nothing is called so", says("#jobs", "No NodeJob matches")},
			{"#/job/default/for-one", "", says("#legend", "Not selected")},
			{"#/job/default/run-x", "", says("#job .remedies", "kubectl")},
			{"#/job/default/max-map-count/node/node-2", "", "document.querySelector('#node .copy')"},
		} {
			do(t, tab, fmt.Sprintf("location.hash = %q", view.address))
			do(t, tab, fmt.Sprintf(searchFor, view.search))
			see(t, tab, view.shown)
			isAccessible(t, tab, fmt.Sprintf("%s with the search %q, dark: %t", view.address, view.search, dark))
			fits(t, tab)
		}
	}
}
