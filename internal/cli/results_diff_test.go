// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/clitest"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// alsoRecorded is a node that also has a record of the NodeJob other, or only that.
func alsoRecorded(node metav1.PartialObjectMetadata, rec record.Record) metav1.PartialObjectMetadata {
	key, encoded := v1alpha1.RecordKey("ns", "other"), record.Encode(rec)
	node.Labels, node.Annotations = maps.Clone(node.Labels), maps.Clone(node.Annotations)
	if node.Labels == nil {
		node.Labels, node.Annotations = map[string]string{}, map[string]string{}
	}
	node.Labels[record.SealKey(key)], node.Annotations[key] = record.Seal(encoded), encoded
	return node
}

func TestResultsOfTwoNodeJobsAreCompared(t *testing.T) {
	ended := func(outcome record.Outcome, code int32, results ...string) record.Record {
		rec := record.Record{Revision: "new", Outcome: outcome, ExitCode: &code, Results: map[string]string{}}
		for i := 0; i < len(results); i += 2 {
			rec.Results[results[i]] = results[i+1]
		}
		return rec
	}
	same := alsoRecorded(nodeWith("same", nil, ended(record.Succeeded, 0, "kernel", "6.1")), ended(record.Succeeded, 0, "kernel", "6.1"))
	differing := []metav1.PartialObjectMetadata{
		same,
		alsoRecorded(
			nodeWith("b", nil, ended(record.Succeeded, 0, "kernel", "6.1", "old", "")),
			ended(record.Succeeded, 0, "kernel", "6.12\x1b[2J", "new", "1"),
		),
		alsoRecorded(
			nodeWith("a", nil, ended(record.Succeeded, 0, "kernel", "6.1")),
			ended(record.Failed, 3, "kernel", "6.1", "outcome", "Succeeded", "exitCode", "0"),
		),
		nodeWith("c", nil, ended(record.Succeeded, 0, "kernel", "6.1")),
		alsoRecorded(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "d"}}, ended(record.Failed, 1)),
		{ObjectMeta: metav1.ObjectMeta{Name: "without-a-record"}},
	}
	tests := map[string]struct {
		nodes []metav1.PartialObjectMetadata
		args  []string
		code  int
		want  string
		told  string
	}{
		"differences": {
			nodes: differing,
			args:  []string{"--diff", "other"},
			code:  cmdutil.ExitDiffers,
			want:  "NODE RESULT j other\na exitCode 0 3\na outcome Succeeded Failed\nb kernel 6.1 6.12\\x1b[2J\nb new (none) 1\nb old (none)\nc outcome Succeeded (none)\nd outcome (none) Failed",
		},
		"differences for programs": {
			nodes: differing[3:], args: []string{"--diff", "other", "-o", "json"}, code: cmdutil.ExitDiffers,
			want: `[ { "node": "c", "result": "outcome", "value": "Succeeded" }, { "node": "d", "result": "outcome", "other": "Failed" } ]`,
		},
		"no differences": {
			nodes: differing[:1],
			args:  []string{"--diff", "other"},
			told:  "no differences between j and other on 1 node\n",
		},
		"no differences for programs": {
			nodes: differing[:1],
			args:  []string{"--diff", "other", "-o", "json"},
			want:  "[]",
			told:  "no differences between j and other on 1 node\n",
		},
		"another that does not exist": {args: []string{"--diff", "missing"}, code: cmdutil.ExitNotFound},
		"the same NodeJob":            {args: []string{"--diff", "j"}, code: cmdutil.ExitUsage},
		"an unset variable":           {args: []string{"--diff", ""}, code: cmdutil.ExitUsage},
		"groups":                      {args: []string{"--diff", "other", "--by", "kernel"}, code: cmdutil.ExitUsage},
		"a format for one NodeJob":    {args: []string{"--diff", "other", "-o", "csv"}, code: cmdutil.ExitUsage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case clitest.JobsPath + "/j", clitest.JobsPath + "/other":
					clitest.Respond(w, clitest.NodeJob(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]))
				case clitest.NodesPath:
					clitest.Respond(
						w,
						metav1.PartialObjectMetadataList{
							TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
							Items:    tt.nodes,
						},
					)
				default:
					clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.String())
				}
			}))
			code := command(t, f, append([]string{"results", "j"}, tt.args...)...)
			var lines []string
			for line := range strings.Lines(out.String()) {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
			separator := "\n"
			if strings.HasPrefix(tt.want, "[") {
				separator = " "
			}
			if got := strings.Join(lines, separator); code != tt.code || got != tt.want || errs.String() != tt.told {
				t.Errorf("exit code %d, want %d\n%s\nwant\n%s\ntold %q, want %q", code, tt.code, got, tt.want, errs.String(), tt.told)
			}
		})
	}
}
