// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/notify"
)

// cloudEvent is what the tests read of a notification.
type cloudEvent struct {
	SpecVersion, ID, Type, Subject string
	Data                           struct {
		Reason, Message, Step, Node string
		Nodes                       v1alpha1.NodeCounts
	}
}

// endpoint receives notifications of a namespace. It accepts and forgets those of others, which other tests may have left.
type endpoint struct {
	*httptest.Server
	namespace string
	mu        sync.Mutex
	// mode is what it does with requests: accept, fail or hang.
	mode string
	// accepted and refused are the notifications by the mode when they arrived. ends ends the requests that hang.
	accepted, refused []cloudEvent
	ends              chan struct{}
}

func (w *world) endpoint(mode string) *endpoint {
	t := w.T
	t.Helper()
	e := &endpoint{namespace: w.Namespace, mode: mode, ends: make(chan struct{})}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got cloudEvent
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || got.SpecVersion != "1.0" {
			t.Errorf("%v, the event is %+v", err, got)
		}
		switch e.receive(got) {
		case "fail":
			w.WriteHeader(http.StatusInternalServerError)
		case "hang":
			select {
			case <-e.ends:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(func() {
		close(e.ends)
		e.Close()
	})
	return e
}

func (e *endpoint) receive(got cloudEvent) (mode string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !strings.Contains(got.Subject, "/"+e.namespace+"/") {
		return "accept"
	}
	if e.mode == "accept" {
		e.accepted = append(e.accepted, got)
	} else {
		e.refused = append(e.refused, got)
	}
	return e.mode
}

func (e *endpoint) become(mode string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mode = mode
}

// types are the types of accepted notifications, each id once, in their order.
func (e *endpoint) types() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var types []string
	seen := map[string]bool{}
	for _, a := range e.accepted {
		if !seen[a.ID] {
			types = append(types, a.Type)
		}
		seen[a.ID] = true
	}
	return types
}

func (e *endpoint) refusals() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.refused)
}

func (w *world) receives(e *endpoint, want ...string) {
	w.T.Helper()
	w.Within(40*time.Second, 50*time.Millisecond, "the endpoint has all notifications", func() error {
		if got := e.types(); !slices.Equal(got, want) {
			return fmt.Errorf("it has %v, want %v", got, want)
		}
		return nil
	})
}

// pending waits until the status of a NodeJob has a number of notifications.
func (w *world) pending(job string, want int) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("%d notifications are pending", want), func() error {
		var live v1alpha1.NodeJob
		must(w.T, admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: job}, &live))
		if live.Status.ControllerState.Notifications == nil {
			return errors.New("the status has none")
		}
		if got := len(live.Status.ControllerState.Notifications.Pending); got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// anyPod waits for a pod that has not ended.
func (w *world) anyPod() *corev1.Pod {
	w.T.Helper()
	var found *corev1.Pod
	w.Eventually("a pod exists", func() error {
		for _, pod := range w.Pods() {
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				found = &pod
				return nil
			}
		}
		return errors.New("there is none")
	})
	return found
}

func inSteps(s *v1alpha1.NodeJobSpec) {
	s.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}
}

// TestNotificationsSurviveAManagerThatIsKilled lets the endpoint fail or hang during a whole rollout, and replaces the
// manager twice.
func TestNotificationsSurviveAManagerThatIsKilled(t *testing.T) {
	for _, mode := range []string{"fail", "hang"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			e := w.endpoint(mode)
			to := notify.Config{URL: e.URL, Format: notify.FormatCloudEvents}
			stop := startNotifyingManager(t, to)
			w.node("notify-" + mode + "-1")
			w.node("notify-" + mode + "-2")
			w.job("notified", inSteps)
			w.Eventually("the endpoint gets the first request", func() error {
				if e.refusals() == 0 {
					return errors.New("it has none")
				}
				return nil
			})
			first := w.anyPod()
			w.end(first, 0, "")
			w.Done("notified", first.Spec.NodeName)
			stop()
			stop = startNotifyingManager(t, to)
			second := "notify-" + mode + "-1"
			if first.Spec.NodeName == second {
				second = "notify-" + mode + "-2"
			}
			w.end(w.podOn(second), 0, "")
			w.Condition("notified", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
			w.pending("notified", 3)
			if got := e.types(); len(got) > 0 {
				t.Fatalf("the endpoint has accepted %v", got)
			}
			stop()
			e.become("accept")
			startNotifyingManager(t, to)
			w.receives(e, "dev.everynode.nodejob.started", "dev.everynode.nodejob.stepcompleted", "dev.everynode.nodejob.complete")
			w.pending("notified", 0)
			wantText(t, e.accepted[1].Data.Message, "step canary of revision", "is completed: 1 of 1 node is done")
			if last := e.accepted[len(e.accepted)-1]; last.Subject != "nodejob/"+w.Namespace+"/notified" || last.Data.Nodes.Done != 2 {
				t.Errorf("the last notification is %+v", last)
			}
		})
	}
}

// TestAStoppedRolloutIsNotified checks that the notification says what the condition says.
func TestAStoppedRolloutIsNotified(t *testing.T) {
	w := newWorld(t)
	e := w.endpoint("accept")
	startNotifyingManager(t, notify.Config{URL: e.URL, Format: notify.FormatCloudEvents})
	w.node("notify-stop-1")
	w.node("notify-stop-2")
	w.job("stops", func(s *v1alpha1.NodeJobSpec) {
		inSteps(s)
		s.Retry.Limit = new(int32(0))
		s.Rollout.MaxFailures = new(intstr.FromInt32(0))
	})
	w.end(w.anyPod(), 7, "no space")
	stalled := w.Condition("stops", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
	w.receives(e, "dev.everynode.nodejob.started", "dev.everynode.nodejob.stopped")
	w.pending("stops", 0)
	if got := e.accepted[1].Data; got.Reason != stalled.Reason || got.Message != stalled.Message || got.Nodes.Failed != 1 ||
		got.Step != "canary" {
		t.Errorf("the notification is %+v, and the condition %+v", got, stalled)
	}
}

// TestNotificationsThatAreTurnedOffLeaveTheStatus continues with a manager that has no URL.
func TestNotificationsThatAreTurnedOffLeaveTheStatus(t *testing.T) {
	w := newWorld(t)
	e := w.endpoint("fail")
	stop := startNotifyingManager(t, notify.Config{URL: e.URL, Format: notify.FormatCloudEvents})
	w.node("notify-off-1")
	w.job("off", nil)
	w.pending("off", 1)
	stop()
	startManager(t, noFaults)
	w.Eventually("the status has no notifications", func() error {
		var live v1alpha1.NodeJob
		must(t, admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "off"}, &live))
		if live.Status.ControllerState.Notifications != nil {
			return fmt.Errorf("it has %+v", live.Status.ControllerState.Notifications)
		}
		return nil
	})
}

// TestADrainThatIsHeldForTooLongIsNotified replaces the manager before the endpoint accepts the notification.
func TestADrainThatIsHeldForTooLongIsNotified(t *testing.T) {
	g := newGuarded(t, "notify-held-1", "notify-held-2")
	e := g.endpoint("fail")
	to := notify.Config{URL: e.URL, Format: notify.FormatCloudEvents, DrainHeld: 2 * time.Second}
	stop := startNotifyingGuards(t, noFaults, to)
	g.guard(func(s *v1alpha1.NodeGuardSpec) { s.Release.Approval = v1alpha1.ApprovalRequired })
	g.ready(2)
	g.cordon("notify-held-1", true)
	held := g.held("notify-held-1", v1alpha1.ReasonAwaitingApproval)
	pending := func(want int) {
		t.Helper()
		g.Eventually(fmt.Sprintf("%d notifications are pending", want), func() error {
			state := g.live().Status.ControllerState.Notifications
			if state == nil || len(state.Pending) != want || !slices.Equal(state.Held, []string{"notify-held-1"}) {
				return fmt.Errorf("the status has %+v", state)
			}
			return nil
		})
	}
	pending(1)
	stop()
	e.become("accept")
	startNotifyingGuards(t, noFaults, to)
	g.receives(e, "dev.everynode.nodeguard.drainheld")
	pending(0)
	if got := e.accepted[0].Data; got.Node != "notify-held-1" || got.Reason != held.Reason ||
		!strings.Contains(got.Message, held.Message) {
		t.Errorf("the notification is %+v, and the node %+v", got, held)
	}
}
