// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/cli/clitest"
)

// TestWhatAUserMayNotListAnyMoreIsDropped takes the permission away while a watch continues.
func TestWhatAUserMayNotListAnyMoreIsDropped(t *testing.T) {
	answers := map[string]int{}
	code := http.StatusOK
	f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch watch := r.URL.Query().Get("watch"); {
		case watch != "":
			answers["watch of "+r.URL.Query().Get("timeoutSeconds")+" s"]++
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
	mirrors, refused := newMirrors(c, "ns", f.After), 0
	mirrors.limitWatches(rightsInterval)
	mirrors.unauthorized(func() { refused++ })
	for _, step := range []struct {
		code, wantNodes, wantRefused int
	}{
		{http.StatusOK, 1, 0}, {http.StatusServiceUnavailable, 1, 0}, {http.StatusForbidden, 0, 0}, {http.StatusOK, 1, 0}, {http.StatusUnauthorized, 1, 1},
	} {
		code = step.code
		mirrors.nodes.fail(mirrors.nodes.loop().Once(t.Context()))
		if nodes, _, _ := mirrors.nodes.all(); len(nodes) != step.wantNodes || refused != step.wantRefused {
			t.Errorf("after the answer %d: %d nodes, refused %d times", step.code, len(nodes), refused)
		}
	}
	if answers["watch of 300 s"] != 2 || len(answers) != 1 {
		t.Errorf("watches %v", answers)
	}
}
