// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// TestAGateIsForNodesOfTheRightOperatingSystem compares the admission policy with task.OS, which the manager uses.
func TestAGateIsForNodesOfTheRightOperatingSystem(t *testing.T) {
	const container = `containers: [{name: a, image: b}]`
	specs := map[string]string{
		"script":                 `task: {script: "true"}`,
		"command":                `task: {command: ["true"]}`,
		"template":               `task: {template: {spec: {` + container + `}}}`,
		"template-linux":         `task: {template: {spec: {os: {name: linux}, ` + container + `}}}`,
		"template-windows":       `task: {template: {spec: {os: {name: windows}, ` + container + `}}}`,
		"template-rollback":      `{task: {template: {spec: {` + container + `}}}, rollback: {script: "true"}}`,
		"template-reboot":        `{task: {template: {spec: {` + container + `}}}, maintenance: {reboot: {policy: IfRequested}}}`,
		"template-without-them":  `{task: {template: {spec: {` + container + `}}}, maintenance: {reboot: {policy: Never}}}`,
		"template-reboot-linux":  `{task: {template: {spec: {os: {name: linux}, ` + container + `}}}, maintenance: {reboot: {policy: Always}}}`,
		"template-for-all-nodes": `{task: {template: {metadata: {labels: {a: b}}, spec: {` + container + `}}}}`,
	}
	nodes := map[string]map[string]string{
		"unlabelled": nil,
		"linux":      {corev1.LabelOSStable: "linux"},
		"windows":    {corev1.LabelOSStable: "windows"},
	}
	w := newWorld(t)
	installGate(t, w)
	want := map[string][]string{}
	for node := range nodes {
		want[node] = []string{notReady}
	}
	for name, spec := range specs {
		job := w.job(name, func(s *v1alpha1.NodeJobSpec) {
			*s = v1alpha1.NodeJobSpec{}
			must(t, yaml.UnmarshalStrict([]byte(spec), s))
			s.Nodes, s.Gate = allNodes(), &v1alpha1.GateSpec{}
		})
		for node, labels := range nodes {
			if task.FitsOS(task.OS(&job.Spec), labels) {
				want[node] = append(want[node], w.taint(job))
			}
		}
	}
	if len(want["unlabelled"]) != len(specs)+1 || len(want["windows"]) != 5 || len(want["linux"]) != len(specs) {
		t.Errorf("the table is wrong: %v", want)
	}
	w.admissionIsUpToDate()
	for node, labels := range nodes {
		slices.Sort(want[node])
		if diff := cmp.Diff(want[node], w.joins("os-"+node, labels)); diff != "" {
			t.Errorf("taints of a node of %s (-want +got):\n%s", node, diff)
		}
	}
}
