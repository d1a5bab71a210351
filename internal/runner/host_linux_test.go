// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Everything done on the node is done on one thread, and that thread does nothing else: otherwise
// some other goroutine would find itself in the node's file system.
func TestHostThreadIsSeparate(t *testing.T) {
	t.Parallel()
	host, err := enterHost(0)
	if err != nil {
		t.Fatal(err)
	}
	var thread int
	host.do(func() { thread = unix.Gettid() })
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if unix.Gettid() == thread {
						t.Error("another goroutine runs on the node's thread")
						return
					}
					runtime.Gosched()
				}
			}
		})
	}
	for range 2000 {
		host.do(func() {
			if got := unix.Gettid(); got != thread {
				t.Errorf("on thread %d, before on %d", got, thread)
			}
			runtime.Gosched()
		})
		if t.Failed() {
			break
		}
	}
	close(stop)
	others.Wait()
}

// ranOn is the thread on which a function ran that the main goroutine has started on the main thread.
var ranOn int

// init keeps the main goroutine on the main thread until fromMainThread has run.
func init() { runtime.LockOSThread() }

// fromMainThread is called first by TestMain: later, nothing can choose the main thread.
func fromMainThread() {
	done := make(chan struct{})
	onOwnThread(func() { ranOn = unix.Gettid(); close(done) })
	<-done
	runtime.UnlockOSThread()
}

func TestTheMainThreadStaysInTheContainer(t *testing.T) {
	if ranOn == 0 || ranOn == unix.Getpid() {
		t.Errorf("the function ran on thread %d, and the main thread is %d", ranOn, unix.Getpid())
	}
}
