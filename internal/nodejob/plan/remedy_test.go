// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestARemedyIsPrintedForBothPrograms(t *testing.T) {
	job := newJob()
	for name, tt := range map[string]struct {
		remedy             Remedy
		kubectl, everynode string
	}{
		"retry all failed nodes": {
			Remedy{Verb: VerbRetry}, `kubectl -n ns annotate nodejob job everynode.dev/retry="$(date +%s)" --overwrite`, "retry job",
		},
		"retry one node":          {Remedy{Verb: VerbRetry, Node: AnyNode}, "kubectl annotate node NAME ns.everynode.dev/job-", "retry job NODE"},
		"skip a node":             {Remedy{Verb: VerbSkip, Node: "n"}, "kubectl label node n ns.everynode.dev/job=rev --overwrite", "skip job n"},
		"promote to a step":       {Remedy{Verb: VerbPromote, Step: "all"}, `kubectl -n ns patch nodejob job --type=merge -p '{"spec":{"rollout":{"promoteTo":"all"}}}'`, "promote job --to all"},
		"delete without rollback": {Remedy{Verb: VerbForget}, `kubectl -n ns patch nodejob job --type=merge -p '{"spec":{"deletionPolicy":"Forget"}}'`, "forget job"},
	} {
		t.Run(name, func(t *testing.T) {
			got := []string{tt.remedy.Kubectl(job, "rev"), strings.Join(tt.remedy.Arguments(job.Name), " ")}
			if diff := cmp.Diff([]string{tt.kubectl, tt.everynode}, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestRemediesAreFoundInTheMessageOfACondition(t *testing.T) {
	job := newJob()
	job.Status.Revision = "rev"
	job.Spec.Rollout.PromoteTo = "canary"
	job.Status.Rollout = &v1alpha1.RolloutStatus{Steps: []v1alpha1.StepStatus{{Name: "canary"}, {Name: "half"}, {Name: "all"}}}
	for name, want := range map[string]Remedies{
		"failed nodes":                      FailureRemedies(FixTask, true),
		"failed nodes that are not there":   FailureRemedies(FixTask, false),
		"drains that have timed out":        FailureRemedies(MakeRoom, true),
		"the same without single nodes":     FailureRemedies(MakeRoom, false),
		"nodes that have reverted":          RevertedRemedies(),
		"a deletion that is blocked":        DeletionRemedies(),
		"a promotion to the next step":      PromotionRemedies("half"),
		"no remedies":                       {},
		"remedies that another version had": {Before: "Do something else, or", All: []Remedy{{Verb: VerbRetry}}},
	} {
		t.Run(name, func(t *testing.T) {
			message := strings.TrimSuffix("The cause; with a semicolon. "+want.Kubectl(job, "rev"), " ")
			cause, got := CutRemedies(job, message)
			if strings.HasPrefix(name, "remedies that another") {
				want = Remedies{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if len(want.All) > 0 && cause != "The cause; with a semicolon." || len(want.All) == 0 && cause != message {
				t.Errorf("the cause is %q", cause)
			}
		})
	}
}
