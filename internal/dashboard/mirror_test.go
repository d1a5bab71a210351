// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testing/clitest"
)

// TestWhatAUserMayNotListAnyMoreIsDropped takes the permission away while a watch continues.
func TestWhatAUserMayNotListAnyMoreIsDropped(t *testing.T) {
	code := http.StatusOK
	f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch watch := r.URL.Query().Get("watch"); {
		case watch != "":
		case code != http.StatusOK:
			clitest.RespondError(
				w,
				code,
				map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 401: metav1.StatusReasonUnauthorized, 503: metav1.StatusReasonServiceUnavailable}[code],
				"no",
			)
		default:
			clitest.Respond(
				w,
				corev1.NodeList{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
					ListMeta: metav1.ListMeta{ResourceVersion: "1"},
					Items:    []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
				},
			)
		}
	}))
	c, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	mirrors := newMirrors(c, "ns", f.After)
	for _, step := range []struct {
		code, wantNodes int
	}{
		{http.StatusOK, 1}, {http.StatusServiceUnavailable, 1}, {http.StatusForbidden, 0}, {http.StatusOK, 1}, {http.StatusUnauthorized, 1},
	} {
		code = step.code
		mirrors.nodes.fail(mirrors.nodes.loop().Once(t.Context()))
		if nodes, _, _ := mirrors.nodes.all(); len(nodes) != step.wantNodes {
			t.Errorf("after the answer %d: %d nodes", step.code, len(nodes))
		}
	}
}
