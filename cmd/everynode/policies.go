// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/everynode/everynode/internal/policies"
)

// requirePolicies returns what knows whether the admission policies are in force. It returns an error if the manager does not
// run as the user that they name.
func requirePolicies(ctx context.Context, mgr ctrl.Manager, f *flags) (*policies.Checker, error) {
	c := &policies.Checker{Reader: mgr.GetAPIReader()}
	if !f.requirePolicy {
		return c, nil
	}
	clients, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	// Each authenticated user may ask who it is (ClusterRole system:basic-user).
	self, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking the API server who the manager is: %w", err)
	}
	if err := policies.CheckAccount(self.Status.UserInfo.Username); err != nil {
		return nil, err
	}
	c.Expected, err = policies.NewExpected(f.requireLabel)
	return c, err
}
