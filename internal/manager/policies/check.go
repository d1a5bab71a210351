// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=list

// remedy says how to install what is missing, and removal what to do about fields that neither kubectl nor helm removes.
const (
	remedy  = "Install the policies of this version: kubectl apply -k config/default, or helm upgrade. To run without them: --require-policies=false"
	removal = "If another client has added this field, delete the object first. "
)

// Check compares the installed policies with the expected ones. problem is what is missing or differs, and what to do; "" if
// nothing does.
func (e *Expected) Check(ctx context.Context, c client.Reader) (by Installed, problem string, err error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&policies, &bindings} {
		switch err := c.List(ctx, list); {
		case meta.IsNoMatchError(err):
			return by, "this API server serves no ValidatingAdmissionPolicy. Enable admissionregistration.k8s.io/v1, or run without policies: --require-policies=false", nil
		case apierrors.IsForbidden(err):
			return by, "the manager may not list ValidatingAdmissionPolicies and their bindings. " + remedy, nil
		case err != nil:
			return by, "", fmt.Errorf("listing admission policies: %w", err)
		}
	}
	problem, seen := e.compare(policies.Items, bindings.Items)
	return installed(seen), problem, nil
}

// compare returns what differs, and the objects of config/authorization.
func (e *Expected) compare(policies []admissionv1.ValidatingAdmissionPolicy, bindings []admissionv1.ValidatingAdmissionPolicyBinding) (problem string, authorizes []client.Object) {
	for _, want := range e.policies {
		i := slices.IndexFunc(policies, func(p admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == want.Name })
		field := ""
		if i >= 0 {
			field = differingField(&policies[i].Spec, &want.Spec)
		}
		if text := differs("ValidatingAdmissionPolicy", want.Name, i >= 0, field); text != "" {
			return text, nil
		}
		if want.authorizes {
			authorizes = append(authorizes, &policies[i])
		}
	}
	for _, want := range e.bindings {
		i := slices.IndexFunc(bindings, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool { return b.Name == want.Name })
		field := ""
		if i >= 0 {
			field = differingBinding(&bindings[i].Spec, &want.Spec)
		}
		if text := differs("ValidatingAdmissionPolicyBinding", want.Name, i >= 0, field); text != "" {
			return text, nil
		}
		if want.authorizes {
			authorizes = append(authorizes, &bindings[i])
		}
	}
	return "", authorizes
}

func differs(kind, name string, found bool, field string) string {
	switch {
	case !found:
		return fmt.Sprintf("%s %s is not installed. %s", kind, name, remedy)
	case field != "":
		return fmt.Sprintf("%s of %s %s is not that of this version of the manager. %s%s", field, kind, name, removal, remedy)
	}
	return ""
}

// installed identifies the objects by their UIDs and generations: an object that was deleted and created again, or changed and
// changed back, is another one.
func installed(objects []client.Object) Installed {
	var by Installed
	if len(objects) == 0 {
		return by
	}
	var ids []string
	for _, o := range objects {
		ids = append(ids, fmt.Sprintf("%s/%d", o.GetUID(), o.GetGeneration()))
		by.Since = latest(by.Since, o.GetCreationTimestamp().Time)
		for _, entry := range o.GetManagedFields() {
			if entry.Subresource == "" && entry.Time != nil {
				by.Since = latest(by.Since, entry.Time.Time)
			}
		}
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, " ")))
	by.ID = hex.EncodeToString(sum[:8])
	return by
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Account is the user name of the ServiceAccount that the policies name.
const Account = "system:serviceaccount:everynode-system:everynode-manager"

// CheckAccount returns an error unless c, the manager's client, authenticates as the user that the policies name. They would neither
// confine another user, nor let it do what only the manager may do. So it also refuses a second installation in another namespace.
// Each authenticated user may ask the API server who it is (ClusterRole system:basic-user).
func CheckAccount(ctx context.Context, c client.Client) error {
	self := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, self); err != nil {
		return fmt.Errorf("asking the API server who the manager is: %w", err)
	}
	if self.Status.UserInfo.Username == Account {
		return nil
	}
	return fmt.Errorf("the manager runs as user %q, and its admission policies name %s: install it in namespace everynode-system with ServiceAccount everynode-manager, once in each cluster, or run without policies: --require-policies=false",
		self.Status.UserInfo.Username, Account)
}
