// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package podlog

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testing/clitest"
)

// TestWhenALogHasEnded has the answers to the requests for one log. The last one is repeated.
func TestWhenALogHasEnded(t *testing.T) {
	says := func(lines ...string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Join(lines, "")) }
	}
	ends := says(clitest.LogLine(0, "one\n"))
	whole := says(clitest.LogLine(0, "one\n"), clitest.LogLine(1, "two\n"))
	breaks := func(w http.ResponseWriter) { ends(w); clitest.BreakOff(w) }
	refused := func(code int, reason metav1.StatusReason) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { clitest.RespondError(w, code, reason, "no") }
	}
	noAnswer := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	unreachable := refused(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	isBad := refused(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	isGone := refused(http.StatusNotFound, metav1.StatusReasonNotFound)
	type answers []func(http.ResponseWriter)
	tests := map[string]struct {
		answers answers
		// ends and deletes are the numbers of requests after which the end of the container and the deletion are observed; 0 for never.
		ends, deletes int
		wantRequests  int
		wantDeleted   bool
		// wantErr is part of the error; "" for none.
		wantErr string
	}{
		"the API server loses the kubelet, which looks like the end": {answers{ends, whole}, 0, 0, 3, false, ""},
		"it loses the kubelet before the first line":                 {answers{says(), whole}, 1, 0, 3, false, ""},
		"the kubelet has no log": {
			answers{says("unable to retrieve container logs\n")},
			0,
			0,
			1,
			false,
			"",
		},
		"the container has ended":                   {answers{ends}, 0, 0, 2, false, ""},
		"the stream ends while the container runs":  {answers{ends}, 1, 0, 2, false, ""},
		"the stream breaks off":                     {answers{breaks, ends}, 1, 0, 2, false, ""},
		"the stream ends again and again":           {answers{ends}, -1, 0, Tries, false, ErrEndsAgain.Error()},
		"the API server does not respond":           {answers{noAnswer}, 1, 0, Tries, false, "EOF"},
		"the API server does not reach the kubelet": {answers{unreachable}, 1, 0, 5, false, "no"},
		"the API server responds and breaks off in turn": {
			answers{unreachable, noAnswer, unreachable, ends},
			1,
			0,
			5,
			false,
			"",
		},
		"the container has not started":     {answers{isBad, isBad, ends}, 2, 0, 4, false, ""},
		"the container ended without a log": {answers{isBad}, 1, 0, 2, false, "no"},
		"the user may not read it": {
			answers{refused(http.StatusForbidden, metav1.StatusReasonForbidden)},
			-1,
			0,
			1,
			false,
			"no",
		},
		"the pod is deleted after the stream":                {answers{ends}, -1, 1, 1, true, ""},
		"the pod is deleted after the stream, and not seen":  {answers{ends, isGone}, -1, 0, 2, true, ""},
		"the pod is deleted after an error":                  {answers{breaks}, -1, 1, 1, true, "EOF"},
		"the pod is deleted before the log was opened again": {answers{breaks, isGone}, -1, 0, 2, true, "no"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var count atomic.Int32
			f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				tt.answers[min(int(count.Add(1)), len(tt.answers))-1](w)
			}))
			pods, err := f.Pods("ns")
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			log := Follower{
				Tail: Tail{Pods: pods, Pod: "p", Lines: -1}, After: f.After, Ended: tt.ends == 0, AnsweredTries: 5,
				Look: func(context.Context) (ended, deleted bool) {
					requests := int(count.Load())
					return tt.ends > 0 && requests >= tt.ends, tt.deletes > 0 && requests >= tt.deletes
				},
			}
			deleted, err := log.Follow(t.Context(), func(piece string, _ bool) { got.WriteString(piece) })
			requests := int(count.Load())
			if requests != tt.wantRequests || deleted != tt.wantDeleted || (err == nil) != (tt.wantErr == "") ||
				(err != nil && !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("after %d requests: deleted %v, error %v", requests, deleted, err)
			}
			want := []string{"", "one\n"}
			switch name {
			case "the API server loses the kubelet, which looks like the end", "it loses the kubelet before the first line":
				want = []string{"one\ntwo\n"}
			case "the kubelet has no log":
				want = []string{"unable to retrieve container logs\n"}
			}
			if content := got.String(); !slices.Contains(want, content) {
				t.Errorf("it has passed on %q", content)
			}
		})
	}
}

func TestTheObservedEndOfALogEndsThePause(t *testing.T) {
	f, _, _ := clitest.NewFactory(
		t,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, clitest.LogLine(0, "one\n")) }),
	)
	pods, err := f.Pods("ns")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan struct{})
	close(seen)
	log := Follower{
		Tail: Tail{Pods: pods, Pod: "p", Lines: -1}, After: func(time.Duration) <-chan time.Time { return nil }, SeenEnd: seen,
		Look: func(context.Context) (ended, deleted bool) { return true, false },
	}
	if deleted, err := log.Follow(t.Context(), func(string, bool) {}); deleted || err != nil {
		t.Errorf("deleted %v, error %v", deleted, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := log.Follow(ctx, func(string, bool) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}
