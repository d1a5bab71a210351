// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// observation is what one pass observes.
type observation struct {
	guard *v1alpha1.NodeGuard
	input guard.Input
	// idle is true for a NodeGuard in a namespace that is not allowed for which the manager has never created anything. Nothing
	// else is read or done for it.
	idle bool
	// authorization belongs in the status.
	authorization *v1alpha1.Authorization
	// template of the companion.
	template corev1.PodTemplateSpec
	budgets  map[string]*policyv1.PodDisruptionBudget
}

// origin is where a pass reads from: only caches, or only the API server.
type origin struct {
	nodes, made client.Reader
	live        bool
	// targets lists the pods of a target.
	targets func(ctx context.Context, guard client.ObjectKey, selector labels.Selector) ([]corev1.Pod, error)
}

func (r *Reconciler) cached() origin {
	return origin{nodes: r.Client, made: r.Own, targets: r.targets.list}
}

func (r *Reconciler) live() origin {
	return origin{nodes: r.Reader, made: r.Reader, live: true, targets: func(ctx context.Context, name client.ObjectKey, selector labels.Selector) ([]corev1.Pod, error) {
		var pods corev1.PodList
		err := r.Reader.List(ctx, &pods, client.InNamespace(name.Namespace), client.MatchingLabelsSelector{Selector: selector})
		return pods.Items, err
	}}
}

// around is what all NodeGuards of a pass observe alike.
type around struct {
	nodes  []kube.Node
	guards []*v1alpha1.NodeGuard
	seats  map[types.UID]bool
}

// getNodeGuard and listNodeGuards are how the manager reads NodeGuards, from the cache and from the API server alike. A
// status counts only as far as the manager has written it.
func (r *Reconciler) getNodeGuard(ctx context.Context, from client.Reader, name client.ObjectKey) (*v1alpha1.NodeGuard, error) {
	g := &v1alpha1.NodeGuard{}
	if err := from.Get(ctx, name, g); err != nil {
		return nil, fmt.Errorf("getting NodeGuard: %w", err)
	}
	r.reports.open(r.Key, g)
	return g, nil
}

func (r *Reconciler) listNodeGuards(ctx context.Context, from client.Reader) ([]*v1alpha1.NodeGuard, error) {
	var list v1alpha1.NodeGuardList
	if err := from.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing NodeGuards: %w", err)
	}
	guards := make([]*v1alpha1.NodeGuard, 0, len(list.Items))
	for i := range list.Items {
		r.reports.open(r.Key, &list.Items[i])
		guards = append(guards, &list.Items[i])
	}
	slices.SortFunc(guards, func(a, b *v1alpha1.NodeGuard) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return guards, nil
}

// observe collects everything that the plan reads.
func (r *Reconciler) observe(ctx context.Context, g *v1alpha1.NodeGuard, from origin) (*observation, error) {
	seen, err := r.observeMade(ctx, g, from)
	if err != nil || seen.idle || !g.DeletionTimestamp.IsZero() {
		return seen, err // nothing else is read
	}
	what, err := r.observeCluster(ctx, from)
	if err != nil {
		return nil, err
	}
	if err := r.observeCompletely(ctx, seen, what, from); err != nil {
		return nil, err
	}
	namespaces, beyond := r.namespaces(), guard.BeyondMaximum(what.guards)
	allowed := map[string]bool{}
	seen.input.Peers = guard.PeersOf(g, what.guards, func(o *v1alpha1.NodeGuard) bool {
		is, known := allowed[o.Namespace]
		if !known {
			_, is = namespaces.Allowed(ctx, o.Namespace)
			allowed[o.Namespace] = is
		}
		return is && !beyond[o.UID]
	})
	return seen, r.askPeers(ctx, seen, what, from)
}

func (r *Reconciler) observeCluster(ctx context.Context, from origin) (*around, error) {
	what := &around{}
	var nodes corev1.NodeList
	if err := from.nodes.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		what.nodes = append(what.nodes, kube.ViewNode(&nodes.Items[i]))
	}
	var err error
	if what.guards, err = r.listNodeGuards(ctx, from.nodes); err != nil || r.Seats == nil {
		return what, err
	}
	// After the nodes: a node that was cordoned then, and has no seat now, has not returned before.
	what.seats, err = r.Seats.Seated(ctx, from.live)
	return what, err
}

func nameOf(g *v1alpha1.NodeGuard) string { return g.Namespace + "/" + g.Name }

// observeOne returns what one NodeGuard observes.
func (r *Reconciler) observeOne(ctx context.Context, g *v1alpha1.NodeGuard, what *around, from origin) (*observation, error) {
	seen, err := r.observeMade(ctx, g, from)
	if err != nil {
		return nil, err
	}
	return seen, r.observeCompletely(ctx, seen, what, from)
}

// observeMade returns what a NodeGuard has created, and whether it is served.
func (r *Reconciler) observeMade(ctx context.Context, g *v1alpha1.NodeGuard, from origin) (*observation, error) {
	seen := &observation{guard: g, authorization: g.Status.ControllerState.Authorization, budgets: map[string]*policyv1.PodDisruptionBudget{}}
	seen.input.Guard, seen.input.Live, seen.input.Now = g, from.live, r.Now()
	made, err := r.made(ctx, client.ObjectKeyFromObject(g), from)
	if err != nil {
		return nil, err
	}
	seen.add(made)
	if seen.input.AllowedNodes, seen.input.NotAllowed, err = r.obstacle(ctx, g); err != nil {
		return nil, err
	}
	seen.idle = seen.input.NotAllowed != nil && !guard.IsServed(g, len(seen.input.Companions)) && g.DeletionTimestamp.IsZero()
	if !seen.idle && g.DeletionTimestamp.IsZero() && loop.IsTrimmed(g) {
		if seen.guard, err = r.getNodeGuard(ctx, r.Reader, client.ObjectKeyFromObject(g)); err != nil {
			return nil, err
		}
		seen.input.Guard = seen.guard
	}
	return seen, nil
}

// obstacle returns the nodes that the namespace of a NodeGuard may use, and why the NodeGuard is not served; nil if it is.
func (r *Reconciler) obstacle(ctx context.Context, g *v1alpha1.NodeGuard) (labels.Selector, *hold.Why, error) {
	nodes, o, err := r.namespaces().Check(ctx, g.Namespace, g.Status.Conditions)
	if o != nil || err != nil || !g.DeletionTimestamp.IsZero() {
		return nodes, o, err
	}
	var list v1alpha1.NodeGuardList
	if err := r.Client.List(ctx, &list, client.InNamespace(g.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing the NodeGuards of the namespace: %w", err)
	}
	all := make([]*v1alpha1.NodeGuard, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	if guard.BeyondMaximum(all)[g.UID] {
		return nil, guard.TooManyNodeGuards(g.Namespace), nil
	}
	return nodes, nil, nil
}

// observeCompletely adds what a NodeGuard that is served observes.
func (r *Reconciler) observeCompletely(ctx context.Context, seen *observation, what *around, from origin) error {
	g, in := seen.guard, &seen.input
	name := client.ObjectKeyFromObject(g)
	in.Nodes, in.Seats, in.Obstacle = what.nodes, what.seats, r.refusals.Of(g)
	in.RefusedAt, in.CheckObstacles = r.refusedOn.of(g, what.nodes)
	in.PlaceholderObstacle = r.placeholders.Of(g)
	in.TakenNames, in.NameKey = r.taken.takers(name), r.Key.Digest("pod names of a NodeGuard", string(g.UID))
	if refused := r.budgets.Of(g); refused != nil {
		in.BudgetRefused = refused.Message
	}
	if err := r.observeTarget(ctx, seen, from); err != nil {
		return err
	}
	seen.template = guard.Template(g, in.Target.Template, r.Options)
	in.Revision, in.Tolerations = guard.Revision(&seen.template), seen.template.Spec.Tolerations
	in.Labels = guard.Companion(g, &seen.template, "", "").Labels
	return nil
}

// observeTarget finds the target's pods and, for a DaemonSet, the nodes that it selects.
func (r *Reconciler) observeTarget(ctx context.Context, seen *observation, from origin) error {
	if seen.guard.Spec.Target.DaemonSet != "" {
		return r.observeDaemonSet(ctx, seen, from)
	}
	target := &seen.input.Target
	target.Name = "the target"
	selector, invalid := metav1.LabelSelectorAsSelector(seen.guard.Spec.Target.PodSelector)
	if invalid != nil {
		target.Invalid = invalid.Error()
		return nil //nolint:nilerr // the user's mistake is no error of the pass: the status says so
	}
	return r.observePods(ctx, seen, from, selector, "")
}

func (r *Reconciler) observeDaemonSet(ctx context.Context, seen *observation, from origin) error {
	name, target := seen.guard.Spec.Target.DaemonSet, &seen.input.Target
	target.Name = "DaemonSet " + name
	var ds appsv1.DaemonSet
	key := client.ObjectKey{Namespace: seen.guard.Namespace, Name: name}
	err := from.made.Get(ctx, key, &ds)
	if err == nil && loop.IsTrimmed(&ds) { // too large to cache
		ds = appsv1.DaemonSet{}
		err = r.Reader.Get(ctx, key, &ds)
	}
	if apierrors.IsNotFound(err) {
		target.Missing = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting DaemonSet: %w", err)
	}
	target.Template = &ds.Spec.Template.Spec
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return fmt.Errorf("reading the selector of DaemonSet %s: %w", name, err)
	}
	return r.observePods(ctx, seen, from, selector, ds.UID)
}

// observePods finds the target's pods; only those of its owner, if there is one.
func (r *Reconciler) observePods(ctx context.Context, seen *observation, from origin, selector labels.Selector, owner types.UID) error {
	pods, err := from.targets(ctx, client.ObjectKeyFromObject(seen.guard), selector)
	if err != nil {
		return fmt.Errorf("listing the target's pods: %w", err)
	}
	for i := range pods {
		ref := metav1.GetControllerOf(&pods[i])
		if _, companion := pods[i].Labels[v1alpha1.NodeGuardLabel]; companion || (owner != "" && (ref == nil || ref.UID != owner)) {
			continue
		}
		if view, is := guard.ViewTarget(&pods[i]); is {
			seen.input.Target.Pods = append(seen.input.Target.Pods, view)
		}
	}
	return nil
}

// made is what NodeGuards of one name have created, and the budgets of other owners in the namespace.
type made struct {
	pods []corev1.Pod
	// strangers are pods with the labels of companions that the manager has not created, or not like that.
	strangers        []guard.Stranger
	budgets, foreign []policyv1.PodDisruptionBudget
}

func (r *Reconciler) made(ctx context.Context, name client.ObjectKey, from origin) (made, error) {
	var m made
	var pods corev1.PodList
	if err := from.made.List(ctx, &pods, client.InNamespace(name.Namespace), client.MatchingLabels{v1alpha1.NodeGuardLabel: name.Name}); err != nil {
		return m, fmt.Errorf("listing companions: %w", err)
	}
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case r.isOurs(pod, name.Name):
			m.pods = append(m.pods, *pod)
		case pod.Labels[v1alpha1.GuardRoleLabel] == v1alpha1.GuardRoleCompanion, pod.Labels[v1alpha1.GuardRoleLabel] == v1alpha1.GuardRolePlaceholder:
			m.strangers = append(m.strangers, guard.Stranger{Name: pod.Name, Node: pod.Spec.NodeName})
		}
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := from.made.List(ctx, &budgets, client.InNamespace(name.Namespace)); err != nil {
		return m, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	for i := range budgets.Items {
		switch b := &budgets.Items[i]; {
		case b.Labels[v1alpha1.NodeGuardLabel] == name.Name && isBudgetOf(b, name.Name):
			m.budgets = append(m.budgets, *b)
		case b.Labels[v1alpha1.NodeGuardLabel] == "" || b.Annotations[v1alpha1.NodeGuardUIDAnnotation] == "":
			m.foreign = append(m.foreign, *b)
		}
	}
	return m, nil
}

// isOurs reports whether the manager created a pod for a NodeGuard of that name, and its labels, annotations and owner are
// still those. Any user of the namespace can set them on another pod, but cannot seal them. A user may have orphaned the pod
// (kubectl delete --cascade=orphan), which removes only its owner.
func (r *Reconciler) isOurs(pod *corev1.Pod, name string) bool {
	if uid := pod.Annotations[v1alpha1.NodeGuardUIDAnnotation]; metav1.GetControllerOf(pod) == nil && uid != "" {
		orphan, yes := *pod, true
		orphan.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(uid), Controller: &yes}}
		pod = &orphan
	}
	return pod.Labels[v1alpha1.NodeGuardLabel] == name && r.Key.MadePod(pod)
}

// isBudgetOf reports whether a budget is that of a NodeGuard of that name. Budgets have no seal: who can create or change one
// can also delete those of the namespace, and what they say counts for the NodeGuards of this namespace only.
func isBudgetOf(b *policyv1.PodDisruptionBudget, name string) bool {
	if ref := metav1.GetControllerOf(b); ref != nil {
		return ref.Kind == "NodeGuard" && ref.Name == name && ref.APIVersion == v1alpha1.GroupVersion.String()
	}
	return b.Annotations[v1alpha1.NodeGuardUIDAnnotation] != ""
}

func (o *observation) add(m made) {
	o.input.ForeignPods = m.strangers
	for i := range m.pods {
		view := guard.ViewPod(&m.pods[i])
		switch m.pods[i].Labels[v1alpha1.GuardRoleLabel] {
		case v1alpha1.GuardRoleCheck:
			o.input.Checks = append(o.input.Checks, view)
		case v1alpha1.GuardRolePlaceholder:
			o.input.Placeholders = append(o.input.Placeholders, view)
		default:
			o.input.Companions = append(o.input.Companions, view)
		}
	}
	for i := range m.budgets {
		o.budgets[m.budgets[i].Name] = &m.budgets[i]
		o.input.Budgets = append(o.input.Budgets, guard.ReadBudget(&m.budgets[i]))
	}
	for i := range m.foreign {
		if selector, err := metav1.LabelSelectorAsSelector(m.foreign[i].Spec.Selector); err == nil {
			o.input.Foreign = append(o.input.Foreign, kube.ForeignBudget{Name: m.foreign[i].Name, Selector: selector})
		}
	}
}
