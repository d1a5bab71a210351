// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Health codes of Argo CD: gitops-engine/pkg/health/health.go.
const (
	progressing = "Progressing"
	healthy     = "Healthy"
	degraded    = "Degraded"
	suspended   = "Suspended"
)

// health is what Argo CD shows for an object.
type health struct{ status, message string }

// healthCheck returns the script for argocd-cm that a page has for a kind.
func healthCheck(t *testing.T, kind string) string {
	t.Helper()
	key := "resource.customizations.health." + v1alpha1.Group + "_" + kind
	var found []string
	for _, p := range readPages(t) {
		for _, b := range p.blocks() {
			if !strings.Contains(b.content, key+":") {
				continue
			}
			var fragment struct{ Data map[string]string }
			must(t, yaml.UnmarshalStrict([]byte(b.content), &fragment))
			found = append(found, fragment.Data[key])
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d pages have a health check for %s", len(found), kind)
	}
	return found[0]
}

// healthOf computes the health of an object as Argo CD 3.5 does (gitops-engine/pkg/health/health.go, util/lua/lua.go). A script
// of argocd-cm has one second, the basic functions of Lua, and the libraries package and table, but not string and math. Argo CD
// adds a part of the library os, without which the scripts in the pages must work.
func healthOf(ctx context.Context, script string, object *unstructured.Unstructured) (health, error) {
	if object.GetDeletionTimestamp() != nil {
		return health{progressing, "Pending deletion"}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	state.SetContext(ctx)
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(library.open), Protect: true}, lua.LString(library.name)); err != nil {
			return health{}, err
		}
	}
	state.SetGlobal("obj", luaValue(state, object.Object))
	if err := state.DoString(script); err != nil {
		return health{}, err
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return health{}, fmt.Errorf("the script returns a %s", state.Get(-1).Type())
	}
	got := health{result.RawGetString("status").String(), result.RawGetString("message").String()}
	if !slices.Contains([]string{progressing, healthy, degraded, suspended}, got.status) {
		return got, fmt.Errorf("the script returns the status %q", got.status)
	}
	return got, nil
}

// luaValue returns a value of an object as Argo CD passes it to a script.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := state.NewTable()
		for _, item := range v {
			table.Append(luaValue(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range v {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	}
	return lua.LNil
}

// argoCD waits until Argo CD, with the health check in the page, shows this health, and a message that contains a text.
func (w *world) argoCD(kind, name, status, message string) {
	w.T.Helper()
	script := healthCheck(w.T, kind)
	w.Eventually(fmt.Sprintf("%s %s is %s in Argo CD", kind, name, status), func() error {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		if err := admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, live); err != nil {
			return err
		}
		got, err := healthOf(w.Ctx, script, live)
		if err != nil {
			w.T.Fatal(err)
		}
		if got.status != status || !strings.Contains(got.message, message) {
			return fmt.Errorf("it is %s: %s", got.status, got.message)
		}
		return nil
	})
}

// TestTheHealthCheckOfArgoCD covers what no manager of this version writes, and the order of conditions.
func TestTheHealthCheckOfArgoCD(t *testing.T) {
	const observed = "metadata: {generation: 2}\nstatus: {observedGeneration: 2, conditions: ["
	complete := func(status, reason string) string {
		return fmt.Sprintf("{type: Complete, status: %q, reason: %s, message: of Complete}", status, reason)
	}
	ready := func(status string) string {
		return fmt.Sprintf("{type: Ready, status: %q, reason: Any, message: of Ready}", status)
	}
	stalled := func(status string) string {
		return fmt.Sprintf("{type: Stalled, status: %q, reason: Any, message: of Stalled}", status)
	}
	waiting := health{progressing, "waiting for the manager"}
	tests := map[string]struct {
		kind, object string
		want         health
	}{
		"a NodeJob without a status": {"NodeJob", "metadata: {generation: 1}", waiting},
		"a NodeJob that was just created": {
			"NodeJob",
			"metadata: {generation: 1}\nstatus: {observedGeneration: -1}",
			waiting,
		},
		"a NodeJob that was changed": {
			"NodeJob",
			strings.Replace(observed, "generation: 2", "generation: 3", 1) + complete("True", "AllNodesDone") + "]}",
			waiting,
		},
		"a NodeJob without conditions": {"NodeJob", observed + "]}", waiting},
		"a NodeJob with a condition of a later version": {
			"NodeJob",
			observed + "{type: Other, status: 'True', message: of Other}]}",
			waiting,
		},
		"a NodeJob that is complete": {
			"NodeJob",
			observed + complete("True", "AllNodesDone") + "," + stalled("False") + "]}",
			health{healthy, "of Complete"},
		},
		"a NodeJob without nodes": {
			"NodeJob",
			observed + complete("False", "NoMatchingNodes") + "]}",
			health{healthy, "of Complete"},
		},
		"a NodeJob that runs": {
			"NodeJob",
			observed + complete("False", "InProgress") + "]}",
			health{progressing, "of Complete"},
		},
		"a NodeJob with a reason of a later version": {
			"NodeJob",
			observed + complete("False", "Other") + "]}",
			health{progressing, "of Complete"},
		},
		"a NodeJob that is suspended": {
			"NodeJob",
			observed + complete("False", "Suspended") + "]}",
			health{suspended, "of Complete"},
		},
		"a NodeJob that awaits its promotion": {
			"NodeJob",
			observed + complete("False", "AwaitingPromotion") + "]}",
			health{suspended, "of Complete"},
		},
		"a NodeJob that is stalled": {
			"NodeJob",
			observed + complete("False", "Suspended") + "," + stalled("True") + "]}",
			health{degraded, "of Stalled"},
		},
		"a NodeJob that is stalled, in another order": {
			"NodeJob",
			observed + stalled("True") + "," + complete("False", "Suspended") + "]}",
			health{degraded, "of Stalled"},
		},
		"a NodeJob that is deleted": {
			"NodeJob",
			"metadata: {generation: 1, deletionTimestamp: '2026-07-01T12:00:00Z'}",
			health{progressing, "Pending deletion"},
		},
		"a NodeGuard without a status": {"NodeGuard", "metadata: {generation: 1}", waiting},
		"a NodeGuard that was just created": {
			"NodeGuard",
			"metadata: {generation: 1}\nstatus: {observedGeneration: -1}",
			waiting,
		},
		"a NodeGuard whose companions are ready": {
			"NodeGuard",
			observed + ready("True") + "," + stalled("False") + "]}",
			health{healthy, "of Ready"},
		},
		"a NodeGuard whose companions start": {
			"NodeGuard",
			observed + ready("False") + "," + stalled("False") + "]}",
			health{progressing, "of Ready"},
		},
		"a NodeGuard that is stalled": {
			"NodeGuard",
			observed + ready("False") + "," + stalled("True") + "]}",
			health{degraded, "of Stalled"},
		},
		"a NodeGuard that is stalled, in another order": {
			"NodeGuard",
			observed + stalled("True") + "," + ready("False") + "]}",
			health{degraded, "of Stalled"},
		},
		"a NodeGuard that was changed since it was stalled": {
			"NodeGuard",
			strings.Replace(observed, "generation: 2", "generation: 3", 1) + stalled("True") + "]}",
			waiting,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			content, err := yaml.YAMLToJSON(fmt.Appendf(nil, "apiVersion: %s\nkind: %s\n%s", v1alpha1.GroupVersion, tt.kind, tt.object))
			must(t, err)
			must(t, object.UnmarshalJSON(content))
			got, err := healthOf(t.Context(), healthCheck(t, tt.kind), object)
			if err != nil || got != tt.want {
				t.Errorf("the health is %v, want %v (%v)", got, tt.want, err)
			}
		})
	}
}
