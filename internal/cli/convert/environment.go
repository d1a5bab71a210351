// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The variables and limits of a script.

// nodeNameVariables returns the variables with the name of the node that scripts use only as $NAME.
func (w *workload) nodeNameVariables() []string {
	var names []string
	if w.placeholder != "" {
		names = append(names, w.placeholder)
	}
	for _, s := range w.steps {
		for _, env := range s.container.Env {
			if env.ValueFrom != nil && env.ValueFrom.FieldRef != nil && env.ValueFrom.FieldRef.FieldPath == "spec.nodeName" && s.from == nil {
				names = append(names, env.Name)
			}
		}
	}
	return slices.Compact(names)
}

// setEnv writes task.env, without the variables that the scripts do not need.
func (d *draft) setEnv(w *workload) {
	names, seen := w.nodeNameVariables(), map[string]bool{}
	var variables []any
	for _, s := range w.steps {
		text := s.text(names)
		for _, env := range s.container.Env {
			isName := slices.Contains(names, env.Name)
			if strings.HasPrefix(env.Name, "SYSTEM_UPGRADE_") && !strings.Contains(text, env.Name) {
				continue
			}
			if seen[env.Name] || isName && !regexp.MustCompile(`\b`+regexp.QuoteMeta(env.Name)+`\b`).MatchString(text) {
				continue
			}
			if slices.Contains(w.roots(s.container), "$"+env.Name) {
				if !strings.Contains(text, env.Name) {
					continue
				}
				env.Value = "/"
			}
			seen[env.Name] = true
			variables = append(variables, generic(env))
		}
	}
	if len(variables) > 0 {
		d.spec.in("task").set("env", variables)
	}
}

// setLimits writes the highest limits of the containers.
func (d *draft) setLimits(w *workload) {
	limits, least := w.highestLimits(), resource.MustParse("32Mi")
	t := d.spec.in("task")
	if memory, ok := limits[corev1.ResourceMemory]; ok && memory.Cmp(least) < 0 {
		limits[corev1.ResourceMemory] = least
		t.todo("resources", "the memory limit was %s. It must be at least 32Mi.", memory.String())
	}
	if len(limits) > 0 {
		t.set("resources", map[string]any{"limits": generic(limits)})
	}
	if slices.ContainsFunc(w.steps, func(s *step) bool { return len(s.container.Resources.Requests) > 0 }) {
		d.drop("resource requests: a task must be able to start on a full node")
	}
}

// highestLimits returns the highest limit of all containers for each resource that a script can have.
func (w *workload) highestLimits() corev1.ResourceList {
	limits := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		for _, s := range w.steps {
			limit, ok := s.container.Resources.Limits[name]
			if current := limits[name]; ok && limit.Cmp(current) > 0 {
				limits[name] = limit
			}
		}
	}
	return limits
}
