// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// keysOfEverynode returns the values of all constants of the API that are labels, annotations or finalizers, by their names.
func keysOfEverynode(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../api/v1alpha1/*.go")
	must(t, err)
	keys := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if !is {
				return true
			}
			for i, value := range spec.Values {
				sum, is := value.(*ast.BinaryExpr) // Group + "/name"
				if !is {
					continue
				}
				group, isName := sum.X.(*ast.Ident)
				name, isText := sum.Y.(*ast.BasicLit)
				if !isName || group.Name != "Group" || !isText {
					continue
				}
				text, err := strconv.Unquote(name.Value)
				must(t, err)
				if strings.HasPrefix(text, "/") && !strings.Contains(text, "v1") {
					keys[spec.Names[i].Name] = v1alpha1.Group + text
				}
			}
			return true
		})
	}
	for _, known := range []string{v1alpha1.NodeJobLabel, v1alpha1.SealAnnotation, v1alpha1.NodeGuardUIDAnnotation, v1alpha1.ScriptLabel, v1alpha1.PodFinalizer} {
		if !slices.Contains(slices.Collect(maps.Values(keys)), known) {
			t.Fatalf("%s is not found among the constants of the API: %v", known, keys)
		}
	}
	return keys
}

// TestTemplatesHaveNoKeysOfEverynode : the manager reads them on pods, so the author of a template could give orders by them.
func TestTemplatesHaveNoKeysOfEverynode(t *testing.T) {
	w := newWorld(t)
	keys := []string{"node-setup.everynode.dev/x", "a.b.everynode.dev/x"}
	for _, key := range keysOfEverynode(t) {
		keys = append(keys, key)
	}
	refused := map[string]bool{
		"example.com/x":               false,
		"noteverynode.dev/x":          false,
		"everynode.dev.example.com/x": false,
		"everynode.dev":               false,
	}
	for _, key := range keys {
		refused[key] = true
	}
	for key, refused := range refused {
		for _, place := range []string{"labels", "annotations"} {
			metadata := fmt.Sprintf(`metadata: {%s: {%q: x}}, spec: {containers: [{name: a, image: b}]}`, place, key)
			for kind, o := range map[string]client.Object{
				"task.template": jobFromYAML(t, w.Namespace, "new", `{task: {template: {`+metadata+`}}}`),
				"template":      guardFromYAML(t, w.Namespace, "new", `{target: {daemonSet: a}, template: {`+metadata+`}}`),
			} {
				t.Run(kind+" with "+place+" "+key, func(t *testing.T) {
					err := admin.Create(w.Ctx, o, client.DryRunAll)
					if !refused {
						must(t, err)
						return
					}
					if !apierrors.IsInvalid(err) {
						t.Fatalf("the API server says %v", err)
					}
					wantText(
						t,
						err.Error(),
						kind+".metadata."+place+" must not have keys of everynode.dev, which only the manager sets on pods: remove them, or use a prefix of your own",
					)
				})
			}
		}
	}
	// A template with as many keys as a user may ever want is within the limits of the rule.
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("example.com/%s%d: x", strings.Repeat("k", 50), i))
	}
	must(
		t,
		admin.Create(
			w.Ctx,
			jobFromYAML(
				t,
				w.Namespace,
				"new",
				`{task: {template: {metadata: {labels: {`+strings.Join(
					many,
					", ",
				)+`}, annotations: {`+strings.Join(
					many,
					", ",
				)+`}}, spec: {containers: [{name: a, image: b}]}}}}`,
			),
			client.DryRunAll,
		),
	)
}
