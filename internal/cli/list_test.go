// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestAListWithoutAManager checks that the warning is not part of the data.
func TestAListWithoutAManager(t *testing.T) {
	created := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	unobserved := clitest.NodeJob("j")
	unobserved.CreationTimestamp, unobserved.Status = metav1.NewTime(created), v1alpha1.NodeJobStatus{ObservedGeneration: -1}
	for name, tt := range map[string]struct {
		age  time.Duration
		args []string
		want string
	}{
		"a new NodeJob":            {age: 5 * time.Second},
		"one that is not observed": {age: 25 * time.Second, want: "warning: no manager has observed NodeJob ns/j for 25s; check that one is running: kubectl everynode version\n"},
		"for programs":             {age: 25 * time.Second, args: []string{"-o", "name"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				clitest.Respond(w, v1alpha1.NodeJobList{
					TypeMeta: metav1.TypeMeta{
						APIVersion: v1alpha1.GroupVersion.String(),
						Kind:       "NodeJobList",
					},
					Items: []v1alpha1.NodeJob{*unobserved},
				})
			}))
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
