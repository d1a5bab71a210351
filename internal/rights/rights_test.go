// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// named returns each right as its verb, resource and field.
func named(needed []Right) []string {
	names := []string{}
	for _, r := range needed {
		where := r.Namespace
		if r.OnNodes() {
			where = r.Name
		}
		resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
		names = append(names, strings.TrimSpace(r.Verb+" "+resource+" "+where+" "+r.Field))
	}
	return names
}

func TestOfNodeJob(t *testing.T) {
	const template = "task: {template: {spec: {containers: [{name: a, image: b}]}}}"
	for name, tt := range map[string]struct {
		spec string
		want []string
	}{
		"a script":                      {`task: {script: "true"}`, []string{"run-as-root nodejobs/nodes ns spec.task.script"}},
		"a script from a ConfigMap":     {`task: {scriptFrom: {configMapKeyRef: {name: a, key: b}}}`, []string{"run-as-root nodejobs/nodes ns spec.task.scriptFrom"}},
		"a command":                     {`task: {command: [ls]}`, []string{"run-as-root nodejobs/nodes ns spec.task.command"}},
		"a task of a later version":     {`task: {}`, []string{"run-as-root nodejobs/nodes ns spec.task"}},
		"a template":                    {template, []string{"create pods ns spec.task.template"}},
		"a template with a rollback":    {template + "\nrollback: {script: undo}", []string{"run-as-root nodejobs/nodes ns spec.rollback", "create pods ns spec.task.template"}},
		"a template with check":         {"task: {check: {script: a}, template: {spec: {containers: [{name: a, image: b}]}}}", []string{"run-as-root nodejobs/nodes ns spec.task.check", "create pods ns spec.task.template"}},
		"a template that never reboots": {template + "\nmaintenance: {reboot: {policy: Never}}", []string{"create pods ns spec.task.template"}},
		"a template that may reboot":    {template + "\nmaintenance: {reboot: {policy: IfRequested}}", []string{"run-as-root nodejobs/nodes ns spec.maintenance.reboot.policy", "disrupt nodejobs/nodes ns spec.maintenance.reboot.policy", "create pods ns spec.task.template"}},
		"a drain":                       {template + "\nmaintenance: {drain: {}}", []string{"disrupt nodejobs/nodes ns spec.maintenance.drain", "create pods ns spec.task.template"}},
		"a cordon":                      {template + "\nmaintenance: {cordon: true}", []string{"disrupt nodejobs/nodes ns spec.maintenance.cordon", "create pods ns spec.task.template"}},
		"limits of a maintenance only":  {template + "\nmaintenance: {maxUnavailable: 1}", []string{"create pods ns spec.task.template"}},
		"failed nodes are cordoned":     {template + "\nonFailure: {action: Cordon}", []string{"disrupt nodejobs/nodes ns spec.onFailure.action", "create pods ns spec.task.template"}},
		"failed nodes stay as they are": {template + "\nonFailure: {action: None}", []string{"create pods ns spec.task.template"}},
		"a gate":                        {template + "\ngate: {}", []string{"gate nodejobs/nodes ns spec.gate", "create pods ns spec.task.template"}},
		"a gate that ends pods":         {template + "\ngate: {effect: NoExecute}", []string{"disrupt nodejobs/nodes ns spec.gate.effect", "gate nodejobs/nodes ns spec.gate", "create pods ns spec.task.template"}},
		"published results":             {template + "\npublish: [{result: a, label: x/a}]", []string{"label nodejobs/nodes ns spec.publish", "create pods ns spec.task.template"}},
		"labels to remove":              {template + "\nremoveLabels: [x/a]", []string{"label nodejobs/nodes ns spec.removeLabels", "create pods ns spec.task.template"}},
		"empty lists":                   {template + "\nremoveLabels: []\npublish: []", []string{"create pods ns spec.task.template"}},
		"all of it, each right only once": {
			"task: {script: a, check: {script: b}}\nrollback: {script: c}\nmaintenance: {drain: {}, reboot: {policy: Always}}\nonFailure: {action: Drain}\ngate: {effect: NoExecute}\npublish: [{result: a, label: x/a}]\nremoveLabels: [x/b]",
			[]string{"run-as-root nodejobs/nodes ns spec.task.script", "disrupt nodejobs/nodes ns spec.maintenance.drain", "gate nodejobs/nodes ns spec.gate", "label nodejobs/nodes ns spec.publish"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, named(OfNodeJob(jobOf(t, tt.spec)))); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfDeletion(t *testing.T) {
	const template = "task: {template: {spec: {containers: [{name: a, image: b}]}}}"
	for name, tt := range map[string]struct {
		spec string
		want []string
	}{
		"nothing stays on nodes":      {"{}", []string{}},
		"records are forgotten":       {"deletionPolicy: Forget", []string{}},
		"records stay":                {"deletionPolicy: Retain", []string{}},
		"a rollback":                  {"deletionPolicy: Rollback", []string{"run-as-root nodejobs/nodes ns spec.rollback"}},
		"drift is repaired":           {"task: {script: a, check: {script: b, periodSeconds: 60, onDrift: Run}}", []string{"run-as-root nodejobs/nodes ns spec.task.check.onDrift"}},
		"drift is reported":           {"task: {script: a, check: {script: b, periodSeconds: 60, onDrift: Report}}", []string{}},
		"a gate":                      {template + "\ngate: {effect: NoExecute}", []string{"gate nodejobs/nodes ns spec.gate"}},
		"published results":           {template + "\npublish: [{result: a, label: x/a}]\nremoveLabels: [x/b]", []string{"label nodejobs/nodes ns spec.publish"}},
		"published results that stay": {template + "\npublish: [{result: a, label: x/a}]\ndeletionPolicy: Retain", []string{}},
		"failed nodes are cordoned":   {template + "\nonFailure: {action: Cordon}\nmaintenance: {drain: {}}", []string{"disrupt nodejobs/nodes ns spec.onFailure.action"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, named(OfDeletion(jobOf(t, tt.spec)))); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
}

// What a change takes off nodes needs the right that putting it there needed.
func TestOfChange(t *testing.T) {
	const template = "task: {template: {spec: {containers: [{name: a, image: b}]}}}"
	for name, tt := range map[string]struct {
		before string
		want   []string
	}{
		"nothing on nodes": {template, []string{"create pods ns spec.task.template"}},
		"a script": {"task: {script: a}", []string{
			"run-as-root nodejobs/nodes ns spec.task.script, which the change removes", "create pods ns spec.task.template",
		}},
		"a rollback": {template + "\nrollback: {script: a}", []string{
			"run-as-root nodejobs/nodes ns spec.rollback, which the change removes", "create pods ns spec.task.template",
		}},
		"a gate":                    {template + "\ngate: {}", []string{"gate nodejobs/nodes ns spec.gate", "create pods ns spec.task.template"}},
		"published results":         {template + "\npublish: [{result: a, label: x/a}]", []string{"label nodejobs/nodes ns spec.publish", "create pods ns spec.task.template"}},
		"labels to remove":          {template + "\nremoveLabels: [x/a]", []string{"create pods ns spec.task.template"}},
		"failed nodes are cordoned": {template + "\nonFailure: {action: Cordon}", []string{"disrupt nodejobs/nodes ns spec.onFailure.action", "create pods ns spec.task.template"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, named(OfChange(jobOf(t, tt.before), jobOf(t, template)))); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
}

func jobOf(t *testing.T, spec string) *v1alpha1.NodeJob {
	t.Helper()
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &job.Spec); err != nil {
		t.Fatal(err)
	}
	return job
}

func TestOfNodeGuard(t *testing.T) {
	objects := []string{"create pods ns", "create poddisruptionbudgets ns"}
	for name, tt := range map[string]struct {
		release v1alpha1.ReleaseSpec
		want    []string
	}{
		"without a check":   {v1alpha1.ReleaseSpec{}, objects},
		"a check container": {v1alpha1.ReleaseSpec{Check: &v1alpha1.ReleaseCheck{Container: &v1alpha1.CheckContainer{Image: "a"}}}, objects},
		"a check script":    {v1alpha1.ReleaseSpec{Check: &v1alpha1.ReleaseCheck{Script: "true"}}, append([]string{"run-as-root nodejobs/nodes ns spec.release.check.script"}, objects...)},
	} {
		guard := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1alpha1.NodeGuardSpec{Release: tt.release}}
		if diff := cmp.Diff(tt.want, named(OfNodeGuard(guard))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOfConfigMap(t *testing.T) {
	for value, want := range map[string][]string{"": {}, "false": {}, "true": {"run-as-root nodejobs/nodes ns the label everynode.dev/script"}} {
		configMap := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{v1alpha1.ScriptLabel: value}},
		}
		if diff := cmp.Diff(want, named(OfConfigMap(configMap))); diff != "" {
			t.Errorf("label %q (-want +got):\n%s", value, diff)
		}
	}
}

// The command can-i reads the bindings of the policies, so the role for its users must name each of them.
func TestTheRoleOfUsersNamesAllBindings(t *testing.T) {
	roles, err := os.ReadFile("../../config/rbac/user_roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(roles), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "validatingadmissionpolicybindings") {
				if diff := cmp.Diff(
					slices.Sorted(slices.Values(Bindings())),
					slices.Sorted(slices.Values(rule.ResourceNames)),
				); diff != "" {
					t.Errorf("%s (-want +got):\n%s", role.Name, diff)
				}
				return
			}
		}
	}
	t.Error("no role has a rule for bindings")
}
