// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Percentile is the smallest value that at least p percent of the values do not exceed (nearest rank); NaN
// without values. p is from 0 to 100.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median is the middle value, or the mean of the two in the middle; NaN without values.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Rounded returns a figure with two decimals.
func Rounded(n float64) float64 { return math.Round(n*100) / 100 }

// Counts are numbers of requests by verb and resource, such as "PATCH pods/status".
type Counts map[string]float64

// Since returns the difference to an earlier count.
func (c Counts) Since(before Counts) Counts {
	since := Counts{}
	for what, n := range c {
		if d := n - before[what]; d > 0 {
			since[what] = d
		}
	}
	return since
}

// Sum of all.
func (c Counts) Sum() float64 { return c.sum(func(string) bool { return true }) }

// Writes are those of the counts that change something, except leases, which are renewed even if there is no work.
func (c Counts) Writes() float64 {
	return c.sum(func(what string) bool { return Write(what) && !strings.HasSuffix(what, " leases") })
}

func (c Counts) sum(include func(what string) bool) float64 {
	sum := 0.0
	for what, n := range c {
		if include(what) {
			sum += n
		}
	}
	return sum
}

// Write reports whether a request changes something.
func Write(what string) bool {
	verb, _, _ := strings.Cut(strings.ToLower(what), " ")
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection", "post", "put", "apply":
		return true
	}
	return false
}

func verbAndResource(verb, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	return strings.TrimSpace(verb + " " + resource)
}

// RequestCounts reads the API server's own count of requests from its metrics, by verb and resource.
func RequestCounts(metrics io.Reader) (Counts, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	counts := Counts{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		counts[verbAndResource(labels["verb"], labels["resource"], labels["subresource"])] += metric.GetCounter().GetValue()
	}
	return counts, nil
}

// ClientCounts are requests by client.
type ClientCounts map[string]Counts

// auditEvent is what is read of a line of the audit log.
type auditEvent struct {
	Stage, Verb, UserAgent   string
	User                     struct{ Username string }
	ObjectRef                struct{ Resource, Subresource string }
	RequestReceivedTimestamp time.Time
}

// AuditCounts counts the requests in an audit log that were received between two times. A watch counts when it starts.
func AuditCounts(log io.Reader, from, to time.Time) (ClientCounts, error) {
	clients := ClientCounts{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the last line may be half written
		}
		stage := "ResponseComplete"
		if e.Verb == "watch" {
			stage = "ResponseStarted"
		}
		if e.Stage != stage || e.RequestReceivedTimestamp.Before(from) || e.RequestReceivedTimestamp.After(to) {
			continue
		}
		client := e.client()
		if clients[client] == nil {
			clients[client] = Counts{}
		}
		clients[client][verbAndResource(e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource)]++
	}
	return clients, lines.Err()
}

// client returns the name of the program, and for the controller manager that of the controller.
func (e *auditEvent) client() string {
	program, _, _ := strings.Cut(e.UserAgent, "/")
	if controller, found := strings.CutPrefix(e.User.Username, "system:serviceaccount:kube-system:"); found {
		return program + ": " + controller
	}
	return program
}
