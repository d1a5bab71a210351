// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func TestReport(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	nodes := reportedNodes(now)
	const header = "NODES COMPLIANT NON-COMPLIANT ERROR NOT ASKED COMPLIANT %\n"
	const problems = "\nNODE CHECK ASKED SINCE EXIT MESSAGE\nb NonCompliant 5m 120m 1 the =file\\x1b[2J differs\nd NonCompliant 5m 120m\ne Error 5m 50m 75 no such file\nassumed NotAsked\nf NotAsked"
	tests := map[string]struct {
		args []string
		job  func(*v1alpha1.NodeJob)
		// expired adds a node on which the task is no longer needed.
		expired bool
		code    int
		want    string
	}{
		"a table":         {want: header + "(all) 7 2 2 1 2 28%\n" + problems},
		"as an exit code": {args: []string{"--fail"}, code: cmdutil.ExitNonCompliant, want: header + "(all) 7 2 2 1 2 28%\n" + problems},
		"as an exit code, and all are compliant": {
			args: []string{"--fail"}, want: header + "(all) 2 2 0 0 0 100%",
			job: func(j *v1alpha1.NodeJob) { j.Spec.Nodes.Names = []string{"a", "c"} },
		},
		"a node on which the task is no longer needed does not count": {
			args: []string{"--fail"}, expired: true,
			want: strings.Replace(header, "NOT ASKED", "NOT ASKED EXPIRED", 1) + "(all) 2 1 0 0 0 1 100%",
			job:  func(j *v1alpha1.NodeJob) { j.Spec.Nodes.Names = []string{"a", "expired"} },
		},
		"the task is needed nowhere": {
			args:    []string{"--fail", "-o", "wide"},
			expired: true,
			want: strings.Replace(
				header,
				"NOT ASKED",
				"NOT ASKED EXPIRED",
				1,
			) + "(all) 1 0 0 0 0 1 -\n\nNODE CHECK ASKED SINCE EXIT MESSAGE\nexpired Expired 60m",
			job: func(j *v1alpha1.NodeJob) { j.Spec.Nodes.Names = []string{"expired"} },
		},
		"all nodes": {
			args: []string{"-o", "wide"}, want: header + "(all) 7 2 2 1 2 28%\n" + problems + "\na Compliant 5m\nc Compliant 60m",
		},
		"by zone": {
			args: []string{"--by", "zone"},
			want: "zone " + header + "(none) 1 0 0 0 1 0%\nx 3 1 2 0 0 33%\ny 3 1 0 1 1 33%\n(all) 7 2 2 1 2 28%\n" + problems,
		},
		"by a pool of any platform": {
			args: []string{
				"--by",
				"pool",
			},
			want: "pool " + header + "(none) 5 1 1 1 2 20%\neks 1 1 0 0 0 100%\nkarpenter 1 0 1 0 0 0%\n(all) 7 2 2 1 2 28%\n" + problems,
		},
		"by a label": {args: []string{"--by", "rack"}, want: "rack " + header + "(none) 7 2 2 1 2 28%\n(all) 7 2 2 1 2 28%\n" + problems},
		"for a spreadsheet": {
			args: []string{"-o", "csv", "--by", "zone"},
			want: `node,state,askedAt,since,exitCode,message,nodeJob,revision,zone
b,NonCompliant,2026-07-01T11:55:00Z,2026-07-01T10:00:00Z,1,out\nthe =file\x1b[2J differs,ns/j,new,x
d,NonCompliant,2026-07-01T11:55:00Z,2026-07-01T10:00:00Z,,,ns/j,new,x
e,Error,2026-07-01T11:55:00Z,2026-07-01T11:10:00Z,75,no such file,ns/j,new,y
assumed,NotAsked,,,,,ns/j,,
f,NotAsked,,,,,ns/j,,y
a,Compliant,2026-07-01T11:55:00Z,,,,ns/j,new,x
c,Compliant,2026-07-01T11:00:00Z,,,,ns/j,new,y`,
		},
		"without a check":   {job: func(j *v1alpha1.NodeJob) { j.Spec.Task.Check = nil }, code: cmdutil.ExitUsage},
		"no key of a label": {args: []string{"--by", "a b"}, code: cmdutil.ExitUsage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := clitest.NodeJob("j")
			job.Spec.Task = v1alpha1.TaskSpec{
				ScriptBlock: v1alpha1.ScriptBlock{Script: "true"},
				Check:       &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, PeriodSeconds: 3600},
			}
			job.Status.Revision = "new"
			if tt.job != nil {
				tt.job(job)
			}
			nodes := nodes
			if tt.expired {
				nodes = append(slices.Clone(nodes), expiredNode(now))
			}
			f, out, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case clitest.JobsPath + "/j":
					clitest.Respond(w, job)
				case clitest.NodesPath:
					clitest.Respond(w, corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: nodes})
				case "/apis/everynode.dev/v1alpha1/nodejobs":
					clitest.Respond(w, v1alpha1.NodeJobList{
						TypeMeta: metav1.TypeMeta{
							APIVersion: v1alpha1.GroupVersion.String(),
							Kind:       "NodeJobList",
						},
						Items: []v1alpha1.NodeJob{*job},
					})
				default:
					clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.String())
				}
			}))
			f.Now = func() time.Time { return now }
			code := command(t, f, append([]string{"report", "j"}, tt.args...)...)
			if got := singleSpaced(out.String()); code != tt.code || got != tt.want {
				t.Errorf("exit code %d, want %d\n%s\nwant\n%s", code, tt.code, got, tt.want)
			}
		})
	}
}

func singleSpaced(table string) string {
	var lines []string
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

// expiredNode is a node on which the task is no longer needed.
func expiredNode(now time.Time) corev1.Node {
	at := now.Add(-time.Hour)
	rec := record.Record{Revision: "new", Outcome: record.Expired, Label: "new", Assumed: true, FinishedAt: at, RecordedAt: at}
	meta := nodeWith("expired", map[string]string{corev1.LabelOSStable: "linux"}, rec)
	meta.Labels[jobKey] = rec.Label
	return corev1.Node{ObjectMeta: meta.ObjectMeta}
}

// reportedNodes are nodes with each kind of answer.
func reportedNodes(now time.Time) []corev1.Node {
	done := record.Record{
		Revision:   "new",
		Outcome:    record.Succeeded,
		Label:      "new",
		FinishedAt: now.Add(-time.Hour),
		RecordedAt: now.Add(-time.Hour),
	}
	asked := func(is record.Asked) record.Record {
		is.At, is.PodUID = now.Add(-5*time.Minute), "pod"
		rec := done
		rec.Asked = rec.Asked.With(record.QuestionCheck, is)
		return rec
	}
	assumed := done
	assumed.Assumed = true
	node := func(name string, labels map[string]string, rec record.Record) corev1.Node {
		meta := nodeWith(name, labels, rec)
		meta.Labels[jobKey], meta.Labels[corev1.LabelOSStable] = rec.Label, "linux"
		return corev1.Node{ObjectMeta: meta.ObjectMeta}
	}
	x, y := map[string]string{corev1.LabelTopologyZone: "x"}, map[string]string{corev1.LabelTopologyZone: "y"}
	karpenter := map[string]string{
		corev1.LabelTopologyZone:      "x",
		"karpenter.sh/nodepool":       "karpenter",
		"eks.amazonaws.com/nodegroup": "eks",
	}
	eks := map[string]string{corev1.LabelTopologyZone: "y", "eks.amazonaws.com/nodegroup": "eks"}
	hours, exit := now.Add(-2*time.Hour), int32(1)
	return []corev1.Node{
		node("a", x, asked(record.Asked{Answer: record.AnswerYes})),
		node(
			"b",
			karpenter,
			asked(record.Asked{Answer: record.AnswerNo, NoSince: hours, ExitCode: &exit, Message: "out\nthe =file\x1b[2J differs"}),
		),
		node("c", eks, done), // it was checked after the task
		node("d", x, asked(record.Asked{Answer: record.AnswerNone, NoSince: hours, Unanswered: 1})),
		node("e", y, asked(record.Asked{
			Answer:     record.AnswerError,
			ErrorSince: now.Add(-50 * time.Minute),
			Unanswered: 2,
			ExitCode:   new(int32(75)),
			Message:    "no such file",
		})),
		{ObjectMeta: metav1.ObjectMeta{Name: "f", Labels: map[string]string{corev1.LabelTopologyZone: "y", corev1.LabelOSStable: "linux"}}},
		node("assumed", nil, assumed),
	}
}
