// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// GetJob reads a NodeJob. If it does not exist, the error names the existing NodeJobs.
func GetJob(ctx context.Context, c client.Reader, key client.ObjectKey) (*v1alpha1.NodeJob, error) {
	var job v1alpha1.NodeJob
	err := c.Get(ctx, key, &job)
	if apierrors.IsNotFound(err) && !NotInstalled(err) {
		return nil, jobNotFound(ctx, c, key)
	}
	if err != nil {
		return nil, Explain(err)
	}
	return &job, nil
}

// jobNotFound returns an error that names the existing NodeJobs, as far as the user may read them.
func jobNotFound(ctx context.Context, c client.Reader, key client.ObjectKey) error {
	message := fmt.Sprintf("there is no NodeJob %s in namespace %s", key.Name, key.Namespace)
	var jobs v1alpha1.NodeJobList
	if err := c.List(ctx, &jobs, client.Limit(pageSize)); err != nil {
		jobs.Items = nil
		if err := c.List(ctx, &jobs, client.InNamespace(key.Namespace), client.Limit(pageSize)); err != nil {
			return Failf(ExitNotFound, "%s", message)
		}
	}
	var here, elsewhere []string
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if job.Namespace == key.Namespace {
			here = append(here, job.Name)
		} else if job.Name == key.Name {
			elsewhere = append(elsewhere, job.Namespace)
		}
	}
	switch {
	case len(elsewhere) > 0:
		message += fmt.Sprintf("; there is one in %s: add -n %s", JoinNames(elsewhere), elsewhere[0])
	case len(here) > 0:
		message += "; there are " + JoinNames(Nearest(key.Name, here))
	default:
		message += ", which has none: kubectl everynode list -A shows all"
	}
	return Failf(ExitNotFound, "%s", message)
}

// ListJobs reads all NodeJobs of a namespace, or of all namespaces with "".
func ListJobs(ctx context.Context, c client.Reader, namespace string) ([]v1alpha1.NodeJob, error) {
	var all []v1alpha1.NodeJob
	var page v1alpha1.NodeJobList
	err := EachPage(ctx, c, &page, func() {
		all = append(all, page.Items...)
		page.Items = nil // the next page must not be decoded into these items
	}, client.InNamespace(namespace))
	return all, err
}

// Stalled returns the condition of a NodeJob that is Stalled; nil for others.
func Stalled(job *v1alpha1.NodeJob) *metav1.Condition {
	if c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// The label of the NodeJobs that commands create.
const (
	CreatedByLabel = "app.kubernetes.io/created-by"
	CreatedByRun   = "kubectl-everynode-run"
	CreatedByPlan  = "kubectl-everynode-plan"
	CreatedByMCP   = "kubectl-everynode-mcp"
)

// IsRun reports whether the command run has created a NodeJob. It is for display only, because users can set the label too.
func IsRun(job *v1alpha1.NodeJob) bool { return job.Labels[CreatedByLabel] == CreatedByRun }
