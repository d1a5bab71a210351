// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// takenFor is how long a name counts as taken before the API server is asked again. The pod that has the name may have
// no label that is watched.
const takenFor = 30 * time.Second

// taken remembers which pod names are taken by pods of other owners, by NodeGuard and name. It need not survive a
// restart, because the API server reports the conflict again. It is safe for concurrent use.
type taken struct {
	mu sync.Mutex
	of map[client.ObjectKey]map[string]takenName
}

type takenName struct {
	guard.NameHolder
	uid  types.UID
	seen time.Time
}

func newTaken() *taken { return &taken{of: map[client.ObjectKey]map[string]takenName{}} }

func (t *taken) note(name client.ObjectKey, pod string, by takenName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[name] == nil {
		t.of[name] = map[string]takenName{}
	}
	t.of[name][pod] = by
}

// drop forgets a name, unless another pod has taken it since.
func (t *taken) drop(name client.ObjectKey, pod string, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[name][pod].uid == uid {
		delete(t.of[name], pod)
	}
}

func (t *taken) forget(name client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, name)
}

func (t *taken) all(name client.ObjectKey) map[string]takenName {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.of[name])
}

func (t *taken) takers(name client.ObjectKey) map[string]guard.NameHolder {
	t.mu.Lock()
	defer t.mu.Unlock()
	takers := make(map[string]guard.NameHolder, len(t.of[name]))
	for pod, by := range t.of[name] {
		takers[pod] = by.NameHolder
	}
	return takers
}

// findNameHolder reads the pod whose name is not free, and remembers it if another owner created it. It reports whether
// the next name can be used.
func (r *Reconciler) findNameHolder(ctx context.Context, g *v1alpha1.NodeGuard, pod, node string) (next bool, err error) {
	var live corev1.Pod
	switch err := r.Reader.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: pod}, &live); {
	case apierrors.IsNotFound(err):
		return false, nil // deleted meanwhile
	case err != nil:
		return false, fmt.Errorf("getting pod %s, whose name is taken: %w", pod, err)
	case r.isOurs(&live, g.Name):
		return false, nil // the cache is stale, or the pod is terminating
	}
	r.taken.note(client.ObjectKeyFromObject(g), pod, takenName{guard.NameHolder{Node: live.Spec.NodeName, For: node}, live.UID, r.Now()})
	return true, nil
}

// checkTakenNames forgets names that are free again.
func (r *Reconciler) checkTakenNames(ctx context.Context, g *v1alpha1.NodeGuard) error {
	name, now := client.ObjectKeyFromObject(g), r.Now()
	for pod, by := range r.taken.all(name) {
		if now.Sub(by.seen) < takenFor {
			continue
		}
		var live corev1.Pod
		switch err := r.Reader.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: pod}, &live); {
		case apierrors.IsNotFound(err), err == nil && r.isOurs(&live, g.Name):
			r.taken.drop(name, pod, by.uid)
		case err != nil:
			return fmt.Errorf("getting pod %s, whose name was taken: %w", pod, err)
		default:
			r.taken.note(name, pod, takenName{guard.NameHolder{Node: live.Spec.NodeName, For: by.For}, live.UID, now})
		}
	}
	return nil
}
