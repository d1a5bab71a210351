// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/uninstall"
)

// TestUninstall removes installations without a manager from an API server of its own. e2e has one with a manager.
func TestUninstall(t *testing.T) {
	f := newRemovable(t)
	go f.playControllers(t.Context())
	for name, test := range map[string]func(*testing.T){
		"without a manager":                                    f.withoutManager,
		"with a manager that does nothing":                     f.withIdleManager,
		"after a plain deletion without a manager":             f.afterPlainDeletion,
		"with records and published results":                   f.withRecords,
		"does not drop a rollback without being told":          f.withRollback,
		"only the CRDs are left, and they are being deleted":   f.onlyCRDs,
		"a finalizer of someone else on a NodeJob is reported": f.foreignFinalizer,
	} {
		t.Run(name, func(t *testing.T) { f.isUninstalled(t, test) })
	}
}

// TestUninstallInterruptedAtEachWrite repeats the command, which is cut off after its first write each time, until it has ended.
func TestUninstallInterruptedAtEachWrite(t *testing.T) {
	f := newRemovable(t)
	go f.playControllers(t.Context())
	f.isUninstalled(t, f.interrupted)
}

// isUninstalled installs and uses Everynode, and has test remove it.
func (f *removable) isUninstalled(t *testing.T, test func(*testing.T)) {
	t.Helper()
	f.T = t
	f.installed()
	must(t, f.kubectl("apply -f ../../config/network-policy/networkpolicy.yaml"))
	f.Eventually("the kinds are served", func() error { return f.kubectl("get nodejobs,nodeguards -A") })
	f.putEverythingToUse()
	test(t)
	f.wantNothingLeft()
	got := f.uninstall(f.kubeconfig, "--yes")
	if got.code != 0 || got.out != "nothing to remove: Everynode is not installed in this cluster\n" {
		t.Errorf("the second time: %+v", got)
	}
	must(t, f.admin.DeleteAllOf(t.Context(), &corev1.Node{}))
}

// TestUninstallKeepsTheManagersRightsUntilItsLastWrite deletes the installation while the manager only has the
// permissions of config/rbac, and loses them when they are deleted.
func TestUninstallKeepsTheManagersRightsUntilItsLastWrite(t *testing.T) {
	f := startFresh(t)
	ctx := t.Context()
	f.installed()
	user, err := f.env.AddUser(envtest.User{Name: "system:serviceaccount:everynode-system:everynode-manager"}, nil)
	must(t, err)
	config := user.Config()
	config.Wrap(used.through)
	asManager, err := client.New(config, client.Options{Scheme: scheme, Mapper: uninstall.Mapper()})
	must(t, err)
	f.Eventually("the manager has its rights", func() error { return uninstall.ProtectRights(ctx, asManager) })
	stage := func(want uninstall.Stage) {
		t.Helper()
		if got, err := uninstall.StageOf(ctx, asManager); err != nil || got != want {
			t.Errorf("the stage is %d, want %d: %v", got, want, err)
		}
	}
	stage(uninstall.Staying)
	must(t, f.admin.Create(ctx, &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held", Finalizers: []string{v1alpha1.NodeJobFinalizer}},
		Spec: v1alpha1.NodeJobSpec{
			Nodes: v1alpha1.NodesSpec{Names: []string{"none"}},
			Task:  v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}},
		},
	}))
	must(t, f.kubectl("delete -k ../../config/rbac --wait=false"))
	stage(uninstall.LosingRights)
	must(t, f.withDefault("delete --wait=false --ignore-not-found"))
	stage(uninstall.CleaningUp)
	must(
		t,
		asManager.Patch(
			ctx,
			&v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"}},
			mergePatch(`{"metadata":{"finalizers":null}}`),
		),
	)
	f.Eventually("the CRDs are gone", func() error {
		if got, err := uninstall.StageOf(ctx, asManager); err != nil || got != uninstall.CleanedUp {
			return fmt.Errorf("the stage is %d, %w", got, err)
		}
		return nil
	})
	must(t, uninstall.UnprotectRights(ctx, asManager, func(context.Context, time.Duration) {}))
	for _, o := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		must(t, f.admin.Get(ctx, client.ObjectKey{Name: uninstall.Manager}, o))
		// The garbage collector, which does not run here, would delete them after the ServiceAccount.
		if !slices.Equal(o.GetFinalizers(), []string{metav1.FinalizerDeleteDependents}) || o.GetDeletionTimestamp().IsZero() {
			t.Errorf("%T has the finalizers %v", o, o.GetFinalizers())
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: uninstall.Namespace, Name: uninstall.Manager}}
	if err := f.admin.Get(ctx, client.ObjectKeyFromObject(account), account); !apierrors.IsNotFound(err) {
		t.Errorf("the ServiceAccount: %v, finalizers %v", err, account.Finalizers)
	}
}

func (f *removable) withoutManager(t *testing.T) {
	before := f.versions()
	got := f.uninstall(f.kubeconfig, "--dry-run")
	wantText(
		t,
		got.out,
		"NodeJobs",
		"default/forgets",
		"NodeDisruptionBudgets",
		"1: everything",
		"Gates",
		"on 2 nodes: gated, registered",
		"on 1 node: cordoned",
		"CustomResourceDefinition",
		"nodejobs.everynode.dev",
	)
	if got := f.uninstall(f.kubeconfig); got.code != cmdutil.ExitDeclined || !strings.Contains(got.err, "--yes") {
		t.Errorf("without a confirmation: %+v", got)
	}
	if after := f.versions(); before != after {
		t.Errorf("before the dry run\n%s\nand after\n%s", before, after)
	}
	got = f.uninstall(f.kubeconfig, "--yes")
	if got.code != 0 || got.out != "Everynode is removed\n" {
		t.Errorf("%+v", got)
	}
	wantText(
		t,
		got.err,
		"deleting 1 NodeDisruptionBudget: drains",
		"no manager is ready",
		"cleaned up 4 nodes, 3 pods and 1 PodDisruptionBudget",
	)
}

func (f *removable) withIdleManager(t *testing.T) {
	deployment := uninstall.Deployment()
	must(t, f.admin.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment))
	deployment.Status.Replicas, deployment.Status.ReadyReplicas, deployment.Status.AvailableReplicas = 1, 1, 1
	must(t, f.admin.Status().Update(t.Context(), deployment))
	got := f.uninstall(f.kubeconfig, "--yes", "--timeout=1s")
	if got.code != 0 {
		t.Errorf("%+v", got)
	}
	wantText(t, got.err, "the manager made no progress for 1s: this command cleans up")
}

func (f *removable) afterPlainDeletion(t *testing.T) {
	must(t, f.withDefault("delete --wait=false --ignore-not-found"))
	if got := f.uninstall(f.kubeconfig, "--yes"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

func (f *removable) withRecords(t *testing.T) {
	if got := f.uninstall(f.kubeconfig, "--yes", "--records"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

func (f *removable) withRollback(t *testing.T) {
	ctx := t.Context()
	must(t, f.admin.Patch(ctx, &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "forgets"}},
		mergePatch(`{"spec":{"deletionPolicy":"Rollback","rollback":{"script":"true"}}}`)))
	got := f.uninstall(f.kubeconfig, "--yes")
	if got.code != cmdutil.ExitError {
		t.Errorf("it continues without a manager: %+v", got)
	}
	wantText(t, got.err, "no manager is ready that could roll back NodeJob default/forgets", "--skip-rollback")
	var job v1alpha1.NodeJob
	must(t, f.admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "forgets"}, &job))
	if !job.DeletionTimestamp.IsZero() {
		t.Error("it has deleted the NodeJob")
	}
	if got := f.uninstall(f.kubeconfig, "--yes", "--skip-rollback"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

func (f *removable) onlyCRDs(t *testing.T) {
	for _, part := range []string{"rbac", "manager", "gate", "authorization", "crd"} {
		if part == "gate" && !policiesServed {
			continue
		}
		must(t, f.kubectl("delete -k ../../config/"+part+" --wait=false --ignore-not-found"))
	}
	if got := f.uninstall(f.kubeconfig, "--yes"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

func (f *removable) foreignFinalizer(t *testing.T) {
	ctx := t.Context()
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "forgets"}}
	must(t, f.admin.Patch(ctx, job, mergePatch(`{"metadata":{"finalizers":["example.com/theirs","`+v1alpha1.NodeJobFinalizer+`"]}}`)))
	done := make(chan told, 1)
	go func() { done <- f.uninstall(f.kubeconfig, "--yes") }()
	f.Eventually("only their finalizer is left", func() error {
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if !slices.Equal(job.Finalizers, []string{"example.com/theirs"}) {
			return fmt.Errorf("they are %v", job.Finalizers)
		}
		return nil
	})
	must(t, f.admin.Patch(ctx, job, mergePatch(`{"metadata":{"finalizers":null}}`)))
	if got := <-done; got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// interrupted lets each run make one write and then cuts it off, until nothing is left to write.
func (f *removable) interrupted(t *testing.T) {
	var left atomic.Int32
	config, end := f.through(func(r *http.Request) bool {
		return r.Method == http.MethodGet || left.Add(-1) >= 0
	})
	defer end()
	for runs := 1; ; runs++ {
		left.Store(1)
		got := f.uninstall(config, "--yes")
		if got.code == 0 {
			t.Logf("%d runs", runs)
			if runs < 20 {
				t.Error("too few runs were cut off")
			}
			return
		}
		if !strings.Contains(got.err, "To continue, repeat: kubectl everynode uninstall") {
			t.Fatalf("run %d: %+v", runs, got)
		}
		if runs > 100 {
			t.Fatalf("it does not come to an end: %+v", got)
		}
	}
}
