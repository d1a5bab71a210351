package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestErrorsOfTheAPIServerAreSaidInWordsThatHelp(t *testing.T) {
	nodes, jobs := schema.GroupResource{Resource: "nodes"}, schema.GroupResource{Group: "everynode.dev", Resource: "nodejobs"}
	tests := map[string]struct {
		err  error
		code int
		want string
	}{
		"nodes are forbidden": {
			apierrors.NewForbidden(nodes, "", errors.New(`User "jane" cannot list resource "nodes" in API group "" at the cluster scope`)), ExitForbidden,
			"jane may not list nodes in the whole cluster. The ClusterRole everynode-view has what the reading verbs need. To check: kubectl auth can-i list nodes",
		},
		"NodeJobs must not be changed": {
			apierrors.NewForbidden(jobs, "a", errors.New(`User "jane" cannot patch resource "nodejobs" in API group "everynode.dev" in the namespace "ns"`)), ExitForbidden,
			"jane may not patch nodejobs.everynode.dev in namespace ns. The ClusterRole everynode-nodejob-editor has what steering needs, and makes its holder root on every node. To check: kubectl auth can-i patch nodejobs.everynode.dev -n ns",
		},
		"forbidden by something else": {
			apierrors.NewForbidden(jobs, "a", errors.New("a policy says no")), ExitForbidden, `nodejobs.everynode.dev "a" is forbidden: a policy says no`,
		},
		"no such object": {apierrors.NewNotFound(jobs, "a"), ExitNotFound, `nodejobs.everynode.dev "a" not found`},
		"no such kind": {
			apierrors.NewGenericServerResponse(http.StatusNotFound, "get", jobs, "a", "404 page not found", 0, true), ExitNotInstalled,
			"this cluster does not know NodeJobs: Everynode is not installed there. Apply its config/default (see Install it in the README), or choose another cluster with --context",
		},
		"an answer that takes too long": {fmt.Errorf("asking: %w", context.DeadlineExceeded), ExitUnreachable, "the API server does not answer: asking: context deadline exceeded"},
		"one with a code of its own":    {Failf(ExitTimedOut, "too late"), ExitTimedOut, "too late"},
		"anything else":                 {errors.New("odd"), ExitError, "odd"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Explain(tt.err)
			if diff := cmp.Diff(tt.want, got.Error()); diff != "" || CodeOf(got) != tt.code {
				t.Errorf("exit code %d, want %d; -want +got\n%s", CodeOf(got), tt.code, diff)
			}
		})
	}
}

func TestNamesThatLookAlikeComeFirst(t *testing.T) {
	got := nearest("max-map", []string{"zeta", "sysctl", "max-map-count", "map"})
	if diff := cmp.Diff([]string{"max-map-count", "map", "sysctl", "zeta"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestJSONSaysTheSameInCharactersThatMoveNoCursor(t *testing.T) {
	tests := map[string]string{
		`{"a": "plain ä 漢"}` + "\n": `{"a": "plain ä 漢"}` + "\n",
		"{\"a\": \"\u009b2J\"}":     `{"a": "\u009b2J"}`,
		"{\"a\": \"\u202eexe\"}":    `{"a": "\u202eexe"}`,
		"{\"a\": \"\U000e0041\"}":   `{"a": "\udb40\udc41"}`,
		"{\n  \"a\": \"\x7f\"}":     "{\n  \"a\": \"" + `\u007f` + "\"}",
	}
	for in, want := range tests {
		if diff := cmp.Diff(want, escapeJSON(in)); diff != "" {
			t.Errorf("%q: -want +got\n%s", in, diff)
		}
	}
}
