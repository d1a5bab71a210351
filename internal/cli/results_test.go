// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// nodeWith is a node with a record of NodeJob j.
func nodeWith(name string, labels map[string]string, rec record.Record) metav1.PartialObjectMetadata {
	encoded := record.Encode(rec)
	meta := metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{record.SealKey(jobKey): record.Seal(encoded)},
		Annotations: map[string]string{jobKey: encoded},
	}
	maps.Copy(meta.Labels, labels)
	return metav1.PartialObjectMetadata{ObjectMeta: meta}
}

func TestResults(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	succeeded := func(revision string, results map[string]string) record.Record {
		return record.Record{
			Revision:   revision,
			Outcome:    record.Succeeded,
			Attempts:   1,
			ExitCode:   new(int32(0)),
			FinishedAt: at,
			Results:    results,
		}
	}
	nodes := []metav1.PartialObjectMetadata{
		nodeWith("b", map[string]string{"pool": "db"}, succeeded("new", map[string]string{"kernel": "6.1", "found": "=cmd()"})),
		nodeWith("a", map[string]string{"pool": "web"}, succeeded("new", map[string]string{"kernel": "6.12"})),
		nodeWith("c", map[string]string{"pool": "db"}, record.Record{
			Revision:   "old",
			Outcome:    record.Failed,
			Attempts:   2,
			ExitCode:   new(int32(-1)),
			FinishedAt: at,
			Results:    map[string]string{"kernel": "6.1", "found": "a\x1b[2J"},
		}),
		{ObjectMeta: metav1.ObjectMeta{Name: "without-a-record"}},
		// A node can write its own annotations, but not the seal.
		{ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{jobKey: record.Encode(succeeded("new", nil))}}},
	}
	tests := map[string]struct {
		args []string
		code int
		// want is on stdout, with single spaces and without the ages.
		want string
	}{
		"a table": {
			args: nil,
			want: "NODE OUTCOME EXIT REVISION found kernel\na Succeeded 0 new 6.12\nb Succeeded 0 new =cmd() 6.1\nc Failed -1 old a\\x1b[2J 6.1",
		},
		"by a result": {args: []string{"--by", "kernel"}, want: "kernel NODES NAMES\n6.1 2 b, c\n6.12 1 a"},
		"by a result that not all have": {
			args: []string{"--by", "found"},
			want: "found NODES NAMES\n(none) 1 a\n=cmd() 1 b\na\\x1b[2J 1 c",
		},
		"by a label":                    {args: []string{"--by", "pool"}, want: "pool NODES NAMES\ndb 2 b, c\nweb 1 a"},
		"by the outcome":                {args: []string{"--by", "outcome"}, want: "outcome NODES NAMES\nSucceeded 2 a, b\nFailed 1 c"},
		"by the exit code":              {args: []string{"--by", "exitCode"}, want: "exitCode NODES NAMES\n0 2 a, b\n-1 1 c"},
		"by the revision":               {args: []string{"--by", "revision"}, want: "revision NODES NAMES\nnew 2 a, b\nold 1 c"},
		"by something that no node has": {args: []string{"--by", "kernl"}, code: cmdutil.ExitNotFound},
		"for a spreadsheet": {args: []string{"-o", "csv"}, want: "node,outcome,exitCode,attempts,revision,finishedAt,found,kernel\n" +
			"a,Succeeded,0,1,new,2026-07-01T12:00:00Z,,6.12\nb,Succeeded,0,1,new,2026-07-01T12:00:00Z,'=cmd(),6.1\nc,Failed,'-1,2,old,2026-07-01T12:00:00Z,a\\x1b[2J,6.1"},
		"groups for a spreadsheet": {args: []string{"-o", "csv", "--by", "kernel"}, code: cmdutil.ExitUsage},
		"an unknown format":        {args: []string{"-o", "yaml"}, code: cmdutil.ExitUsage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, out, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case clitest.JobsPath + "/j":
					clitest.Respond(w, clitest.NodeJob("j"))
				case clitest.NodesPath:
					clitest.Respond(
						w,
						metav1.PartialObjectMetadataList{
							TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
							Items:    nodes,
						},
					)
				default:
					clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.String())
				}
			}))
			code := command(t, f, append([]string{"results", "j"}, tt.args...)...)
			if got := squeezed(out.String()); code != tt.code || got != tt.want {
				t.Errorf("exit code %d, want %d\n%s\nwant\n%s", code, tt.code, got, tt.want)
			}
		})
	}
}

// squeezed returns a table with single spaces, without its column of ages.
func squeezed(table string) string {
	var lines []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (fields[0] == "NODE" || fields[1] == string(record.Succeeded) || fields[1] == string(record.Failed)) {
			fields = append(fields[:3], fields[4:]...)
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	return strings.Join(lines, "\n")
}
