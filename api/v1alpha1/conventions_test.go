// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What kube-api-linter does not check (.golangci-api.yml). Source of the rules:
// https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md

var upperCamelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// source is the package as it is written, without generated files and tests.
func source(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "zz_generated") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	return files
}

// eachStruct calls visit for each struct type of the package.
func eachStruct(t *testing.T, visit func(name string, spec *ast.StructType)) {
	t.Helper()
	count := 0
	for _, file := range source(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if fields, ok := spec.Type.(*ast.StructType); ok {
					count++
					visit(spec.Name.Name, fields)
				}
			}
			return true
		})
	}
	if count < 10 {
		t.Fatalf("%d types were found: where are the others?", count)
	}
}

func tagOf(t *testing.T, field *ast.Field) (name string, options []string) {
	t.Helper()
	if field.Tag == nil {
		return "", nil
	}
	text, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(reflect.StructTag(text).Get("json"), ",")
	return parts[0], parts[1:]
}

func markers(field *ast.Field) []string {
	var found []string
	if field.Doc != nil {
		for _, line := range field.Doc.List {
			if marker, ok := strings.CutPrefix(line.Text, "// +"); ok {
				found = append(found, marker)
			}
		}
	}
	return found
}

func TestFieldsFollowTheConventions(t *testing.T) {
	eachStruct(t, func(kind string, fields *ast.StructType) {
		for _, field := range fields.Fields.List {
			name, options := tagOf(t, field)
			if len(field.Names) == 0 && slices.Contains(options, "inline") {
				continue
			}
			where := kind + "." + name
			if len(field.Names) > 0 {
				goName := field.Names[0].Name
				if !strings.EqualFold(goName, name) {
					t.Errorf("%s is called %s in Go", where, goName)
				}
			}
			if strings.HasSuffix(kind, "List") {
				continue // as apimachinery has it
			}
			omitted := slices.Contains(options, "omitempty") || slices.Contains(options, "omitzero")
			// The counts are always shown: "0 failed" is an answer.
			counts := slices.Contains([]string{"NodeCounts", "StepStatus", "GuardCounts", "BudgetCounts"}, kind)
			if !omitted && !counts && where != "NodeDisruptionBudgetStatus.disruptionsAllowed" {
				t.Errorf("%s is written even when it is empty", where)
			}
		}
	})
}

// TestItemsOfListsHaveNoDefaults : an API server that adds a field to an item makes the list another one than that in Git.
// Argo CD, which compares lists without a key as a whole, would always show such an object as OutOfSync.
func TestItemsOfListsHaveNoDefaults(t *testing.T) {
	types := map[string]*ast.StructType{}
	eachStruct(t, func(kind string, fields *ast.StructType) { types[kind] = fields })
	seen := map[string]bool{}
	var check func(where string, kind ast.Expr)
	check = func(where string, kind ast.Expr) {
		if pointer, ok := kind.(*ast.StarExpr); ok {
			kind = pointer.X
		}
		name, ok := kind.(*ast.Ident)
		if !ok || types[name.Name] == nil || seen[name.Name] {
			return
		}
		seen[name.Name] = true
		for _, field := range types[name.Name].Fields.List {
			tag, _ := tagOf(t, field)
			if slices.ContainsFunc(markers(field), func(mark string) bool { return strings.HasPrefix(mark, "kubebuilder:default") }) {
				t.Errorf("%s.%s has a default: let the code treat the missing field as the default", where, tag)
			}
			check(where+"."+tag, field.Type)
		}
	}
	for kind, fields := range types {
		if strings.HasSuffix(kind, "List") {
			continue // an answer of the API server
		}
		for _, field := range fields.Fields.List {
			if list, ok := field.Type.(*ast.ArrayType); ok {
				tag, _ := tagOf(t, field)
				check(kind+"."+tag+"[]", list.Elt)
			}
		}
	}
	if len(seen) < 5 {
		t.Fatalf("%d types of items were found: where are the others?", len(seen))
	}
}

// A duration is a number of seconds, and says so.
func TestTimesSayTheirUnit(t *testing.T) {
	eachStruct(t, func(kind string, fields *ast.StructType) {
		for _, field := range fields.Fields.List {
			name, _ := tagOf(t, field)
			lower := strings.ToLower(name)
			for _, word := range []string{"timeout", "backoff", "delay", "interval", "period"} {
				if strings.Contains(lower, word) && !strings.HasSuffix(name, "Seconds") {
					t.Errorf("%s.%s must end in Seconds", kind, name)
				}
			}
			if strings.HasSuffix(name, "Time") || strings.HasSuffix(name, "Timestamp") {
				t.Errorf("%s.%s: a point in time ends in At", kind, name)
			}
		}
	})
}

// TestConstants: reasons and condition types are an API too. The metav1 rule for a reason is
// ^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$, ours is narrower.
func TestConstants(t *testing.T) {
	values := map[string]string{}
	for file, parsed := range source(t) {
		for _, declaration := range parsed.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				constant := spec.(*ast.ValueSpec)
				name := constant.Names[0].Name
				literal, ok := constant.Values[0].(*ast.BasicLit)
				if strings.HasSuffix(file, "keys.go") || name == "Group" {
					continue
				}
				if !ok {
					t.Errorf("%s is no plain string", name)
					continue
				}
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				if !upperCamelCase.MatchString(value) || len(value) > 64 {
					t.Errorf("%s is %q, which is not in UpperCamelCase", name, value)
				}
				if !strings.HasSuffix(name, value) {
					t.Errorf("%s is called %q: a reader of one must find the other", name, value)
				}
				// A condition may have the name of the reason of the event that announces it, and two enums may share a value.
				key := value
				if enum, ok := constant.Type.(*ast.Ident); ok {
					key = enum.Name + "." + value
				}
				if strings.HasPrefix(name, "Condition") {
					key = name
				}
				if other, taken := values[key]; taken {
					t.Errorf("%s and %s are both %q", name, other, value)
				}
				values[key] = name
				comment := constant.Doc.Text()
				if !strings.HasPrefix(comment, name+" ") || len(strings.Fields(comment)) < 3 {
					t.Errorf("%s has no comment that says when it is used", name)
				}
			}
		}
	}
	if len(values) < 30 {
		t.Fatalf("%d constants were found: where are the others?", len(values))
	}
}

func TestKeys(t *testing.T) {
	keys := []string{
		PodFinalizer,
		NodeJobFinalizer,
		NodeJobLabel,
		RevisionLabel,
		AttemptAnnotation,
		ContainersAnnotation,
		RecordedAnnotation,
		NodeUIDAnnotation,
		MachineAnnotation,
		NodeGuardLabel,
		GuardRoleLabel,
		NodeGuardUIDAnnotation,
		RequestedAtAnnotation,
		EndedReleaseAnnotation,
		ApproveReleaseAnnotation,
		BreakGlassAnnotation,
	}
	seen := map[string]bool{}
	for _, key := range keys {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			t.Errorf("%s: %v", key, problems)
		}
		if !strings.HasPrefix(key, Group+"/") {
			t.Errorf("%s is not of our group", key)
		}
		if seen[key] {
			t.Errorf("%s stands for two things", key)
		}
		seen[key] = true
	}
}

func TestRecordKey(t *testing.T) {
	longest := strings.Repeat("n", 63)
	tests := map[string]struct{ namespace, name, want string }{
		"a short one":          {"ns", "job", "ns.everynode.dev/job"},
		"the longest of both":  {longest, longest, longest + ".everynode.dev/" + longest},
		"a name with dots":     {"ns", "a.b", "ns.everynode.dev/a.b"},
		"a name with a number": {"1", "2", "1.everynode.dev/2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := RecordKey(tt.namespace, tt.name)
			if got != tt.want {
				t.Errorf("key %s, want %s", got, tt.want)
			}
			if problems := validation.IsQualifiedName(got); len(problems) > 0 {
				t.Errorf("%s is no key of a label: %v", got, problems)
			}
		})
	}
}

// Whoever imports the types to write NodeJobs from Go must not get a controller with them.
func TestImports(t *testing.T) {
	for name, file := range source(t) {
		for _, imported := range file.Imports {
			path, err := strconv.Unquote(imported.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(path, "k8s.io/apimachinery/pkg/") && path != "k8s.io/api/core/v1" {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

func TestSchemeKnowsTheKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"NodeJob", "NodeJobList", "NodeGuard", "NodeGuardList"} {
		if !scheme.Recognizes(GroupVersion.WithKind(kind)) {
			t.Errorf("%s is not registered", kind)
		}
	}
}
