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

// TestTheMainThreadStaysInTheContainer finds a goroutine that runs on the main thread, by occupying all other threads.
func TestTheMainThreadStaysInTheContainer(t *testing.T) {
	release, found := make(chan struct{}), make(chan int, 1)
	defer close(release)
	for range 200 {
		occupied := make(chan bool)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			isMain := unix.Gettid() == unix.Getpid()
			occupied <- isMain
			if isMain {
				onOwnThread(func() { found <- unix.Gettid() })
			}
			<-release
		}()
		if !<-occupied {
			continue
		}
		if tid := <-found; tid == unix.Getpid() {
			t.Error("the function runs on the main thread")
		}
		return
	}
	t.Fatal("no goroutine ran on the main thread")
}
