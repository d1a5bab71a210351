// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

const managerUser = "system:serviceaccount:" + install.Namespace + ":everynode-manager"

// auditEvent is what the tests read of the API server's audit log.
type auditEvent struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

func (e *auditEvent) write() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb)
}

// audit reads the API server's audit log.
func (w *world) audit() []auditEvent {
	w.T.Helper()
	file, err := os.Open(real.AuditLog())
	must(w.T, err)
	defer file.Close()
	var events []auditEvent
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		// The last line may be half written.
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			events = append(events, e)
		}
	}
	must(w.T, lines.Err())
	return events
}

// TestASuccessfulRunCostsFourWrites counts at the API server what the manager writes for a run.
func TestASuccessfulRunCostsFourWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("cost", "true")
	w.complete("cost")
	counts := map[string]int{}
	total := 0
	for _, e := range w.audit() {
		mine := e.ObjectRef.Namespace == w.Namespace && e.ObjectRef.Resource == "pods" ||
			e.ObjectRef.Resource == "nodes" && e.ObjectRef.Name == node
		if e.User.Username == managerUser && e.write() && mine {
			counts[e.Verb+" "+e.ObjectRef.Resource]++
			total++
		}
	}
	var lines []string
	for what, n := range counts {
		lines = append(lines, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(lines)
	t.Logf("writes of one successful run: %s", strings.Join(lines, ", "))
	if total > 4 {
		t.Errorf("a successful run cost %d writes, want at most 4", total)
	}
	if counts["create pods"] != 1 || counts["patch nodes"] != 1 {
		t.Errorf("the writes are %v", counts)
	}
}
