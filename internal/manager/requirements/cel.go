// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
)

// Limits of the evaluation of an expression. celCheckFrequency is how many iterations of a loop are evaluated between two checks whether
// the time is over.
const (
	celCostLimit      = 100_000
	celTimeout        = 250 * time.Millisecond
	celCheckFrequency = 10

	// celDepth is how deep an expression may be nested. The time and memory for checking types grow faster than the depth.
	celDepth = 32

	// optionals is the version of optional values without functions of lists.
	optionals = 1
)

// keep is the function that the macro filter adds elements with. The name cannot be written in an expression.
const keep = "@keep"

// celEnv returns the environment of expressions. They can compare what is in an object, and compute numbers and times. But nothing in it
// makes a value that is larger than the object: no function that joins or replaces text, no sum of texts or lists, no macro map, no
// list or map with variables in it (onlyConstants). So each call ends within a time that is proportional to the size of the object, and
// the cost limit is checked between two calls. Regular expressions are left out because a short one can need as much memory as it wants.
var celEnv = sync.OnceValues(func() (*cel.Env, error) {
	excluded := &env.LibrarySubset{
		DisableMacros: true,
		ExcludeFunctions: []*env.Function{
			env.NewFunction(operators.Add), env.NewFunction(overloads.Matches), env.NewFunction(overloads.TypeConvertBytes),
		},
	}
	return cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(excluded)), cel.OptionalTypes(cel.OptionalTypesVersion(optionals)),
		cel.Variable("object", cel.DynType), cel.HomogeneousAggregateLiterals(), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.ParserRecursionLimit(celDepth),
		cel.Function(
			operators.Add,
			sum(overloads.AddInt64, cel.IntType, cel.IntType, cel.IntType),
			sum(overloads.AddUint64, cel.UintType, cel.UintType, cel.UintType),
			sum(overloads.AddDouble, cel.DoubleType, cel.DoubleType, cel.DoubleType),
			sum(overloads.AddDurationDuration, cel.DurationType, cel.DurationType, cel.DurationType),
			sum(overloads.AddDurationTimestamp, cel.DurationType, cel.TimestampType, cel.TimestampType),
			sum(overloads.AddTimestampDuration, cel.TimestampType, cel.DurationType, cel.TimestampType),
		),
		// Those of optional values double what they are called on, in the expression.
		cel.ClearMacros(),
		cel.Macros(cel.HasMacro, cel.AllMacro, cel.ExistsMacro, cel.ExistsOneMacro, cel.ReceiverMacro(operators.Filter, 2, filter)),
		cel.Function(keep, cel.Overload(keep, []*cel.Type{cel.ListType(cel.DynType), cel.DynType}, cel.ListType(cel.DynType),
			cel.BinaryBinding(func(list, element ref.Val) ref.Val {
				return list.(traits.Adder).Add(types.DefaultTypeAdapter.NativeToValue([]ref.Val{element}))
			}))),
	)
})

func sum(overload string, a, b, result *cel.Type) cel.FunctionOpt {
	return cel.Overload(overload, []*cel.Type{a, b}, result,
		cel.BinaryBinding(func(a, b ref.Val) ref.Val { return a.(traits.Adder).Add(b) }))
}

// filter is the macro of CEL, without the sum of lists.
func filter(f cel.MacroExprFactory, list ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	whole, err := parser.MakeFilter(f, list, args)
	if err != nil {
		return nil, err
	}
	kept := f.NewCall(keep, f.NewAccuIdent(), f.Copy(args[0]))
	step := f.NewCall(operators.Conditional, args[1], kept, f.NewAccuIdent())
	c := whole.AsComprehension()
	return f.NewComprehension(list, c.IterVar(), c.AccuVar(), c.AccuInit(), c.LoopCondition(), step, c.Result()), nil
}

// compile returns a program with limits. An expression whose type is not known before it is evaluated is accepted. Nothing is known about
// an object yet, so messages of CEL quote only the expression.
func compile(expression string) (cel.Program, error) {
	env, err := celEnv()
	if err != nil {
		return nil, fmt.Errorf("preparing Expression: %w", err)
	}
	parsed, issues := env.Parse(expression)
	if err := issues.Err(); err != nil {
		return nil, invalidf("object.expression: %v", err)
	}
	if !onlyConstants(parsed.NativeRep().Expr()) {
		return nil, invalidf("object.expression: a list or map can only contain constants: compare each value by itself")
	}
	checked, issues := env.Check(parsed)
	if err := issues.Err(); err != nil {
		return nil, invalidf("object.expression: %v", err)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, invalidf("object.expression is of type %s, and must be true or false", t)
	}
	program, err := env.Program(checked, cel.CostTracking(costs{}), cel.CostLimit(celCostLimit), cel.InterruptCheckFrequency(celCheckFrequency))
	if err != nil {
		return nil, invalidf("object.expression: %v", err)
	}
	return program, nil
}

// onlyConstants reports whether the lists and maps in an expression consist of constants. Otherwise, they could contain a value twice,
// and so on, with an effort to compare them that doubles with each step.
func onlyConstants(expr ast.Expr) bool {
	only := true
	ast.PostOrderVisit(expr, ast.NewExprVisitor(func(e ast.Expr) {
		// Other expressions are an empty list and an empty map.
		for _, element := range e.AsList().Elements() {
			only = only && isConstant(element)
		}
		for _, entry := range e.AsMap().Entries() {
			only = only && isConstant(entry.AsMapEntry().Key()) && isConstant(entry.AsMapEntry().Value())
		}
	}))
	return only
}

func isConstant(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind || e.Kind() == ast.ListKind || e.Kind() == ast.MapKind
}

// costs estimates the cost of a call by what it may read: the whole values of a comparison, and the texts of other functions.
type costs struct{}

// CallCost returns the cost of a call.
func (costs) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	cost := uint64(1)
	for _, arg := range args {
		switch text, is := arg.(types.String); {
		case is:
			cost += textCost(text)
		case function == operators.Equals || function == operators.NotEquals || function == operators.In:
			cost += size(arg)
		}
	}
	return &cost
}

// textCost is that of Kubernetes: a tenth for each byte.
func textCost(s types.String) uint64 { return uint64(len(s)) / 10 }

// size is how many values are in a value.
func size(v ref.Val) uint64 {
	n := uint64(1)
	switch v := v.(type) {
	case types.String:
		n += textCost(v)
	case *types.Optional:
		if v.HasValue() {
			n += size(v.GetValue())
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			n += size(it.Next())
		}
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			n += size(v.Get(it.Next()))
		}
	}
	return n
}

// evaluate returns whether a program is true for an object. Errors of CEL quote values, so none is passed on.
func evaluate(ctx context.Context, program cel.Program, object map[string]any, of string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, celTimeout)
	defer cancel()
	result, _, err := program.ContextEval(ctx, map[string]any{"object": object})
	var cancelled interpreter.EvalCancelledError
	switch {
	case err != nil && ctx.Err() != nil:
		return false, problemf("object.expression takes more than %s for %s: use an expression with fewer loops", celTimeout, of)
	case errors.As(err, &cancelled):
		return false, problemf("object.expression exceeds the cost limit for %s: use an expression with fewer loops", of)
	case err != nil:
		return false, problemf("object.expression cannot be evaluated for %s: a field does not exist or has another type; for fields that may not exist, use has() or .?", of)
	case result != types.True && result != types.False:
		return false, problemf("the result of object.expression for %s is not true or false", of)
	}
	return result == types.True, nil
}
