// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func TestVerdict(t *testing.T) {
	is := func(kind string) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) {
			j.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue}}
		}
	}
	deleting := func(j *v1alpha1.NodeJob) {
		j.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}
	}
	tests := map[string]struct {
		changes []func(*v1alpha1.NodeJob)
		want    int
	}{
		"complete": {[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionComplete)}, cmdutil.ExitOK},
		"an audit that found a node that is not compliant": {[]func(*v1alpha1.NodeJob){
			is(v1alpha1.ConditionComplete), func(j *v1alpha1.NodeJob) { j.Status.Conditions[0].Reason = v1alpha1.ReasonNonCompliant },
		}, cmdutil.ExitNonCompliant},
		"running": {[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionReconciling)}, inProgress},
		"stopped": {[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionStalled)}, cmdutil.ExitNodesFailed},
		"awaiting promotion": {[]func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) {
			j.Status.Conditions = []metav1.Condition{
				{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse},
				{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionFalse},
			}
		}}, cmdutil.ExitWaits},
		"not observed yet": {nil, inProgress},
		"stopped, and a rollback has not ended": {[]func(*v1alpha1.NodeJob){
			is(v1alpha1.ConditionStalled), func(j *v1alpha1.NodeJob) { j.Status.Nodes.RollbackPending = 1 },
		}, inProgress},
		"stopped and suspended before the rollback": {[]func(*v1alpha1.NodeJob){
			is(v1alpha1.ConditionStalled), func(j *v1alpha1.NodeJob) { j.Status.Nodes.RollbackPending, j.Spec.Suspend = 1, true },
		}, cmdutil.ExitNodesFailed},
		"its deletion continues": {[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionReconciling), deleting}, inProgress},
		"its deletion is blocked": {
			[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionStalled), deleting},
			cmdutil.ExitNodesFailed,
		},
		"it was Stalled before its deletion": {
			[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionStalled), deleting, func(j *v1alpha1.NodeJob) { j.Generation = 2 }},
			inProgress,
		},
		"a status that is older than the spec": {
			[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionComplete), func(j *v1alpha1.NodeJob) { j.Generation = 2 }},
			inProgress,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{}
			for _, change := range tt.changes {
				change(job)
			}
			if got := verdict(job); got != tt.want {
				t.Errorf("verdict %d, want %d", got, tt.want)
			}
		})
	}
}

// TestTheEndOfADeletionThatIsWatched covers a NodeJob that is rolled back and then deleted: abort --rollback advises to
// watch it.
func TestTheEndOfADeletionThatIsWatched(t *testing.T) {
	for name, tt := range map[string]struct {
		deleting bool
		code     int
		said     string
	}{
		"it was being deleted before": {true, cmdutil.ExitOK, "NodeJob ns/j is deleted\n"},
		"it is deleted meanwhile":     {false, cmdutil.ExitGone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, errs := clitest.NewFactory(t, http.NotFoundHandler())
			job := clitest.NodeJob("j")
			if tt.deleting {
				job.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}
			}
			o := &statusOptions{Factory: f, key: client.ObjectKeyFromObject(job)}
			w := o.watching(job)
			end, err := w.see(t.Context(), cmdutil.Observation{Gone: true})
			if code := cmdutil.CodeOf(err); !end || code != tt.code || errs.String() != tt.said {
				t.Errorf("end %t, exit code %d, said %q", end, code, errs)
			}
		})
	}
}

// TestAWatchSaysThatTheManagerIsAway covers a NodeJob that was observed before: nothing in it changes while no manager runs.
func TestAWatchSaysThatTheManagerIsAway(t *testing.T) {
	d := withKind(managerOf(t, "example.com/manager:v0.1.0", "example.com/runner:v0.1.0", ""))
	d.Status.AvailableReplicas = 1
	f, out, errs := clitest.NewFactory(t, installation(d, nil))
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	f.Now = func() time.Time { return now }
	_, c, err := f.Target("j")
	if err != nil {
		t.Fatal(err)
	}
	job := clitest.NodeJob("j")
	w := (&statusOptions{Factory: f, key: client.ObjectKeyFromObject(job), client: c}).watching(job)
	w.last.Job = job
	const said = "12:00:10Z  ns/j  NotObserved  the manager has not observed it yet; check that it is running: kubectl everynode version; warning: no manager is available, so nothing happens with NodeJobs and NodeGuards: " +
		"see kubectl -n everynode-system get pods\n"
	for _, step := range []struct {
		available int32
		want      bool
	}{{available: 1}, {available: 0, want: true}, {available: 1}} {
		d.Status.AvailableReplicas = step.available
		w.lookForManager(t.Context())
		w.last.Now = now
		if err := w.say(); err != nil {
			t.Fatal(err)
		}
		if has := strings.HasSuffix(out.String(), said); has != step.want {
			t.Errorf("with %d pods, it says\n%s%s", step.available, out, errs)
		}
		now = now.Add(managerInterval)
	}
}
