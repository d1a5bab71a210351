// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/notify"
)

// TestAFreezeIsNotified replaces the manager during the freeze: the next one does not report again that it has begun.
func TestAFreezeIsNotified(t *testing.T) {
	b := newBudgeted(t, "n1")
	received := make(chan string, 16)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got cloudEvent
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Errorf("%v, the event is %+v", err, got)
		}
		received <- fmt.Sprintf("%s %s: %s: %s", got.Type, got.Subject, got.Data.Reason, got.Data.Message)
	}))
	t.Cleanup(endpoint.Close)
	b.notify = notify.Config{URL: endpoint.URL, Format: notify.FormatCloudEvents}
	receives := func(want string) {
		t.Helper()
		select {
		case got := <-received:
			// Kubernetes before 1.36 has no policy that names the user.
			if got = strings.Replace(got, ", by admin", "", 1); got != want {
				t.Errorf("the endpoint has got\n%s\nwant\n%s", got, want)
			}
		case <-time.After(40 * time.Second):
			t.Fatalf("the endpoint has not got %s", want)
		}
	}
	status := func(name string, check func(*v1alpha1.NodeDisruptionBudgetStatus) error) {
		t.Helper()
		b.Within(40*time.Second, 50*time.Millisecond, "the status of "+name+" is written", func() error {
			var live v1alpha1.NodeDisruptionBudget
			if err := b.admin.Get(b.Ctx, client.ObjectKey{Name: name}, &live); err != nil {
				return err
			}
			return check(&live.Status)
		})
	}

	stop := b.startManager()
	freeze := b.budget("freeze", func(s *v1alpha1.NodeDisruptionBudgetSpec) {
		s.Limits[0].MaxUnavailable, s.Description = number(0), "INC-42"
	})
	receives(
		"dev.everynode.nodedisruptionbudget.frozen nodedisruptionbudget/freeze: Frozen: no disruption of nodes begins, without an end: INC-42",
	)
	status("freeze", func(st *v1alpha1.NodeDisruptionBudgetStatus) error {
		if state := st.ControllerState.Notifications; state == nil || len(state.Pending) > 0 {
			return fmt.Errorf("it has %+v", state)
		}
		c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != v1alpha1.ReasonFrozenWithoutEnd || !strings.HasSuffix(c.Message, "kubectl everynode thaw freeze") {
			return fmt.Errorf("the conditions are %+v", st.Conditions)
		}
		return nil
	})
	stop()
	b.startManager()
	b.budget("other", nil)
	status("other", func(st *v1alpha1.NodeDisruptionBudgetStatus) error {
		if st.ObservedGeneration < 1 {
			return errors.New("it was not observed")
		}
		return nil
	})
	must(t, b.admin.Delete(b.Ctx, freeze))
	receives("dev.everynode.nodedisruptionbudget.thawed nodedisruptionbudget/freeze: Deleted: " +
		"the freeze has ended: disruptions of its nodes may begin, as far as other NodeDisruptionBudgets allow them")
}
