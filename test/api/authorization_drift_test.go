// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rights"
)

// specs are NodeJobs with each field that needs a right, alone and with others.
var specs = map[string]string{
	"a script":                      `task: {script: "true"}`,
	"a script from a ConfigMap":     `task: {scriptFrom: {configMapKeyRef: {name: a, key: b}}}`,
	"a command":                     `task: {command: [ls]}`,
	"a script with check":           "task: {script: a, check: {script: b}}",
	"a template":                    template,
	"a rollback":                    template + "\nrollback: {script: undo}",
	"a rollback from a ConfigMap":   template + "\nrollback: {scriptFrom: {configMapKeyRef: {name: a, key: b}}}",
	"a reboot":                      template + "\nmaintenance: {reboot: {policy: Always}}",
	"a reboot if requested":         template + "\nmaintenance: {reboot: {policy: IfRequested}}",
	"no reboot":                     template + "\nmaintenance: {reboot: {policy: Never, timeoutSeconds: 60}}",
	"a cordon":                      template + "\nmaintenance: {cordon: true}",
	"no cordon":                     template + "\nmaintenance: {cordon: false, maxUnavailable: 1}",
	"a drain":                       template + "\nmaintenance: {drain: {}}",
	"a drain with fields":           template + "\nmaintenance: {drain: {timeoutSeconds: 5}, cordon: true}",
	"failed nodes are cordoned":     template + "\nonFailure: {action: Cordon}",
	"failed nodes are drained":      template + "\nonFailure: {action: Drain, drain: {deleteEmptyDirData: true}}",
	"failed nodes stay":             template + "\nonFailure: {action: None}",
	"a gate":                        template + "\ngate: {}",
	"a gate for all nodes":          template + "\ngate: {key: x.test/a, nodes: All, effect: NoSchedule}",
	"a gate that ends pods":         template + "\ngate: {effect: NoExecute}",
	"a published result":            template + "\npublish: [{result: a, annotation: x.test/a}]",
	"a published result that stays": template + "\npublish: [{result: a, annotation: x.test/a}]\ndeletionPolicy: Retain",
	"labels to remove":              template + "\nremoveLabels: [x.test/a]",
	"empty lists":                   template + "\nremoveLabels: []\npublish: []",
	"nodes that are already done":   template + "\nnodes: {names: [a], assumeDone: {selector: {matchLabels: {a: b}}}}",
	"a rollback of a deletion":      "task: {script: a}\nrollback: {script: b}\ndeletionPolicy: Rollback",
	"a script that does it all": "task: {script: a, check: {script: b}}\nrollback: {script: c}\nmaintenance: {drain: {}, reboot: {policy: Always}, ignoreWindowsOn: [a]}\nonFailure: {action: Drain}\n" +
		"gate: {effect: NoExecute}\npublish: [{result: a, label: x.test/a}]\nremoveLabels: [x.test/b]",
	"a template that does it all": template + "\nrollback: {script: c}\nmaintenance: {cordon: true, reboot: {policy: Always}, ignoreWindowsOn: [a]}\nonFailure: {action: Cordon}\n" +
		"gate: {effect: NoExecute}\npublish: [{result: a, label: x.test/a}]\nremoveLabels: [x.test/b]",
}

// lacksOne are users with all rights but one, by this right; "" is the one with all.
func lacksOne(w *world) map[string]client.Client {
	w.T.Helper()
	everything := append([]string{pods, budgets}, allEffects...)
	users := map[string]client.Client{}
	for i, lacked := range append([]string{""}, everything...) {
		r := requester{
			user: fmt.Sprintf("lacks-%d", i),
			has:  slices.DeleteFunc(slices.Clone(everything), func(s string) bool { return s == lacked }),
		}
		w.edits(r.user)
		w.onNodes(r.user, w.Namespace, slices.DeleteFunc(slices.Clone(allEffects), func(s string) bool { return s == lacked })...)
		for right, granted := range map[string]func(){
			pods:    func() { w.allow(r.user, false, rule("", []string{"create"}, "pods")) },
			budgets: func() { w.allow(r.user, false, rule("policy", []string{"create"}, "poddisruptionbudgets")) },
		} {
			if right != lacked {
				granted()
			}
		}
		w.rightsAreKnown(r)
		users[lacked] = w.as(r.user)
	}
	return users
}

// compare compares the rights that an object needs according to internal/rights with those for which the API server asks.
func (w *world) compare(t *testing.T, users map[string]client.Client, needed []rights.Right, request func(client.Client) error) {
	t.Helper()
	fields := map[string]string{}
	for _, right := range needed {
		name := right.Verb
		if !right.OnNodes() {
			name += " " + right.Resource
			if right.Group != "" {
				name += "." + right.Group
			}
		}
		fields[name] = right.Field
	}
	for lacked, c := range users {
		field, needs := fields[lacked]
		err := request(c)
		if (err != nil) != needs {
			t.Errorf("internal/rights says that it needs %q: %v, and the API server says to a user without it: %v", lacked, needs, err)
		}
		if err != nil {
			wantText(t, err.Error(), " lacks the right ")
			wantText(t, err.Error(), lacked)
			wantText(t, err.Error(), field)
		}
		delete(fields, lacked)
	}
	if len(fields) > 0 {
		t.Errorf("no user lacks %v", fields)
	}
}

// TestThePoliciesAskForTheRightsThatTheCommandLineNames creates and changes each object as users who lack one right.
func TestThePoliciesAskForTheRightsThatTheCommandLineNames(t *testing.T) {
	w := newWorld(t)
	w.rightsAreAsked()
	w.prepare()
	users := lacksOne(w)
	for name, spec := range specs {
		t.Run("create "+name, func(t *testing.T) {
			var job v1alpha1.NodeJob
			w.decode(t, jobFromYAML(t, w.Namespace, "new", spec), &job)
			w.compare(
				t,
				users,
				rights.OfNodeJob(&job),
				func(c client.Client) error { return c.Create(w.Ctx, job.DeepCopy(), client.DryRunAll) },
			)
		})
		t.Run("change to "+name, func(t *testing.T) {
			live := w.live("templated")
			before := live.DeepCopy()
			var job v1alpha1.NodeJob
			w.decode(t, jobFromYAML(t, w.Namespace, "templated", spec), &job)
			live.Spec = job.Spec
			live.Spec.TTLSecondsAfterFinished = new(int32(77)) // so that it is a change in any case
			w.compare(
				t,
				users,
				rights.OfChange(before, live),
				func(c client.Client) error { return c.Update(w.Ctx, live.DeepCopy(), client.DryRunAll) },
			)
		})
	}
	for i, name := range slices.Sorted(maps.Keys(specs)) {
		job := jobFromYAML(t, w.Namespace, fmt.Sprintf("deleted-%d", i), specs[name])
		must(t, admin.Create(w.Ctx, job))
		t.Run("remove "+name, func(t *testing.T) {
			changed := w.live(job.GetName())
			before := changed.DeepCopy()
			changed.Spec = w.live("templated").Spec
			changed.Spec.TTLSecondsAfterFinished = new(int32(77))
			w.compare(
				t,
				users,
				rights.OfChange(before, changed),
				func(c client.Client) error { return c.Update(w.Ctx, changed.DeepCopy(), client.DryRunAll) },
			)
		})
		t.Run("delete "+name, func(t *testing.T) {
			job := w.live(job.GetName())
			w.compare(
				t,
				users,
				rights.OfDeletion(job),
				func(c client.Client) error { return c.Delete(w.Ctx, job.DeepCopy(), client.DryRunAll) },
			)
		})
	}
	for name, spec := range map[string]string{
		"a NodeGuard":                  `{target: {daemonSet: a}}`,
		"a NodeGuard with a template":  `{target: {daemonSet: a}, template: {spec: {containers: [{name: a, image: b}]}}}`,
		"a NodeGuard with a script":    `{target: {daemonSet: a}, release: {check: {script: "true"}}}`,
		"a NodeGuard with a check pod": `{target: {daemonSet: a}, release: {check: {container: {image: a}}}}`,
		"a NodeGuard with an approval": `{target: {podSelector: {matchLabels: {a: b}}}, release: {approval: Required}}`,
	} {
		t.Run("create "+name, func(t *testing.T) {
			var guard v1alpha1.NodeGuard
			w.decode(t, guardFromYAML(t, w.Namespace, "new", spec), &guard)
			w.compare(
				t,
				users,
				rights.OfNodeGuard(&guard),
				func(c client.Client) error { return c.Create(w.Ctx, guard.DeepCopy(), client.DryRunAll) },
			)
		})
	}
	for name, labels := range map[string]map[string]string{"with the label": scriptLabel, "without the label": nil, "with another value": {v1alpha1.ScriptLabel: "false"}} {
		t.Run("create a ConfigMap "+name, func(t *testing.T) {
			o := configMap("new", labels)
			o.Namespace = w.Namespace
			w.compare(
				t,
				users,
				rights.OfConfigMap(o),
				func(c client.Client) error { return c.Create(w.Ctx, o.DeepCopy(), client.DryRunAll) },
			)
		})
	}
}
