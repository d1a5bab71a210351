// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Counts are numbers of requests by what they are, such as "PATCH pods/status".
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
func (c Counts) Sum() float64 {
	sum := 0.0
	for _, n := range c {
		sum += n
	}
	return sum
}

// RequestCounts reads the API server's own count of requests from its metrics, by verb and resource.
func RequestCounts(metrics io.Reader) (Counts, error) {
	counts := Counts{}
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, found := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !found {
			continue
		}
		labels, value, found := strings.Cut(rest, "} ")
		if !found {
			return nil, fmt.Errorf("reading metrics: unexpected form %q", lines.Text())
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("reading metrics: %w", err)
		}
		counts[verbAndResource(parseLabels(labels))] += n
	}
	return counts, lines.Err()
}

func verbAndResource(labels map[string]string) string {
	what := labels["verb"] + " " + labels["resource"]
	if sub := labels["subresource"]; sub != "" {
		what += "/" + sub
	}
	return strings.TrimSpace(what)
}

// parseLabels reads a="x",b="y". The API server's values hold no quotes and no commas.
func parseLabels(text string) map[string]string {
	labels := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		labels[name] = strings.Trim(value, `"`)
	}
	return labels
}

// ClientCounts are requests by client.
type ClientCounts map[string]Counts

// auditEvent is what is read of a line of the audit log.
type auditEvent struct {
	Stage     string `json:"stage"`
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

// AuditCounts counts the requests in an audit log that were received between two times. A watch
// counts when it starts.
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
		if e.Stage != stage || e.Received.Before(from) || e.Received.After(to) {
			continue
		}
		name := client(e.UserAgent, e.User.Username)
		if clients[name] == nil {
			clients[name] = Counts{}
		}
		clients[name][verbAndResource(map[string]string{
			"verb": e.Verb, "resource": e.ObjectRef.Resource, "subresource": e.ObjectRef.Subresource,
		})]++
	}
	return clients, lines.Err()
}

// client returns the name of the program, and for the controller manager that of the controller.
func client(agent, user string) string {
	program, _, _ := strings.Cut(agent, "/")
	if controller, found := strings.CutPrefix(user, "system:serviceaccount:kube-system:"); found {
		return program + ": " + controller
	}
	return program
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

// Writes are those of the counts that change something, except leases, which are renewed even if there is no work.
func (c Counts) Writes() float64 {
	sum := 0.0
	for what, n := range c {
		if Write(what) && !strings.HasSuffix(what, " leases") {
			sum += n
		}
	}
	return sum
}
