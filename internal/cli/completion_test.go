// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testing/clitest"
)

// TestNamesAreCompleted calls the completion as a shell does: the last argument is the word that is completed.
func TestNamesAreCompleted(t *testing.T) {
	names := map[string][]string{
		clitest.NodesPath: {"node-1", "node-2", "other"}, clitest.JobsPath: {"j", "job-2"}, budgetsPath: {"freeze", "production"},
	}
	tests := map[string]struct{ line, want string }{
		"a NodeJob":                               {"status |", "j job-2"},
		"one NodeJob only":                        {"status j |", ""},
		"another NodeJob":                         {"suspend j |", "job-2"},
		"a freeze":                                {"thaw fr|", "freeze"},
		"another freeze":                          {"thaw freeze |", "production"},
		"nodes of a NodeJob":                      {"retry j node-1 |", "node-2 other"},
		"a node to explain":                       {"explain j no|", "node-1 node-2"},
		"nodes for logs":                          {"logs j --node node-|", "node-1 node-2"},
		"another node for logs":                   {"logs j --node node-1,|", "node-1,node-2 node-1,other"},
		"nodes to run on":                         {"run node-1 |", "node-2 other"},
		"no node with all nodes":                  {"run --all |", ""},
		"no node with a selector":                 {"run -l a=b |", ""},
		"no node in a command":                    {"run node-1 -- cat |", ""},
		"a limit":                                 {"run --all --limit no|", "node-1 node-2"},
		"a limit with an equals sign":             {"run --all --limit=o|", "other"},
		"an excluded node":                        {"run --all --limit !no|", "!node-1 !node-2"},
		"another node in a limit":                 {"run --all --limit node-2,|", "node-2,node-1 node-2,other"},
		"an excluded node after an excluded node": {"run --all --limit !node-2,!n|", "!node-2,!node-1"},
		"a node after a glob":                     {"run --all --limit x*,ot|", "x*,other"},
		"no node for a saved run":                 {"run --all --limit @n|", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, out, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				list := &metav1.PartialObjectMetadataList{
					TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
				}
				for _, name := range names[r.URL.Path] {
					list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
				}
				clitest.Respond(w, list)
			}))
			root := NewCommand(f)
			root.SetOut(out)
			root.SetArgs(append([]string{"__complete"}, strings.Split(strings.TrimSuffix(tt.line, "|"), " ")...))
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(tt.want, " ", "\n") + "\n:4\n" // 4: no files
			if got := "\n" + out.String(); got != "\n"+strings.TrimPrefix(want, "\n") {
				t.Errorf("it offers %q, want %q", out.String(), tt.want)
			}
		})
	}
}
