// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/text"
)

// written is an entry of the managed fields.
func written(subresource string, ago time.Duration) metav1.ManagedFieldsEntry {
	at := at(ago)
	return metav1.ManagedFieldsEntry{Subresource: subresource, Time: &at}
}

// TestAChangeOfAMomentAgoIsNoReasonForAnAlarm checks status, also while it watches, and list: all warn only after ten seconds.
func TestAChangeOfAMomentAgoIsNoReasonForAnAlarm(t *testing.T) {
	const check = "kubectl everynode version"
	for name, tt := range map[string]struct {
		age   time.Duration
		fresh bool
		alarm bool
		want  string
	}{
		"created a moment ago": {9 * time.Second, true, false, "the manager has not observed it yet"},
		"created a while ago":  {11 * time.Second, true, true, "the manager has not observed it yet"},
		"changed a moment ago": {0, false, false, "the manager has not observed the last change of its spec yet; the following is older"},
		"changed a while ago":  {11 * time.Second, false, true, "the manager has not observed the last change of its spec yet"},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(func(*v1alpha1.NodeJob) {})
			j.Generation++
			j.ManagedFields = []metav1.ManagedFieldsEntry{written("", tt.age)}
			j.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue}}
			if tt.fresh {
				j.Status, j.CreationTimestamp = v1alpha1.NodeJobStatus{ObservedGeneration: -1}, at(tt.age)
			}
			s := Status{Job: j, Now: now}
			for what, got := range map[string]string{
				"status":         text.Print(s.Lines(), text.Options{}),
				"status --watch": text.Print([]text.Line{s.Summary()}, text.Options{}),
				"list -o wide":   text.Print(List{Jobs: []v1alpha1.NodeJob{*j}, Wide: true, Now: now}.Lines(), text.Options{}),
			} {
				// After a while, status says for how long it has waited.
				if told := strings.Contains(got, tt.want); !told && (what != "status" || !tt.alarm) {
					t.Errorf("%s does not say %q:\n%s", what, tt.want, got)
				}
				if strings.Contains(got, check) != tt.alarm || !strings.Contains(got, "NotObserved") {
					t.Errorf("%s, with an alarm: %v:\n%s", what, !tt.alarm, got)
				}
			}
		})
	}
}

func TestUnobserved(t *testing.T) {
	fresh := func(j *v1alpha1.NodeJob) {
		j.Generation, j.Status = 1, v1alpha1.NodeJobStatus{ObservedGeneration: -1}
	}
	const check = "; check that one is running: kubectl everynode version"
	tests := map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   string
	}{
		"observed": {func(*v1alpha1.NodeJob) {}, ""},
		"new":      {func(j *v1alpha1.NodeJob) { fresh(j); j.CreationTimestamp = at(9 * time.Second) }, ""},
		"not observed for a while": {
			func(j *v1alpha1.NodeJob) { fresh(j); j.CreationTimestamp = at(25 * time.Second) },
			"no manager has observed it for 25s" + check,
		},
		"never observed, and changed by the user since": {
			func(j *v1alpha1.NodeJob) {
				fresh(j)
				j.Generation = 2
				j.ManagedFields = []metav1.ManagedFieldsEntry{written("", time.Minute), {}}
			},
			"no manager has observed it for 60s" + check,
		},
		"changed a moment ago": {
			func(j *v1alpha1.NodeJob) {
				j.Generation++
				j.ManagedFields = []metav1.ManagedFieldsEntry{written("", time.Hour), written("", 2*time.Second)}
			}, "",
		},
		"changed a while ago, with a status that is newer": {
			func(j *v1alpha1.NodeJob) {
				j.Generation++
				j.ManagedFields = []metav1.ManagedFieldsEntry{written("", 40*time.Second), written("status", time.Second)}
			},
			"no manager has observed the last change of its spec for 40s" + check + "; the following is older",
		},
		"deleted a while ago": {
			func(j *v1alpha1.NodeJob) {
				j.Generation++
				deleted := at(30 * time.Second)
				j.DeletionTimestamp = &deleted
			},
			"no manager has observed its deletion for 30s" + check,
		},
		"a time that is not known": {
			func(j *v1alpha1.NodeJob) { fresh(j); j.CreationTimestamp = metav1.Time{} }, "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := unobservedMessage(job(tt.change), now); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestAListNamesNodeJobsThatNoManagerHasObserved(t *testing.T) {
	named := func(name string, waited time.Duration) v1alpha1.NodeJob {
		return *job(func(j *v1alpha1.NodeJob) {
			j.Name, j.CreationTimestamp, j.Status = name, at(waited), v1alpha1.NodeJobStatus{}
		})
	}
	observed := *job(func(*v1alpha1.NodeJob) {})
	tests := map[string]struct {
		jobs []v1alpha1.NodeJob
		want string
	}{
		"none": {[]v1alpha1.NodeJob{observed, named("new", time.Second)}, ""},
		"one": {
			[]v1alpha1.NodeJob{observed, named("a", time.Minute)},
			"warning: no manager has observed NodeJob node-setup/a for 60s; check that one is running: kubectl everynode version\n",
		},
		"several": {
			[]v1alpha1.NodeJob{named("a", time.Minute), named("b", time.Hour), named("new", 0), named("c", time.Minute)},
			"warning: no manager has observed NodeJob node-setup/a and 2 more for 60m; check that one is running: kubectl everynode version\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := text.Print(List{Jobs: tt.jobs, Now: now}.Unobserved(0), text.Options{}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
