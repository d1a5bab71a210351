// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// No event shows when the API server would accept a pod that it has rejected.
func TestCheckIsRetriedAfterRejection(t *testing.T) {
	refused := func(retryIn time.Duration) func(*Input) {
		return func(in *Input) {
			in.CheckObstacles = map[string]*hold.Why{
				"n1": {Reason: v1alpha1.ReasonPodForbidden, Message: "quota", Until: t0.Add(retryIn)},
			}
		}
	}
	for name, tt := range map[string]struct {
		in   Input
		want bool
	}{
		"just rejected":     {scene(cordoned(0), checked("", 0), refused(time.Second)), false},
		"rejected long ago": {scene(cordoned(0), checked("", 0), refused(0)), true},
	} {
		p := Next(tt.in)
		made := 0
		for _, a := range p.Actions {
			if _, is := a.(CreateCheck); is {
				made++
			}
		}
		if (made == 1) != tt.want {
			t.Errorf("%s: %d checks are created", name, made)
		}
		if got := states(p)["n1"]; got != "Held CheckNotStarting" || p.WakeAt.IsZero() != tt.want {
			t.Errorf("%s: it is %s, and the next plan is at %s", name, got, p.WakeAt)
		}
	}
}

func TestCheckMessageStaysUntilNextCheckEnds(t *testing.T) {
	asked := t0.Add(-60 * time.Minute)
	with := func(change func(*v1alpha1.FailedCheck)) func(*Input) {
		return func(in *Input) {
			before := v1alpha1.FailedCheck{
				Node:        "n1",
				RequestedAt: metav1.NewTime(asked),
				Message:     "release.check failed (exit code 3): 2 volumes",
			}
			change(&before)
			in.Guard.Status.ControllerState.FailedChecks = []v1alpha1.FailedCheck{before}
		}
	}
	const succeeds = "; released when: the check ends with exit code 0"
	const said, running = "release.check failed (exit code 3): 2 volumes" + succeeds + ": it runs every 30s", "release.check runs on it" + succeeds
	const late = "; its deadline has passed, and release.onDeadline is Hold"
	deadline := func(in *Input) { in.Guard.Spec.Release.DeadlineSeconds = new(int32(60)) }
	for name, tt := range map[string]struct {
		in   Input
		want string
	}{
		"the next check runs":                    {scene(cordoned(0), checked(corev1.PodRunning, 0), with(func(*v1alpha1.FailedCheck) {})), said},
		"the next check is not created yet":      {scene(cordoned(0), checked("", 0), with(func(*v1alpha1.FailedCheck) {})), said},
		"the deadline has passed":                {scene(cordoned(0), checked("", 0), deadline, with(func(*v1alpha1.FailedCheck) {})), said + late},
		"a check for an earlier release request": {scene(cordoned(0), checked("", 0), with(func(f *v1alpha1.FailedCheck) { f.RequestedAt = metav1.NewTime(asked.Add(-time.Hour)) })), running},
		"a check of another node":                {scene(cordoned(0), checked("", 0), with(func(f *v1alpha1.FailedCheck) { f.Node = "n2" })), running},
	} {
		p := Next(tt.in)
		if held := p.Status.Waiting; len(held) != 1 || held[0].Message != tt.want {
			t.Errorf("%s: %+v, want %s", name, held, tt.want)
		}
		kept := slices.ContainsFunc(
			p.Status.ControllerState.FailedChecks,
			func(f v1alpha1.FailedCheck) bool { return f.Node == "n1" && f.RequestedAt.Time.Equal(asked) },
		)
		if kept != strings.HasPrefix(tt.want, said) {
			t.Errorf("%s: the memory is %+v", name, p.Status.ControllerState.FailedChecks)
		}
		// The condition is the same while a check runs as after it has failed.
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || strings.Contains(c.Message, "; released when: ") {
			t.Errorf("%s: the condition is %+v", name, c)
		}
	}
}

// The clock of a node can be wrong. The end of a check is its creation time plus the duration that the node measured.
func TestChecksUseClockOfAPIServer(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"right": 0, "an hour behind": -time.Hour, "an hour ahead": time.Hour} {
		start := metav1.NewTime(t0.Add(wrong))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(t0)}, Status: corev1.PodStatus{
			Phase:     corev1.PodSucceeded,
			StartTime: &start,
			ContainerStatuses: []corev1.ContainerStatus{
				{
					State: corev1.ContainerState{
						Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(start.Add(7 * time.Second))},
					},
				},
			},
		}}
		if got := ViewPod(pod).Ended; !got.Equal(t0.Add(7 * time.Second)) {
			t.Errorf("a clock that is %s: it ended at %s, want %s", name, got, t0.Add(7*time.Second))
		}
		pod.Status.StartTime = nil
		if got := ViewPod(pod).Ended; !got.Equal(t0) {
			t.Errorf("a clock that is %s, without a start time: it ended at %s, want %s", name, got, t0)
		}
	}
	// A clock that is set back meanwhile.
	start := metav1.NewTime(t0)
	back := &corev1.Pod{Status: corev1.PodStatus{StartTime: &start}}
	if got := took(back, metav1.NewTime(t0.Add(-time.Hour))); got != 0 {
		t.Errorf("it took %s", got)
	}
}

func TestAFailedCheckSaysWhatItReports(t *testing.T) {
	for message, want := range map[string]string{"": "release.check failed (exit code 3)", "2 volumes": "release.check failed (exit code 3): 2 volumes"} {
		held := Next(scene(cordoned(0), checked(corev1.PodFailed, time.Second), func(in *Input) {
			in.Checks[0].ExitCode, in.Checks[0].Message = 3, message
		})).Status.Waiting
		if len(held) != 1 || !strings.HasPrefix(held[0].Message, want+"; released when: ") {
			t.Errorf("%+v, want %q", held, want)
		}
	}
}

func TestPassedDeadlineIsReported(t *testing.T) {
	for name, tt := range map[string]struct {
		seconds int32
		action  v1alpha1.DeadlineAction
		want    bool
		says    string
	}{
		"before the deadline":              {7200, v1alpha1.OnDeadlineHold, false, ""},
		"after the deadline":               {60, v1alpha1.OnDeadlineHold, true, "release.onDeadline is Hold"},
		"after the deadline, and released": {60, v1alpha1.OnDeadlineRelease, true, "waits for nothing else"},
	} {
		in := scene(cordoned(0, 1), going(1, false), func(in *Input) {
			in.Guard.Spec.Release.DeadlineSeconds, in.Guard.Spec.Release.OnDeadline = new(tt.seconds), tt.action
		})
		held, until := Next(in).Status.Waiting, metav1.Time{}
		if !tt.want {
			until = metav1.NewTime(t0.Add(time.Duration(tt.seconds)*time.Second - time.Hour))
		}
		if len(held) != 1 || !held[0].Until.Equal(&until) ||
			!strings.Contains(held[0].Message, tt.says) {
			t.Errorf("%s: %+v", name, held)
		}
	}
}

// An admission webhook or policy may add a container to a check, which neither decides how the check ended, nor when.
func TestChecksWithAddedContainers(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(code int32, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
	}
	for name, tt := range map[string]struct {
		task, mesh corev1.ContainerState
		phase      corev1.PodPhase
		reason     string

		want        corev1.PodPhase
		wantCode    int32
		wantMessage string
	}{
		"the check runs":                                {task: running, mesh: running, phase: corev1.PodRunning, want: corev1.PodRunning},
		"the added one has ended":                       {task: running, mesh: ended(0, ""), phase: corev1.PodRunning, want: corev1.PodRunning},
		"the check has succeeded":                       {task: ended(0, "fine"), mesh: running, phase: corev1.PodRunning, want: corev1.PodSucceeded, wantMessage: "fine"},
		"the check has failed":                          {task: ended(3, "2 volumes"), mesh: running, phase: corev1.PodRunning, want: corev1.PodFailed, wantCode: 3, wantMessage: "2 volumes"},
		"the check has failed, the added one not":       {task: ended(3, "2 volumes"), mesh: ended(0, ""), phase: corev1.PodFailed, want: corev1.PodFailed, wantCode: 3, wantMessage: "2 volumes"},
		"the check has succeeded, the added one not":    {task: ended(0, "fine"), mesh: ended(1, "no"), phase: corev1.PodFailed, want: corev1.PodSucceeded, wantMessage: "fine"},
		"the kubelet has ended the check":               {task: ended(0, ""), mesh: ended(143, ""), phase: corev1.PodFailed, reason: "DeadlineExceeded", want: corev1.PodFailed},
		"the kubelet has ended the pod after the check": {task: ended(0, `{"exitCode":0,"message":"fine"}`), mesh: ended(143, ""), phase: corev1.PodFailed, reason: "DeadlineExceeded", want: corev1.PodSucceeded, wantMessage: "fine"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, check := range []*v1alpha1.ReleaseCheck{{Script: "true"}, {Container: &v1alpha1.CheckContainer{Image: "i"}}} {
				g := scene(cordoned(0)).Guard
				g.Spec.Release.Check = check
				pod := Check(g, "n1", "c-check", "", options)
				own := pod.Spec.Containers[0].Name
				pod.Spec.Containers = nil // the cache does not keep them
				pod.Status = corev1.PodStatus{
					Phase:             tt.phase,
					Reason:            tt.reason,
					ContainerStatuses: []corev1.ContainerStatus{{Name: own, State: tt.task}, {Name: "mesh", State: tt.mesh}},
				}
				got := ViewPod(pod)
				if got.Phase != tt.want || got.ended() && (got.ExitCode != tt.wantCode || got.Message != tt.wantMessage) {
					t.Errorf(
						"%s: %s with %d %q, want %s with %d %q",
						own,
						got.Phase,
						got.ExitCode,
						got.Message,
						tt.want,
						tt.wantCode,
						tt.wantMessage,
					)
				}
			}
		})
	}
}
