// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestSelectedNodeJobs checks which NodeJobs a selection changes. ns/a and other/c have the label team=storage, and ns/b does not.
// All have failed on a node.
func TestSelectedNodeJobs(t *testing.T) {
	const suspended = ": suspended: spec.suspend false -> true\n"
	teams := map[string]string{"ns/a": "storage", "ns/b": "network", "other/c": "storage"}
	for name, tt := range map[string]struct {
		args      []string
		forbidden string
		code      int
		out       string
		told      string
		writes    []string
	}{
		"by label": {
			args: []string{"suspend", "-l", "team=storage"}, out: "nodejob a" + suspended, told: "With GitOps", writes: []string{"ns/a"},
		},
		"all of the namespace": {
			args: []string{"suspend", "--all"}, out: "nodejob a" + suspended + "nodejob b" + suspended, writes: []string{"ns/a", "ns/b"},
		},
		"by label, in all namespaces": {
			args:   []string{"suspend", "-l", "team=storage", "-A"},
			out:    "namespace ns, nodejob a" + suspended + "namespace other, nodejob c" + suspended,
			writes: []string{"ns/a", "other/c"},
		},
		"all of all namespaces": {
			args:   []string{"suspend", "--all", "-A"},
			out:    "namespace ns, nodejob a" + suspended + "namespace ns, nodejob b" + suspended + "namespace other, nodejob c" + suspended,
			writes: []string{"ns/a", "ns/b", "other/c"},
		},
		"resume": {
			args: []string{"resume", "--all"},
			out:  "nodejob a: nothing to change: it is not suspended\nnodejob b: nothing to change: it is not suspended\n",
		},
		"retry": {args: []string{"retry", "-l", "team=storage", "-A"}, told: "any new value requests a retry", writes: []string{"ns/a", "other/c"}},
		"one cannot be changed": {
			args: []string{"suspend", "--all", "-A"}, forbidden: "ns/a", code: cmdutil.ExitForbidden,
			out:    "namespace ns, nodejob b" + suspended + "namespace other, nodejob c" + suspended,
			told:   "nodejob ns/a: error: not you",
			writes: []string{"ns/b", "other/c"},
		},
		"no match": {
			args: []string{"suspend", "-l", "team=none"}, code: cmdutil.ExitNotFound,
			told: "there is no NodeJob that matches -l team=none in namespace ns. Nothing was changed. For all namespaces, add -A",
		},
		"no match in all namespaces": {
			args: []string{"retry", "-l", "team=none", "-A"}, code: cmdutil.ExitNotFound,
			told: "there is no NodeJob that matches -l team=none in this cluster. Nothing was changed",
		},
		"names and a selector":   {args: []string{"suspend", "a", "-l", "team=storage"}, code: cmdutil.ExitUsage, told: "not both"},
		"a selector and all":     {args: []string{"resume", "--all", "-l", "team=storage"}, code: cmdutil.ExitUsage, told: "give -l or --all, not both"},
		"all namespaces alone":   {args: []string{"suspend", "a", "-A"}, code: cmdutil.ExitUsage, told: "-A is for -l and --all"},
		"nothing":                {args: []string{"resume"}, code: cmdutil.ExitUsage, told: "takes the names of one or more NodeJobs, -l SELECTOR, or --all"},
		"nothing to retry":       {args: []string{"retry"}, code: cmdutil.ExitUsage, told: "takes the name of a NodeJob, -l SELECTOR, or --all"},
		"an invalid selector":    {args: []string{"suspend", "-l", "a=b=c"}, code: cmdutil.ExitUsage, told: "-l a=b=c: "},
		"a flag for named nodes": {args: []string{"retry", "--all", "--with-others"}, code: cmdutil.ExitUsage, told: "--with-others is for named nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			var writes []string
			f, out, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/everynode.dev/v1alpha1/"), "/")
				if path[len(path)-1] == "nodejobs" {
					respondJobs(t, w, r, teams, path)
					return
				}
				key := path[1] + "/" + path[3]
				job := clitest.NodeJob(path[3])
				job.Namespace, job.Status.Nodes.Failed = path[1], 1
				switch {
				case key == tt.forbidden:
					clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "not you")
				case r.Method != http.MethodGet:
					writes = append(writes, key)
					fallthrough
				default:
					clitest.Respond(w, job)
				}
			}))
			root := NewCommand(f)
			root.SetArgs(tt.args)
			if code := tellError(f, root.ExecuteContext(t.Context())); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if tt.out != "" && out.String() != tt.out {
				t.Errorf("it prints\n%s\nwant\n%s", out, tt.out)
			}
			if !strings.Contains(errs.String(), tt.told) ||
				strings.Count(errs.String(), "With GitOps") > max(1, strings.Count(out.String(), "retry")) {
				t.Errorf("no %q, or a message more than once, in\n%s", tt.told, errs)
			}
			if diff := cmp.Diff(tt.writes, writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// respondJobs lists the NodeJobs of a namespace, or of all, that match the selector of the request.
func respondJobs(t *testing.T, w http.ResponseWriter, r *http.Request, teams map[string]string, path []string) {
	t.Helper()
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		t.Error(err)
	}
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for key, team := range teams {
		namespace, name, _ := strings.Cut(key, "/")
		set := labels.Set{"team": team}
		if (len(path) == 1 || path[1] == namespace) && selector.Matches(set) {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"},
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: set},
			})
		}
	}
	clitest.Respond(w, list)
}
