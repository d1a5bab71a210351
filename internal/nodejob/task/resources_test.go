// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestResources(t *testing.T) {
	list := func(memory, cpu string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if len(l) == 0 {
			return nil
		}
		return l
	}
	tests := map[string]struct {
		own          *v1alpha1.TaskResources
		phase        Phase
		installation string
		want         corev1.ResourceRequirements
	}{
		"the installation's limit requests nothing": {
			installation: "512Mi", want: corev1.ResourceRequirements{Limits: list("512Mi", ""), Requests: list("0", "")},
		},
		"no limit": {installation: "0"},
		"a limit of the NodeJob takes precedence": {
			own: &v1alpha1.TaskResources{Limits: list("2Gi", "")}, installation: "512Mi",
			want: corev1.ResourceRequirements{Limits: list("2Gi", ""), Requests: list("0", "")},
		},
		"a limit of another resource does not replace the installation's": {
			own: &v1alpha1.TaskResources{Limits: list("", "1")}, installation: "512Mi",
			want: corev1.ResourceRequirements{Limits: list("512Mi", "1"), Requests: list("0", "0")},
		},
		"a request stays": {
			own: &v1alpha1.TaskResources{Requests: list("64Mi", "100m"), Limits: list("128Mi", "")}, installation: "512Mi",
			want: corev1.ResourceRequirements{Limits: list("128Mi", ""), Requests: list("64Mi", "100m")},
		},
		"a request above the installation's limit raises it": {
			own: &v1alpha1.TaskResources{Requests: list("1Gi", "")}, installation: "512Mi",
			want: corev1.ResourceRequirements{Limits: list("1Gi", ""), Requests: list("1Gi", "")},
		},
		"a request without a limit": {
			own: &v1alpha1.TaskResources{
				Requests: list("1Gi", ""),
			},
			installation: "0",
			want:         corev1.ResourceRequirements{Requests: list("1Gi", "")},
		},
		"the rollback has the resources of the task": {
			phase: Rollback, own: &v1alpha1.TaskResources{Limits: list("2Gi", "")}, installation: "512Mi",
			want: corev1.ResourceRequirements{Limits: list("2Gi", ""), Requests: list("0", "")},
		},
		"the reboot has the resources of the task": {
			phase: Reboot, own: &v1alpha1.TaskResources{Limits: list("2Gi", "1")}, installation: "512Mi",
			want: corev1.ResourceRequirements{Limits: list("2Gi", "1"), Requests: list("0", "0")},
		},
		"the pod of prePull has the resources of the task": {
			phase: CheckBefore, own: &v1alpha1.TaskResources{Limits: list("2Gi", "1")}, installation: "512Mi",
			want: corev1.ResourceRequirements{Limits: list("2Gi", "1"), Requests: list("0", "0")},
		},
		"the pod of prePull has the limit of the installation": {
			phase:        CheckBefore,
			installation: "512Mi",
			want:         corev1.ResourceRequirements{Limits: list("512Mi", ""), Requests: list("0", "")},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := withRollback(scriptJob())
			job.Spec.Task.Resources = tt.own
			job.Spec.Maintenance = v1alpha1.MaintenanceSpec{Cordon: true, PrePull: true}
			before := job.DeepCopy()
			spec := runnerPodSpec(job, Source{}, Attempt{Phase: tt.phase}, Options{MemoryLimit: resource.MustParse(tt.installation)})
			if diff := cmp.Diff(tt.want, spec.Containers[0].Resources); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, job); diff != "" {
				t.Errorf("the NodeJob was changed (-before +after):\n%s", diff)
			}
		})
	}
}

// A reboot has no variables of the NodeJob, so nothing needs to be masked.
func TestRunnerGetsNamesOfSecrets(t *testing.T) {
	tests := map[Phase]string{Task: `["TOKEN"]`, Check: `["TOKEN"]`, Rollback: `["TOKEN"]`, Reboot: ""}
	for phase, want := range tests {
		t.Run(string(phase), func(t *testing.T) {
			a := attempt()
			a.Phase = phase
			got := ""
			for _, v := range Pod(withoutOutput(withRollback(scriptJob())), Source{Script: "a", Check: "b", Rollback: "c"}, a, options).Spec.Containers[0].Env {
				if v.Name == "EVERYNODE_MASK" {
					got = v.Value
				}
			}
			if got != want {
				t.Errorf("EVERYNODE_MASK %q, want %q", got, want)
			}
		})
	}
}
