// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	tests := map[string]struct {
		values []float64
		p      float64
		want   float64
	}{
		"the median of a hundred":            {hundred, 50, 50},
		"of a hundred":                       {hundred, 99, 99},
		"the highest":                        {hundred, 100, 100},
		"the lowest":                         {hundred, 0, 1},
		"of one":                             {[]float64{7}, 99, 7},
		"of a few values it is one of them":  {[]float64{3, 1, 2}, 90, 3},
		"the lower of the two middle values": {[]float64{2, 1}, 50, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Percentile(tt.values, tt.p); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	if got := Percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("without values it is %v", got)
	}
	if hundred[0] != 100 {
		t.Error("the values were sorted in place")
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 3, 2}, 7: {7}} {
		if got := Median(values); got != want {
			t.Errorf("of %v it is %v, want %v", values, got, want)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("without values it is %v", got)
	}
}

func TestRequestCounts(t *testing.T) {
	const metrics = `# HELP apiserver_request_total Counter of requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 1000
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="status",verb="PATCH",version="v1"} 2.5e+03
apiserver_request_total{code="0",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 1
apiserver_request_duration_seconds_count{verb="GET"} 7
`
	got, err := RequestCounts(strings.NewReader(metrics))
	want := Counts{"POST pods": 1002, "PATCH pods/status": 2500, "GET //readyz": 1}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	since := got.Since(Counts{"POST pods": 2, "PATCH pods/status": 2500})
	if want := (Counts{"POST pods": 1000, "GET //readyz": 1}); !reflect.DeepEqual(since, want) {
		t.Errorf("since then %v, want %v", since, want)
	}
	if since.Sum() != 1001 || since.Writes() != 1000 {
		t.Errorf("sum %v, of it writes %v", since.Sum(), since.Writes())
	}
}

func TestAuditCounts(t *testing.T) {
	line := func(stage, verb, resource, agent, user, second string) string {
		return `{"stage":"` + stage + `","verb":"` + verb + `","userAgent":"` + agent + `","user":{"username":"` + user + `"},"objectRef":{"resource":"` + resource +
			`"},"requestReceivedTimestamp":"2026-03-01T12:00:` + second + `.000000Z"}` + "\n"
	}
	log := line("ResponseComplete", "create", "pods", "everynode/v0 (linux)", "x", "10") +
		line("ResponseComplete", "create", "pods", "everynode/v0 (linux)", "x", "11") +
		line("ResponseComplete", "update", "leases", "everynode/leader-election", "x", "11") +
		line("ResponseComplete", "create", "pods", "everynode/v0 (linux)", "x", "31") +
		line("ResponseStarted", "watch", "nodes", "kwok/v0.8", "y", "12") +
		line("ResponseComplete", "watch", "nodes", "kwok/v0.8", "y", "12") +
		line(
			"ResponseComplete",
			"delete",
			"pods",
			"kube-controller-manager/v1",
			"system:serviceaccount:kube-system:daemon-set-controller",
			"13",
		) +
		`{"stage":"Resp`
	start := time.Date(2026, 3, 1, 12, 0, 10, 0, time.UTC)
	got, err := AuditCounts(strings.NewReader(log), start, start.Add(20*time.Second))
	want := ClientCounts{
		"everynode": {"create pods": 2, "update leases": 1},
		"kwok":      {"watch nodes": 1},
		"kube-controller-manager: daemon-set-controller": {"delete pods": 1},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	if writes := got["everynode"].Writes(); writes != 2 {
		t.Errorf("%v writes, want 2", writes)
	}
}
