// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// Compliance is the last answer of task.check on each selected node.
type Compliance struct {
	NodeJob string           `json:"nodeJob"`
	Total   ComplianceCounts `json:"total"`
	// Groups are those by a label; empty if nothing is grouped.
	Groups []ComplianceGroup `json:"groups,omitempty"`
	// Nodes are sorted by the urgency of their answer, then by name.
	Nodes []NodeCompliance `json:"nodes"`
}

// ComplianceCounts are the nodes by their last answer.
type ComplianceCounts struct {
	Nodes        int `json:"nodes"`
	Compliant    int `json:"compliant"`
	NonCompliant int `json:"nonCompliant"`
	Error        int `json:"error"`
	NotAsked     int `json:"notAsked"`
	// Expired are the nodes on which spec.expires says that the task is no longer needed. They are not compliant or non-compliant.
	Expired int `json:"expired,omitempty"`
}

// ComplianceGroup are the nodes with the same value of a label.
type ComplianceGroup struct {
	Value string `json:"value"`
	ComplianceCounts
}

// NodeCompliance is the last answer on a node.
type NodeCompliance struct {
	Node  string          `json:"node"`
	State ComplianceState `json:"state"`
	// Revision is that of the check that was asked: it changes with the script.
	Revision string `json:"revision,omitempty"`
	// AskedAt is when the answer was recorded, and Since since when the node is not compliant, or its check has failed.
	AskedAt time.Time `json:"askedAt,omitzero"`
	Since   time.Time `json:"since,omitzero"`
	// ExitCode and Message are those of the check, unless the node is compliant.
	ExitCode *int32 `json:"exitCode,omitempty"`
	Message  string `json:"message,omitempty"`
	// Group is the value of the label by which the nodes are grouped.
	Group string `json:"group,omitempty"`
}

// ComplianceState is what the last answer on a node means.
type ComplianceState string

const (
	// Compliant : the check has answered yes.
	Compliant ComplianceState = "Compliant"
	// NonCompliant : the check has answered no. It stays so while the check itself fails.
	NonCompliant ComplianceState = "NonCompliant"
	// CheckFailed : the check itself fails, and has not answered no before.
	CheckFailed ComplianceState = "Error"
	// NotAsked : no answer is on record.
	NotAsked ComplianceState = "NotAsked"
	// Expired : the task is no longer needed, so nothing is checked.
	Expired ComplianceState = "Expired"
)

// complianceOrder are the states, those that need a user first.
var complianceOrder = []ComplianceState{NonCompliant, CheckFailed, NotAsked, Compliant, Expired}

// ComplianceOf returns the last answers on the selected nodes of a plan, grouped by the first of the labels that a node has; by may be
// empty.
func ComplianceOf(in plan.Input, p plan.Plan, by []string) Compliance {
	c := Compliance{NodeJob: in.Job.Namespace + "/" + in.Job.Name, Nodes: []NodeCompliance{}}
	groups := map[string]*ComplianceCounts{}
	for i := range p.Nodes {
		if !IsSelected(&p.Nodes[i]) {
			continue
		}
		row := NodeRow{State: p.Nodes[i], On: in.Nodes[i].On}
		rec := row.counts(in.Revision)
		n := nodeCompliance(rec)
		if rec != nil && rec.IsExpired() {
			n = NodeCompliance{State: Expired, AskedAt: rec.EndedAt(), Revision: rec.Revision}
		}
		n.Node = p.Nodes[i].Name
		c.Total.count(n.State)
		if len(by) > 0 {
			n.Group = labelOf(in.Nodes[i].Labels, by)
			if groups[n.Group] == nil {
				groups[n.Group] = &ComplianceCounts{}
			}
			groups[n.Group].count(n.State)
		}
		c.Nodes = append(c.Nodes, n)
	}
	slices.SortFunc(c.Nodes, func(a, b NodeCompliance) int {
		return cmp.Or(slices.Index(complianceOrder, a.State)-slices.Index(complianceOrder, b.State), strings.Compare(a.Node, b.Node))
	})
	for _, value := range slices.Sorted(maps.Keys(groups)) {
		c.Groups = append(c.Groups, ComplianceGroup{value, *groups[value]})
	}
	return c
}

func labelOf(labels map[string]string, keys []string) string {
	for _, key := range keys {
		if value, found := labels[key]; found {
			return value
		}
	}
	return ""
}

// nodeCompliance is what a record, which may be nil, says of task.check. A task that has succeeded was checked after it.
func nodeCompliance(rec *record.Record) NodeCompliance {
	is := rec.Compliance()
	n := NodeCompliance{State: NotAsked, AskedAt: is.AskedAt, ExitCode: is.ExitCode, Message: is.Message}
	switch {
	case !is.DriftedSince.IsZero():
		n.State, n.Since = NonCompliant, is.DriftedSince
	case is.Answer == record.AnswerNo:
		n.State, n.Since = NonCompliant, is.AskedAt
	case is.Answer == record.AnswerYes:
		n.State = Compliant
	case !is.FailingSince.IsZero():
		n.State, n.Since = CheckFailed, is.FailingSince
	case is.Answer == "" && rec != nil && rec.Outcome == record.Succeeded && !rec.IsAssumed():
		n.State, n.AskedAt = Compliant, rec.EndedAt()
	}
	if n.State != NotAsked {
		n.Revision = rec.Revision
	}
	return n
}

func (c *ComplianceCounts) count(s ComplianceState) {
	c.Nodes++
	switch s {
	case Compliant:
		c.Compliant++
	case NonCompliant:
		c.NonCompliant++
	case CheckFailed:
		c.Error++
	case NotAsked:
		c.NotAsked++
	case Expired:
		c.Expired++
	}
}

// Needed is the number of nodes on which the check must say yes.
func (c ComplianceCounts) Needed() int { return c.Nodes - c.Expired }

// percent is how many of the nodes are compliant where that is needed, rounded down: 100 % are all.
func (c ComplianceCounts) percent() string {
	if c.Needed() == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", 100*c.Compliant/c.Needed())
}

// Lines draws the number of nodes by their answer, for each group and in total, and the nodes that are not compliant; with all, all nodes.
func (c *Compliance) Lines(by string, now time.Time, all bool) []text.Line {
	header := text.Cells(by, "NODES", "COMPLIANT", "NON-COMPLIANT", "ERROR", "NOT ASKED")
	if c.Total.Expired > 0 {
		header = append(header, text.Of("EXPIRED"))
	}
	rows := [][]text.Line{append(header, text.Of("COMPLIANT %"))}
	for _, g := range c.Groups {
		rows = append(rows, append(text.Cells(cmp.Or(g.Value, "(none)")), g.cells(c.Total.Expired > 0)...))
	}
	rows = append(rows, append(text.Cells("(all)"), c.Total.cells(c.Total.Expired > 0)...))
	lines := text.Table(rows)
	if table := c.nodeLines(now, all); len(table) > 1 {
		lines = append(append(lines, nil), table...)
	}
	return lines
}

func (c ComplianceCounts) cells(expired bool) []text.Line {
	bad := func(n int) text.Line {
		if n == 0 {
			return text.Of("0")
		}
		return text.Toned(text.Bad, strconv.Itoa(n))
	}
	cells := []text.Line{
		text.Of(strconv.Itoa(c.Nodes)), text.Of(strconv.Itoa(c.Compliant)), bad(c.NonCompliant), bad(c.Error), text.Of(strconv.Itoa(c.NotAsked)),
	}
	if expired {
		cells = append(cells, text.Of(strconv.Itoa(c.Expired)))
	}
	return append(cells, text.Of(c.percent()))
}

// nodeLines draws nodes. Without all, it leaves out those that are compliant or expired, and says how many others there are after the first.
func (c *Compliance) nodeLines(now time.Time, all bool) []text.Line {
	rows := [][]text.Line{text.Cells("NODE", "CHECK", "ASKED", "SINCE", "EXIT", "MESSAGE")}
	shown := c.Nodes
	if !all {
		shown = slices.DeleteFunc(slices.Clone(c.Nodes), func(n NodeCompliance) bool { return n.State == Compliant || n.State == Expired })
	}
	left := 0
	if !all && len(shown) > maxReported {
		left, shown = len(shown)-maxReported, shown[:maxReported]
	}
	for i := range shown {
		n := &shown[i]
		tone := text.Plain
		if n.State == NonCompliant || n.State == CheckFailed {
			tone = text.Bad
		}
		rows = append(rows, []text.Line{
			text.Of(n.Node), text.Toned(tone, string(n.State)), text.Of(since(now, n.AskedAt)), text.Of(since(now, n.Since)),
			text.Of(exitText(n.ExitCode)), text.Of(lastLine(n.Message)),
		})
	}
	lines := text.Table(rows)
	if left > 0 {
		lines = append(lines, text.Of("and "+plural.Count(left, "other")+" (-o wide)"))
	}
	return lines
}

// since is how long ago something was; "" if it has not been.
func since(now, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return ago(now, at)
}

// maxReported limits the nodes that are printed without -o wide.
const maxReported = 20

// Table returns the header and a row for each node, for a spreadsheet.
func (c *Compliance) Table(by string) [][]string {
	header := []string{"node", "state", "askedAt", "since", "exitCode", "message", "nodeJob", "revision"}
	if by != "" {
		header = append(header, by)
	}
	table := [][]string{header}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		row := []string{n.Node, string(n.State), timestamp(n.AskedAt), timestamp(n.Since), exitText(n.ExitCode), n.Message, c.NodeJob, n.Revision}
		if by != "" {
			row = append(row, n.Group)
		}
		table = append(table, row)
	}
	return table
}

// timestamp is a time for programs; "" if it is zero.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
