// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/everynode/everynode/internal/manager/policies"
)

// requirePolicies returns what knows whether the admission policies are in force. It returns an error if the manager does not
// run as the user that they name.
func requirePolicies(ctx context.Context, mgr ctrl.Manager, f *flags) (*policies.Checker, error) {
	c := &policies.Checker{Reader: mgr.GetAPIReader()}
	if !f.requirePolicy {
		return c, nil
	}
	if err := policies.CheckAccount(ctx, mgr.GetClient()); err != nil {
		return nil, err
	}
	expected, err := policies.NewExpected(f.requireLabel, f.conditions)
	c.Expected = expected
	return c, err
}
