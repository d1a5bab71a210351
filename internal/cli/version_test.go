// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

const managerPath = "/apis/apps/v1/namespaces/everynode-system/deployments/everynode-manager"

// managerOf returns the installed Deployment, with other images.
func managerOf(t *testing.T, manager, runner, label string, args ...string) *appsv1.Deployment {
	t.Helper()
	content, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(content, &d); err != nil {
		t.Fatal(err)
	}
	d.Labels["app.kubernetes.io/version"] = label
	d.Status.AvailableReplicas, d.Status.UpdatedReplicas = 1, 1
	container := &d.Spec.Template.Spec.Containers[0]
	container.Image = manager
	container.Args = append(container.Args, args...)
	for i := range container.Env {
		if container.Env[i].Name == "EVERYNODE_RUNNER_IMAGE" {
			container.Env[i].Value = runner
		}
	}
	return &d
}

func TestInstalledVersions(t *testing.T) {
	const digest = "@sha256:0a1b"
	tests := map[string]struct {
		deployment      *appsv1.Deployment
		manager, runner component
	}{
		"the tags are the versions": {
			managerOf(t, "example.com/manager:v0.1.0"+digest, "example.com/runner:v0.1.0"+digest, "v0.0.9"),
			component{Version: "v0.1.0", Image: "example.com/manager:v0.1.0" + digest},
			component{Version: "v0.1.0", Image: "example.com/runner:v0.1.0" + digest},
		},
		"the label is the version of images that are named by digest": {
			managerOf(t, "example.com/manager"+digest, "example.com/runner"+digest, "v0.1.0"),
			component{Version: "v0.1.0", Image: "example.com/manager" + digest},
			component{Version: "v0.1.0", Image: "example.com/runner" + digest},
		},
		"the label is the version of images that were loaded, whose tags also have a part of their digest": {
			managerOf(
				t,
				"localhost/everynode/manager:v0.0.0-trial-8cbc12bc8746-7d5d353e7869",
				"localhost/everynode/runner:v0.0.0-trial-8cbc12bc8746-0a1b0a1b0a1b",
				"v0.0.0-trial-8cbc12bc8746",
			),
			component{Version: "v0.0.0-trial-8cbc12bc8746", Image: "localhost/everynode/manager:v0.0.0-trial-8cbc12bc8746-7d5d353e7869"},
			component{Version: "v0.0.0-trial-8cbc12bc8746", Image: "localhost/everynode/runner:v0.0.0-trial-8cbc12bc8746-0a1b0a1b0a1b"},
		},
		"the tags of a loaded image and of a release candidate": {
			managerOf(t, "localhost/everynode/manager:v0.1.0-7d5d353e7869", "example.com/runner:v0.1.0-rc.1", "v0.1.0"),
			component{Version: "v0.1.0", Image: "localhost/everynode/manager:v0.1.0-7d5d353e7869"},
			component{Version: "v0.1.0-rc.1", Image: "example.com/runner:v0.1.0-rc.1"},
		},
		"a flag takes precedence over the environment": {
			managerOf(t, "example.com/manager:v0.1.0", "example.com/runner:v0.1.0", "", "--runner-image=example.com/runner:v0.2.0"),
			component{Version: "v0.1.0", Image: "example.com/manager:v0.1.0"},
			component{Version: "v0.2.0", Image: "example.com/runner:v0.2.0"},
		},
		"a flag and its value are two arguments": {
			managerOf(t, "example.com/manager:v0.1.0", "", "", "-runner-image", "example.com/runner:v0.2.0"),
			component{Version: "v0.1.0", Image: "example.com/manager:v0.1.0"},
			component{Version: "v0.2.0", Image: "example.com/runner:v0.2.0"},
		},
		"neither another tag nor the label is the version": {
			managerOf(t, "example.com/manager:dev", "", "v0.1.0"),
			component{Image: "example.com/manager:dev", Problem: "the image example.com/manager:dev has no version as its tag"},
			component{Problem: "the Deployment everynode-system/everynode-manager names no image"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, _, _ := clitest.NewFactory(t, installation(withKind(tt.deployment), nil))
			manager, runner, warnings := (&versionOptions{Factory: f}).installed(t.Context())
			if diff := cmp.Diff([]component{tt.manager, tt.runner}, []component{*manager, *runner}); diff != "" || len(warnings) > 0 {
				t.Errorf("-want +got\n%s\n%s", diff, warnings)
			}
		})
	}
}

// installation is an API server with the Deployment of the manager unless it is nil, and other objects by their paths.
func installation(d *appsv1.Deployment, others map[string]any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch object, found := others[r.URL.Path]; {
		case r.URL.Path == managerPath && d != nil:
			clitest.Respond(w, d)
		case found:
			clitest.Respond(w, object)
		default:
			clitest.RespondError(w, 403, metav1.StatusReasonForbidden, "forbidden")
		}
	})
}

func withKind(d *appsv1.Deployment) *appsv1.Deployment {
	d.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	return d
}

func TestVersionsThatCannotBeRead(t *testing.T) {
	noContainer := withKind(managerOf(t, "example.com/manager:v0.1.0", "", ""))
	noContainer.Spec.Template.Spec.Containers = []corev1.Container{{Name: "other", Image: "example.com/other:v1.0.0"}}
	const forbidden = `deployments.apps "everynode-manager" is forbidden: User "jane" cannot get resource "deployments" in API group "apps" in the namespace "everynode-system"`
	tests := map[string]struct {
		respond       func(http.ResponseWriter)
		want, warning string
	}{
		"without the permission": {
			func(w http.ResponseWriter) { clitest.RespondError(w, 403, metav1.StatusReasonForbidden, forbidden) },
			"(not known: you may not get the Deployment everynode-system/everynode-manager; the ClusterRole everynode-view-nodes allows it)",
			"",
		},
		"without an installation": {
			func(w http.ResponseWriter) { clitest.RespondError(w, 404, metav1.StatusReasonNotFound, "not found") },
			"(not known: the Deployment everynode-system/everynode-manager does not exist)",
			"warning: no manager is installed in this cluster: the Deployment everynode-system/everynode-manager does not exist\n",
		},
		"with another Deployment of that name": {
			func(w http.ResponseWriter) { clitest.Respond(w, noContainer) },
			"(not known: the Deployment everynode-system/everynode-manager has no container manager)", "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != managerPath {
					t.Errorf("unexpected request %s", r.URL)
				}
				tt.respond(w)
			}))
			if code := command(t, f, "version"); code != cmdutil.ExitOK {
				t.Errorf("exit code %d", code)
			}
			for _, row := range []string{"manager  ", "runner   "} {
				if !strings.Contains(out.String(), row+tt.want+"\n") {
					t.Errorf("output without %q:\n%s", row+tt.want, out)
				}
			}
			if errs.String() != tt.warning {
				t.Errorf("warning %q, want %q", errs, tt.warning)
			}
		})
	}
}

func TestVersionForPrograms(t *testing.T) {
	deployment := withKind(managerOf(t, "example.com/manager:v0.1.0", "example.com/runner:v0.2.0", ""))
	for _, format := range versionFormats {
		t.Run(format, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, installation(deployment, nil))
			if code := command(t, f, "version", "--output", format); code != cmdutil.ExitOK {
				t.Errorf("exit code %d", code)
			}
			var got versions
			if err := yaml.UnmarshalStrict([]byte(out.String()), &got); err != nil {
				t.Fatal(err)
			}
			if isJSON := json.Valid([]byte(out.String())); isJSON != (format == console.OutputJSON) {
				t.Errorf("-o %s:\n%s", format, out)
			}
			if got.Client.Version == "" || got.Manager.Version != "v0.1.0" || got.Runner.Image != "example.com/runner:v0.2.0" {
				t.Errorf("-o %s:\n%s", format, out)
			}
			// The test itself has no version, so only the images differ.
			want := []string{
				"the manager is v0.1.0, and the runner is v0.2.0: set both images in the Deployment everynode-manager to the same version",
			}
			if diff := cmp.Diff(want, got.Warnings); diff != "" || errs.String() != "" {
				t.Errorf("warnings: -want +got\n%s\n%s", diff, errs)
			}
		})
	}
}

func TestVersionOfTheClientAlone(t *testing.T) {
	f, out, _ := clitest.NewFactory(
		t,
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("unexpected request %s", r.URL) }),
	)
	if code := command(
		t,
		f,
		"version",
		"--client",
	); code != cmdutil.ExitOK || !strings.HasPrefix(out.String(), "client  ") ||
		strings.Contains(out.String(), "manager") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestSkew(t *testing.T) {
	tests := map[string]struct {
		client, manager, runner string
		want                    []string
	}{
		"equal versions":            {"v0.1.0", "v0.1.0", "v0.1.0", nil},
		"unknown versions":          {"v0.1.0", "", "", nil},
		"a build without a version": {"(devel)", "v0.1.0", "v0.1.0", nil},
		"another command": {
			"v0.2.0",
			"v0.1.0",
			"v0.1.0",
			[]string{
				"this program is v0.2.0, and the manager is v0.1.0: explain and plan can show other decisions than those of the manager. Install kubectl-everynode v0.1.0",
			},
		},
		"equal checkouts": {"v0.0.0-trial-8cbc12bc8746", "v0.0.0-trial-8cbc12bc8746", "v0.0.0-trial-8cbc12bc8746", nil},
		"another checkout": {
			"v0.0.0-trial-000000000000",
			"v0.0.0-trial-8cbc12bc8746",
			"v0.0.0-trial-8cbc12bc8746",
			[]string{
				"this program is v0.0.0-trial-000000000000, and the manager is v0.0.0-trial-8cbc12bc8746: explain and plan can show other decisions than " +
					"those of the manager. Build kubectl-everynode from the checkout of the manager: make install",
			},
		},
		"another runner": {"v0.1.0", "v0.1.0", "v0.0.9", []string{
			"the manager is v0.1.0, and the runner is v0.0.9: set both images in the Deployment everynode-manager to the same version",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, skew(tt.client, tt.manager, tt.runner)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestAViewerMayReadTheManager compares what the command reads with the role that its message names.
func TestAViewerMayReadTheManager(t *testing.T) {
	content, err := os.ReadFile("../../config/rbac/user_roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := rbacv1.PolicyRule{
		APIGroups:     []string{"apps"},
		Resources:     []string{"deployments"},
		ResourceNames: []string{managerName.Name},
		Verbs:         []string{"get"},
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			t.Fatal("the ClusterRole everynode-view-nodes does not allow to get the Deployment of the manager")
		}
		var role rbacv1.ClusterRole
		if err := errors.Join(err, yaml.Unmarshal(document, &role)); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if role.Name == "everynode-view-nodes" && reflect.DeepEqual(rule, want) {
				return
			}
		}
	}
}
