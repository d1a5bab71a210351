// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os"
	"testing"
	"time"
)

func TestTheCostOfThisProcessIsRead(t *testing.T) {
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; { //nolint:revive // it uses CPU time, in ticks of 10 ms
	}
	used, err := cpuSeconds(os.Getpid())
	if err != nil || used <= 0 || used > 600 {
		t.Errorf("CPU %v s (%v)", used, err)
	}
	all, err := machineCPUSeconds()
	if err != nil || all < used {
		t.Errorf("CPU of the machine %v s (%v), and of this process %v s", all, err, used)
	}
	resident, peak, err := memoryMiB(os.Getpid())
	if err != nil || resident < 1 || peak < resident/2 || peak > 10000 {
		t.Errorf("memory %v MiB, at most %v MiB (%v)", resident, peak, err)
	}
	if m, err := machine(); err != nil || m.Cores < 1 || m.MemoryGiB < 0.1 {
		t.Errorf("the machine is %+v (%v)", m, err)
	}
}

func TestTheCostOfAProcessThatHasEndedIsAnError(t *testing.T) {
	const none = 1 << 30
	if _, err := cpuSeconds(none); err == nil {
		t.Error("CPU time is read without an error")
	}
	if _, _, err := memoryMiB(none); err == nil {
		t.Error("memory is read without an error")
	}
}
