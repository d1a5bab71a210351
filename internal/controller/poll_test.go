package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestThePollGoesOnAfterErrorsAndEndsWithTheManager(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	lists := 0
	r := newFaultyReconciler(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		if lists++; lists == 3 {
			cancel()
		}
		return errors.New("away")
	}})
	r.PollInterval = time.Microsecond
	if err := r.poll(ctx); err != nil || lists < 3 {
		t.Errorf("after %d looks it ends with %v, want no error: it would end the manager", lists, err)
	}
}

// A Secret that cannot be read must not keep the others from being looked at.
func TestAnErrorOfOneSecretHidesNoOther(t *testing.T) {
	broken := map[string]bool{}
	faults := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if broken[key.Name] {
			return errors.New("away")
		}
		return c.Get(ctx, key, o, opts...)
	}}
	r := newFaultyReconciler(t, faults)
	for i := range 5 {
		s := secret("1", "a")
		s.Name = fmt.Sprint("s", i)
		r.create(s)
		r.contentOf(liveJob(minds(v1alpha1.ContentSecret, s.Name), func(j *v1alpha1.NodeJob) { j.Name = s.Name }))
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

// Nobody may take what is waked while the manager ends.
func TestAPollWithoutAnybodyToWakeEndsWithTheManager(t *testing.T) {
	r := newReconciler(t)
	for range wakeRoom {
		r.wakeUp(t.Context(), client.ObjectKey{Namespace: "ns", Name: "job"})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.wakeUp(ctx, client.ObjectKey{Namespace: "ns", Name: "late"})
	if got := r.woken(); len(got) != wakeRoom {
		t.Errorf("%d are to be looked at, want %d", len(got), wakeRoom)
	}
}
