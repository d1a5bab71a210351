// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestPlanOfABudget : it is Wednesday, 2026-07-01, 12:00 UTC, and the cluster has the nodes node-1 of pool a, and node-2 and node-3 of pool b.
func TestPlanOfABudget(t *testing.T) {
	nights := frozenBudget("nights", 0, func(b *v1alpha1.NodeDisruptionBudget) {
		b.Spec.Windows = []v1alpha1.BudgetWindow{{Schedule: "0 22 * * *", DurationSeconds: 4 * 3600}}
		b.Spec.Limits = production().Spec.Limits
	})
	for name, tt := range map[string]struct {
		spec string
		out  string
	}{
		"windows, zones and excepted dates": {
			spec: `{limits: [{maxUnavailable: 1}, {maxUnavailable: "50%", topologyKey: pool}], exceptDates: ["2026-07-12"], joiningNodes: Included,
				timeZone: Europe/Berlin, windows: [{schedule: "0 1 * * SUN", durationSeconds: 10800}]}`,
			out: `Budget    NodeDisruptionBudget production  new
          a dry run: nothing has been changed
Selects   3 nodes
Limit     1 of 3 nodes may be unavailable
Limit     1 of 1 node with pool=a; 1 of 2 nodes with pool=b may be unavailable
Now       NodeDisruptionBudget production is closed until its next window opens at 2026-07-04T23:00:00Z (Sun 01:00 CEST)
Windows   Sun 2026-07-05 01:00 CEST to Sun 2026-07-05 04:00 CEST, 3h
          Sun 2026-07-19 01:00 CEST to Sun 2026-07-19 04:00 CEST, 3h
          Sun 2026-07-26 01:00 CEST to Sun 2026-07-26 04:00 CEST, 3h
          Sun 2026-08-02 01:00 CEST to Sun 2026-08-02 04:00 CEST, 3h
          Sun 2026-08-09 01:00 CEST to Sun 2026-08-09 04:00 CEST, 3h
Common    open at the same time as NodeDisruptionBudget nights next at Sun 2026-07-05 01:00 CEST
`,
		},
		"never together with another one": {
			spec: `{selector: {matchLabels: {pool: a}}, joiningNodes: Included, windows: [{schedule: "0 11 * * *", durationSeconds: 7200}]}`,
			out: `Budget    NodeDisruptionBudget production  new
          a dry run: nothing has been changed
Selects   1 node
Now       open
Windows   Wed 2026-07-01 11:00 UTC to Wed 2026-07-01 13:00 UTC, 120m, open now
          Thu 2026-07-02 11:00 UTC to Thu 2026-07-02 13:00 UTC, 120m
          Fri 2026-07-03 11:00 UTC to Fri 2026-07-03 13:00 UTC, 120m
          Sat 2026-07-04 11:00 UTC to Sat 2026-07-04 13:00 UTC, 120m
          Sun 2026-07-05 11:00 UTC to Sun 2026-07-05 13:00 UTC, 120m
Never     not open at the same time as NodeDisruptionBudget nights within a year, so no disruption of the nodes of both begins
`,
		},
		"requirements": {
			spec: `{limits: [{maxUnavailable: 2}], joiningNodes: Included, requirements: [{name: a, alerts: {url: "http://a", matchers: [a=b]}}]}`,
			out: `Budget    NodeDisruptionBudget production  new
          a dry run: nothing has been changed
Selects   3 nodes
Limit     2 of 3 nodes may be unavailable
Now       open, if its requirements are met, which this plan does not check
`,
		},
		"a time zone that does not exist": {
			spec: `{joiningNodes: Included, timeZone: Mars, windows: [{schedule: "0 11 * * *", durationSeconds: 7200}]}`,
			out: `Budget    NodeDisruptionBudget production  new
          a dry run: nothing has been changed
Selects   3 nodes
Now       NodeDisruptionBudget production cannot be used, so it allows nothing: spec.timeZone "Mars": unknown time zone: use a name of the IANA time zone database, such as Europe/Berlin
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "budget.yaml")
			content := "apiVersion: everynode.dev/v1alpha1\nkind: NodeDisruptionBudget\nmetadata: {name: production}\nspec: " + tt.spec + "\n"
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			s := &budgetServer{t: t, budgets: []v1alpha1.NodeDisruptionBudget{nights, frozenBudget("ended", -time.Hour)}}
			code, out, told := s.run("plan", "-f", file)
			if diff := cmp.Diff(tt.out, out); diff != "" || code != cmdutil.ExitOK {
				t.Errorf("exit code %d, %s\n-want +got:\n%s", code, told, diff)
			}
			if code, out, _ := s.run("plan", "-f", file, "-o", "json"); code != cmdutil.ExitOK || !json.Valid([]byte(out)) {
				t.Errorf("exit code %d, with\n%s", code, out)
			}
		})
	}
}
