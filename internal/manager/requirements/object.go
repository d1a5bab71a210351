// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/uninstall"
)

const (
	// celCostLimit limits the cost of an expression, and celCheckFrequency is how many iterations of a loop are evaluated between two
	// checks whether the time is over. Source: k8s.io/apiserver/pkg/apis/cel, PerCallLimit and CheckFrequency.
	celCostLimit      = 1_000_000
	celCheckFrequency = 100

	// maxExpression limits an expression in a message, in bytes.
	maxExpression = 200
)

// celEnv returns the environment of expressions: the standard library of CEL, strings and optional values, as in Kubernetes.
// Source: k8s.io/apiserver/pkg/cel/environment.
var celEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("object", cel.DynType), cel.HomogeneousAggregateLiterals(), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(ext.StringsVersion(2)))
})

// askObject returns why an expression is not true; "" if it is true.
func (c *Checker) askObject(ctx context.Context, r *v1alpha1.RequiredObject) (why string, err error) {
	group, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return "", invalidf("object.apiVersion: %v", err)
	}
	if group.Group == "" && r.Kind == "Secret" {
		return "", invalidf("object.kind: a Secret cannot be read")
	}
	program, err := compile(r.CEL)
	if err != nil {
		return "", err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(group.WithKind(r.Kind))
	if err := c.Objects.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, object); err != nil {
		return "", explain(err, r)
	}
	result, _, err := program.ContextEval(ctx, map[string]any{"object": object.Object})
	switch {
	case err != nil && ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", fmt.Errorf("evaluating object.cel: %w", err)
	case result == types.True:
		return "", nil
	case result == types.False:
		return fmt.Sprintf("the expression is false for %s: %s", nameOf(r), line(r.CEL, maxExpression)), nil
	}
	return "", fmt.Errorf("the result of object.cel is of type %s, and must be true or false", result.Type().TypeName())
}

func nameOf(r *v1alpha1.RequiredObject) string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return r.Kind + " " + name
}

// compile returns a program with limits. An expression whose type is not known before it is evaluated is accepted.
func compile(expression string) (cel.Program, error) {
	env, err := celEnv()
	if err != nil {
		return nil, fmt.Errorf("preparing CEL: %w", err)
	}
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, invalidf("object.cel: %v", err)
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, invalidf("object.cel is of type %s, and must be true or false", t)
	}
	program, err := env.Program(ast, cel.CostLimit(celCostLimit), cel.InterruptCheckFrequency(celCheckFrequency))
	if err != nil {
		return nil, invalidf("object.cel: %v", err)
	}
	return program, nil
}

// explain says why an object cannot be read, and what to do.
func explain(err error, r *v1alpha1.RequiredObject) error {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(err) && errors.As(err, &status) && status.Status().Details != nil:
		resource := schema.GroupResource{Group: status.Status().Details.Group, Resource: status.Status().Details.Kind}.String()
		role := "everynode-requires-" + status.Status().Details.Kind
		return fmt.Errorf("the manager may not get %s: kubectl create clusterrole %s --verb=get --resource=%s; kubectl create clusterrolebinding %s --clusterrole=%s --serviceaccount=%s:%s",
			nameOf(r), role, resource, role, role, uninstall.Namespace, uninstall.Manager)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s does not exist", nameOf(r))
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the API server does not know %s in %s: install it, or correct object.apiVersion and object.kind", r.Kind, r.APIVersion)
	}
	return fmt.Errorf("getting %s: %w", nameOf(r), err)
}
