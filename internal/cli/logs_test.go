// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func TestLogsSayWhereTheWholeOutputIs(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	stored := record.Archives{{Phase: "task", Location: "s3://outputs/a.log", Stored: true, Bytes: 5000}}
	lost := record.Archives{{Phase: "task", Location: "s3://outputs/b.log", Error: "the response is 403 Forbidden\x1b[2J"}}
	nodes := []metav1.PartialObjectMetadata{
		nodeWith(
			"a",
			nil,
			record.Record{Revision: "new", Outcome: record.Succeeded, Attempts: 1, FinishedAt: at, Message: "the end", Archives: stored},
		),
		nodeWith("b", nil, record.Record{Revision: "new", Outcome: record.Failed, Attempts: 1, FinishedAt: at, Archives: lost}),
		nodeWith("c", nil, record.Record{Revision: "new", Outcome: record.Failed, Attempts: 1, FinishedAt: at, Message: "broken"}),
		{ObjectMeta: metav1.ObjectMeta{Name: "without-a-record"}},
	}
	const failed = `-- b: the output is not archived: the response is 403 Forbidden\x1b[2J (it was to be s3://outputs/b.log)` + "\n"
	tests := map[string]struct {
		args      []string
		out, errs string
	}{
		"of all nodes": {
			nil, "a | the end\nc | broken\n",
			"-- 3 pods are gone; the last lines that are on record:\n-- a: s3://outputs/a.log, 5000 bytes\n" + failed +
				"-- to read a whole output, with your own credentials for the archive: aws s3 cp s3://outputs/a.log -\n",
		},
		"of failed nodes": {[]string{"--failed"}, "c | broken\n", "-- 2 pods are gone; the last lines that are on record:\n" + failed},
		"of another node": {[]string{"--node", "c"}, "c | broken\n", "-- 1 pod is gone; the last lines that are on record:\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case clitest.JobsPath + "/j":
					clitest.Respond(w, clitest.NodeJob("j"))
				case clitest.PodsPath:
					clitest.Respond(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}})
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
			if code := command(t, f, append([]string{"logs", "j"}, tt.args...)...); code != cmdutil.ExitOK {
				t.Errorf("exit code %d", code)
			}
			if out.String() != tt.out || errs.String() != tt.errs {
				t.Errorf("it prints\n%s\nand says\n%s\nwant\n%s\nand\n%s", out, errs, tt.out, tt.errs)
			}
		})
	}
}
