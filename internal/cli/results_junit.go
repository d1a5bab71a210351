// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/view"
)

const outputJUnit = "junit"

// junitSuites is a report in the form of JUnit, as CI systems read it. There is no standard; these elements and
// attributes are those that Jenkins and GitLab document.
type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitProblem `xml:"failure,omitempty"`
	Error   *junitProblem `xml:"error,omitempty"`
	Skipped *junitProblem `xml:"skipped,omitempty"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitProblem struct {
	Type    string `xml:"type,attr,omitempty"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// junitReport returns a report with a test case for each record. XML has no form for control characters, so they appear
// as escapes.
func junitReport(job string, found view.Results) ([]byte, error) {
	cases := make([]junitCase, 0, len(found.Nodes))
	var total time.Duration
	for i := range found.Nodes {
		n := &found.Nodes[i]
		took := n.Duration()
		total += took
		c := junitCase{Class: job, Name: text.Safe(n.Node), Time: junitTime(took), Output: junitOutput(n.Results)}
		switch {
		case n.Revision != found.Revision:
			c.Skipped = &junitProblem{Message: fmt.Sprintf("the current revision %s has not ended there; the record is of revision %s", found.Revision, text.Safe(n.Revision))}
		case n.Outcome == string(record.Failed):
			c.Failure = &junitProblem{Type: text.Safe(n.Reason), Message: text.Safe(junitMessage(n.Reason, n.ExitCode)), Text: outcome.Clean(n.Message, math.MaxInt)}
		case n.Outcome == v1alpha1.ReasonAssumedDone:
			c.Skipped = &junitProblem{Message: "AssumedDone: the task has not run, because the node matched spec.nodes.assumeDone"}
		case n.Outcome == v1alpha1.ReasonAlreadyDone, n.Outcome == string(record.Expired): // the check has passed, or nothing is needed
		case n.Outcome != string(record.Succeeded):
			c.Skipped = &junitProblem{Message: text.Safe(strings.TrimSuffix(n.Outcome+": "+n.Reason, ": "))}
		}
		cases = append(cases, c)
	}
	return encodeJUnit(job, cases, total)
}

// encodeJUnit returns a report with one suite.
func encodeJUnit(name string, cases []junitCase, took time.Duration) ([]byte, error) {
	suite := junitSuite{Name: name, Tests: len(cases), Time: junitTime(took), Cases: cases}
	for i := range cases {
		switch c := &cases[i]; {
		case c.Failure != nil:
			suite.Failures++
		case c.Error != nil:
			suite.Errors++
		case c.Skipped != nil:
			suite.Skipped++
		}
	}
	b, err := xml.MarshalIndent(junitSuites{Suite: suite}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the results: %w", err)
	}
	return append([]byte(xml.Header), append(b, '\n')...), nil
}

func junitMessage(reason string, code *int32) string {
	if code == nil {
		return reason
	}
	return fmt.Sprintf("%s: exit code %d", reason, *code)
}

// junitTime returns a duration in seconds.
func junitTime(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func junitOutput(results map[string]string) string {
	lines := make([]string, 0, len(results))
	for key, value := range results {
		lines = append(lines, text.Safe(key+"="+value)+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (o *resultsOptions) printJUnit(found view.Results) error {
	b, err := junitReport(o.namespace+"/"+o.name, found)
	if err != nil {
		return err
	}
	return writeReport(o.Out, b)
}

func writeReport(out io.Writer, report []byte) error {
	if _, err := out.Write(report); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
