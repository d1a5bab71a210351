// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

const budgetsPath = "/apis/everynode.dev/v1alpha1/nodedisruptionbudgets"

// frozenNow is the time of the tests of freezes.
var frozenNow = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// budgetServer is an API server with three nodes, of which node-1 has the label pool=a, and with budgets.
type budgetServer struct {
	t       *testing.T
	budgets []v1alpha1.NodeDisruptionBudget
	// jobs are the NodeJobs of the namespace ns.
	jobs []v1alpha1.NodeJob
	// forbidden are paths that the user may not use, and missing is true if the cluster does not know budgets.
	forbidden []string
	missing   bool
	writes    []string
	written   *v1alpha1.NodeDisruptionBudget
	// manage is what a manager does with a written budget; nil if none runs.
	manage func(*v1alpha1.NodeDisruptionBudget)
	// seats are the pods in the namespace of the manager.
	seats []corev1.Pod
}

const seatsPath = "/api/v1/namespaces/everynode-system/pods"

// ServeHTTP implements http.Handler.
func (s *budgetServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case slices.Contains(s.forbidden, path):
		clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "not you")
	case strings.HasPrefix(path, budgetsPath) && s.missing:
		http.Error(w, "404 page not found", http.StatusNotFound)
	case strings.HasPrefix(path, budgetsPath):
		s.serveBudgets(w, r, strings.TrimPrefix(strings.TrimPrefix(path, budgetsPath), "/"))
	case path == clitest.NodesPath:
		s.serveNodes(w, r)
	case path == clitest.JobsPath, path == "/apis/everynode.dev/v1alpha1/nodejobs":
		clitest.Respond(w, v1alpha1.NodeJobList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJobList"}, Items: s.jobs,
		})
	case path == clitest.JobsPath+"/j":
		clitest.Respond(w, clitest.NodeJob("j"))
	case path == "/apis/everynode.dev/v1alpha1/nodeguards":
		clitest.Respond(
			w,
			v1alpha1.NodeGuardList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeGuardList"}},
		)
	case path == clitest.PodsPath:
		clitest.Respond(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}})
	case path == seatsPath:
		clitest.Respond(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: s.seats})
	default:
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	}
}

func (s *budgetServer) serveNodes(w http.ResponseWriter, r *http.Request) {
	pools := map[string]string{"node-1": "a", "node-2": "b", "node-3": "b"}
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		list := metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		}
		for name, pool := range pools {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}},
			})
		}
		clitest.Respond(w, list)
		return
	}
	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	for name, pool := range pools {
		list.Items = append(list.Items, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"pool": pool}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	clitest.Respond(w, list)
}

func (s *budgetServer) serveBudgets(w http.ResponseWriter, r *http.Request, name string) {
	i := slices.IndexFunc(s.budgets, func(b v1alpha1.NodeDisruptionBudget) bool { return b.Name == name })
	if r.Method != http.MethodGet {
		s.writes = append(s.writes, strings.TrimSpace(r.Method+" "+name))
	}
	switch {
	case name == "" && r.Method == http.MethodGet:
		clitest.Respond(w, v1alpha1.NodeDisruptionBudgetList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudgetList"}, Items: s.budgets,
		})
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		s.written = &v1alpha1.NodeDisruptionBudget{}
		if err := json.NewDecoder(r.Body).Decode(s.written); err != nil {
			s.t.Error(err)
		}
		stored := s.written.DeepCopy()
		stored.UID, stored.Generation = types.UID("uid-of-"+stored.Name), stored.Generation+1
		if s.manage != nil {
			s.manage(stored)
		}
		s.budgets = append(
			slices.DeleteFunc(s.budgets, func(b v1alpha1.NodeDisruptionBudget) bool { return b.Name == stored.Name }),
			*stored,
		)
		clitest.Respond(w, stored)
	case i < 0:
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	case r.Method == http.MethodDelete:
		s.budgets = slices.Delete(s.budgets, i, i+1)
		clitest.Respond(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	default:
		clitest.Respond(w, s.budgets[i])
	}
}

// frozenBudget is a freeze of alice that ends after a time; 0 for one without an end.
func frozenBudget(name string, left time.Duration, change ...func(*v1alpha1.NodeDisruptionBudget)) v1alpha1.NodeDisruptionBudget {
	none := intstr.FromInt32(0)
	b := v1alpha1.NodeDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "7", Generation: 1,
			Annotations: map[string]string{v1alpha1.ChangedByAnnotation: "alice"},
		},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{
			AppliesTo: v1alpha1.AppliesToAllTasks, Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: &none}},
			JoiningNodes: v1alpha1.JoiningNodesIncluded, Description: "INC-42",
		},
	}
	if left != 0 {
		ends := metav1.NewTime(frozenNow.Add(left))
		b.Spec.ExpiresAt = &ends
	}
	for _, do := range change {
		do(&b)
	}
	return b
}

// production is a budget that is not a freeze.
func production() v1alpha1.NodeDisruptionBudget {
	return frozenBudget("production", 0, func(b *v1alpha1.NodeDisruptionBudget) {
		one := intstr.FromInt32(1)
		b.Spec.Limits[0].MaxUnavailable = &one
	})
}

// run executes a command against the server, and returns its exit code, its output and its messages.
func (s *budgetServer) run(args ...string) (code int, out, told string) {
	f, o, e := clitest.NewFactory(s.t, s)
	f.Now = func() time.Time { return frozenNow }
	root := NewCommand(f)
	root.SetArgs(args)
	code = tellError(f, root.ExecuteContext(s.t.Context()))
	return code, o.String(), e.String()
}

// observed is a manager that has observed a budget, of whose three nodes so many have seats. All of them are held if it is Ready.
func observed(seats int32, ready metav1.ConditionStatus, message string) func(*v1alpha1.NodeDisruptionBudget) {
	return func(b *v1alpha1.NodeDisruptionBudget) {
		b.Status = v1alpha1.NodeDisruptionBudgetStatus{
			ObservedGeneration: b.Generation, Nodes: v1alpha1.BudgetCounts{Total: 3, Seats: seats},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready, Reason: v1alpha1.ReasonFrozen, Message: message}},
		}
	}
}

// TestFreezeWaitsUntilItHolds : what is not stopped is said, and the freeze stays.
func TestFreezeWaitsUntilItHolds(t *testing.T) {
	for name, tt := range map[string]struct {
		manage    func(*v1alpha1.NodeDisruptionBudget)
		args      []string
		code      int
		out, told string
	}{
		"it holds":   {observed(3, metav1.ConditionTrue, ""), nil, 0, "NodeJobs: stopped. Drains by other tools: stopped on 3 of 3 nodes, after 1s\n", ""},
		"no manager": {nil, nil, cmdutil.ExitTimedOut, "", "drains by other tools are NOT stopped, and NodeJobs only when a manager runs: no manager has observed the freeze"},
		"an old manager": {func(b *v1alpha1.NodeDisruptionBudget) {
			observed(3, metav1.ConditionTrue, "")(b)
			b.Status.ObservedGeneration = 0
		}, nil, cmdutil.ExitTimedOut, "", "no manager has observed the freeze"},
		"no seats yet": {
			observed(1, metav1.ConditionFalse, "2 nodes without a ready seat: node-1, node-2"), nil, cmdutil.ExitTimedOut, "",
			"NodeJobs: stopped. Drains by other tools are NOT all stopped after 1s, but on 1 of 3 nodes: 2 nodes without a ready seat: node-1, node-2. The freeze stays",
		},
		"it is not waited for": {nil, []string{"--timeout", "0"}, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &budgetServer{t: t, manage: tt.manage}
			code, out, told := s.run(append([]string{"freeze", "--reason", "x", "--timeout", "1s"}, tt.args...)...)
			_, out, _ = strings.Cut(out, "\n")
			if code != tt.code || out != tt.out || !strings.Contains(told, tt.told) || len(s.budgets) != 1 {
				t.Errorf(
					"exit code %d, want %d, with %q, want %q, and\n%s, want %q; budgets %d",
					code,
					tt.code,
					out,
					tt.out,
					told,
					tt.told,
					len(s.budgets),
				)
			}
		})
	}
}

func TestFreeze(t *testing.T) {
	const held = "NodeJobs: stopped. Drains by other tools: stopped on 3 of 3 nodes, after 1s\n"
	const created = "nodedisruptionbudget freeze: frozen until 16:00:00 UTC (in 4h): nothing starts on 3 nodes\n" + held
	expired := frozenBudget("freeze", -time.Hour)
	for name, tt := range map[string]struct {
		budgets   []v1alpha1.NodeDisruptionBudget
		forbidden []string
		missing   bool
		args      []string
		code      int
		out       string
		told      []string
		writes    []string
		want      func(*v1alpha1.NodeDisruptionBudgetSpec)
	}{
		"all nodes, for the default time": {
			args: []string{"--reason", " INC-42 "},
			out:  created, told: []string{"It lasts 4h, the default", "To end it: kubectl everynode thaw freeze"},
			writes: []string{"POST"}, want: func(*v1alpha1.NodeDisruptionBudgetSpec) {},
		},
		"some nodes, with another name": {
			args: []string{"pool-a", "--reason", "INC-42", "--for", "30m", "-l", "pool=a"},
			out:  "nodedisruptionbudget pool-a: frozen until 12:30:00 UTC (in 30m): nothing starts on 1 node\n" + held,
			told: []string{"kubectl everynode thaw pool-a"}, writes: []string{"POST"},
			want: func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
				ends := metav1.NewTime(frozenNow.Add(30 * time.Minute))
				spec.ExpiresAt, spec.Selector = &ends, &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
			},
		},
		"disruptions only": {
			args: []string{"--reason", "INC-42", "--disruptions-only"},
			out: "nodedisruptionbudget freeze: frozen until 16:00:00 UTC (in 4h): no disruption begins on 3 nodes\n" +
				"NodeJobs that cordon, drain or reboot: stopped. Drains by other tools: stopped on 3 of 3 nodes, after 1s\n",
			told: []string{"NodeJobs that do not cordon, drain or reboot start as before"}, writes: []string{"POST"},
			want: func(spec *v1alpha1.NodeDisruptionBudgetSpec) { spec.AppliesTo = v1alpha1.AppliesToDisruptions },
		},
		"a freeze that has ended is replaced": {
			budgets: []v1alpha1.NodeDisruptionBudget{expired}, args: []string{"--reason", "INC-42"}, out: created,
			writes: []string{"PUT freeze"}, want: func(*v1alpha1.NodeDisruptionBudgetSpec) {},
		},
		"a freeze that holds": {
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("freeze", 2*time.Hour)},
			args:    []string{"--reason", "INC-43", "--for", "1h"},
			code:    cmdutil.ExitError, told: []string{
				"the nodes are frozen already, for longer. Frozen until 14:00:00 UTC (in 120m) by alice: INC-42 (NodeDisruptionBudget freeze)",
				"kubectl everynode thaw freeze. Or use another name",
			},
		},
		"the end of a freeze is moved": {
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("freeze", 2*time.Hour)}, args: []string{"--reason", "INC-42"}, out: created,
			writes: []string{"PUT freeze"}, want: func(*v1alpha1.NodeDisruptionBudgetSpec) {},
		},
		"the end of a freeze is moved, which keeps its reason": {
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("freeze", 2*time.Hour)}, out: created,
			writes: []string{"PUT freeze"}, want: func(*v1alpha1.NodeDisruptionBudgetSpec) {},
		},
		"a freeze that has ended has no reason for another": {
			budgets: []v1alpha1.NodeDisruptionBudget{expired}, code: cmdutil.ExitUsage, told: []string{"a freeze needs a reason"},
		},
		"a freeze of other nodes": {
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("freeze", 2*time.Hour)}, args: []string{"--reason", "x", "-l", "pool=a"},
			code: cmdutil.ExitError, told: []string{"because the freeze has other nodes, or another scope. End it first: kubectl everynode thaw freeze"},
		},
		"a freeze with another scope": {
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("freeze", 2*time.Hour)}, args: []string{"--reason", "x", "--disruptions-only"},
			code: cmdutil.ExitError, told: []string{"because the freeze has other nodes, or another scope"},
		},
		"a freeze without an end": {
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("freeze", 0)}, args: []string{"--reason", "x"},
			code: cmdutil.ExitError, told: []string{"the nodes are frozen already, for longer. Frozen without an end"},
		},
		"a budget that is not a freeze": {
			budgets: []v1alpha1.NodeDisruptionBudget{production()}, args: []string{"production", "--reason", "INC-42"},
			code: cmdutil.ExitError, told: []string{"NodeDisruptionBudget production exists, and is not a freeze. Nothing was changed"},
		},
		"a selector that matches no node": {
			args: []string{"--reason", "INC-42", "-l", "pool=c"}, code: cmdutil.ExitNotFound,
			told: []string{"no node matches -l pool=c. Nothing was changed. To freeze only nodes that join: --allow-empty"},
		},
		"a pool that is empty": {
			args: []string{"--reason", "INC-42", "-l", "pool=c", "--allow-empty"}, writes: []string{"POST"},
			out: "nodedisruptionbudget freeze: frozen until 16:00:00 UTC (in 4h): nothing starts on the nodes that it selects\n" + held,
			want: func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
				spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "c"}}
			},
		},
		"a user who may not list nodes": {
			forbidden: []string{clitest.NodesPath}, args: []string{"--reason", "INC-42"},
			out:  "nodedisruptionbudget freeze: frozen until 16:00:00 UTC (in 4h): nothing starts on the nodes that it selects\n" + held,
			told: []string{"how many nodes are frozen is not known: not you"}, writes: []string{"POST"},
			want: func(*v1alpha1.NodeDisruptionBudgetSpec) {},
		},
		"an invalid selector": {
			args: []string{"--reason", "INC-42", "-l", "pool="}, code: cmdutil.ExitNotFound, told: []string{"no node matches -l pool="},
		},
		"a selector that is no selector": {args: []string{"--reason", "x", "-l", "a=b=c"}, code: cmdutil.ExitUsage, told: []string{"-l a=b=c: "}},
		"no reason":                      {code: cmdutil.ExitUsage, told: []string{"a freeze needs a reason"}},
		"too long":                       {args: []string{"--reason", "x", "--for", "169h"}, code: cmdutil.ExitUsage, told: []string{"give 1m to 168h (7 days)"}},
		"too short":                      {args: []string{"--reason", "x", "--for", "0s"}, code: cmdutil.ExitUsage, told: []string{"--for 0s: give 1m"}},
		"two names":                      {args: []string{"a", "b", "--reason", "x"}, code: cmdutil.ExitUsage, told: []string{"got 2 arguments"}},
		"an older Everynode": {
			missing: true, args: []string{"--reason", "x"}, code: cmdutil.ExitNotInstalled,
			told: []string{"does not have the resource nodedisruptionbudgets.everynode.dev"},
		},
		"a user who may not read budgets": {
			forbidden: []string{budgetsPath + "/freeze"}, args: []string{"--reason", "x"}, code: cmdutil.ExitForbidden, told: []string{"not you"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &budgetServer{
				t: t, budgets: tt.budgets, forbidden: tt.forbidden, missing: tt.missing, manage: observed(3, metav1.ConditionTrue, ""),
			}
			code, out, told := s.run(append([]string{"freeze"}, tt.args...)...)
			if code != tt.code || out != tt.out {
				t.Errorf("exit code %d, want %d, with %q, want %q", code, tt.code, out, tt.out)
			}
			for _, want := range tt.told {
				if !strings.Contains(told, want) {
					t.Errorf("no %q in\n%s", want, told)
				}
			}
			if diff := cmp.Diff(tt.writes, s.writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if tt.want == nil {
				return
			}
			want := frozenBudget("", 4*time.Hour).Spec
			want.Enforcement = v1alpha1.BudgetEnforce
			tt.want(&want)
			if diff := cmp.Diff(want, s.written.Spec, cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

func TestThaw(t *testing.T) {
	const ended = ": the freeze is ended: what it held starts automatically, as far as other budgets allow\n"
	a, b, freeze := frozenBudget("a", time.Hour), frozenBudget("b", time.Hour), frozenBudget("freeze", time.Hour)
	for name, tt := range map[string]struct {
		budgets []v1alpha1.NodeDisruptionBudget
		args    []string
		code    int
		out     string
		told    []string
		writes  []string
	}{
		"the default": {
			budgets: []v1alpha1.NodeDisruptionBudget{a, freeze, production()}, out: "nodedisruptionbudget freeze" + ended,
			told:   []string{"Frozen until 13:00:00 UTC (in 60m) by alice: INC-42 (NodeDisruptionBudget a): nothing starts on 3 nodes"},
			writes: []string{"DELETE freeze"},
		},
		"the only one": {
			budgets: []v1alpha1.NodeDisruptionBudget{a, production()}, out: "nodedisruptionbudget a" + ended, writes: []string{"DELETE a"},
		},
		"several": {
			budgets: []v1alpha1.NodeDisruptionBudget{a, b}, code: cmdutil.ExitUsage,
			told: []string{"there are several freezes: name one, or give --all: a, b"},
		},
		"none": {budgets: []v1alpha1.NodeDisruptionBudget{production()}, code: cmdutil.ExitNotFound, told: []string{"there is no freeze in this cluster"}},
		"all": {
			budgets: []v1alpha1.NodeDisruptionBudget{a, b, production()}, args: []string{"--all"},
			out: "nodedisruptionbudget a" + ended + "nodedisruptionbudget b" + ended, writes: []string{"DELETE a", "DELETE b"},
		},
		"all, and one has no end": {
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("databases", 0)}, args: []string{"--all"}, code: cmdutil.ExitNotFound,
			told: []string{"To delete one without an end, name it: databases"},
		},
		"one without an end, by its name": {
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("databases", 0)}, args: []string{"databases"},
			out: "nodedisruptionbudget databases" + ended, writes: []string{"DELETE databases"},
		},
		"one that has expired": {
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("freeze", -time.Hour)},
			out:     "nodedisruptionbudget freeze: the freeze is ended: it had expired already\n", writes: []string{"DELETE freeze"},
		},
		"not a freeze": {
			budgets: []v1alpha1.NodeDisruptionBudget{production(), a}, args: []string{"production"}, code: cmdutil.ExitError,
			told: []string{"NodeDisruptionBudget production is not a freeze", "kubectl delete nodedisruptionbudget production"},
		},
		"not a freeze, and one": {
			budgets: []v1alpha1.NodeDisruptionBudget{production(), a}, args: []string{"production", "a", "c"}, code: cmdutil.ExitNotFound,
			out:    "nodedisruptionbudget a" + ended,
			told:   []string{"nodedisruptionbudget production: error: NodeDisruptionBudget production is not", "there is no NodeDisruptionBudget c"},
			writes: []string{"DELETE a"},
		},
		"names and all": {args: []string{"a", "--all"}, code: cmdutil.ExitUsage, told: []string{"not both"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &budgetServer{t: t, budgets: slices.Clone(tt.budgets)}
			code, out, told := s.run(append([]string{"thaw"}, tt.args...)...)
			if code != tt.code || out != tt.out {
				t.Errorf("exit code %d, want %d, with %q, want %q", code, tt.code, out, tt.out)
			}
			for _, want := range tt.told {
				if !strings.Contains(told, want) {
					t.Errorf("no %q in\n%s", want, told)
				}
			}
			if diff := cmp.Diff(tt.writes, s.writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAFreezeIsShown checks the commands that show the state of nodes.
func TestAFreezeIsShown(t *testing.T) {
	const line = "Frozen until 13:00:00 UTC (in 60m) by alice: INC-42 (NodeDisruptionBudget freeze): "
	freeze := frozenBudget("freeze", time.Hour)
	poolA := frozenBudget("freeze", time.Hour, func(b *v1alpha1.NodeDisruptionBudget) {
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	})
	audit := frozenBudget("freeze", time.Hour, func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Enforcement = v1alpha1.BudgetReport })
	for name, tt := range map[string]struct {
		budget    v1alpha1.NodeDisruptionBudget
		args      []string
		forbidden []string
		missing   bool
		want      string
	}{
		"list":                          {budget: freeze, args: []string{"list"}, want: line + "nothing starts on 3 nodes"},
		"list of some nodes":            {budget: poolA, args: []string{"list"}, want: line + "nothing starts on 1 node"},
		"status":                        {budget: freeze, args: []string{"status", "j"}, want: line + "nothing starts on 3 nodes"},
		"explain":                       {budget: poolA, args: []string{"explain", "j", "node-1"}, want: line + "nothing starts on node-1"},
		"explain of a node":             {budget: poolA, args: []string{"explain", "node-1"}, want: line + "nothing starts on node-1"},
		"explain of another node":       {budget: poolA, args: []string{"explain", "j", "node-2"}},
		"for programs":                  {budget: freeze, args: []string{"list", "-o", "json"}},
		"one that has expired":          {budget: frozenBudget("freeze", -time.Hour), args: []string{"list"}},
		"one that only reports":         {budget: audit, args: []string{"list"}},
		"a budget with another limit":   {budget: production(), args: []string{"list"}},
		"a user who may not list it":    {budget: freeze, args: []string{"list"}, forbidden: []string{budgetsPath}},
		"an older Everynode":            {budget: freeze, args: []string{"status", "j"}, missing: true},
		"a user who may not list nodes": {budget: freeze, args: []string{"list"}, forbidden: []string{clitest.NodesPath}, want: line + "nothing starts on the nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &budgetServer{
				t: t, budgets: []v1alpha1.NodeDisruptionBudget{tt.budget}, jobs: []v1alpha1.NodeJob{*clitest.NodeJob("j")},
				forbidden: tt.forbidden, missing: tt.missing,
			}
			code, out, told := s.run(tt.args...)
			if said := out + told; code != cmdutil.ExitOK || !strings.Contains(said, tt.want) ||
				strings.Contains(said, "Frozen") != (tt.want != "") || strings.Contains(told, "could not check whether nodes") {
				t.Errorf("exit code %d, with %q not in\n%s", code, tt.want, said)
			}
		})
	}
}

func TestAPlanShowsAFreeze(t *testing.T) {
	for output, want := range map[string]bool{"": true, "json": false} {
		s := &planServer{
			t: t, nodes: []corev1.Node{readyNode("node-1")},
			budgets: []v1alpha1.NodeDisruptionBudget{frozenBudget("freeze", time.Hour)},
		}
		f, out, errs := clitest.NewFactory(t, s)
		f.Now, f.In = func() time.Time { return frozenNow }, strings.NewReader(fileOf("j", ""))
		args := []string{"plan", "-f", "-"}
		if output != "" {
			args = append(args, "-o", output)
		}
		if code := command(t, f, args...); code != cmdutil.ExitOK || strings.HasPrefix(out.String(), "Frozen until 13:00:00 UTC") != want {
			t.Errorf("-o %q: exit code %d, with %s\n%s", output, code, errs, out)
		}
	}
}

// TestAPlanConsidersTheBudgetsOfItsFile checks a freeze in the file, and a file that ends one.
func TestAPlanConsidersTheBudgetsOfItsFile(t *testing.T) {
	const budget = "---\napiVersion: everynode.dev/v1alpha1\nkind: NodeDisruptionBudget\nmetadata: {name: freeze}\n"
	for name, tt := range map[string]struct {
		live   []v1alpha1.NodeDisruptionBudget
		spec   string
		frozen bool
	}{
		"a freeze":             {spec: "spec: {appliesTo: AllTasks, joiningNodes: Included, limits: [{maxUnavailable: 0}]}\n", frozen: true},
		"the end of a freeze":  {live: []v1alpha1.NodeDisruptionBudget{frozenBudget("freeze", time.Hour)}, spec: "spec: {limits: [{maxUnavailable: 1}]}\n"},
		"a freeze of no nodes": {spec: "spec: {appliesTo: AllTasks, joiningNodes: Included, selector: {matchLabels: {a: b}}, limits: [{maxUnavailable: 0}]}\n"},
	} {
		s := &planServer{t: t, nodes: []corev1.Node{readyNode("node-1")}, budgets: tt.live}
		f, out, errs := clitest.NewFactory(t, s)
		f.Now, f.In = func() time.Time { return frozenNow }, strings.NewReader(fileOf("j", "")+budget+tt.spec)
		code := command(t, f, "plan", "-f", "-")
		if code != cmdutil.ExitOK || strings.HasPrefix(out.String(), "Frozen") != tt.frozen || strings.Contains(errs.String(), "left out") {
			t.Errorf("%s: exit code %d, with %s\n%s", name, code, errs, out)
		}
	}
}

func TestBudgets(t *testing.T) {
	for name, tt := range map[string]struct {
		budgets []v1alpha1.NodeDisruptionBudget
		args    []string
		code    int
		want    string
	}{
		"all":          {budgets: []v1alpha1.NodeDisruptionBudget{production()}, want: "NAME        NODES  UNAVAILABLE"},
		"one":          {budgets: []v1alpha1.NodeDisruptionBudget{production()}, args: []string{"production"}, want: "Limits    maxUnavailable 1"},
		"none":         {want: "there is no NodeDisruptionBudget in this cluster"},
		"another":      {budgets: []v1alpha1.NodeDisruptionBudget{production()}, args: []string{"prod"}, code: cmdutil.ExitNotFound, want: "there is no NodeDisruptionBudget prod"},
		"for programs": {budgets: []v1alpha1.NodeDisruptionBudget{production()}, args: []string{"-o", "name"}, want: "nodedisruptionbudget.everynode.dev/production\n"},
		"as YAML":      {budgets: []v1alpha1.NodeDisruptionBudget{production()}, args: []string{"production", "-o", "yaml"}, want: "kind: NodeDisruptionBudget\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &budgetServer{t: t, budgets: tt.budgets}
			if code, out, told := s.run(
				append([]string{"budgets"}, tt.args...)...); code != tt.code ||
				!strings.Contains(out+told, tt.want) {
				t.Errorf("exit code %d, with %q not in\n%s", code, tt.want, out+told)
			}
		})
	}
}

// TestExplainSaysWhatBudgetsMean checks the sentence about the budgets of a node that no NodeJob selects.
func TestExplainSaysWhatBudgetsMean(t *testing.T) {
	seat := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:        "seat-1",
		Annotations: map[string]string{v1alpha1.SeatNodeAnnotation: "node-1"},
		Labels:      map[string]string{v1alpha1.BudgetGroupLabel: "g"},
	}}
	seat.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	another := *seat.DeepCopy()
	another.Annotations[v1alpha1.SeatNodeAnnotation] = "an earlier node-1"
	waits := frozenBudget("production", 0, func(b *v1alpha1.NodeDisruptionBudget) {
		one := intstr.FromInt32(1)
		b.Spec.Limits[0].MaxUnavailable, b.Spec.JoiningNodes, b.Status.ObservedGeneration = &one, v1alpha1.JoiningNodesIncluded, 1
		b.Status.Waiting = []v1alpha1.WaitingNode{
			{Node: "node-1", Since: metav1.NewTime(frozenNow.Add(-time.Minute)), By: "cordoned", Message: "node-2 is not available"},
		}
	})
	const sentence = "NodeDisruptionBudget production limits node-1: it has waited for 60s (cordoned); node-2 is not available"
	for name, tt := range map[string]struct {
		seats     []corev1.Pod
		forbidden []string
		want      string
	}{
		"a seat":                          {seats: []corev1.Pod{another, seat}, want: sentence + "; in an emergency, release it: kubectl -n everynode-system delete pod seat-1.\n"},
		"a user who may not list seats":   {forbidden: []string{seatsPath}, want: sentence + ".\n"},
		"the seat of an earlier node":     {seats: []corev1.Pod{another}, want: "it counts as unavailable (it has no seat)"},
		"a user who may not list budgets": {forbidden: []string{budgetsPath}, want: "there is no NodeJob in this cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &budgetServer{t: t, budgets: []v1alpha1.NodeDisruptionBudget{waits}, seats: tt.seats, forbidden: tt.forbidden}
			if code, out, told := s.run("explain", "node-1"); code != cmdutil.ExitOK || !strings.Contains(out+told, tt.want) {
				t.Errorf("exit code %d, with %q not in\n%s", code, tt.want, out+told)
			}
		})
	}
}

// TestRunIsRefusedUnderAFreeze : without a message it would wait for the end of the freeze, and then run unattended.
func TestRunIsRefusedUnderAFreeze(t *testing.T) {
	const said = "Frozen until 14:00:00 UTC (in 120m) by alice: INC-42 (NodeDisruptionBudget freeze): nothing starts on "
	disruptions := frozenBudget(
		"freeze",
		2*time.Hour,
		func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.AppliesTo = v1alpha1.AppliesToDisruptions },
	)
	ofPool := frozenBudget("freeze", 2*time.Hour, func(b *v1alpha1.NodeDisruptionBudget) {
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	})
	for name, tt := range map[string]struct {
		budget v1alpha1.NodeDisruptionBudget
		nodes  []string
		frozen bool
		told   string
	}{
		"all nodes":                  {frozenBudget("freeze", 2*time.Hour), []string{"--all"}, true, said + "3 nodes"},
		"one of the nodes":           {ofPool, []string{"--all"}, true, said + "1 node"},
		"other nodes":                {ofPool, []string{"node-2"}, false, ""},
		"a freeze of disruptions":    {disruptions, []string{"--all"}, false, ""},
		"a freeze, and it may wait":  {frozenBudget("freeze", 2*time.Hour), []string{"--all", "--wait"}, false, said + "3 nodes"},
		"a freeze that has expired":  {frozenBudget("freeze", -time.Hour), []string{"--all"}, false, ""},
		"a budget that is no freeze": {production(), []string{"--all"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &budgetServer{t: t, budgets: []v1alpha1.NodeDisruptionBudget{tt.budget}}
			code, _, told := s.run(append(append([]string{"run", "--yes", "-n", "ns"}, tt.nodes...), "--", "true")...)
			const refused = "nothing was run, because the nodes are frozen. To run the command when they are not any more"
			if (code == cmdutil.ExitWaits) != tt.frozen || strings.Contains(told, refused) != tt.frozen ||
				!strings.Contains(told, tt.told) {
				t.Errorf("exit code %d, and\n%s", code, told)
			}
		})
	}
}

// TestAMistakeInABudgetIsTheFirstLine of what commands say: until it is corrected, no node can be drained.
func TestAMistakeInABudgetIsTheFirstLine(t *testing.T) {
	const message = "NodeDisruptionBudget production cannot be used, so it allows nothing: spec.timeZone \"Mars\": unknown time zone"
	stalled := func(reason string, change ...func(*v1alpha1.NodeDisruptionBudget)) v1alpha1.NodeDisruptionBudget {
		b := production()
		b.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: message},
		}
		for _, do := range change {
			do(&b)
		}
		return b
	}
	for name, tt := range map[string]struct {
		budget v1alpha1.NodeDisruptionBudget
		told   bool
	}{
		"a mistake":            {stalled(v1alpha1.ReasonInvalidSpec), true},
		"seats are refused":    {stalled(v1alpha1.ReasonSeatRefused), false},
		"it only reports":      {stalled(v1alpha1.ReasonInvalidSpec, func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Enforcement = v1alpha1.BudgetReport }), false},
		"a budget that is not": {production(), false},
	} {
		for _, command := range [][]string{{"budgets"}, {"list", "-A"}} {
			s := &budgetServer{t: t, budgets: []v1alpha1.NodeDisruptionBudget{tt.budget}, jobs: []v1alpha1.NodeJob{*clitest.NodeJob("j")}}
			_, _, told := s.run(command...)
			if got := strings.HasPrefix(told, "Closed until it is corrected: "+message+"\n"); got != tt.told {
				t.Errorf("%s: %s says %q", name, command, told)
			}
		}
	}
}
