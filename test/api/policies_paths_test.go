// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// The tests of this file remove Everynode, each in another way, while an editor writes scripts all the time and the manager keeps running.

func TestNoScriptRunsWhileTheCommandUninstallsEverynode(t *testing.T) {
	needsPolicies(t)
	r := newRemovable(t)
	r.installed()
	p := r.plant()
	go r.playControllers(r.Ctx)
	if got := r.uninstall(r.kubeconfig, "--yes", "--skip-rollback"); got.code != 0 {
		t.Fatalf("exit code %d: %s%s", got.code, got.out, got.err)
	}
	p.isGone()
}

func TestNoScriptRunsWhileHelmInstallsOrUninstallsEverynode(t *testing.T) {
	needsPolicies(t)
	h := newHelmed(t)
	release := h.release("v0.1.0", "")
	h.helm("install everynode " + release + " --create-namespace")
	must(t, changesAreNamed(h.Ctx, h.admin))
	p := h.plant()
	h.helm("upgrade everynode " + h.release("v0.2.0", "changed"))
	p.isRefused()
	h.helm("uninstall everynode") // the CRDs stay, and so do the policies
	p.cannotWrite()
	h.helm("install everynode " + release)
	p.isRefused()
	p.ranNothing()
	h.helm("upgrade everynode " + release + " --set crds.keep=false")
	h.helm("uninstall everynode")
	p.isGone()
}

func TestNoScriptRunsWhileKubectlDeletesEachObject(t *testing.T) {
	needsPolicies(t)
	for name, order := range map[string]func([]*unstructured.Unstructured){
		"from the first": func([]*unstructured.Unstructured) {},
		"from the last":  slices.Reverse[[]*unstructured.Unstructured],
	} {
		t.Run(name, func(t *testing.T) {
			f := startFresh(t)
			f.installed()
			p := f.plant()
			objects := f.objectsOfDefault()
			order(objects)
			p.deleteEach(objects)
			p.isGone()
		})
	}
}

// objectsOfDefault are the objects of config/default that guard, or are guarded, or give the manager its rights. The namespace
// and what is in it are not among them: no controller of the server ends them.
func (f *freshServer) objectsOfDefault() []*unstructured.Unstructured {
	f.T.Helper()
	must(f.T, f.kubectl("kustomize ../../config/default"))
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(f.printed, "\n---\n") {
		o := &unstructured.Unstructured{}
		must(f.T, yaml.Unmarshal([]byte(document), &o.Object))
		if o.GetNamespace() == "" && o.GetKind() != "Namespace" {
			objects = append(objects, o)
		}
	}
	return objects
}

// deleteEach deletes objects one after another, while the editor writes.
func (p *plantedServer) deleteEach(objects []*unstructured.Unstructured) {
	p.f.T.Helper()
	for _, o := range objects {
		p.f.T.Log("deleting", o.GetKind(), o.GetName())
		must(p.f.T, p.f.kubectl(fmt.Sprintf("delete --wait=false %s %s", strings.ToLower(o.GetKind()), o.GetName())))
		p.awaits("tries again", &p.tries, 3)
		p.ranNothing()
	}
}

// cannotWrite waits until the editor has tried to write for some time, without success.
func (p *plantedServer) cannotWrite() {
	p.f.T.Helper()
	writes := p.writes.Load()
	p.awaits("tries", &p.tries, 20)
	if got := p.writes.Load() - writes; got > 0 {
		p.f.T.Errorf("%d scripts were written", got)
	}
	p.ranNothing()
}

// isGone installs Everynode again after it was removed in any way. What was written meanwhile does not run.
func (p *plantedServer) isGone() {
	p.f.T.Helper()
	p.ranNothing()
	must(p.f.T, p.stop())
	p.f.Eventually("the CRDs are gone", func() error {
		// The manager may have lost its rights before it removed its finalizers.
		var jobs v1alpha1.NodeJobList
		if err := p.f.admin.List(p.f.Ctx, &jobs); err == nil {
			for i := range jobs.Items {
				_ = p.f.admin.Patch(p.f.Ctx, &jobs.Items[i], mergePatch(`{"metadata":{"finalizers":null}}`))
			}
		}
		if err := p.f.kubectl("get crd --ignore-not-found nodejobs.everynode.dev nodeguards.everynode.dev"); err != nil {
			return err
		}
		if p.f.printed != "" {
			return errors.New(p.f.printed)
		}
		return nil
	})
	p.f.installed()
	p.stop = p.f.manage(p.manager)
	p.isRefused()
	p.cannotWrite()
	must(p.f.T, p.stop())
}
