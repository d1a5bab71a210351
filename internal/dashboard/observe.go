// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

const (
	// leastPause is the least time between two computations of the state.
	leastPause = 400 * time.Millisecond
	// restFactor limits the computations to a tenth of a processor.
	restFactor = 9
	// maxPause is the time after which the state is computed without a change: time alone changes plans too.
	maxPause = 5 * time.Second
)

// mirrors are the mirrors of all kinds.
type mirrors struct {
	nodes  *mirror[plan.Node]
	jobs   *mirror[*v1alpha1.NodeJob]
	guards *mirror[*v1alpha1.NodeGuard]
	pods   *mirror[*corev1.Pod]
	// budgets are the NodeDisruptionBudgets. A user who may not read them sees neither freezes nor an error.
	budgets *mirror[*v1alpha1.NodeDisruptionBudget]
	// dirty receives after a change.
	dirty chan struct{}
}

// newMirrors returns the mirrors of the cluster. If the user may not read a kind in all namespaces, its mirror is limited to
// this one.
func newMirrors(c client.WithWatch, namespace string, after func(time.Duration) <-chan time.Time) *mirrors {
	m := &mirrors{dirty: make(chan struct{}, 1)}
	changed := func() {
		select {
		case m.dirty <- struct{}{}:
		default:
		}
	}
	m.nodes = &mirror[plan.Node]{
		client: c, after: after, list: &corev1.NodeList{}, changed: changed,
		keep: func(o client.Object) plan.Node { return observe.Node(o.(*corev1.Node)) },
	}
	m.jobs = &mirror[*v1alpha1.NodeJob]{
		client: c, after: after, list: &v1alpha1.NodeJobList{}, fallback: namespace, changed: changed,
		keep: func(o client.Object) *v1alpha1.NodeJob { return o.(*v1alpha1.NodeJob).DeepCopy() },
	}
	m.guards = &mirror[*v1alpha1.NodeGuard]{
		client: c, after: after, list: &v1alpha1.NodeGuardList{}, fallback: namespace, changed: changed,
		keep: func(o client.Object) *v1alpha1.NodeGuard { return o.(*v1alpha1.NodeGuard).DeepCopy() },
	}
	m.pods = &mirror[*corev1.Pod]{
		client: c, after: after, list: &corev1.PodList{}, opts: []client.ListOption{client.HasLabels{v1alpha1.NodeJobLabel}},
		fallback: namespace, changed: changed,
		keep: func(o client.Object) *corev1.Pod {
			pod := o.(*corev1.Pod).DeepCopy()
			pod.ManagedFields = nil
			return pod
		},
	}
	m.budgets = &mirror[*v1alpha1.NodeDisruptionBudget]{
		client: c, after: after, list: &v1alpha1.NodeDisruptionBudgetList{}, changed: changed,
		keep: func(o client.Object) *v1alpha1.NodeDisruptionBudget {
			b := o.(*v1alpha1.NodeDisruptionBudget).DeepCopy()
			b.ManagedFields = nil
			return b
		},
	}
	return m
}

// run updates the mirrors until the context ends.
func (m *mirrors) run(ctx context.Context) {
	go m.nodes.run(ctx)
	go m.jobs.run(ctx)
	go m.guards.run(ctx)
	go m.pods.run(ctx)
	go m.budgets.run(ctx)
}

// podsOfTasks is the part of the cluster that a user of one namespace often cannot read.
const podsOfTasks = "pods of tasks"

// pod returns a pod of a NodeJob; nil if there is none with this name.
func (m *mirrors) pod(key client.ObjectKey) *corev1.Pod {
	m.pods.mu.Lock()
	defer m.pods.mu.Unlock()
	return m.pods.items[key]
}

// ready reports whether what can be known is known.
func (m *mirrors) ready() bool {
	return m.nodes.ready() && m.jobs.ready() && m.guards.ready() && m.pods.ready() && m.budgets.ready()
}

// observe returns what is known now.
func (d *dashboard) observe() *observed {
	o := d.mirrors.observe(d.Now())
	o.context, o.flag, o.makes = d.Context, d.ContextFlag, d.AllowChanges
	return o
}

// observe returns what is known at this time.
func (m *mirrors) observe(now time.Time) *observed {
	o := &observed{pods: map[types.NamespacedName][]corev1.Pod{}, notes: []note{}}
	o.Now = now
	add := func(what string, limited, failed error) {
		for _, err := range []error{limited, failed} {
			if err != nil {
				o.notes = append(o.notes, note{what, err.Error()})
			}
		}
	}
	var limited, failed error
	o.Nodes, limited, failed = m.nodes.all()
	add("nodes", limited, failed)
	o.Jobs, limited, failed = m.jobs.all()
	add("NodeJobs", limited, failed)
	o.guards, limited, failed = m.guards.all()
	add("NodeGuards", limited, failed)
	pods, limited, failed := m.pods.all()
	add(podsOfTasks, limited, failed)
	budgets, _, failed := m.budgets.all()
	if cmdutil.IsUnreadable(failed) {
		o.budgetsUnreadable = failed.Error()
	} else {
		add("NodeDisruptionBudgets", nil, failed)
	}
	slices.SortFunc(budgets, func(a, b *v1alpha1.NodeDisruptionBudget) int { return strings.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[v1alpha1.NodeJobLabel]}
		o.pods[key] = append(o.pods[key], *pod)
	}
	o.Budgets, o.freezes = budgets, cmdutil.FreezesOn(budgets, o.Nodes, now)
	slices.SortFunc(o.Nodes, func(a, b plan.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(o.Jobs, func(a, b *v1alpha1.NodeJob) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	slices.SortFunc(o.guards, func(a, b *v1alpha1.NodeGuard) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return o
}

// compute keeps the state of the page up to date until the context ends.
func (d *dashboard) compute(ctx context.Context) {
	for {
		select {
		case <-d.mirrors.dirty:
		case <-d.After(maxPause):
		case <-ctx.Done():
			return
		}
		if !d.mirrors.ready() {
			continue
		}
		began := d.machine()
		d.state.replace(d.observe().values())
		took := d.machine().Sub(began)
		select {
		case <-d.After(max(leastPause, restFactor*took)):
		case <-ctx.Done():
			return
		}
	}
}

// withDrains adds to a plan what its drains wait for, if the user may read that.
func (d *dashboard) withDrains(ctx context.Context) drains {
	return func(in plan.Input, p plan.Plan) (plan.Input, plan.Plan) {
		if full, planned, err := cmdutil.PlanDrains(ctx, d.Client, in, p); err == nil {
			return full, planned
		}
		return in, p
	}
}
