// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestASuccessOpensTheGateInTheWriteThatRecordsIt has a node that is tainted by the API server itself. All of a run is
// four writes, of which one is on the node.
func TestASuccessOpensTheGateInTheWriteThatRecordsIt(t *testing.T) {
	w := newWorld(t)
	installGate(t, w)
	writes := &writeCounter{}
	startManager(t, writes.funcs())
	w.job("whole", whole)
	c := w.Condition("whole", v1alpha1.ConditionGateEnforced, metav1.ConditionFalse, v1alpha1.ReasonNoAdmissionPolicy)
	wantText(t, c.Message, "everynode-manager")
	w.makes(&admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everynode-manager-" + w.Namespace},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: "everynode-manager",
			ParamRef: &admissionv1.ParamRef{
				Namespace:               w.Namespace,
				Selector:                &metav1.LabelSelector{},
				ParameterNotFoundAction: new(admissionv1.AllowAction),
			},
		},
	})
	w.Condition("whole", v1alpha1.ConditionGateEnforced, metav1.ConditionTrue, v1alpha1.ReasonAdmissionPolicy)
	w.admissionIsUpToDate()
	versions := w.versions("whole-1")
	w.comes("whole-1", map[string]string{"x.test/wanted": "yes"})
	pod := w.podOn("whole-1")
	if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == w.Namespace+".everynode.dev/whole" }) {
		t.Errorf("the pod tolerates %+v", pod.Spec.Tolerations)
	}
	w.Eventually("the node is counted as closed", func() error {
		if closed := w.live("whole").Status.Gate.Closed; closed != 1 {
			return fmt.Errorf("%d are", closed)
		}
		return nil
	})
	w.end(pod, 0, wholeResult)
	rec := w.Done("whole", "whole-1")
	w.NoPods()
	w.Condition("whole", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	if got := writes.perRun(); got != "create pods: 1, delete pods: 1, patch nodes: 1, patch pods: 1" {
		t.Errorf("a run cost %s", got)
	}
	var states []string
	for _, node := range versions() {
		states = append(states, shows(node, v1alpha1.RecordKey(w.Namespace, "whole")))
	}
	if got := strings.Join(slices.Compact(states), ", then "); got != "taint wanted, then done label note owner record" {
		t.Errorf("the node showed %s", got)
	}
	if rec.RemovedLabels["x.test/wanted"] != "yes" || rec.Results["note"] != "two words" {
		t.Errorf("the record is %+v", rec)
	}
	w.Eventually("no node is counted as closed", func() error {
		if closed := w.live("whole").Status.Gate.Closed; closed != 0 {
			return fmt.Errorf("%d are", closed)
		}
		return nil
	})
}

func TestWithoutAPolicyTheManagerClosesTheGateOfANodeThatJoins(t *testing.T) {
	w := newWorld(t)
	writes := &writeCounter{}
	w.comes("gap-old", nil)
	startManager(t, writes.funcs())
	w.job("gap", func(s *v1alpha1.NodeJobSpec) {
		whole(s)
		s.Suspend = true
	})
	c := w.Condition("gap", v1alpha1.ConditionGateEnforced, metav1.ConditionFalse, v1alpha1.ReasonNoAdmissionPolicy)
	wantText(t, c.Message, "docs/gate.md")
	w.gateIsSeen("gap")
	job := w.live("gap")
	w.comes("gap-new", nil)
	w.has("gap-new", w.taint(job))
	w.has("gap-old") // it was there before
	w.change(job, `{"suspend":false}`)
	for _, node := range []string{"gap-new", "gap-old"} {
		w.end(w.podOn(node), 0, wholeResult)
		w.Done("gap", node)
		w.has(node)
	}
	w.NoPods()
	if got := writes.perRun(); got != "create pods: 2, delete pods: 2, patch nodes: 3, patch pods: 2" {
		t.Errorf("two runs, and a gate to be closed, cost %s", got)
	}
}

func TestWithoutAPolicyANodeRegistersWithTheTaint(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	const key = "readiness.k8s.io/registered"
	w.job("registered", func(s *v1alpha1.NodeJobSpec) {
		whole(s)
		s.Gate.Key = key
	})
	w.Condition("registered", v1alpha1.ConditionGateEnforced, metav1.ConditionFalse, v1alpha1.ReasonNoAdmissionPolicy)
	w.gateIsSeen("registered")
	node := w.comes("registered-1", nil, corev1.Taint{Key: key, Effect: corev1.TaintEffect(w.live("registered").Spec.Gate.Effect)})
	w.Condition("registered", v1alpha1.ConditionGateEnforced, metav1.ConditionTrue, v1alpha1.ReasonRegisteredTaint)
	if got := w.live("registered").Status.Gate.RegisteredAt; !got.Equal(&node.CreationTimestamp) {
		t.Errorf("the status has %v, and the node was created at %v", got, node.CreationTimestamp)
	}
	w.end(w.podOn("registered-1"), 0, wholeResult)
	w.Done("registered", "registered-1")
	w.has("registered-1")
	w.Condition("registered", v1alpha1.ConditionGateEnforced, metav1.ConditionTrue, v1alpha1.ReasonRegisteredTaint)
}

func TestAGateForAllNodesIsClosedOnExistingNodes(t *testing.T) {
	w := newWorld(t)
	w.comes("all-1", nil)
	startManager(t, noFaults)
	w.job("all", func(s *v1alpha1.NodeJobSpec) {
		s.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll, Effect: v1alpha1.GateNoExecute}
	})
	w.has("all-1", w.taint(w.live("all")))
	w.end(w.podOn("all-1"), 0, "")
	w.has("all-1")
	w.Done("all", "all-1")
}

// TestANodeJobThatIsDeletedDuringARunLeavesNoGate : what it has published goes with its records, and stays with them.
func TestANodeJobThatIsDeletedDuringARunLeavesNoGate(t *testing.T) {
	for policy, stays := range map[v1alpha1.DeletionPolicy]bool{v1alpha1.DeletionForget: false, v1alpha1.DeletionRetain: true} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			job := w.job("leaves", func(s *v1alpha1.NodeJobSpec) {
				whole(s)
				s.DeletionPolicy = policy
			})
			w.gateIsSeen("leaves")
			key := v1alpha1.GateKey(job)
			w.comes("leaves-done", map[string]string{"x.test/wanted": "yes"}, gateOf(key, v1alpha1.GateValue))
			w.end(w.podOn("leaves-done"), 0, wholeResult)
			w.Done("leaves", "leaves-done")
			w.NoPods()
			w.comes("leaves-runs", nil, gateOf(key, v1alpha1.GateValue), gateOf("foreign", ""))
			w.change(job, `{"nodes":{"tolerations":[{"operator":"Exists"}]}}`)
			w.podOn("leaves-runs")
			must(t, admin.Delete(w.Ctx, job))
			w.gone(job)
			w.has("leaves-runs", "foreign:NoSchedule")
			want := ""
			if stays {
				want = "done label note owner record"
			}
			if got := shows(w.liveNode("leaves-done"), key); got != want {
				t.Errorf("the done node shows %q, want %q", got, want)
			}
		})
	}
}

func TestAGateThatIsRemovedOrChangedIsOpenedDuringARun(t *testing.T) {
	for name, tt := range map[string]struct {
		key, spec string
	}{
		"the default key, gate removed":        {"", `{"gate":null}`},
		"the default key, changed":             {"", `{"gate":{"key":"x.test/other"}}`},
		"a custom key, gate removed":           {userKey, `{"gate":null}`},
		"a custom key, changed":                {userKey, `{"gate":{"key":"x.test/other"}}`},
		"a custom key, changed to the default": {userKey, `{"gate":{"key":null}}`},
		"another effect":                       {userKey, `{"gate":{"effect":"NoExecute"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			job := w.job("fixes", func(s *v1alpha1.NodeJobSpec) { s.Gate = &v1alpha1.GateSpec{Key: tt.key} })
			w.gateIsSeen("fixes")
			// A taint of another tool is not changed, regardless of its key.
			w.comes(
				"fixes-1",
				nil,
				gateOf(v1alpha1.GateKey(job), v1alpha1.GateValue),
				corev1.Taint{Key: "foreign", Effect: corev1.TaintEffectPreferNoSchedule},
			)
			pod := w.podOn("fixes-1")
			w.change(job, tt.spec)
			w.has("fixes-1", "foreign:PreferNoSchedule")
			w.end(pod, 0, "")
			w.Done("fixes", "fixes-1")
			w.NoPods()
		})
	}
}

// TestANodeWithTheGateOfTwoNodeJobsOpensWithTheLast : they are in two namespaces, and share the key.
func TestANodeWithTheGateOfTwoNodeJobsOpensWithTheLast(t *testing.T) {
	for _, value := range []string{v1alpha1.GateValue, "", "kubelet"} {
		t.Run("value "+value, func(t *testing.T) {
			w, other := newWorld(t), newWorld(t)
			startManager(t, noFaults)
			share := func(s *v1alpha1.NodeJobSpec) {
				s.Gate = &v1alpha1.GateSpec{Key: userKey}
				s.Nodes.Selector.MatchLabels["world"] = w.Namespace
			}
			w.job("first", share)
			other.job("last", share)
			w.gateIsSeen("first")
			other.gateIsSeen("last")
			taint := gateOf(userKey, value)
			w.comes("two-1", nil, taint)
			first, last := w.podOn("two-1"), other.podOn("two-1")
			w.end(first, 0, "")
			w.Done("first", "two-1")
			w.NoPods()
			w.has("two-1", taint.ToString())
			other.end(last, 0, "")
			w.has("two-1")
		})
	}
}

// TestTheLastOfTwoNodeJobsOpensTheNode covers a last NodeJob that does not succeed.
func TestTheLastOfTwoNodeJobsOpensTheNode(t *testing.T) {
	for name, goes := range map[string]func(w *world, last *v1alpha1.NodeJob){
		"it is deleted":                 func(w *world, last *v1alpha1.NodeJob) { must(w.T, admin.Delete(w.Ctx, last)) },
		"its gate is removed":           func(w *world, last *v1alpha1.NodeJob) { w.change(last, `{"gate":null}`) },
		"it no longer selects the node": func(w *world, _ *v1alpha1.NodeJob) { w.label("goes-1", "pool", "other") },
		"its selector is changed": func(w *world, last *v1alpha1.NodeJob) {
			w.change(last, `{"nodes":{"selector":{"matchLabels":{"pool":"other"}}}}`)
		},
		"a user skips the node by its label": func(w *world, last *v1alpha1.NodeJob) {
			w.label("goes-1", v1alpha1.RecordKey(w.Namespace, "last"), w.live("last").Status.Revision)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			w.job("first", func(s *v1alpha1.NodeJobSpec) { s.Gate = &v1alpha1.GateSpec{Key: userKey} })
			last := w.job("last", func(s *v1alpha1.NodeJobSpec) {
				s.Gate, s.Suspend = &v1alpha1.GateSpec{Key: userKey}, true
				s.Nodes.Selector.MatchLabels["pool"] = "a"
			})
			w.gateIsSeen("first")
			w.gateIsSeen("last")
			// Set by the kubelet at registration: only a NodeJob that selects the node, and is done, may remove it.
			taint := gateOf(userKey, "kubelet")
			w.comes("goes-1", map[string]string{"pool": "a"}, taint)
			w.end(w.podOn("goes-1"), 0, "")
			w.Done("first", "goes-1")
			w.NoPods()
			w.has("goes-1", taint.ToString())
			goes(w, last)
			w.has("goes-1")
		})
	}
}

func TestANodeThatStopsMatchingIsOpened(t *testing.T) {
	for name, tt := range map[string]struct {
		key, value string
		wantOpen   bool
	}{
		"our taint":                                  {"", v1alpha1.GateValue, true},
		"our taint with a custom key":                {userKey, v1alpha1.GateValue, true},
		"a taint of another owner with a custom key": {userKey, "kubelet", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			job := w.job("for-pool", func(s *v1alpha1.NodeJobSpec) {
				s.Gate, s.Suspend = &v1alpha1.GateSpec{Key: tt.key}, true
				s.Nodes.Selector.MatchLabels["pool"] = "a"
			})
			w.gateIsSeen("for-pool")
			taint := gateOf(v1alpha1.GateKey(job), tt.value)
			w.comes("pool-1", map[string]string{"pool": "a"}, taint)
			w.Eventually("it is for the node", func() error {
				if n := w.live("for-pool").Status.Nodes.Total; n != 1 {
					return fmt.Errorf("for %d nodes", n)
				}
				return nil
			})
			w.label("pool-1", "pool", "b")
			w.Eventually("it is for no node", func() error {
				if n := w.live("for-pool").Status.Nodes.Total; n != 0 {
					return fmt.Errorf("for %d nodes", n)
				}
				return nil
			})
			if tt.wantOpen {
				w.has("pool-1")
			} else {
				w.has("pool-1", taint.ToString())
			}
		})
	}
}

// TestAConcurrentTaintByAnotherClientIsKept covers a concurrent write: all taints of a node are one list, which
// every client writes as a whole.
func TestAConcurrentTaintByAnotherClientIsKept(t *testing.T) {
	w := newWorld(t)
	var raced atomic.Int32
	startManager(
		t,
		interceptor.Funcs{
			Patch: func(ctx context.Context, next client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if o.GetName() == "race-1" && raced.Add(1) <= 3 {
					var node corev1.Node
					if err := admin.Get(ctx, client.ObjectKeyFromObject(o), &node); err != nil {
						return err
					}
					node.Spec.Taints = append(node.Spec.Taints, gateOf(fmt.Sprint("foreign-", raced.Load()), ""))
					if err := admin.Update(ctx, &node); err != nil {
						return err
					}
				}
				return next.Patch(ctx, o, p, opts...)
			},
		},
	)
	job := w.job("race", func(s *v1alpha1.NodeJobSpec) {
		whole(s)
		s.Nodes.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	w.gateIsSeen("race")
	w.comes("race-1", nil, gateOf(v1alpha1.GateKey(job), v1alpha1.GateValue))
	w.end(w.podOn("race-1"), 0, wholeResult)
	w.Done("race", "race-1")
	w.has("race-1", "foreign-1:NoSchedule", "foreign-2:NoSchedule", "foreign-3:NoSchedule")
	w.NoPods()
	if got := raced.Load(); got != 4 {
		t.Errorf("%d writes, want 4: three conflicts, and one success", got)
	}
}

// TestHeartbeatsKeepNoGateClosed : a joining node is updated often, so an observed version is soon outdated.
func TestHeartbeatsKeepNoGateClosed(t *testing.T) {
	w := newWorld(t)
	var tries atomic.Int32
	startManager(
		t,
		interceptor.Funcs{
			Patch: func(ctx context.Context, next client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if o.GetName() == "beaten-1" {
					if try := tries.Add(1); try <= 4 {
						beat := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","message":"%d"}]}}`, try)
						if err := admin.Status().
							Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "beaten-1"}}, mergePatch(beat)); err != nil {
							return err
						}
					}
				}
				return next.Patch(ctx, o, p, opts...)
			},
		},
	)
	job := w.job("beaten", whole)
	w.gateIsSeen("beaten")
	w.comes("beaten-1", nil, gateOf(v1alpha1.GateKey(job), v1alpha1.GateValue))
	w.end(w.podOn("beaten-1"), 0, wholeResult)
	w.Done("beaten", "beaten-1")
	w.has("beaten-1")
	if got := tries.Load(); got != 5 {
		t.Errorf("%d attempts, want 5: four conflicts with a heartbeat, and one success", got)
	}
}

// TestANodeThatIsTaintedForANodeJobThatIsGoneIsOpened covers the delay until the admission plugin observes a deletion.
func TestANodeThatIsTaintedForANodeJobThatIsGoneIsOpened(t *testing.T) {
	w := newWorld(t)
	stop := startManager(t, noFaults)
	stray := gateOf(v1alpha1.RecordKey(w.Namespace, "gone"), v1alpha1.GateValue)
	w.comes("stray-1", nil, stray, gateOf("foreign", ""))
	w.has("stray-1", "foreign:NoSchedule")

	// A NodeJob whose finalizer is removed while no manager is running.
	job := w.job("forced", func(s *v1alpha1.NodeJobSpec) { s.Gate, s.Suspend = &v1alpha1.GateSpec{Key: userKey}, true })
	w.gateIsSeen("forced")
	w.comes("stray-2", nil, gateOf(userKey, v1alpha1.GateValue))
	w.Eventually("it is for the node", func() error {
		if n := w.live("forced").Status.Nodes.Total; n != 1 {
			return fmt.Errorf("for %d nodes", n)
		}
		return nil
	})
	stop()
	w.remove(w.Ctx, job)
	w.gone(job)
	if got := gatesOn(w.liveNode("stray-2")); len(got) != 1 {
		t.Fatalf("it has the taints %q", got)
	}
	startManager(t, noFaults)
	w.has("stray-2")
}

// TestTheGateIsClosedAgainAfterAReboot also runs the task again on a node whose boot is another one.
func TestTheGateIsClosedAgainAfterAReboot(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.job("boots", func(s *v1alpha1.NodeJobSpec) {
		s.Gate, s.Rerun.OnReboot = &v1alpha1.GateSpec{Nodes: v1alpha1.GateJoiningAndRebooted}, true
	})
	w.node("boots-1")
	w.end(w.podOn("boots-1"), 0, "")
	first := w.Done("boots", "boots-1")
	w.NoPods()
	w.reboots("boots-1", "boot-2")
	w.has("boots-1", w.taint(w.live("boots")))
	pod := w.podOn("boots-1")
	if on := w.On("boots", "boots-1"); on.Label == "" {
		t.Error("the label was removed: the node was done with this revision")
	}
	w.end(pod, 0, "")
	w.Eventually("it is done in the new boot", func() error {
		if rec := w.Done("boots", "boots-1"); rec.BootID != "boot-2" || rec.PodUID == first.PodUID {
			return errors.New(rec.BootID)
		}
		return nil
	})
	w.has("boots-1")
	w.NoPods()
}
