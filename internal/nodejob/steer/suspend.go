// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"fmt"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plural"
)

// Suspend prevents new attempts, rollbacks and drains. Running attempts continue.
func Suspend(job *v1alpha1.NodeJob) Decision {
	d := Abort(job)
	if n := job.Status.Nodes.Running; d.Job != nil && n > 0 {
		d.Then = fmt.Sprintf("It is running on %s and may finish there. To end it: kubectl everynode abort %s -n %s",
			plural.Count(n, "node"), job.Name, job.Namespace)
	}
	return d
}

// Abort suspends the NodeJob too. The caller ends its running attempts.
func Abort(job *v1alpha1.NodeJob) Decision {
	if job.Spec.Suspend {
		return nothing("it is already suspended")
	}
	changed := job.DeepCopy()
	changed.Spec.Suspend = true
	return Decision{Job: changed, Did: "suspended: spec.suspend false -> true", Commit: "spec.suspend: true"}
}

// moreTime is the additional time that Resume gives a NodeJob whose startingDeadlineSeconds has passed.
const moreTime = time.Hour

// Resume lets attempts start, and extends a deadline for starts that has passed.
func Resume(job *v1alpha1.NodeJob, now time.Time) Decision {
	age := now.Sub(job.CreationTimestamp.Time)
	changed := job.DeepCopy()
	var changes, commits []string
	if job.Spec.Suspend {
		changed.Spec.Suspend = false
		changes, commits = append(changes, "spec.suspend true -> false"), append(commits, "spec.suspend: false")
	}
	if before := job.Spec.StartingDeadlineSeconds; before != nil && age >= time.Duration(*before)*time.Second {
		after := int32((age + moreTime) / time.Second)
		changed.Spec.StartingDeadlineSeconds = &after
		changes = append(changes, fmt.Sprintf("spec.startingDeadlineSeconds %d -> %d", *before, after))
		commits = append(commits, fmt.Sprintf("spec.startingDeadlineSeconds: %d", after))
	}
	if len(changes) == 0 {
		return nothing("it is not suspended")
	}
	return Decision{Job: changed, Did: "resumed: " + strings.Join(changes, ", "), Commit: strings.Join(commits, ", ")}
}

// UntilResumed says that a suspended NodeJob starts nothing; "" if it is not suspended.
func UntilResumed(job *v1alpha1.NodeJob) string {
	if !job.Spec.Suspend {
		return ""
	}
	return fmt.Sprintf("The NodeJob is suspended. Nothing starts until: kubectl everynode resume %s -n %s", job.Name, job.Namespace)
}

// RollBack prepares the deletion of the NodeJob with its rollback. The caller ends its running attempts, and deletes it.
func RollBack(job *v1alpha1.NodeJob) (Decision, error) {
	switch {
	case job.Spec.Rollback == nil:
		return Decision{}, refuse(Unsuitable, "NodeJob %s/%s has no spec.rollback, so it cannot be rolled back. Add spec.rollback, or stop it without a rollback: kubectl everynode abort %[2]s -n %[1]s",
			job.Namespace, job.Name)
	case !job.DeletionTimestamp.IsZero() && job.Spec.DeletionPolicy == v1alpha1.DeletionRollback:
		return nothing("it is being rolled back already"), nil
	}
	changed := job.DeepCopy()
	changed.Spec.DeletionPolicy, changed.Spec.Suspend = v1alpha1.DeletionRollback, true
	return Decision{Job: changed, Did: fmt.Sprintf("aborted: spec.suspend true, spec.deletionPolicy %s -> %s", job.Spec.DeletionPolicy, v1alpha1.DeletionRollback)}, nil
}
