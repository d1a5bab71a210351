// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Evict requests the eviction of a pod, as kubectl drain does.
func (s *Server) Evict(pod *corev1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return client.IgnoreNotFound(s.evict(keyOf(pod), &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}))
}

// evict is the decision of the API server. Source: k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go.
func (s *Server) evict(k key, options *metav1.DeleteOptions) error {
	pod, is := s.objects[k].(*corev1.Pod)
	if !is {
		return notFound(k)
	}
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != pod.UID {
		return conflict(k)
	}
	if pod.DeletionTimestamp != nil {
		return s.remove(k, options)
	}
	if pod.Status.Phase != corev1.PodRunning {
		return s.removeEvicted(pod, options)
	}
	budgets := slices.DeleteFunc(allOf[*policyv1.PodDisruptionBudget](s), func(b *policyv1.PodDisruptionBudget) bool { return !selects(b, pod) })
	switch {
	case len(budgets) > 1:
		return apierrors.NewInternalError(fmt.Errorf("pod %s has more than one PodDisruptionBudget", pod.Name))
	case len(budgets) == 1:
		granted, err := s.grant(budgets[0], pod)
		if granted == nil {
			return err
		}
		pod = granted
	}
	return s.removeEvicted(pod, options)
}

// grant asks a budget for an eviction, and returns the pod as it is when the API server deletes it; nil if it does not.
func (s *Server) grant(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) (*corev1.Pod, error) {
	counted, err := s.takeFrom(b, pod)
	switch {
	case err != nil:
		return nil, err
	case counted && s.faults:
		return s.meanwhile(pod), nil
	}
	return pod, nil
}

// meanwhile is what happens between the two writes of an eviction: that of the budget, and the deletion of the pod, which depends only on
// its UID. It returns the pod as it is then; nil if it terminates or is gone. Its caller has locked mu.
func (s *Server) meanwhile(pod *corev1.Pod) *corev1.Pod {
	wait := s.Between(time.Millisecond, 2*time.Second, "eviction", s.version)
	s.mu.Unlock()
	time.Sleep(wait)
	s.mu.Lock()
	live, is := s.objects[keyOf(pod)].(*corev1.Pod)
	if !is || live.UID != pod.UID || live.DeletionTimestamp != nil {
		return nil
	}
	return live
}

// removeEvicted deletes a pod, with the condition that says that it was evicted.
func (s *Server) removeEvicted(pod *corev1.Pod, options *metav1.DeleteOptions) error {
	changed := pod.DeepCopy()
	changed.Status.Conditions = append(changed.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
	})
	s.put(changed)
	return s.remove(keyOf(pod), options)
}

// takeFrom uses one of the evictions that a budget allows, and reports whether it has: an unhealthy pod may need none.
func (s *Server) takeFrom(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) (counted bool, err error) {
	policy, enough := b.Spec.UnhealthyPodEvictionPolicy, b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
	if !PodReady(pod) && (enough || policy != nil && *policy == policyv1.AlwaysAllow) {
		return false, nil
	}
	if b.Status.ObservedGeneration < b.Generation {
		return false, tooMany("The disruption budget "+b.Name+" is still being processed by the server.", 10)
	}
	if b.Status.DisruptionsAllowed <= 0 {
		return false, tooMany(fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy), 0)
	}
	changed := b.DeepCopy()
	changed.Status.DisruptionsAllowed--
	if changed.Status.DisruptedPods == nil {
		changed.Status.DisruptedPods = map[string]metav1.Time{}
	}
	changed.Status.DisruptedPods[pod.Name] = metav1.Now()
	s.put(changed)
	return true, nil
}

func tooMany(message string, retryAfter int) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
	return err
}

// PodReady reports whether a pod is ready.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func selects(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels))
}

// disruptionChanged has the disruption controller count again, some time after a pod or a budget has changed. It finds the budget of a pod by
// the labels that the pod has now. Source: k8s.io/kubernetes pkg/controller/disruption (updatePod).
func (s *Server) disruptionChanged(o client.Object) {
	var changed []key
	switch o := o.(type) {
	case *corev1.Pod:
		for _, b := range allOf[*policyv1.PodDisruptionBudget](s) {
			if selects(b, o) {
				changed = append(changed, keyOf(b))
			}
		}
	case *policyv1.PodDisruptionBudget:
		changed = []key{keyOf(o)}
	}
	most := 400 * time.Millisecond
	if s.faults {
		most *= 10
	}
	for _, k := range changed {
		s.countIn(s.Between(10*time.Millisecond, most, "disruption", s.version, k), k)
	}
}

func (s *Server) countIn(wait time.Duration, k key) {
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if b, is := s.objects[k].(*policyv1.PodDisruptionBudget); is {
			s.count(b)
		}
	})
}

// disruptedFor is how long a pod whose eviction was granted does not count, unless it terminates.
// Source: k8s.io/kubernetes pkg/controller/disruption (DeletionTimeout).
const disruptedFor = 2 * time.Minute

// count is a pass of the disruption controller for a budget with a number of pods as minAvailable.
func (s *Server) count(b *policyv1.PodDisruptionBudget) {
	pods, healthy := 0, 0
	disrupted := map[string]metav1.Time{}
	for _, pod := range allOf[*corev1.Pod](s) {
		if !selects(b, pod) {
			continue
		}
		pods++
		if pod.DeletionTimestamp != nil {
			continue
		}
		if at, evicted := b.Status.DisruptedPods[pod.Name]; evicted && time.Since(at.Time) < disruptedFor {
			disrupted[pod.Name] = at
			s.countIn(disruptedFor-time.Since(at.Time), keyOf(b))
		} else if PodReady(pod) {
			healthy++
		}
	}
	changed := b.DeepCopy()
	desired := b.Spec.MinAvailable.IntValue()
	changed.Status.ObservedGeneration, changed.Status.ExpectedPods = b.Generation, int32(pods)
	changed.Status.CurrentHealthy, changed.Status.DesiredHealthy = int32(healthy), int32(desired)
	changed.Status.DisruptionsAllowed, changed.Status.DisruptedPods = int32(max(0, healthy-desired)), disrupted
	if pods == 0 {
		changed.Status.DisruptionsAllowed = 0
	}
	s.put(changed)
}
