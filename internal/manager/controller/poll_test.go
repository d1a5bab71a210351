// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
)

func TestThePollGoesOnAfterErrorsAndEndsWithTheManager(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	lists := 0
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			if lists++; lists == 3 {
				cancel()
			}
			return errors.New("away")
		}},
	)
	r.PollInterval = time.Microsecond
	if err := r.poll(ctx); err != nil || lists < 3 {
		t.Errorf("after %d polls it ends with %v, want no error: it would end the manager", lists, err)
	}
}

// A Secret that cannot be read must not prevent the others from being read.
func TestAnErrorOfOneSecretHidesNoOther(t *testing.T) {
	broken := map[string]bool{}
	faults := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if broken[key.Name] {
				return errors.New("away")
			}
			return c.Get(ctx, key, o, opts...)
		},
	}
	r := newFaultyReconciler(t, faults)
	for i := range 5 {
		s := secret("1", "a")
		s.Name = fmt.Sprint("s", i)
		r.create(s)
		r.contentOf(liveJob(rerunsOnChange(v1alpha1.ContentSecret, s.Name), func(j *v1alpha1.NodeJob) { j.Name = s.Name }))
		s.Data["key"] = []byte("b")
		r.update(s)
	}
	broken["s2"] = true
	r.pollOnce(t.Context())
	if got := r.woken(); len(got) != 4 {
		t.Errorf("it wakes %v, want all but s2", got)
	}
	broken["s2"] = false
	r.pollOnce(t.Context())
	if got := r.woken(); len(got) != 1 || got[0] != "ns/s2" {
		t.Errorf("then it wakes %v, want s2", got)
	}
}

// While the manager shuts down, a wake-up may have no receiver.
func TestAPollWithoutReceiversEndsWithTheManager(t *testing.T) {
	r := newReconciler(t)
	for range wakeRoom {
		r.wakeUp(t.Context(), client.ObjectKey{Namespace: "ns", Name: "job"})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.wakeUp(ctx, client.ObjectKey{Namespace: "ns", Name: "late"})
	if got := r.woken(); len(got) != wakeRoom {
		t.Errorf("%d are to be polled, want %d", len(got), wakeRoom)
	}
}

// A user who can write NodeJobs can list thousands of Secrets, which the manager may not even read.
func TestAPollReadsABoundedNumberOfSecrets(t *testing.T) {
	var reads []string
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{
			Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				reads = append(reads, key.Name)
				return nil
			},
		},
	)
	const secrets = 1000
	for i := range secrets {
		for _, job := range []string{"a", "b"} { // each Secret is listed twice
			readable := contentKey{
				client.ObjectKey{Namespace: "ns", Name: job},
				task.Content{Kind: v1alpha1.ContentSecret, Name: fmt.Sprint("readable-", i)},
			}
			forbidden := contentKey{readable.job, task.Content{Kind: v1alpha1.ContentSecret, Name: fmt.Sprint("forbidden-", i)}}
			r.contents.seen[readable] = content{hashes: task.Hashes{Content: "old"}}
			r.contents.seen[forbidden] = content{obstacle: &hold.Why{Reason: v1alpha1.ReasonSecretForbidden}}
		}
	}
	seen := map[string]int{}
	polls := 0
	for len(seen) < secrets && polls < 10 {
		polls++
		turn := r.contents.turn()
		forbidden := 0
		for _, keys := range turn {
			if len(keys) != 2 {
				t.Fatalf("%s is listed %d times, want it once for 2 NodeJobs", keys[0].Name, len(keys))
			}
			if strings.HasPrefix(keys[0].Name, "forbidden") {
				forbidden++
			} else {
				seen[keys[0].Name]++
			}
		}
		if len(turn) != maxSecretReads+maxSecretTries || forbidden != maxSecretTries {
			t.Fatalf(
				"a poll reads %d Secrets, %d of them forbidden; want %d and %d",
				len(turn),
				forbidden,
				maxSecretReads+maxSecretTries,
				maxSecretTries,
			)
		}
	}
	if len(seen) != secrets {
		t.Errorf("after %d polls %d of %d Secrets were read", polls, len(seen), secrets)
	}
	if r.pollSecrets(t.Context()); len(reads) != maxSecretReads+maxSecretTries {
		t.Errorf("%d reads, want one for each Secret of the poll", len(reads))
	}
}
