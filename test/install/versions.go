// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// policiesSince is the first version of Kubernetes that serves MutatingAdmissionPolicies as config/gate and config/attribution have them.
var policiesSince = version.MajorMinor(1, 36)

// ServesPolicies reports whether an API server of this version serves the policies of config/gate and config/attribution.
func ServesPolicies(kubernetes string) (bool, error) {
	parsed, err := version.ParseGeneric(kubernetes)
	if err != nil {
		return false, fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	return parsed.AtLeast(policiesSince), nil
}

// WhyNoPolicies is why a test of the policies is skipped.
func WhyNoPolicies(kubernetes string) string {
	return "Kubernetes " + kubernetes + " does not serve MutatingAdmissionPolicy in admissionregistration.k8s.io/v1, as versions since " +
		policiesSince.String() + " do: docs/gate.md"
}

var (
	unknownPolicy = regexp.MustCompile(`no matches for kind "MutatingAdmissionPolicy(Binding)?" in version "admissionregistration.k8s.io/v1"`)
	// harmless is what kubectl says beside it: what it has done, and its advice.
	harmless = regexp.MustCompile(`( (created|configured|unchanged|deleted)|: exit status 1:?|^ensure CRDs are installed first|\bWarning: .*)$`)
)

// PoliciesRefused checks the error of kubectl with a folder that contains config/gate and config/attribution, where the API server does not
// serve the policies. docs/gate.md promises that there is an error, and that it is about nothing else.
func PoliciesRefused(err error) error {
	if err == nil {
		return errors.New("kubectl reports no error, although the API server does not serve MutatingAdmissionPolicies")
	}
	refused := 0
	for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
		if unknownPolicy.MatchString(line) {
			refused++
		} else if !harmless.MatchString(line) {
			return err
		}
	}
	if refused != 6 { // three policies, each with a binding
		return fmt.Errorf("kubectl does not know %d objects, and not 6: %w", refused, err)
	}
	return nil
}
