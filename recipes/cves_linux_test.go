// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Each vulnerability of the catalog is denied by the recipe, and the mitigation ends exactly with the kernels of the catalog.
func TestCVEs(t *testing.T) {
	cves, err := CVEs()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, cve := range cves {
		t.Run(cve.ID, func(t *testing.T) {
			if !regexp.MustCompile(`^CVE-20\d\d-\d{4,}$`).MatchString(cve.ID) || known[cve.ID] || cve.Name == "" || cve.Loses == "" {
				t.Errorf("the entry is %+v", cve)
			}
			known[cve.ID] = true
			for source, date := range map[string]string{cve.FixedSource: cve.FixedDate, cve.MitigationSource: cve.MitigationDate} {
				if u, err := url.Parse(source); err != nil || u.Scheme != "https" || u.Host == "" {
					t.Errorf("the source is %q", source)
				}
				if _, err := time.Parse(time.DateOnly, date); err != nil {
					t.Error(err)
				}
			}
			env := []string{
				"MODULES=" + strings.Join(cve.Modules, " "),
				"FIXED_KERNELS=" + strings.Join(cve.FixedKernels, " "), "FIXED_SERIES=" + cve.FixedSeries,
			}
			m := newMitigation(t)
			if code, output, results := m.run(
				m.job.Spec.Task.Script,
				env...); code != 0 || results != "in-effect=yes" ||
				m.denied() != strings.Join(cve.Modules, " ") {
				t.Errorf("exit code %d, results %q, denied %q: %s", code, results, m.denied(), output)
			}
			if code, output, _ := m.run(m.job.Spec.Task.Check.Script, env...); code != 0 {
				t.Errorf("the check ends with %d: %s", code, output)
			}
			expires := func(kernel string, want int) {
				t.Helper()
				m.write("release", kernel+"\n")
				if code, output, _ := m.run(m.job.Spec.Expires.Check.Script, env...); code != want {
					t.Errorf("with kernel %s, the exit code is %d, want %d: %s", kernel, code, want, output)
				}
			}
			var series []string
			for _, kernel := range cve.FixedKernels {
				numbers := strings.Split(kernel, ".")
				series = append(series, strings.Join(numbers[:2], "."))
				last, err := strconv.Atoi(numbers[2])
				if err != nil {
					t.Fatal(err)
				}
				expires(kernel, 0)
				expires(kernel+"-1-amd64", 0)
				expires(fmt.Sprintf("%s.%d-1-amd64", series[len(series)-1], last-1), 1)
			}
			if slices.Sort(series); len(slices.Compact(slices.Clone(series))) != len(series) {
				t.Errorf("a series has several releases: %q", cve.FixedKernels)
			}
			expires(cve.FixedSeries+".0-1-amd64", 0)
			expires("8.3.1", 0)
			expires("4.19.325", 1)
			expires("6.8.0-200-generic", 1)
		})
	}
	for _, id := range []string{"CVE-2026-31431", "CVE-2026-43284", "CVE-2026-43500", "CVE-2026-46300"} {
		if !known[id] {
			t.Errorf("%s is missing", id)
		}
	}
}
