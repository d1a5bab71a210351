// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"
	"time"
)

func TestHeartbeatsAreThoseOfTheOptions(t *testing.T) {
	tests := map[string]struct {
		options   Options
		component string
		want      string
	}{
		"a node is looked at every 2 s": {Options{}, controllerManagerName, "--node-monitor-period=2s"},
		"a node is looked at less often": {
			Options{NodeMonitorPeriod: 5 * time.Second},
			controllerManagerName,
			"--node-monitor-period=5s",
		},
		"a simulated node has a lease of 40 s": {Options{}, kwokName, "--node-lease-duration-seconds=40"},
		"a simulated node has a lease of 10 min": {
			Options{SimulatedLease: 10 * time.Minute},
			kwokName,
			"--node-lease-duration-seconds=600",
		},
		"a silent node is Unknown after 20 s": {Options{}, controllerManagerName, "--node-monitor-grace-period=20s"},
		"a silent node is Unknown after some time": {
			Options{NodeMonitorGracePeriod: time.Hour},
			controllerManagerName,
			"--node-monitor-grace-period=1h0m0s",
		},
		"a node has a minute to report first": {Options{}, controllerManagerName, "--node-startup-grace-period=1m0s"},
		"a node has longer to report first": {
			Options{NodeMonitorGracePeriod: time.Hour},
			controllerManagerName,
			"--node-startup-grace-period=1h0m0s",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tt.options.complete(); err != nil {
				t.Fatal(err)
			}
			p := controlPlane{state: &state{}}
			p.heartbeats(tt.options)
			if got := p.arguments(tt.component); !slices.Contains(got, tt.want) {
				t.Errorf("%q is missing in %q", tt.want, got)
			}
		})
	}
}
