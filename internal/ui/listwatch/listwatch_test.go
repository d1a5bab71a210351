// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/listwatch"
)

// TestALoopListsAgainWhenItsWatchEnds has a watch that ends, one whose version is too old, one that is refused, and a list that is
// refused.
func TestALoopListsAgainWhenItsWatchEnds(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	send := func(w http.ResponseWriter, kind watch.EventType, object runtime.Object) {
		raw, _ := json.Marshal(object)
		_ = json.NewEncoder(w).Encode(metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}})
	}
	lists := 0
	f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case query.Get("watch") == "":
			if lists++; lists == 4 {
				clitest.RespondError(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "starting")
				return
			}
			list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
			list.ResourceVersion = fmt.Sprint(10 * lists)
			clitest.Respond(w, list)
		case query.Get("resourceVersion") != fmt.Sprint(10*lists):
			t.Errorf("watch with %s after %d lists", r.URL.RawQuery, lists)
		case lists == 1:
			send(w, watch.Added, pod("a"))
			send(w, watch.Bookmark, pod("b"))
			send(w, watch.Deleted, pod("a"))
		case lists == 2:
			send(
				w,
				watch.Error,
				&metav1.Status{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
					Status:   "Failure",
					Code:     http.StatusGone,
					Message:  "too old",
				},
			)
		default:
			clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
		}
	}))
	c, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	loop := listwatch.Loop{
		Client: c, After: f.After, Kind: &corev1.PodList{},
		List: func(ctx context.Context) (string, []client.ListOption, error) {
			var list corev1.PodList
			err := c.List(ctx, &list)
			return list.ResourceVersion, []client.ListOption{client.InNamespace("ns")}, err
		},
		Changed: func(o client.Object, deleted bool) {
			got = append(got, fmt.Sprintf("%s deleted %v", o.GetName(), deleted))
		},
		Ended: func(at listwatch.Request, err error) time.Duration {
			got = append(got, fmt.Sprintf("%d ended %v: %v", at, errors.Is(err, listwatch.ErrEnded), err))
			if at == listwatch.Listing {
				cancel()
			}
			return time.Second
		},
	}
	loop.Run(ctx)
	want := []string{
		"a deleted false", "a deleted true", "2 ended true: the API server has ended the watch",
		"2 ended true: the API server has ended the watch: too old",
		"1 ended false: no",
		"0 ended false: starting",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
