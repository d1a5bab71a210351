// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// pageSize limits the number of objects in one response of the API server.
const pageSize = 500

// GetJob reads a NodeJob. If it does not exist, the error names the existing NodeJobs.
func GetJob(ctx context.Context, c client.Reader, key client.ObjectKey) (*v1alpha1.NodeJob, error) {
	var job v1alpha1.NodeJob
	err := c.Get(ctx, key, &job)
	if apierrors.IsNotFound(err) && !notInstalled(err) {
		return nil, jobNotFound(ctx, c, key)
	}
	if err != nil {
		return nil, Explain(err)
	}
	return &job, nil
}

// maxNear limits the number of names in an error.
const maxNear = 5

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
		message += fmt.Sprintf("; there is one in %s: add -n %s", list(elsewhere), elsewhere[0])
	case len(here) > 0:
		message += "; there are " + list(nearest(key.Name, here))
	default:
		message += ", which has none: kubectl everynode list -A shows all"
	}
	return Failf(ExitNotFound, "%s", message)
}

// nearest sorts the names that are most similar to the given one first.
func nearest(name string, names []string) []string {
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(likeness(name, b), likeness(name, a)), cmp.Compare(a, b))
	})
	return names
}

// likeness returns how many characters two names have in common at their ends, with a bonus if one contains the other.
func likeness(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	m := 0
	for m < min(len(a), len(b))-n && a[len(a)-1-m] == b[len(b)-1-m] {
		m++
	}
	if strings.Contains(a, b) || strings.Contains(b, a) {
		n += 100
	}
	return n + m
}

func list(names []string) string {
	if len(names) > maxNear {
		return strings.Join(names[:maxNear], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNear)
	}
	return strings.Join(names, ", ")
}

// listJobs reads all NodeJobs of a namespace, or of all namespaces with "".
func listJobs(ctx context.Context, c client.Reader, namespace string) ([]v1alpha1.NodeJob, error) {
	var all []v1alpha1.NodeJob
	var page v1alpha1.NodeJobList
	err := eachPage(ctx, c, &page, func() {
		all = append(all, page.Items...)
		page.Items = nil // the next page must not be decoded into these items
	}, client.InNamespace(namespace))
	return all, err
}

// podsOf reads the pods of the attempts of a NodeJob.
func podsOf(ctx context.Context, c client.Reader, job *v1alpha1.NodeJob, opts ...client.ListOption) ([]corev1.Pod, error) {
	var all []corev1.Pod
	var page corev1.PodList
	err := eachPage(ctx, c, &page, func() {
		for i := range page.Items {
			if owns(job, &page.Items[i]) {
				all = append(all, page.Items[i])
			}
		}
	}, append(opts, client.InNamespace(job.Namespace), client.MatchingLabels{v1alpha1.NodeJobLabel: job.Name})...)
	return all, err
}

// notEnded excludes pods that have ended. A run retains one of these on each node.
var notEnded = client.MatchingFieldsSelector{Selector: fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))}

func owns(job *v1alpha1.NodeJob, pod *corev1.Pod) bool {
	for i := range pod.OwnerReferences {
		if pod.OwnerReferences[i].UID == job.UID {
			return true
		}
	}
	return false
}

// eachPage lists in pages, since nodes with their images are large.
func eachPage(ctx context.Context, c client.Reader, page client.ObjectList, do func(), opts ...client.ListOption) error {
	opts = append(opts, client.Limit(pageSize))
	for next := ""; ; {
		if err := c.List(ctx, page, append(opts, client.Continue(next))...); err != nil {
			return Explain(err)
		}
		do()
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
