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
		if err := s.takeFrom(budgets[0], pod); err != nil {
			return err
		}
	}
	return s.removeEvicted(pod, options)
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

// takeFrom uses one of the evictions that a budget allows, unless an unhealthy pod needs none.
func (s *Server) takeFrom(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) error {
	policy, enough := b.Spec.UnhealthyPodEvictionPolicy, b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
	if !PodReady(pod) && (enough || policy != nil && *policy == policyv1.AlwaysAllow) {
		return nil
	}
	if b.Status.ObservedGeneration < b.Generation {
		return tooMany("The disruption budget "+b.Name+" is still being processed by the server.", 10)
	}
	if b.Status.DisruptionsAllowed <= 0 {
		return tooMany(fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy), 0)
	}
	changed := b.DeepCopy()
	changed.Status.DisruptionsAllowed--
	s.put(changed)
	return nil
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

// disruptionChanged has the disruption controller count again, some time after a pod or a budget has changed.
func (s *Server) disruptionChanged(o client.Object) {
	switch o.(type) {
	case *corev1.Pod, *policyv1.PodDisruptionBudget:
	default:
		return
	}
	most := 400 * time.Millisecond
	if s.faults {
		most *= 10
	}
	namespace := o.GetNamespace()
	time.AfterFunc(s.Between(10*time.Millisecond, most, "disruption", s.version), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, b := range allOf[*policyv1.PodDisruptionBudget](s) {
			if b.Namespace == namespace {
				s.count(b)
			}
		}
	})
}

// count is a pass of the disruption controller for a budget with a number of pods as minAvailable.
func (s *Server) count(b *policyv1.PodDisruptionBudget) {
	pods, healthy := 0, 0
	for _, pod := range allOf[*corev1.Pod](s) {
		if !selects(b, pod) {
			continue
		}
		pods++
		if PodReady(pod) && pod.DeletionTimestamp == nil {
			healthy++
		}
	}
	changed := b.DeepCopy()
	desired := b.Spec.MinAvailable.IntValue()
	changed.Status.ObservedGeneration, changed.Status.ExpectedPods = b.Generation, int32(pods)
	changed.Status.CurrentHealthy, changed.Status.DesiredHealthy = int32(healthy), int32(desired)
	changed.Status.DisruptionsAllowed = int32(max(0, healthy-desired))
	if pods == 0 {
		changed.Status.DisruptionsAllowed = 0
	}
	s.put(changed)
}
