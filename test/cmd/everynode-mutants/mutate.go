// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is one change of a decision. Its id is its index.
type mutant struct {
	// key names the mutant in the list of accepted ones. It stays the same when lines move.
	key  string
	line int
}

// wrap puts text around an expression: its original is the first argument of a call.
type wrap struct {
	start, end    int
	before, after string
}

// mutator rewrites the files of one package so that all mutants are in one program, which selects at most one of them when it starts.
type mutator struct {
	mutants []mutant
	keys    map[string]int

	fset   *token.FileSet
	name   string // of the file that is rewritten
	source []byte
	inside string // the function, or the variable
	wraps  []wrap
}

// file returns the file with its mutants, and the name of its package.
func (m *mutator) file(name string, source []byte) (string, string, error) {
	m.fset, m.name, m.source, m.wraps = token.NewFileSet(), name, source, nil
	f, err := parser.ParseFile(m.fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return "", "", fmt.Errorf("parsing: %w", err)
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			m.inside = d.Name.Name
			if d.Recv != nil {
				m.inside = strings.TrimPrefix(m.text(d.Recv.List[0].Type), "*") + "." + d.Name.Name
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			m.inside = "var"
		}
		ast.Inspect(decl, m.node)
	}
	return m.rewritten(), f.Name.Name, nil
}

// node adds the mutants of a part of the syntax tree.
func (m *mutator) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		m.condition(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, clause := range n.Body.List {
				for _, e := range clause.(*ast.CaseClause).List {
					m.condition(e)
				}
			}
		}
	case *ast.FuncDecl:
		m.results(n.Type, n.Body)
	case *ast.FuncLit:
		m.results(n.Type, n.Body)
	case *ast.BinaryExpr:
		m.binary(n)
	case *ast.CallExpr:
		m.call(n)
	}
	return true
}

// results adds the mutants of what a predicate returns.
func (m *mutator) results(t *ast.FuncType, body *ast.BlockStmt) {
	if body == nil || t.Results.NumFields() != 1 || m.text(t.Results.List[0].Type) != "bool" {
		return
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok {
			m.condition(r.Results[0])
		}
		_, inner := n.(*ast.FuncLit)
		return !inner
	})
}

// condition makes a condition always true, and always false. If it has terms, removing one of them is the mutant that is harder to find.
func (m *mutator) condition(e ast.Expr) {
	b, _ := ast.Unparen(e).(*ast.BinaryExpr)
	if text := m.text(e); text == "true" || text == "false" {
		return
	}
	if b == nil || b.Op != token.LAND {
		m.always(e, "true")
	}
	if b == nil || b.Op != token.LOR {
		m.always(e, "false")
	}
}

func (m *mutator) always(e ast.Expr, value string) {
	m.add(e, value, "mutated"+strings.ToUpper(value[:1])+value[1:], "")
}

// Without a term, && is as if the term were true, and || as if it were false. A boundary moves if the comparison becomes the other one.
var (
	neutral  = map[token.Token]string{token.LAND: "true", token.LOR: "false"}
	boundary = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}
)

// binary removes each term of a && b and a || b, and moves the boundary of a comparison.
func (m *mutator) binary(b *ast.BinaryExpr) {
	if value, is := neutral[b.Op]; is {
		for _, e := range []ast.Expr{b.X, b.Y} {
			if inner, ok := e.(*ast.BinaryExpr); !ok || inner.Op != b.Op {
				m.always(e, value)
			}
		}
	}
	if other, is := boundary[b.Op]; is {
		m.add(b, other, "mutatedBoundary", fmt.Sprintf(", func() bool { return (%s) == (%s) }", m.text(b.X), m.text(b.Y)))
	}
}

// call moves the boundary of a comparison of times, exchanges min and max, and negates constant arguments, such as roundUp.
func (m *mutator) call(c *ast.CallExpr) {
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		if (f.Sel.Name == "Before" || f.Sel.Name == "After") && len(c.Args) == 1 {
			m.add(c, f.Sel.Name+" or Equal", "mutatedBoundary", fmt.Sprintf(", func() bool { return mutatedSameTime(%s, %s) }", m.text(f.X), m.text(c.Args[0])))
		}
	case *ast.Ident:
		if other := map[string]string{"min": "max", "max": "min"}[f.Name]; other != "" {
			m.add(c, other, "mutatedOrder", fmt.Sprintf(", func() any { return %s(%s }", other, m.textOf(c.Lparen+1, c.End())))
		}
	}
	for _, arg := range c.Args {
		if id, ok := arg.(*ast.Ident); ok && slices.Contains([]string{"true", "false", "roundUp", "roundDown"}, id.Name) {
			m.add(id, "!"+id.Name, "mutatedNot", "")
		}
	}
}

// add adds a mutant of an expression, which a function of the runtime selects.
func (m *mutator) add(e ast.Expr, becomes, function, more string) {
	id := len(m.mutants)
	key := fmt.Sprintf("%s: %s: %s → %s", m.name, m.inside, strings.Join(strings.Fields(m.text(e)), " "), becomes)
	if m.keys[key]++; m.keys[key] > 1 {
		key += fmt.Sprintf(" (%d)", m.keys[key])
	}
	m.mutants = append(m.mutants, mutant{key: key, line: m.fset.Position(e.Pos()).Line})
	m.wraps = append(m.wraps, wrap{m.offset(e.Pos()), m.offset(e.End()), fmt.Sprintf("%s(%d, ", function, id), more + ")"})
}

func (m *mutator) offset(p token.Pos) int { return m.fset.Position(p).Offset }

func (m *mutator) text(n ast.Node) string { return m.textOf(n.Pos(), n.End()) }

func (m *mutator) textOf(from, to token.Pos) string {
	return string(m.source[m.offset(from):m.offset(to)])
}

// rewritten returns the file with all wraps. Those that were added first are outside.
func (m *mutator) rewritten() string {
	before, after := map[int]string{}, map[int]string{}
	slices.SortStableFunc(m.wraps, func(a, b wrap) int { return (b.end - b.start) - (a.end - a.start) })
	for _, w := range m.wraps {
		before[w.start] += w.before
		after[w.end] = w.after + after[w.end]
	}
	var out strings.Builder
	for i := range m.source {
		out.WriteString(after[i] + before[i])
		out.WriteByte(m.source[i])
	}
	return out.String()
}

// runtime selects the mutant of $EVERYNODE_MUTANT. Without one, it writes which mutants would have made a difference to the file
// $EVERYNODE_REACHED: no test can find the others.
const runtime = `
import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	mutatedID, mutatedErr = strconv.Atoi(os.Getenv("EVERYNODE_MUTANT"))
	mutatedFile, _        = os.OpenFile(os.Getenv("EVERYNODE_REACHED"), os.O_APPEND|os.O_WRONLY, 0)
	mutatedSeen           [%d]atomic.Bool
)

func mutatedIs(id int, differs bool) bool {
	if mutatedFile != nil && differs && !mutatedSeen[id].Swap(true) {
		fmt.Fprintln(mutatedFile, id)
	}
	return mutatedErr == nil && mutatedID == id
}

func mutatedTrue(id int, c bool) bool  { return mutatedIs(id, !c) || c }
func mutatedFalse(id int, c bool) bool { return !mutatedIs(id, c) && c }
func mutatedNot(id int, c bool) bool   { return mutatedIs(id, true) != c }

func mutatedBoundary(id int, c bool, equal func() bool) bool {
	is := mutatedIs(id, mutatedFile != nil && equal())
	return c != (is && equal())
}

func mutatedOrder[T comparable](id int, original T, other func() any) T {
	if mutatedIs(id, mutatedFile != nil && other() != any(original)) {
		return other().(T)
	}
	return original
}

func mutatedSameTime(a, b any) bool { return mutatedTime(a).Equal(mutatedTime(b)) }

func mutatedTime(t any) time.Time {
	switch t := t.(type) {
	case time.Time:
		return t
	case metav1.Time:
		return t.Time
	case *metav1.Time:
		if t != nil {
			return t.Time
		}
	}
	return time.Time{}
}
`
