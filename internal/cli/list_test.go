// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestAListWithoutAManager checks that the warning is not part of the data.
func TestAListWithoutAManager(t *testing.T) {
	created := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	unobserved := clitest.NodeJob("j")
	unobserved.CreationTimestamp, unobserved.Status = metav1.NewTime(created), v1alpha1.NodeJobStatus{ObservedGeneration: -1}
	away := withKind(managerOf(t, "example.com/manager:v0.1.0", "example.com/runner:v0.1.0", ""))
	away.Status = appsv1.DeploymentStatus{UnavailableReplicas: 1}
	const warning = "warning: no manager is available, so nothing happens with NodeJobs and NodeGuards: see kubectl -n everynode-system get pods\n"
	for name, tt := range map[string]struct {
		age     time.Duration
		manager *appsv1.Deployment
		args    []string
		want    string
	}{
		"a new NodeJob":                             {age: 5 * time.Second},
		"a manager that is away":                    {manager: away, want: warning},
		"a manager that is away, and has never run": {age: 25 * time.Second, manager: away, want: warning},
		"a manager that is away, for programs":      {manager: away, args: []string{"-o", "name"}},
		"one that is not observed":                  {age: 25 * time.Second, want: "warning: no manager has observed NodeJob ns/j for 25s; check that one is running: kubectl everynode version\n"},
		"for programs":                              {age: 25 * time.Second, args: []string{"-o", "name"}},
	} {
		t.Run(name, func(t *testing.T) {
			list := v1alpha1.NodeJobList{
				TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJobList"},
				Items:    []v1alpha1.NodeJob{*unobserved},
			}
			f, out, errs := clitest.NewFactory(t, installation(tt.manager, map[string]any{clitest.JobsPath: &list}))
			f.Now = func() time.Time { return created.Add(tt.age) }
			if code := command(t, f, append([]string{"list"}, tt.args...)...); code != cmdutil.ExitOK {
				t.Errorf("exit code %d", code)
			}
			if errs.String() != tt.want || strings.Contains(out.String(), "warning") {
				t.Errorf("told %q, want %q, with\n%s", errs.String(), tt.want, out.String())
			}
		})
	}
}
