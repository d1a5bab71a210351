// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=nodejobs.everynode.dev;nodeguards.everynode.dev;nodedisruptionbudgets.everynode.dev,verbs=get
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;clusterrolebindings,resourceNames=everynode-manager,verbs=get;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,resourceNames=everynode-manager,verbs=get;patch

// Finalizer is on the objects that give the manager its permissions, so that they outlive `kubectl delete` until it has
// cleaned up.
const Finalizer = "everynode.dev/installation"

// managerRights are the objects that give the manager its permissions, in the order in which they must not be deleted.
type managerRights struct {
	role    *rbacv1.ClusterRole
	binding *rbacv1.ClusterRoleBinding
	account *corev1.ServiceAccount
}

func newHeld() managerRights {
	name := metav1.ObjectMeta{Name: Manager}
	return managerRights{&rbacv1.ClusterRole{ObjectMeta: name}, &rbacv1.ClusterRoleBinding{ObjectMeta: name}, &corev1.ServiceAccount{ObjectMeta: inNamespace(Manager)}}
}

func (h managerRights) all() []client.Object { return []client.Object{h.role, h.binding, h.account} }

// read reads the objects. An object that does not exist has an empty UID.
func (h managerRights) read(ctx context.Context, c client.Reader) error {
	for _, o := range h.all() {
		o.SetUID("")
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil && !Absent(err) {
			return fmt.Errorf("getting %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

func (h managerRights) deleting() bool {
	return slices.ContainsFunc(h.all(), func(o client.Object) bool { return o.GetUID() != "" && isDeleting(o) })
}

func isDeleting(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() }

// ProtectRights adds the finalizer to the objects that give the manager its permissions, except objects that are being
// deleted.
func ProtectRights(ctx context.Context, c client.Client) error {
	h := newHeld()
	if err := h.read(ctx, c); err != nil {
		return err
	}
	for _, o := range h.all() {
		if o.GetUID() == "" || isDeleting(o) || slices.Contains(o.GetFinalizers(), Finalizer) {
			continue
		}
		if err := patchMeta(ctx, c, o, map[string]any{"finalizers": append(slices.Clone(o.GetFinalizers()), Finalizer)}); err != nil {
			return fmt.Errorf("adding the finalizer to %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// Stages of the deletion of an installation.
const (
	// Staying : the installation is not being deleted.
	Staying Stage = iota
	// LosingRights : the role, binding or ServiceAccount is being deleted, and the CRDs are not.
	LosingRights
	// CleaningUp : the CRDs are being deleted, and NodeJobs and NodeGuards remain.
	CleaningUp
	// CleanedUp : the CRDs are deleted, and with them all NodeJobs and NodeGuards.
	CleanedUp
)

// Stage is the progress of the deletion of an installation.
type Stage int

// StageOf returns the progress of the deletion of the installation.
func StageOf(ctx context.Context, c client.Reader) (Stage, error) {
	crds, gone := CRDs(), 0
	stage := Staying
	for _, o := range crds {
		crd := Metadata(o)
		switch err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); {
		case Absent(err):
			gone++
		case err != nil:
			return Staying, fmt.Errorf("getting CustomResourceDefinition %s: %w", crd.GetName(), err)
		case isDeleting(crd):
			stage = CleaningUp
		}
	}
	if gone == len(crds) {
		return CleanedUp, nil
	}
	if stage == CleaningUp {
		return stage, nil
	}
	h := newHeld()
	if err := h.read(ctx, c); err != nil {
		return Staying, err
	}
	if h.deleting() {
		return LosingRights, nil
	}
	return Staying, nil
}

// graphDelay is how long the garbage collector may take to observe an owner reference.
const graphDelay = 2 * time.Second

// UnprotectRights removes the finalizer from the objects that give the manager its permissions. It needs all of them
// until its last write. So it makes the binding a dependent of the role, and the ServiceAccount one of the binding, and
// deletes role and binding in the foreground. Its last write ends the ServiceAccount, and then the garbage collector
// deletes the other two. Without the delay by wait, the garbage collector might not know the dependents yet.
func UnprotectRights(ctx context.Context, c client.Client, wait func(context.Context, time.Duration)) error {
	h := newHeld()
	if err := h.read(ctx, c); err != nil {
		return err
	}
	if isDeleting(h.role) && isDeleting(h.binding) {
		if err := h.chain(ctx, c, wait); err != nil {
			return err
		}
	}
	var errs []error
	for _, o := range h.all() {
		if o.GetUID() == "" {
			continue
		}
		if err := DropFinalizer(ctx, c, o, Finalizer); err != nil {
			errs = append(errs, fmt.Errorf("removing the finalizer of %T %s: %w", o, o.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// chain makes the role end after the binding, and the binding after the ServiceAccount.
func (h managerRights) chain(ctx context.Context, c client.Client, wait func(context.Context, time.Duration)) error {
	apiVersion := rbacv1.SchemeGroupVersion.String()
	owners := []metav1.OwnerReference{
		{APIVersion: apiVersion, Kind: "ClusterRole", Name: h.role.Name, UID: h.role.UID, BlockOwnerDeletion: new(true)},
		{APIVersion: apiVersion, Kind: "ClusterRoleBinding", Name: h.binding.Name, UID: h.binding.UID, BlockOwnerDeletion: new(true)},
	}
	for i, dependent := range []client.Object{h.binding, h.account} {
		if dependent.GetUID() == "" {
			continue
		}
		if err := patchMeta(ctx, c, dependent, map[string]any{"ownerReferences": owners[i : i+1]}); err != nil {
			return fmt.Errorf("setting the owner of %T %s: %w", dependent, dependent.GetName(), err)
		}
	}
	wait(ctx, graphDelay)
	for _, owner := range []client.Object{h.role, h.binding} {
		uid := owner.GetUID()
		if err := c.Delete(ctx, owner, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &uid}); err != nil && !Absent(err) {
			return fmt.Errorf("deleting %T %s: %w", owner, owner.GetName(), err)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(owner), owner); err != nil {
			return fmt.Errorf("getting %T %s: %w", owner, owner.GetName(), err)
		}
	}
	return nil
}

func patchMeta(ctx context.Context, c client.Client, o client.Object, fields map[string]any) error {
	fields["uid"], fields["resourceVersion"] = o.GetUID(), o.GetResourceVersion()
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
}
