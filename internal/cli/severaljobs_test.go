// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestSeveralNodeJobs checks that a command is done for each NodeJob, also after one for which it fails, and that the exit code
// is the worst one.
func TestSeveralNodeJobs(t *testing.T) {
	const commit, noC = "With GitOps, commit this instead: ", "there is no NodeJob c in namespace ns"
	for name, tt := range map[string]struct {
		args   []string
		code   int
		out    string
		told   []string
		writes []string
	}{
		"suspend": {[]string{"suspend", "a", "b"}, cmdutil.ExitOK,
			"nodejob a: suspended: spec.suspend false -> true\nnodejob b: suspended: spec.suspend false -> true\n", []string{commit + "spec.suspend: true"}, []string{"PATCH a", "PATCH b"}},
		"resume": {[]string{"resume", "a", "b"}, cmdutil.ExitOK,
			"nodejob a: nothing to change: it is not suspended\nnodejob b: nothing to change: it is not suspended\n", nil, nil},
		"promote": {[]string{"promote", "a", "b", "--to", "all"}, cmdutil.ExitOK,
			"nodejob a: promoted: spec.rollout.promoteTo canary -> all\nnodejob b: promoted: spec.rollout.promoteTo canary -> all\n", nil, []string{"PATCH a", "PATCH b"}},
		"abort": {[]string{"abort", "a", "b"}, cmdutil.ExitOK,
			"nodejob a: suspended: spec.suspend false -> true\nnodejob b: suspended: spec.suspend false -> true\n", nil, []string{"PATCH a", "PATCH b"}},
		"one is missing": {[]string{"suspend", "c", "b"}, cmdutil.ExitNotFound,
			"nodejob b: suspended: spec.suspend false -> true\n", []string{"nodejob c: error: " + noC}, []string{"PATCH b"}},
		"the worst is first": {[]string{"suspend", "forbidden", "c", "b"}, cmdutil.ExitForbidden,
			"nodejob b: suspended: spec.suspend false -> true\n", []string{"nodejob forbidden: error: not you", "nodejob c: error: " + noC}, []string{"PATCH b"}},
		"one, which is missing": {[]string{"suspend", "c"}, cmdutil.ExitNotFound, "", []string{"error: " + noC}, nil},
		"retry takes one":       {[]string{"retry", "a", "b"}, cmdutil.ExitNotFound, "", []string{"node b: there is no node b, but a NodeJob: this command takes one NodeJob, and then nodes."}, nil},
		"skip takes one":        {[]string{"skip", "a", "b"}, cmdutil.ExitNotFound, "", []string{"node b: there is no node b, but a NodeJob: this command takes one NodeJob, and then nodes."}, nil},
		"status takes one":      {[]string{"status", "a", "b"}, cmdutil.ExitUsage, "", []string{"takes the name of a NodeJob (to list all: kubectl everynode list), and got 2 arguments"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var writes []string
			f, out, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				job, is := strings.CutPrefix(r.URL.Path, clitest.JobsPath+"/")
				switch {
				case r.URL.Path == clitest.PodsPath:
					clitest.Respond(w, metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}})
				case is && job == "forbidden":
					clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "not you")
				case is && (job == "a" || job == "b"):
					if r.Method != http.MethodGet {
						writes = append(writes, r.Method+" "+job)
					}
					j := clitest.NodeJob(job)
					j.Spec.Rollout = v1alpha1.RolloutSpec{
						Steps:     []v1alpha1.RolloutStep{{Name: "canary"}, {Name: "all"}},
						PromoteTo: "canary",
					}
					clitest.Respond(w, j)
				default:
					clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
				}
			}))
			root := NewCommand(f)
			root.SetArgs(tt.args)
			if code := tellError(f, root.ExecuteContext(t.Context())); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if diff := cmp.Diff(tt.out, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			for _, want := range tt.told {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("no %q in\n%s", want, errs)
				}
			}
			if diff := cmp.Diff(tt.writes, writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}
