// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies requires the admission policies without which users of a namespace could be root on nodes, and decides
// whether an object was written while they were in force.
package policies

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/config"
)

// Expected are the policies and bindings that the manager requires.
type Expected struct {
	policies []expectedPolicy
	bindings []expectedBinding
}

type expectedPolicy struct {
	authorizes bool
	*admissionv1.ValidatingAdmissionPolicy
}

type expectedBinding struct {
	authorizes bool
	*admissionv1.ValidatingAdmissionPolicyBinding
}

// NewExpected returns what this version installs, without the confinement to namespaces that are allowed if all namespaces
// are served, and without the confinement of the status of nodes if the manager does not write it.
func NewExpected(requireNamespaceLabel, nodeConditions bool) (*Expected, error) {
	e := &Expected{}
	if nodeConditions {
		if err := e.read(config.NodeConditions, "node-conditions", false, func(string) bool { return true }); err != nil {
			return nil, err
		}
	}
	if err := e.read(config.Authorization, "authorization", true, func(string) bool { return true }); err != nil {
		return nil, err
	}
	return e, e.read(config.Confinement, "confinement", false, func(file string) bool { return requireNamespaceLabel || file != "namespaces.yaml" })
}

// read adds the objects of a folder. New files need no code.
func (e *Expected) read(files embed.FS, folder string, authorizes bool, wanted func(file string) bool) error {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == "kustomization.yaml" || !wanted(entry.Name()) {
			continue
		}
		content, err := fs.ReadFile(files, path.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			if err := e.add([]byte(document), authorizes); err != nil {
				return fmt.Errorf("reading %s/%s: %w", folder, entry.Name(), err)
			}
		}
	}
	return nil
}

func (e *Expected) add(document []byte, authorizes bool) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "ValidatingAdmissionPolicy":
		o := &admissionv1.ValidatingAdmissionPolicy{}
		e.policies = append(e.policies, expectedPolicy{authorizes, o})
		return yaml.UnmarshalStrict(document, o)
	case "ValidatingAdmissionPolicyBinding":
		o := &admissionv1.ValidatingAdmissionPolicyBinding{}
		e.bindings = append(e.bindings, expectedBinding{authorizes, o})
		return yaml.UnmarshalStrict(document, o)
	}
	return fmt.Errorf("unexpected kind %q", kind.Kind)
}

// differingField returns the first field of a policy that is not as expected; "" if there is none.
func differingField(live, want *admissionv1.ValidatingAdmissionPolicySpec) string {
	live, want = withDefaults(live), withDefaults(want)
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"spec.matchConstraints", live.MatchConstraints, want.MatchConstraints},
		{"spec.matchConditions", live.MatchConditions, want.MatchConditions},
		{"spec.variables", live.Variables, want.Variables},
		{"spec.validations", live.Validations, want.Validations},
		{"spec.failurePolicy", live.FailurePolicy, want.FailurePolicy},
		{"spec", live, want},
	} {
		if !equality.Semantic.DeepEqual(f.a, f.b) {
			return f.name
		}
	}
	return ""
}

// differingBinding returns the first field of a binding that is not as expected; "" if there is none. Users may choose other
// actions besides Deny.
func differingBinding(live, want *admissionv1.ValidatingAdmissionPolicyBindingSpec) string {
	switch {
	case live.PolicyName != want.PolicyName:
		return "spec.policyName"
	case !equality.Semantic.DeepEqual(live.ParamRef, want.ParamRef):
		return "spec.paramRef"
	case !equality.Semantic.DeepEqual(matchDefaults(live.MatchResources), matchDefaults(want.MatchResources)):
		return "spec.matchResources"
	case !slices.Contains(live.ValidationActions, admissionv1.Deny):
		return "spec.validationActions, which lacks Deny,"
	}
	return ""
}

// withDefaults returns a spec with the defaults of the API server (k8s.io/kubernetes pkg/apis/admissionregistration/v1/defaults.go).
func withDefaults(spec *admissionv1.ValidatingAdmissionPolicySpec) *admissionv1.ValidatingAdmissionPolicySpec {
	spec = spec.DeepCopy()
	if spec.FailurePolicy == nil {
		spec.FailurePolicy = new(admissionv1.Fail)
	}
	spec.MatchConstraints = matchDefaults(spec.MatchConstraints)
	for i := range spec.MatchConditions {
		fold(&spec.MatchConditions[i].Expression)
	}
	for i := range spec.Variables {
		fold(&spec.Variables[i].Expression)
	}
	for i := range spec.Validations {
		v := &spec.Validations[i]
		fold(&v.Expression)
		fold(&v.MessageExpression)
		fold(&v.Message)
	}
	return spec
}

// fold makes each space of an expression one blank: kubectl apply -k reads folded YAML with other line ends than other tools.
func fold(text *string) { *text = strings.Join(strings.Fields(*text), " ") }

func matchDefaults(match *admissionv1.MatchResources) *admissionv1.MatchResources {
	if match == nil {
		return nil
	}
	match = match.DeepCopy()
	if match.MatchPolicy == nil {
		match.MatchPolicy = new(admissionv1.Equivalent)
	}
	for _, selector := range []**metav1.LabelSelector{&match.NamespaceSelector, &match.ObjectSelector} {
		if *selector == nil {
			*selector = &metav1.LabelSelector{}
		}
	}
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{match.ResourceRules, match.ExcludeResourceRules} {
		for i := range rules {
			if rules[i].Scope == nil {
				rules[i].Scope = new(admissionv1.AllScopes)
			}
		}
	}
	return match
}
