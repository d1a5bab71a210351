// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "testing"

func TestWhatAnEventSaysOfAnAttemptIsReadBack(t *testing.T) {
	for note, want := range map[string]Ended{
		"attempt 2 failed (TaskFailed, exit code 7), it is retried: no space: left, it is full": {Attempt: 2, How: "failed (TaskFailed, exit code 7)", Next: "retried", Said: "no space: left, it is full"},
		"attempt 2 failed (DeadlineExceeded), it is not retried":                                {Attempt: 2, How: "failed (DeadlineExceeded)", Next: "not retried"},
		"attempt 1 of the rollback failed (TaskFailed), it is retried":                          {Rollback: true, Attempt: 1, How: "failed (TaskFailed)", Next: "retried"},
		"attempt 3 was disrupted and does not count: the pod was evicted":                       {Attempt: 3, How: "was disrupted and does not count", Said: "the pod was evicted"},
		"attempt 3 failed": {Attempt: 3, How: "failed"},
	} {
		for _, prefix := range []string{"", "node n-1: ", "NodeJob ns/name on node n-1: "} {
			if got, ok := ParseEnded(prefix + note); !ok || got != want {
				t.Errorf("%q is read as %+v, %v", prefix+note, got, ok)
			}
		}
		if got := want.String(); got != note {
			t.Errorf("%+v is written as %q, want %q", want, got, note)
		}
	}
}

func TestWhatIsOfNoAttemptIsNotRead(t *testing.T) {
	for _, note := range []string{
		"", "attempt", "attempt ", "attempt two failed", "attempt 99999999999 failed", "the rollback has succeeded",
		"NodeJob ns/name on node n: the cordon is no longer needed", "reattempt 1 failed",
	} {
		if got, ok := ParseEnded(note); ok {
			t.Errorf("%q is read as %+v", note, got)
		}
	}
}
