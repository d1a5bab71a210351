// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

var yamlFence = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// checksOf returns the NodeJobs with a check of the pages and recipes, by their file and name, and the ConfigMaps beside them.
func checksOf(t *testing.T) (all map[string]v1alpha1.TaskSpec, configMaps []corev1.ConfigMap) {
	t.Helper()
	root, err := install.Root()
	must(t, err)
	all = map[string]v1alpha1.TaskSpec{}
	for _, pattern := range []string{"README.md", "docs/*.md", "recipes/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		must(t, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			must(t, err)
			parts := strings.Split(string(content), "\n---\n")
			if strings.HasSuffix(file, ".md") {
				parts = nil
				for _, fence := range yamlFence.FindAllStringSubmatch(string(content), -1) {
					parts = append(parts, strings.Split(fence[1], "\n---\n")...)
				}
			}
			for i, part := range parts {
				var job v1alpha1.NodeJob
				if yaml.Unmarshal([]byte(part), &job) == nil && job.Kind == "NodeJob" && job.Spec.Task.Check != nil {
					all[fmt.Sprintf("%s %s %d", filepath.Base(file), job.Name, i)] = job.Spec.Task
				}
				var configMap corev1.ConfigMap
				if yaml.Unmarshal([]byte(part), &configMap) == nil && configMap.Kind == "ConfigMap" {
					configMaps = append(configMaps, configMap)
				}
			}
		}
	}
	return all, configMaps
}

// TestTheChecksOfPagesAndRecipesAnswerOnAFreshNode : a check that cannot answer where nothing has been done never runs its task.
func TestTheChecksOfPagesAndRecipesAnswerOnAFreshNode(t *testing.T) {
	t.Parallel()
	checks, configMaps := checksOf(t)
	if len(checks) < 12 {
		t.Fatalf("only %d checks were found", len(checks))
	}
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	for i := range configMaps {
		configMaps[i].Namespace = w.Namespace
		must(t, client.IgnoreAlreadyExists(admin.Create(w.Ctx, &configMaps[i])))
	}
	names := map[string]string{}
	for of, task := range checks {
		name := fmt.Sprintf("check-%d", len(names))
		names[name] = of
		w.job(name, "", onNodes(node), func(s *v1alpha1.NodeJobSpec) {
			check := *task.Check
			check.Before, check.PeriodSeconds, check.OnDrift = false, 0, ""
			for i := range task.Env {
				if task.Env[i].Name == "LOADED_MODULES" && w.sh(node, "ls /proc/modules 2>/dev/null || true") == "" {
					task.Env[i].Value = "/dev/null" // the kernel of this machine has no modules
				}
			}
			s.Task = v1alpha1.TaskSpec{Check: &check, Env: task.Env, TimeoutSeconds: new(int32(600))}
		})
	}
	var said []string
	w.Eventually("each check has answered", func() error {
		said = nil
		for name, of := range names {
			rec := w.On(name, node).Record
			live := w.Get(name)
			stalled := slices.ContainsFunc(live.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue
			})
			switch {
			case rec == nil && !stalled:
				return fmt.Errorf("%s has not: %+v", of, live.Status.Conditions)
			case stalled, rec.CheckBefore != record.AnswerYes && rec.CheckBefore != record.AnswerNo:
				said = append(said, fmt.Sprintf("%s: %+v, %+v", of, rec, live.Status.Conditions))
			}
		}
		return nil
	})
	for _, s := range said {
		t.Error(s)
	}
}
