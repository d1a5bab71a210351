// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodecondition"
)

const (
	// pageSize limits the size of one response of the API server.
	pageSize = 500

	// maxTries is how often a write is retried if the object has changed meanwhile.
	maxTries = 10
)

// Absent reports whether an error says that the object, or its whole resource, does not exist.
func Absent(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}

// Each calls do for each object of a list. A resource that the cluster does not have counts as an empty list.
func Each(ctx context.Context, c client.Reader, list client.ObjectList, do func(client.Object) error, opts ...client.ListOption) error {
	opts = append(opts, client.Limit(pageSize))
	for next := ""; ; {
		page := list.DeepCopyObject().(client.ObjectList) // no data of the previous page remains in it
		if err := c.List(ctx, page, append(opts, client.Continue(next))...); err != nil {
			if Absent(err) {
				return nil
			}
			return fmt.Errorf("listing %T: %w", list, err)
		}
		items, err := meta.ExtractList(page)
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := do(item.(client.Object)); err != nil {
				return err
			}
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// CleanNodes removes everything in scope from all nodes, and returns how many nodes it changed. It continues after an
// error.
func CleanNodes(ctx context.Context, c client.Client, scope Scope) (int, error) {
	changed := 0
	var errs []error
	err := Each(ctx, c, &corev1.NodeList{}, func(o client.Object) error {
		node := o.(*corev1.Node)
		did, err := cleanNode(ctx, c, node, scope)
		didConditions, conditionsErr := cleanConditions(ctx, c, node)
		did, err = did || didConditions, errors.Join(err, conditionsErr)
		if err != nil {
			errs = append(errs, fmt.Errorf("cleaning up node %s: %w", o.GetName(), err))
		}
		if did {
			changed++
		}
		return ctx.Err()
	})
	return changed, errors.Join(append(errs, err)...)
}

func cleanNode(ctx context.Context, c client.Client, node *corev1.Node, scope Scope) (bool, error) {
	for try := 1; ; try++ {
		change := NodeChange(node, scope)
		if change == nil {
			return false, nil
		}
		err := c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, client.RawPatch(types.MergePatchType, change.Patch()))
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case !apierrors.IsConflict(err) || try == maxTries:
			return err == nil, err
		}
		live := &corev1.Node{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(node), live); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		node = live
	}
}

// cleanConditions removes the conditions that a manager with --node-maintenance-conditions has written to a node. A manager without the
// flag may not write conditions. Then they stay, because they are for display only, and the kubelet may have written them.
func cleanConditions(ctx context.Context, c client.Client, node *corev1.Node) (bool, error) {
	for try := 1; HasConditions(node); try++ {
		live := &corev1.Node{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(node), live); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		patch := nodecondition.Desired{}.Patch(live, time.Time{})
		if patch == nil {
			break
		}
		err := c.Status().Patch(ctx, live, client.RawPatch(types.StrategicMergePatchType, patch))
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			return false, nil
		case !apierrors.IsConflict(err) || try == maxTries:
			return err == nil, err
		}
	}
	return false, nil
}

// HasConditions reports whether a node has conditions that a manager has written.
func HasConditions(node *corev1.Node) bool {
	return nodecondition.Desired{}.Patch(node, time.Time{}) != nil
}

// DropFinalizer removes one finalizer from an object, and keeps others. It succeeds if the object no longer exists.
func DropFinalizer(ctx context.Context, c client.Client, o client.Object, finalizer string) error {
	for try := 1; ; try++ {
		rest := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == finalizer })
		if len(rest) == len(o.GetFinalizers()) {
			return nil
		}
		err := patchMeta(ctx, c, o.DeepCopyObject().(client.Object), map[string]any{"finalizers": rest})
		switch {
		case Absent(err):
			return nil
		case !apierrors.IsConflict(err) || try == maxTries:
			return err
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
}

// ownedPods calls do for each pod that a NodeJob or a NodeGuard created, which has both the label and the owner.
func ownedPods(ctx context.Context, c client.Reader, do func(*corev1.Pod) error) error {
	for label, kind := range map[string]string{v1alpha1.NodeJobLabel: "NodeJob", v1alpha1.NodeGuardLabel: "NodeGuard"} {
		err := Each(ctx, c, &corev1.PodList{}, func(o client.Object) error {
			if pod := o.(*corev1.Pod); isOurs(pod, kind) {
				return do(pod)
			}
			return nil
		}, client.HasLabels{label})
		if err != nil {
			return err
		}
	}
	return nil
}

// isOurs reports whether a NodeJob or NodeGuard created an object. The label of a NodeGuard remains if an owner
// reference is removed (kubectl delete --cascade=orphan), and so does the finalizer of a task's pod.
func isOurs(o client.Object, kind string) bool {
	if slices.Contains(o.GetFinalizers(), v1alpha1.PodFinalizer) || o.GetAnnotations()[v1alpha1.NodeGuardUIDAnnotation] != "" {
		return true
	}
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.Kind == kind && ref.APIVersion == v1alpha1.GroupVersion.String()
	})
}

// Pods counts the pods of NodeJobs and NodeGuards.
func Pods(ctx context.Context, c client.Reader) (int, error) {
	n := 0
	err := ownedPods(ctx, c, func(*corev1.Pod) error { n++; return nil })
	return n, err
}

// CleanPods deletes the pods of NodeJobs and NodeGuards, without waiting for their end, and removes the finalizer of
// tasks. It returns how many pods there were.
func CleanPods(ctx context.Context, c client.Client) (int, error) {
	n := 0
	var errs []error
	err := ownedPods(ctx, c, func(pod *corev1.Pod) error {
		n++
		if pod.DeletionTimestamp.IsZero() {
			errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})))
		}
		errs = append(errs, DropFinalizer(ctx, c, pod, v1alpha1.PodFinalizer))
		return ctx.Err()
	})
	return n, errors.Join(append(errs, err)...)
}

// Budgets calls do for each PodDisruptionBudget of a NodeGuard.
func Budgets(ctx context.Context, c client.Reader, do func(*policyv1.PodDisruptionBudget) error) error {
	return Each(ctx, c, &policyv1.PodDisruptionBudgetList{}, func(o client.Object) error {
		if budget := o.(*policyv1.PodDisruptionBudget); isOurs(budget, "NodeGuard") {
			return do(budget)
		}
		return nil
	}, client.HasLabels{v1alpha1.NodeGuardLabel})
}

// CleanBudgets deletes the PodDisruptionBudgets of NodeGuards, so that no drain waits for one. It returns how many
// there were.
func CleanBudgets(ctx context.Context, c client.Client) (int, error) {
	n := 0
	err := Budgets(ctx, c, func(budget *policyv1.PodDisruptionBudget) error {
		n++
		return client.IgnoreNotFound(c.Delete(ctx, budget, client.Preconditions{UID: &budget.UID}))
	})
	return n, err
}
