// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/uninstall"
)

// Timeouts of uninstall.
const (
	pollInterval = 250 * time.Millisecond
	// goneTimeout is how long the deletion of objects without a controller of Everynode may take.
	goneTimeout = 90 * time.Second
	// stopTimeout is how long a manager may take to stop. It is longer than its termination grace period.
	stopTimeout = 75 * time.Second
)

// errTimedOut is the error of a wait that has timed out.
var errTimedOut = errors.New("timed out")

// poll calls check until it is done, fails, or its result has not changed for the timeout. check returns a description
// of the state. A change of the description is progress.
func (u *uninstalling) poll(ctx context.Context, patience time.Duration, check func() (done bool, state string, err error)) error {
	since, last := u.Now(), ""
	for {
		done, state, err := check()
		if done || err != nil {
			return err
		}
		if state != last {
			since, last = u.Now(), state
		}
		if u.Now().Sub(since) >= patience {
			return errTimedOut
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-u.After(pollInterval):
		}
	}
}

// deleteNodeBudgets deletes all NodeDisruptionBudgets. The garbage collector deletes their PodDisruptionBudgets, and the manager or
// the deletion of the Secret with its key their seats.
func (u *uninstalling) deleteNodeBudgets(ctx context.Context) error {
	if n := len(u.found.nodeBudgets); n > 0 {
		u.say("deleting %s: drains do not wait any more", plural.Count(n, "NodeDisruptionBudget"))
	}
	for _, name := range u.found.nodeBudgets {
		if err := u.remove(ctx, &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	return nil
}

// deleteJobsAndGuards deletes all NodeGuards and NodeJobs, and waits for the manager to clean up if there is one.
func (u *uninstalling) deleteJobsAndGuards(ctx context.Context) error {
	if len(u.found.jobs)+len(u.found.guards) == 0 {
		return nil
	}
	waiting, err := u.toRollBack(ctx, u.found.jobs)
	if err != nil {
		return err
	}
	if len(waiting) > 0 && u.found.managers == 0 {
		return cmdutil.Failf(cmdutil.ExitError, "no manager is ready that could roll back NodeJob %s. Start the manager, or leave the nodes as they are with --skip-rollback", strings.Join(waiting, ", "))
	}
	u.say("deleting %d NodeJobs and %d NodeGuards", len(u.found.jobs), len(u.found.guards))
	for i := range u.found.guards {
		if err := u.remove(ctx, &u.found.guards[i]); err != nil {
			return err
		}
	}
	for i := range u.found.jobs {
		if err := u.deleteJob(ctx, &u.found.jobs[i]); err != nil {
			return err
		}
	}
	if u.found.managers == 0 {
		u.say("no manager is ready: this command cleans up")
		return nil
	}
	return u.waitForManager(ctx)
}

func (u *uninstalling) deleteJob(ctx context.Context, job *v1alpha1.NodeJob) error {
	policy := job.Spec.DeletionPolicy
	switch {
	case u.skipRollback && policy == v1alpha1.DeletionRollback, u.records && policy == v1alpha1.DeletionRetain:
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Forget"}}`))
		if err := u.client.Patch(ctx, job, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("changing deletionPolicy of NodeJob %s/%s: %w", job.Namespace, job.Name, err)
		}
	}
	return u.remove(ctx, job)
}

// remove deletes an object, unless it is already deleted or being deleted.
func (u *uninstalling) remove(ctx context.Context, o client.Object) error {
	switch err := u.client.Get(ctx, client.ObjectKeyFromObject(o), o); {
	case uninstall.Absent(err):
		return nil
	case err != nil:
		return fmt.Errorf("getting %s: %w", u.describe(o), err)
	case !o.GetDeletionTimestamp().IsZero():
		return nil
	}
	if err := u.client.Delete(ctx, o); err != nil && !uninstall.Absent(err) {
		return fmt.Errorf("deleting %s: %w", u.describe(o), err)
	}
	return nil
}

// waitForManager waits until the manager has cleaned up after all NodeJobs and NodeGuards. If it does not, this is an
// error only if a rollback is pending.
func (u *uninstalling) waitForManager(ctx context.Context) error {
	var left installation
	err := u.poll(ctx, u.timeout, func() (bool, string, error) {
		left = installation{}
		if err := u.findJobsAndGuards(ctx, &left); err != nil {
			return false, "", err
		}
		var state strings.Builder
		for i := range left.jobs {
			state.WriteString(left.jobs[i].ResourceVersion + " ")
		}
		fmt.Fprintf(&state, "%d", len(left.guards))
		return len(left.jobs)+len(left.guards) == 0, state.String(), nil
	})
	if !errors.Is(err, errTimedOut) {
		return err
	}
	waiting, err := u.toRollBack(ctx, left.jobs)
	if err != nil {
		return err
	}
	if len(waiting) > 0 {
		return cmdutil.Failf(cmdutil.ExitTimedOut, "NodeJob %s is not rolled back on all nodes yet. Wait longer with --timeout, or leave the nodes as they are with --skip-rollback", strings.Join(waiting, ", "))
	}
	u.say("the manager made no progress for %s: this command cleans up", u.timeout)
	return nil
}

// stopManager scales the manager down and waits until it ends, so that nothing changes the state on which this command
// decides. A manager that is scaled down ends at once, unlike one whose installation is being deleted
// (docs/uninstall.md).
func (u *uninstalling) stopManager(ctx context.Context) error {
	deployment := uninstall.Deployment()
	if err := u.client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment); err != nil && !uninstall.Absent(err) {
		return fmt.Errorf("getting the manager: %w", err)
	}
	if deployment.UID != "" && deployment.DeletionTimestamp.IsZero() && (deployment.Spec.Replicas == nil || *deployment.Spec.Replicas > 0) {
		u.say("stopping the manager")
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
		if err := u.client.Patch(ctx, deployment, patch); err != nil && !uninstall.Absent(err) {
			return fmt.Errorf("stopping the manager: %w", err)
		}
	}
	err := u.poll(ctx, stopTimeout, func() (bool, string, error) {
		var left []string
		err := uninstall.Each(ctx, u.client, &corev1.PodList{}, func(o client.Object) error {
			left = append(left, o.GetName())
			return nil
		}, client.InNamespace(uninstall.Namespace), client.MatchingLabels{uninstall.NameLabel: uninstall.NameValue, uninstall.ComponentLabel: uninstall.ManagerComponent})
		return len(left) == 0, strings.Join(left, ","), err
	})
	if errors.Is(err, errTimedOut) {
		u.say("the manager's pod does not end, its node may be lost: continuing without waiting")
		err = nil
	}
	if err != nil {
		return err
	}
	return u.remove(ctx, uninstall.Deployment())
}

// cleanUp does what the manager did not do.
func (u *uninstalling) cleanUp(ctx context.Context) error {
	// Read again: users may have created NodeJobs in the meantime, and those that the manager removed no longer exist.
	left := &installation{}
	if err := u.findJobsAndGuards(ctx, left); err != nil {
		return err
	}
	all := left.jobsAndGuards()
	if err := u.removeAll(ctx, all); err != nil {
		return err
	}
	if err := u.sweep(ctx, slices.Concat(u.found.jobs, left.jobs)); err != nil {
		return err
	}
	// The NodeJobs are deleted last, because they define what to remove.
	for _, o := range all {
		if err := uninstall.DropFinalizer(ctx, u.client, o, v1alpha1.NodeJobFinalizer); err != nil {
			return fmt.Errorf("removing the finalizer of %s: %w", u.describe(o), err)
		}
	}
	return nil
}

// sweep removes what remains of NodeGuards and of these NodeJobs.
func (u *uninstalling) sweep(ctx context.Context, jobs []v1alpha1.NodeJob) error {
	budgets, err := uninstall.CleanBudgets(ctx, u.client)
	if err != nil {
		return fmt.Errorf("deleting the PodDisruptionBudgets of NodeGuards: %w", err)
	}
	pods, err := uninstall.CleanPods(ctx, u.client)
	if err != nil {
		return fmt.Errorf("deleting the pods of NodeJobs and NodeGuards: %w", err)
	}
	nodes, err := uninstall.CleanNodes(ctx, u.client, u.scope(jobs))
	if err != nil {
		return err
	}
	if nodes+pods+budgets > 0 {
		u.say("cleaned up %s, %s and %s", plural.Count(nodes, "node"), plural.Count(pods, "pod"), plural.Count(budgets, "PodDisruptionBudget"))
	}
	return nil
}

// cleanUpAgain removes what was added to a node or pod just before the CRDs were deleted. Without the CRDs, nothing
// more is added.
func (u *uninstalling) cleanUpAgain(ctx context.Context) error {
	if err := u.sweep(ctx, u.found.jobs); err != nil {
		return err
	}
	err := u.poll(ctx, goneTimeout, func() (bool, string, error) {
		n, err := uninstall.Pods(ctx, u.client)
		return n == 0, fmt.Sprint(n), err
	})
	if errors.Is(err, errTimedOut) {
		u.say("some pods of NodeJobs or NodeGuards are still ending: their nodes may be lost. Nothing waits for them")
		return nil
	}
	return err
}

// deleteMutatingPolicies deletes the policies that change objects, with their bindings. They come before the CRDs: the API server
// cannot evaluate them without the kind of their parameters.
func (u *uninstalling) deleteMutatingPolicies(ctx context.Context) error {
	u.say("deleting the admission policies and the CRDs")
	return u.deletePolicies(ctx, true)
}

// deleteValidatingPolicies deletes the policies that ask for rights. They come after the CRDs: while NodeJobs can be written, who
// writes them is asked.
func (u *uninstalling) deleteValidatingPolicies(ctx context.Context) error {
	if err := u.deletePolicies(ctx, false); err != nil {
		return err
	}
	return u.removeAll(ctx, uninstall.Confinement())
}

func (u *uninstalling) deletePolicies(ctx context.Context, mutating bool) error {
	err := u.eachBinding(ctx, func(binding client.Object) error {
		if _, is := binding.(*admissionv1.MutatingAdmissionPolicyBinding); is != mutating {
			return nil
		}
		return u.remove(ctx, binding)
	})
	if err != nil {
		return err
	}
	return u.removeAll(ctx, slices.DeleteFunc(uninstall.Policies(), func(o client.Object) bool {
		_, is := o.(*admissionv1.MutatingAdmissionPolicy)
		return is != mutating
	}))
}

func (u *uninstalling) removeAll(ctx context.Context, objects []client.Object) error {
	for _, o := range objects {
		if err := u.remove(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// deleteCRDs deletes the CRDs and waits until they are gone. A finalizer of another tool on a NodeJob can prevent this.
//
// Each kind has been read before: if the API server has not loaded the storage of a kind when its CRD is deleted, its first try
// fails, and the next one can be up to five minutes later (updateCustomResourceDefinition in
// k8s.io/apiextensions-apiserver/pkg/controller/finalizer ignores the update that it waits for).
func (u *uninstalling) deleteCRDs(ctx context.Context) error {
	crds := uninstall.CRDs()
	if err := u.removeAll(ctx, crds); err != nil {
		return err
	}
	err := u.waitUntilGone(ctx, crds)
	if !errors.Is(err, errTimedOut) {
		return err
	}
	left := installation{}
	if err := u.findJobsAndGuards(ctx, &left); err != nil {
		return err
	}
	var held []string
	for _, o := range left.jobsAndGuards() {
		held = append(held, fmt.Sprintf("%s has the finalizers %s", u.describe(o), strings.Join(o.GetFinalizers(), ", ")))
	}
	if len(held) > 0 {
		return cmdutil.Failf(cmdutil.ExitTimedOut, "the CRDs are still being deleted: %s. Have the owners of these finalizers remove them", cmdutil.JoinNames(held))
	}
	reasons, err := u.terminating(ctx)
	if err != nil {
		return err
	}
	return cmdutil.Failf(cmdutil.ExitTimedOut, "the API server is still deleting CRDs: %s", strings.Join(reasons, "; "))
}

// terminating returns what the API server says about the deletion of each CRD that is left.
func (u *uninstalling) terminating(ctx context.Context) ([]string, error) {
	var reasons []string
	for _, o := range uninstall.CRDs() {
		err := u.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		if uninstall.Absent(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("getting %s: %w", u.describe(o), err)
		}
		reasons = append(reasons, o.GetName()+conditionMessage(o.(*unstructured.Unstructured), "Terminating"))
	}
	return reasons, nil
}

// conditionMessage returns the message of a condition in parentheses, or nothing.
func conditionMessage(o *unstructured.Unstructured, conditionType string) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, is := c.(map[string]any); is && condition["type"] == conditionType {
			return fmt.Sprintf(" (%v)", condition["message"])
		}
	}
	return ""
}

func (u *uninstalling) waitUntilGone(ctx context.Context, objects []client.Object) error {
	return u.poll(ctx, goneTimeout, func() (bool, string, error) {
		left := 0
		for _, o := range objects {
			switch err := u.client.Get(ctx, client.ObjectKeyFromObject(o), o); {
			case uninstall.Absent(err):
			case err != nil:
				return false, "", err
			default:
				left++
			}
		}
		return left == 0, fmt.Sprint(left), nil
	})
}

// deleteRBAC deletes the roles of the manager and the roles for users. It removes the finalizer that protects them
// while a manager cleans up.
func (u *uninstalling) deleteRBAC(ctx context.Context) error {
	u.say("deleting roles and bindings")
	for _, o := range slices.Concat(uninstall.ClusterRBAC(), uninstall.Namespaced()) {
		if err := u.remove(ctx, o); err != nil {
			return err
		}
		if err := uninstall.DropFinalizer(ctx, u.client, o, uninstall.Finalizer); err != nil {
			return fmt.Errorf("removing the finalizer of %s: %w", u.describe(o), err)
		}
	}
	return nil
}

// deleteNamespace deletes the namespace that config/default created, if it contains no other pods.
func (u *uninstalling) deleteNamespace(ctx context.Context) error {
	now := &installation{}
	if err := u.findNamespace(ctx, now); err != nil || !now.namespace {
		return err
	}
	if len(now.foreign) > 0 {
		u.say("namespace %s stays: it has other pods: %s", uninstall.Namespace, cmdutil.JoinNames(now.foreign))
		return nil
	}
	u.say("deleting namespace %s", uninstall.Namespace)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: uninstall.Namespace}}
	if err := u.remove(ctx, namespace); err != nil {
		return err
	}
	err := u.waitUntilGone(ctx, []client.Object{namespace})
	if errors.Is(err, errTimedOut) {
		return cmdutil.Failf(cmdutil.ExitTimedOut, "namespace %s is still being deleted. See: kubectl get namespace %s -o yaml", uninstall.Namespace, uninstall.Namespace)
	}
	return err
}
