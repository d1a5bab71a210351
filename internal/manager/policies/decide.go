// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Enforced is how long the API server may take until it enforces a policy that was created or changed.
const Enforced = 5 * time.Second

// Written is what of an object needs rights.
type Written struct {
	Generation int64
	// Retry is a hash of the annotations that request something, such as everynode.dev/retry, and Contents one of the scripts from ConfigMaps.
	Retry, Contents string
	Created         time.Time
}

// Installed are the policies of config/authorization as they are installed.
type Installed struct {
	// ID changes when one of them is created again or changed.
	ID string
	// Since is when the last one was created or changed.
	Since time.Time
}

// Decide returns the authorization of an object, which is before according to its status. wait is how long to wait before it
// can be decided; 0 if it is. The caller must have read the object before the policies, and nothing may start before the
// result is stored under the resource version of the object.
func Decide(before *v1alpha1.Authorization, w Written, by Installed, now time.Time) (after v1alpha1.Authorization, wait time.Duration) {
	if before == nil {
		before = &v1alpha1.Authorization{}
	}
	is := func(state string) v1alpha1.Authorization {
		return v1alpha1.Authorization{State: state, Policies: by.ID, Generation: w.Generation, Retry: w.Retry, Contents: w.Contents}
	}
	// A user who changes one of these needs the rights to the whole object.
	confirmed := before.Generation != w.Generation || before.Retry != w.Retry
	unchanged := !confirmed && before.Contents == w.Contents
	enforced := by.Since.Add(Enforced)
	switch {
	case before.Policies == by.ID && before.State == v1alpha1.AuthorizationUnconfirmed && !confirmed:
		return is(v1alpha1.AuthorizationUnconfirmed), 0
	case before.Policies == by.ID: // all changes since then were made under the same policies
		return is(v1alpha1.AuthorizationAuthorized), 0
	case now.Before(enforced):
		return *before, enforced.Sub(now)
	case before.State == v1alpha1.AuthorizationAuthorized && unchanged, w.Created.After(enforced):
		return is(v1alpha1.AuthorizationAuthorized), 0
	}
	return is(v1alpha1.AuthorizationUnconfirmed), 0
}

// covers reports whether a stored authorization still is the answer, without another look at the policies.
func covers(before *v1alpha1.Authorization, w Written, by Installed) bool {
	return before != nil && before.Policies == by.ID && before.Generation == w.Generation && before.Retry == w.Retry && before.Contents == w.Contents
}
