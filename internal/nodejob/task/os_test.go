// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestOS(t *testing.T) {
	template := func(os string) v1alpha1.NodeJobSpec {
		spec := templateJob().Spec
		if os != "" {
			spec.Task.Template.Spec.OS = &corev1.PodOS{Name: corev1.OSName(os)}
		}
		return spec
	}
	with := func(spec v1alpha1.NodeJobSpec, change func(*v1alpha1.NodeJobSpec)) v1alpha1.NodeJobSpec {
		change(&spec)
		return spec
	}
	rollback := func(s *v1alpha1.NodeJobSpec) {
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	}
	reboot := func(policy v1alpha1.RebootPolicy) func(*v1alpha1.NodeJobSpec) {
		return func(s *v1alpha1.NodeJobSpec) { s.Maintenance.Reboot.Policy = policy }
	}
	tests := map[string]struct {
		spec v1alpha1.NodeJobSpec
		want corev1.OSName
	}{
		"a script runs on Linux": {scriptJob().Spec, corev1.Linux},
		"a command runs on Linux": {
			v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{Command: []string{"true"}}},
			corev1.Linux,
		},
		"a template runs anywhere":                        {template(""), ""},
		"a template runs where its spec.os says":          {template("windows"), corev1.Windows},
		"a template for Linux runs on Linux":              {template("linux"), corev1.Linux},
		"a template that never reboots runs anywhere":     {with(template(""), reboot(v1alpha1.RebootNever)), ""},
		"a template with a rollback runs on Linux":        {with(template(""), rollback), corev1.Linux},
		"a template that reboots its node runs on Linux":  {with(template(""), reboot(v1alpha1.RebootAlways)), corev1.Linux},
		"a template that may reboot it runs on Linux too": {with(template(""), reboot(v1alpha1.RebootIfRequested)), corev1.Linux},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := OS(&tt.spec); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFitsOS(t *testing.T) {
	tests := map[string]struct {
		os     corev1.OSName
		labels map[string]string
		want   bool
	}{
		"a node without the label fits Linux":   {corev1.Linux, nil, true},
		"a node without the label fits Windows": {corev1.Windows, nil, true},
		"a Linux node fits Linux":               {corev1.Linux, map[string]string{"kubernetes.io/os": "linux"}, true},
		"a Windows node does not fit Linux":     {corev1.Linux, map[string]string{"kubernetes.io/os": "windows"}, false},
		"a Linux node does not fit Windows":     {corev1.Windows, map[string]string{"kubernetes.io/os": "linux"}, false},
		"a Windows node fits any":               {"", map[string]string{"kubernetes.io/os": "windows"}, true},
		"an empty label does not fit Linux":     {corev1.Linux, map[string]string{"kubernetes.io/os": ""}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := FitsOS(tt.os, tt.labels); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
