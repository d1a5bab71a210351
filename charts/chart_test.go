// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	policyAPI    = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
	oldPolicyAPI = "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
	manager      = "Deployment everynode-system/everynode-manager"
	versionLabel = "app.kubernetes.io/version"
)

// checkout returns the chart of this checkout. helm changes it when it renders it, but not its values.
var checkout = sync.OnceValues(func() (*chartv2.Chart, error) { return loader.LoadDir("everynode") })

// release is how the chart is rendered: with these values, in this namespace, for an API server with these kinds besides
// those that each has.
type release struct {
	namespace string
	values    string
	apis      []string
}

// objects are objects by kind, namespace and name.
type objects map[string]unstructured.Unstructured

// render returns the objects of the chart of the checkout.
func render(t *testing.T, r release) (objects, error) {
	t.Helper()
	chart, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	return renderChart(t, chart, r)
}

func renderChart(t *testing.T, chart *chartv2.Chart, r release) (objects, error) {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(r.values), &values); err != nil {
		t.Fatal(err)
	}
	if r.namespace == "" {
		r.namespace = "everynode-system"
	}
	capabilities := common.DefaultCapabilities.Copy()
	// helm was compiled with the kinds of a Kubernetes that has the policies.
	capabilities.APIVersions = slices.DeleteFunc(
		capabilities.APIVersions,
		func(api string) bool { return strings.HasPrefix(api, "admissionregistration.k8s.io/v1") },
	)
	capabilities.APIVersions = append(capabilities.APIVersions, r.apis...)
	options := common.ReleaseOptions{Name: "everynode", Namespace: r.namespace, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	found := objects{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" {
			found.add(t, files[name])
		}
	}
	return found, nil
}

// parsed are the objects of documents. The CRDs, which take the most time, are in most of the rendered charts.
var parsed = map[string]map[string]any{}

// add adds the objects of a stream of YAML documents.
func (o objects) add(t *testing.T, stream string) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+stream, "\n---") {
		if _, known := parsed[document]; !known {
			var content map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
				t.Fatalf("%v in\n%s", err, document)
			}
			parsed[document] = content
		}
		object := unstructured.Unstructured{Object: parsed[document]}
		if len(object.Object) == 0 {
			continue
		}
		key := object.GetKind() + " " + path.Join(object.GetNamespace(), object.GetName())
		if _, twice := o[key]; twice {
			t.Errorf("%s is rendered twice", key)
		}
		o[key] = object
	}
}

// kustomization returns the objects of a folder of config.
func kustomization(t *testing.T, folder string) objects {
	t.Helper()
	return built(t, filesys.MakeFsOnDisk(), filepath.Join("..", "config", folder))
}

// overlay returns the objects of a kustomization that is beside the folders of config.
func overlay(t *testing.T, content string) objects {
	t.Helper()
	files := filesys.MakeFsInMemory()
	err := fs.WalkDir(os.DirFS("../config"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join("../config", name))
		if err != nil {
			return err
		}
		return files.WriteFile(path.Join("/config", name), content)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := files.WriteFile("/config/overlay/kustomization.yaml", []byte(content)); err != nil {
		t.Fatal(err)
	}
	return built(t, files, "/config/overlay")
}

func built(t *testing.T, files filesys.FileSystem, folder string) objects {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, folder)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	found := objects{}
	found.add(t, string(stream))
	return found
}

// asKustomization are the values with which the chart is config/default: the images, and CRDs that are deleted with the
// release.
const asKustomization = `
images: {registry: everynode.invalid, manager: {tag: none}, runner: {tag: none}, runnerArchive: {tag: none}}
crds: {keep: false}
`

// unreleased returns a Deployment or a CRD without what only the chart has: tags of images, and the version.
func unreleased(t *testing.T, o unstructured.Unstructured) map[string]any {
	t.Helper()
	content, err := yaml.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	copied := unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(content), ":none", "")), &copied.Object); err != nil {
		t.Fatal(err)
	}
	labels := copied.GetLabels()
	if labels[versionLabel] == "" {
		t.Errorf("%s %s has no label %s", o.GetKind(), o.GetName(), versionLabel)
	}
	if delete(labels, versionLabel); len(labels) > 0 {
		copied.SetLabels(labels)
	} else {
		unstructured.RemoveNestedField(copied.Object, "metadata", "labels")
	}
	return copied.Object
}

// expressions compares CEL without its white space: kustomize adds line breaks to folded text, where they have no meaning.
var expressions = cmp.FilterPath(func(p cmp.Path) bool {
	at, is := p.Last().(cmp.TypeAssertion)
	return is && at.Type().Kind() == reflect.String && strings.HasSuffix(strings.ToLower(p.Index(-2).String()), `expression"]`)
}, cmp.Transformer("fields", strings.Fields))

// TestTheChartHasTheObjectsOfConfigDefault compares all fields. helm creates the namespace itself.
func TestTheChartHasTheObjectsOfConfigDefault(t *testing.T) {
	want := kustomization(t, "default")
	delete(want, "Namespace everynode-system")
	got, err := render(t, release{apis: []string{policyAPI}, values: asKustomization})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		object := got[key].Object
		if key == manager || strings.HasPrefix(key, "CustomResourceDefinition ") {
			object = unreleased(t, got[key])
		}
		if diff := cmp.Diff(want[key].Object, object, expressions); diff != "" {
			t.Errorf("%s (-kustomize +helm):\n%s", key, diff)
		}
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("the chart lacks %v", slices.Sorted(maps.Keys(want)))
	}
}

// TestTheFilesOfTheChartAreThoseOfConfig compares the copies of manifests. They are no links, because a checkout on Windows
// and some tools for GitOps do not have links.
func TestTheFilesOfTheChartAreThoseOfConfig(t *testing.T) {
	found := 0
	err := fs.WalkDir(os.DirFS("everynode"), "files", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		found++
		original := filepath.Join("..", "config", strings.TrimPrefix(name, "files/"))
		want, err := os.ReadFile(original)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join("everynode", name))
		if !entry.Type().IsRegular() || !bytes.Equal(got, want) {
			t.Errorf("%s is not a copy of %s: run make generate", name, original)
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d files: %v", found, err)
	}
}
