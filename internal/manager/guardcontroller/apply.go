// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// maxParallelWrites limits the concurrent writes of one pass.
const maxParallelWrites = 16

// applied is the result of a pass, apart from errors.
type applied struct {
	// taken is true if a name is not free yet. another is true if a pod of another owner has it, so the next name is
	// used.
	taken, another bool
	// refused is true if the API server rejected a pod. The status must show this.
	refused bool
}

// apply executes the actions of the plan in parallel. It collects errors, so that one failed write does not prevent
// others.
func (r *Reconciler) apply(ctx context.Context, seen *observation, actions []guard.Action) (applied, error) {
	if len(actions) == 0 {
		return applied{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout-r.Now().Sub(seen.input.Now))
	defer cancel()
	if err := ctx.Err(); err != nil {
		return applied{}, fmt.Errorf("the observation is too old: %w", err)
	}
	actions, uncounted, err := r.counted(ctx, seen, actions)
	if err != nil {
		return applied{}, err
	}
	errs := make([]error, len(actions))
	var taken, other atomic.Bool
	var group errgroup.Group
	group.SetLimit(maxParallelWrites)
	for i, action := range actions {
		group.Go(func() error {
			err := r.do(ctx, seen, action)
			if apierrors.IsAlreadyExists(err) {
				var next bool
				if next, err = r.another(ctx, seen.guard, action); next {
					other.Store(true)
				}
				taken.Store(true)
			}
			errs[i] = err
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
	refused := r.judge(seen.guard, actions, errs)
	return applied{taken.Load(), other.Load() || uncounted, refused}, some(errs)
}

// counted removes the creations of companions from the actions if the NodeGuard or the spec of the budget has changed since it was observed:
// the node may be released, or the budget may count them no longer.
func (r *Reconciler) counted(ctx context.Context, seen *observation, actions []guard.Action) (rest []guard.Action, uncounted bool, err error) {
	creates := func(a guard.Action) bool { _, is := a.(guard.CreateCompanion); return is }
	if !slices.ContainsFunc(actions, creates) {
		return actions, false, nil
	}
	b := seen.budgets[guard.BudgetName(seen.guard.Name)]
	if b == nil {
		return nil, false, fmt.Errorf("companions of NodeGuard %s would be created without a PodDisruptionBudget", seen.guard.Name)
	}
	var g v1alpha1.NodeGuard
	var live policyv1.PodDisruptionBudget
	err = errors.Join(r.Reader.Get(ctx, client.ObjectKeyFromObject(seen.guard), &g), r.Reader.Get(ctx, client.ObjectKeyFromObject(b), &live))
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, false, fmt.Errorf("reading NodeGuard %s and its PodDisruptionBudget again, before companions are created: %w", seen.guard.Name, err)
	}
	if err == nil && g.ResourceVersion == seen.guard.ResourceVersion && live.UID == b.UID && live.Generation == b.Generation {
		return actions, false, nil
	}
	return slices.DeleteFunc(slices.Clone(actions), creates), true, nil
}

// another reports whether the next name can be used for a pod whose name is not free.
func (r *Reconciler) another(ctx context.Context, g *v1alpha1.NodeGuard, action guard.Action) (bool, error) {
	switch a := action.(type) {
	case guard.CreateCompanion:
		return r.findNameHolder(ctx, g, a.Name, a.Node)
	case guard.CreateCheck:
		return r.findNameHolder(ctx, g, a.Name, a.Node)
	case guard.CreatePlaceholder:
		return r.findNameHolder(ctx, g, a.Name, "")
	default:
		return false, nil
	}
}

// judge records what the API server rejected. A rejected pod is not an error of the pass: the plan says when to retry
// it. A rejected budget is an error, so that it is retried: without it nothing holds a node.
func (r *Reconciler) judge(g *v1alpha1.NodeGuard, actions []guard.Action, errs []error) (refused bool) {
	var companions, budgets []error
	now := r.Now()
	for i, action := range actions {
		switch a := action.(type) {
		case guard.CreateCompanion:
			companions = append(companions, errs[i])
			r.refusedOn.companion(g, a.Node, isRefusal(errs[i]), now)
		case guard.CreateCheck:
			if r.refusedOn.check(g, a.Node, errs[i], now) {
				refused = true
			}
		case guard.CreateBudget:
			budgets = append(budgets, errs[i])
			continue
		case guard.CreatePlaceholder:
			if is, _ := r.placeholders.Judge(g, errs[i:i+1], now); is {
				refused = true
			}
		default:
		}
		if isRefusal(errs[i]) {
			errs[i] = nil
		}
	}
	companion, _ := r.refusals.Judge(g, companions, now) // the other errors are in errs
	_, _ = r.budgets.Judge(g, budgets, now)
	return refused || companion
}

func isRefusal(err error) bool {
	refusal := (*loop.RefusedError)(nil)
	return errors.As(err, &refusal)
}

// maxErrors limits the reported writes that fail for the same reason.
const maxErrors = 5

func some(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors:maxErrors], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) do(ctx context.Context, seen *observation, action guard.Action) error {
	namespace := seen.guard.Namespace
	switch a := action.(type) {
	case guard.CreateCompanion:
		return r.create(ctx, "pods", guard.Companion(seen.guard, &seen.template, a.Node, a.Name))
	case guard.CreateCheck:
		return r.create(ctx, "pods", guard.Check(seen.guard, a.Node, a.Name, a.RequestedAt, r.Options))
	case guard.CreatePlaceholder:
		return r.create(ctx, "pods", guard.Placeholder(seen.guard, a.Name, r.Options))
	case guard.CreateBudget:
		return r.create(ctx, "poddisruptionbudgets", guard.NewBudget(seen.guard, a.BudgetState))
	case guard.SetBudget:
		return r.setBudget(ctx, seen, a)
	case guard.DeletePod:
		return r.deletePod(ctx, namespace, a)
	case guard.EndRelease:
		return r.endRelease(ctx, namespace, a)
	case guard.DeleteBudget:
		return r.deleteBudget(ctx, namespace, a.Budget)
	case guard.RemoveApproval:
		return r.consume(ctx, a)
	default:
		return fmt.Errorf("applying the plan: unknown action %T", a)
	}
}

// create creates a pod, which it seals, or a budget.
func (r *Reconciler) create(ctx context.Context, resource string, o client.Object) error {
	if pod, is := o.(*corev1.Pod); is {
		r.Key.SealPod(pod)
	}
	err := r.Metrics.writes.Do("create", resource, func() error { return r.Client.Create(ctx, o) })
	if refused := loop.AsRefusal(err); refused != nil {
		return refused
	}
	return err
}

// setBudget changes a budget under its resource version, because a manager with a different view may have changed it.
func (r *Reconciler) setBudget(ctx context.Context, seen *observation, a guard.SetBudget) error {
	live, ok := seen.budgets[a.Budget.Name]
	if !ok {
		return nil
	}
	if a.MinAvailable < a.Budget.MinAvailable {
		if err := r.hasAtMost(ctx, seen.guard, a); err != nil {
			return err
		}
	}
	changed := live.DeepCopy()
	guard.WriteBudget(changed, seen.guard.Name, a.BudgetState)
	err := r.Metrics.writes.Do("update", "poddisruptionbudgets", func() error { return r.Client.Update(ctx, changed) })
	return client.IgnoreNotFound(err)
}

// hasAtMost returns a conflict if more companions exist than a budget is to require.
func (r *Reconciler) hasAtMost(ctx context.Context, g *v1alpha1.NodeGuard, a guard.SetBudget) error {
	var pods corev1.PodList
	companions := client.MatchingLabels{v1alpha1.NodeGuardLabel: g.Name, v1alpha1.GuardRoleLabel: v1alpha1.GuardRoleCompanion}
	if err := r.Reader.List(ctx, &pods, client.InNamespace(g.Namespace), companions); err != nil {
		return fmt.Errorf("listing companions: %w", err)
	}
	alive := int32(0)
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp.IsZero() && !kube.PodEnded(pod.Status.Phase) {
			alive++
		}
	}
	if alive > a.MinAvailable {
		return apierrors.NewConflict(policyv1.Resource("poddisruptionbudgets"), a.Budget.Name, errors.New("there are more companions"))
	}
	return nil
}

func (r *Reconciler) deletePod(ctx context.Context, namespace string, a guard.DeletePod) error {
	o, is := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.Pod.Name}}, client.Preconditions{UID: &a.Pod.UID}
	if a.Unchanged {
		is.ResourceVersion = &a.Pod.ResourceVersion
	}
	err := r.Metrics.writes.Do("delete", "pods", func() error { return r.Client.Delete(ctx, o, is) })
	return client.IgnoreNotFound(err)
}

// endRelease notes on a companion that a release has ended. That changes its resource version, so that it is not deleted for that release.
func (r *Reconciler) endRelease(ctx context.Context, namespace string, a guard.EndRelease) error {
	return r.patch(ctx, "pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.Companion.Name}}, map[string]any{
		"uid": a.Companion.UID, "annotations": map[string]any{v1alpha1.EndedReleaseAnnotation: a.Release},
	})
}

// patch changes the metadata of an object.
func (r *Reconciler) patch(ctx context.Context, resource string, o client.Object, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	err = r.Metrics.writes.Do("patch", resource, func() error { return r.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)) })
	return client.IgnoreNotFound(err)
}

func (r *Reconciler) deleteBudget(ctx context.Context, namespace string, b guard.Budget) error {
	o := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: b.Name}}
	err := r.Metrics.writes.Do("delete", "poddisruptionbudgets", func() error { return r.Client.Delete(ctx, o, client.Preconditions{UID: &b.UID}) })
	return client.IgnoreNotFound(err)
}

// consume removes the annotations that were used for a release from a node.
func (r *Reconciler) consume(ctx context.Context, a guard.RemoveApproval) error {
	annotations := map[string]any{v1alpha1.ApproveReleaseAnnotation: nil}
	if a.Approved != "" {
		annotations[v1alpha1.ApproveReleaseAnnotation] = a.Approved
	}
	if a.BreakGlass {
		annotations[v1alpha1.BreakGlassAnnotation] = nil
	}
	return r.patch(ctx, "nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Node}}, map[string]any{
		"resourceVersion": a.ResourceVersion, "annotations": annotations,
	})
}
