// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/release/chart"
)

// object is what the tests read of an object.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Name, Image string
					Env         []struct{ Name, Value string }
				}
			}
		}
	}
}

// objectsOf returns the objects of a file by kind and name.
func objectsOf(t *testing.T, file string) map[string]object {
	t.Helper()
	found := map[string]object{}
	for _, o := range inOrder(t, file) {
		found[o.Kind+" "+o.Metadata.Name] = o
	}
	return found
}

// inOrder returns the objects of a file in their order.
func inOrder(t *testing.T, file string) []object {
	t.Helper()
	var found []object
	for document := range strings.SplitSeq(string(read(t, built(t), file)), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		found = append(found, o)
	}
	return found
}

// kubectl apply -f creates the objects of a file in their order, unlike kubectl apply -k.
func TestManifestsHaveAnObjectBeforeThoseThatNeedIt(t *testing.T) {
	for _, file := range []string{InstallFile, InstallNoGatesFile} {
		at := map[string]int{}
		for i, o := range inOrder(t, file) {
			at[o.Kind+" "+o.Metadata.Name] = i
			in := o.Metadata.Namespace
			if _, there := at["Namespace "+in]; in != "" && !there {
				t.Errorf("%s: %s %s comes before its Namespace %s", file, o.Kind, o.Metadata.Name, in)
			}
		}
		for _, earlier := range []string{
			"CustomResourceDefinition nodejobs.everynode.dev", "ServiceAccount everynode-manager", "ClusterRoleBinding everynode-manager",
			"RoleBinding everynode-leader-election", "ResourceQuota everynode-critical-pods",
		} {
			if i, there := at[earlier]; !there || i > at["Deployment everynode-manager"] {
				t.Errorf("%s: the manager is not after %s", file, earlier)
			}
		}
		for _, policy := range []string{"ValidatingAdmissionPolicyBinding everynode-nodejobs", "ValidatingAdmissionPolicyBinding everynode-confine-pods"} {
			if i, there := at[policy]; !there || i > at["CustomResourceDefinition nodejobs.everynode.dev"] {
				t.Errorf("%s: the CRDs are not after %s", file, policy)
			}
		}
	}
}

func TestManifestsNameTheImagesOfTheRelease(t *testing.T) {
	_, manager := indexOf(t, built(t), "manager")
	_, runner := indexOf(t, built(t), "runner")
	_, archiveRunner := indexOf(t, built(t), "runner-archive")
	want := []string{
		testRegistry + "/manager:" + testVersion + "@" + manager.Digest.String(),
		testRegistry + "/runner:" + testVersion + "@" + runner.Digest.String(),
		testRegistry + "/runner-archive:" + testVersion + "@" + archiveRunner.Digest.String(),
	}
	for _, file := range []string{InstallFile, InstallNoGatesFile} {
		containers := objectsOf(t, file)["Deployment everynode-manager"].Spec.Template.Spec.Containers
		if len(containers) != 1 {
			t.Fatalf("%s: the manager has %d containers", file, len(containers))
		}
		got := []string{containers[0].Image}
		for _, env := range containers[0].Env {
			if env.Name == "EVERYNODE_RUNNER_IMAGE" || env.Name == "EVERYNODE_ARCHIVE_RUNNER_IMAGE" {
				got = append(got, env.Value)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", file, diff)
		}
	}
	for _, image := range want {
		if description := chartYAML(
			t,
			read(t, built(t), chart.FileName(testVersion)),
		); !strings.Contains(
			description,
			"image: "+image+"\n",
		) {
			t.Errorf("the chart lacks %s:\n%s", image, description)
		}
	}
	if diff := cmp.Diff(strings.Join(want, "\n")+"\n", string(read(t, built(t), ImagesFile))); diff != "" {
		t.Errorf("%s: -want +got\n%s", ImagesFile, diff)
	}
}

func TestOnlyThePoliciesThatNeedKubernetes136AreLeftOut(t *testing.T) {
	all, without := objectsOf(t, InstallFile), objectsOf(t, InstallNoGatesFile)
	var left []string
	for name := range all {
		if _, found := without[name]; !found {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	want := []string{
		"MutatingAdmissionPolicy everynode-attribution",
		"MutatingAdmissionPolicy everynode-gate",
		"MutatingAdmissionPolicy everynode-manager",
		"MutatingAdmissionPolicyBinding everynode-attribution",
		"MutatingAdmissionPolicyBinding everynode-gate-node-setup",
		"MutatingAdmissionPolicyBinding everynode-manager-node-setup",
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, name := range []string{
		"CustomResourceDefinition nodejobs.everynode.dev", "CustomResourceDefinition nodeguards.everynode.dev",
		"Namespace everynode-system", "ClusterRole everynode-manager", "ClusterRole everynode-run-as-root",
		"ValidatingAdmissionPolicy everynode-nodejobs", "ValidatingAdmissionPolicyBinding everynode-scripts", "ValidatingAdmissionPolicy everynode-status", "ValidatingAdmissionPolicyBinding everynode-pods-of-nodeguards", "ValidatingAdmissionPolicyBinding everynode-attribution",
	} {
		if _, found := without[name]; !found {
			t.Errorf("%s is missing", name)
		}
	}
	for name, o := range all {
		if o.Metadata.Labels["app.kubernetes.io/version"] != testVersion {
			t.Errorf("%s has no label with the version", name)
		}
	}
}
