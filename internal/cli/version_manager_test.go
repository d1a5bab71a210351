// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func TestVersionWarnsOfAManagerThatDoesNotRun(t *testing.T) {
	const none = "warning: no manager is available, so nothing happens with NodeJobs and NodeGuards: "
	const some = "warning: a pod of the manager is available, but "
	const zero = "the Deployment everynode-manager has 0 replicas. Start it: kubectl -n everynode-system scale deployment everynode-manager --replicas=1\n"
	const incomplete = "an update is not complete: kubectl -n everynode-system rollout status deployment everynode-manager\n"
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	tests := map[string]struct {
		replicas, available, updated, unavailable int32
		outdated                                  bool
		conditions                                []appsv1.DeploymentCondition
		pod                                       corev1.PodStatus
		forbidden                                 bool
		want                                      string
	}{
		"it runs":                             {replicas: 1, available: 1, updated: 1},
		"0 replicas":                          {want: none + zero},
		"it starts":                           {replicas: 1, unavailable: 1, want: none + "see kubectl -n everynode-system get pods\n"},
		"a second one starts":                 {replicas: 2, available: 1, updated: 2, unavailable: 1, want: some + incomplete},
		"an update begins":                    {replicas: 1, available: 1, updated: 1, outdated: true, want: some + incomplete},
		"an update starts its pod":            {replicas: 1, available: 1, updated: 1, unavailable: 1, want: some + incomplete},
		"0 replicas, while the last pod ends": {available: 1, want: none + zero},
		"a quota or a policy rejects its pods": {
			replicas:    1,
			unavailable: 1,
			conditions: []appsv1.DeploymentCondition{
				{
					Type:    appsv1.DeploymentReplicaFailure,
					Status:  corev1.ConditionTrue,
					Message: "pods is forbidden: exceeded quota: compute",
				},
			},
			want: none + "new pods are rejected. Change what rejects them in namespace everynode-system: pods is forbidden: exceeded quota: compute\n",
		},
		"the registry has no such image": {
			replicas:    1,
			unavailable: 1,
			pod:         waiting("ImagePullBackOff", "manager@sha256:0a: not found\x1b[2J"),
			want:        none + `pod manager-0 cannot get its image. Check the registry, the tag and digest, and the pull secrets of the manager: manager@sha256:0a: not found\x1b[2J` + "\n",
		},
		"an update to such an image": {
			replicas: 1, available: 1, unavailable: 1, pod: waiting("ErrImagePull", "not found"),
			want: some + "pod manager-0 cannot get its image. " +
				"Check the registry, the tag and digest, and the pull secrets of the manager: not found\n",
		},
		"it ends with an error": {
			replicas: 1, unavailable: 1, pod: waiting("CrashLoopBackOff", "back-off"),
			want: none + "pod manager-0 fails. See why: kubectl -n everynode-system logs manager-0 --previous\n",
		},
		"a Secret is missing": {
			replicas: 1, unavailable: 1, pod: waiting("CreateContainerConfigError", `secret "x" not found`),
			want: none + "pod manager-0 cannot start (CreateContainerConfigError): secret \"x\" not found\n",
		},
		"no node has room": {
			replicas:    1,
			unavailable: 1,
			pod: corev1.PodStatus{
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"},
				},
			},
			want: none + "no node can run pod manager-0. Change the nodes, or the placement of the manager: 0/3 nodes are available\n",
		},
		"without the permission to list pods": {
			replicas:    1,
			unavailable: 1,
			forbidden:   true,
			want:        none + "see kubectl -n everynode-system get pods\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := withKind(managerOf(t, "example.com/manager:v0.1.0", "example.com/runner:v0.1.0", ""))
			d.Spec.Replicas = &tt.replicas
			d.Status = appsv1.DeploymentStatus{
				AvailableReplicas:   tt.available,
				UpdatedReplicas:     tt.updated,
				UnavailableReplicas: tt.unavailable,
				Conditions:          tt.conditions,
			}
			if tt.outdated {
				d.Generation = 2
			}
			others := map[string]any{}
			if !tt.forbidden {
				others["/api/v1/namespaces/everynode-system/pods"] = &corev1.PodList{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
					Items: []corev1.Pod{
						{ObjectMeta: metav1.ObjectMeta{Namespace: managerName.Namespace, Name: "manager-0"}, Status: tt.pod},
					},
				}
			}
			f, _, errs := clitest.NewFactory(t, installation(d, others))
			if code := command(t, f, "version"); code != cmdutil.ExitOK || errs.String() != tt.want {
				t.Errorf("exit code %d, want\n%s, got\n%s", code, tt.want, errs)
			}
		})
	}
}

func TestVersionWarnsOfOlderCRDs(t *testing.T) {
	for crds, want := range map[string]string{
		"v0.1.0-rc.1": "warning: the CustomResourceDefinition nodeguards.everynode.dev is v0.1.0-rc.1, and the manager is v0.1.0: the API server does not store fields " +
			"that it does not have. Apply the CustomResourceDefinitions of v0.1.0\n",
		"v0.1.0": "", "v0.2.0": "", "": "", "dev": "",
	} {
		crd := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
			ObjectMeta: metav1.ObjectMeta{Name: "nodeguards.everynode.dev", Labels: map[string]string{"app.kubernetes.io/version": crds}},
		}
		f, _, errs := clitest.NewFactory(
			t,
			installation(withKind(managerOf(t, "example.com/manager:v0.1.0", "example.com/runner:v0.1.0", "")),
				map[string]any{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeguards.everynode.dev": crd}),
		)
		if code := command(t, f, "version"); code != cmdutil.ExitOK || errs.String() != want {
			t.Errorf("CRDs of %q: exit code %d, want\n%s, got\n%s", crds, code, want, errs)
		}
	}
}

// TestACheckoutThatWasInstalledHasOneVersion : neither the part of a digest in the tag of a loaded image nor a registry makes another one.
func TestACheckoutThatWasInstalledHasOneVersion(t *testing.T) {
	const trial, digest = "v0.0.0-trial-8cbc12bc8746", "@sha256:7d5d353e7869"
	for name, tt := range map[string]struct{ manager, runner, crds, want string }{
		"loaded images":              {"localhost/everynode/manager:" + trial + "-7d5d353e7869", "localhost/everynode/runner:" + trial + "-0a1b0a1b0a1b", trial, ""},
		"pushed images":              {"registry.example:5000/team/manager:" + trial + digest, "registry.example:5000/team/runner:" + trial + digest, trial, ""},
		"pushed images without tags": {"registry.example:5000/team/manager" + digest, "registry.example:5000/team/runner" + digest, trial, ""},
		"the runner of an earlier checkout": {
			"localhost/everynode/manager:" + trial + "-7d5d353e7869", "localhost/everynode/runner:v0.0.0-trial-000000000000-0a1b0a1b0a1b", trial,
			"warning: the manager is " + trial + ", and the runner is v0.0.0-trial-000000000000-0a1b0a1b0a1b: " +
				"set both images in the Deployment everynode-manager to the same version\n",
		},
		"loaded images, and CRDs of a release before": {
			"localhost/everynode/manager:" + trial + "-7d5d353e7869", "localhost/everynode/runner:" + trial + "-0a1b0a1b0a1b", "v0.0.0-alpha.1",
			"warning: the CustomResourceDefinition nodeguards.everynode.dev is v0.0.0-alpha.1, and the manager is " + trial +
				": the API server does not store fields that it does not have. Apply the CustomResourceDefinitions of " + trial + "\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			crd := &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
				ObjectMeta: metav1.ObjectMeta{
					Name:   "nodeguards.everynode.dev",
					Labels: map[string]string{"app.kubernetes.io/version": tt.crds},
				},
			}
			f, _, errs := clitest.NewFactory(t, installation(withKind(managerOf(t, tt.manager, tt.runner, trial)),
				map[string]any{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeguards.everynode.dev": crd}))
			if code := command(t, f, "version"); code != cmdutil.ExitOK || errs.String() != tt.want {
				t.Errorf("exit code %d, want\n%s, got\n%s", code, tt.want, errs)
			}
		})
	}
}
