// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

const recordHead = "# Reference of records and metadata\n\n" +
	"`make generate` writes this page from the comments of the code. [status.md](../status.md) explains how to read it. A field that is absent\n" +
	"has no value. Times by the node's clock are for display only.\n\n"

// recordTypes are the parts of a record in the order of the page.
var recordTypes = []string{"Record", "Rollback", "Reboot", "Drain", "Archive", "Asked", "Expiry", "Attempt", "Previous"}

// noValue is how Go calls what is absent in JSON.
var noValue = regexp.MustCompile(`\b(nil|zero)\b|""`)

// records writes what the manager stores on nodes and pods: the fields of a record, and the keys of labels, annotations and finalizers.
func records(root, path string) error {
	types, keys := map[string]*ast.StructType{}, []*ast.ValueSpec{}
	files, err := filepath.Glob(filepath.Join(root, "internal/nodejob/record/*.go"))
	if err != nil {
		return err
	}
	for _, file := range append(files, filepath.Join(root, "api/v1alpha1/keys.go")) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, is := n.(*ast.TypeSpec); is {
				types[s.Name.Name], _ = s.Type.(*ast.StructType)
			} else if k, is := n.(*ast.ValueSpec); is && k.Doc != nil && filepath.Base(file) == "keys.go" {
				keys = append(keys, k)
			}
			return true
		})
	}
	page := bytes.NewBufferString(recordHead)
	for _, name := range recordTypes {
		fmt.Fprintf(page, "## %s\n\n| Field | |\n|---|---|\n%s\n", name, rowsOf(types[name]))
	}
	fmt.Fprintf(page, "## Labels, annotations and finalizers\n\n| Key | |\n|---|---|\n%s", rowsOfKeys(keys))
	return os.WriteFile(path, page.Bytes(), 0o644) //nolint:gosec // others may read pages
}

// rowsOf returns a row for each comment. A field without a comment shares that of the field before it.
func rowsOf(s *ast.StructType) string {
	var names, own, rows, replaced []string
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 {
			names, own, rows = append(names, ""), append(own, ""), append(rows, "all fields of "+f.Type.(*ast.Ident).Name)
			continue
		}
		tag, _ := strconv.Unquote(f.Tag.Value)
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		replaced = append(replaced, f.Names[0].Name, "`"+name+"`")
		if f.Doc == nil && len(rows) > 0 {
			names[len(names)-1] += ", `" + name + "`"
			continue
		}
		names, own, rows = append(names, "`"+name+"`"), append(own, f.Names[0].Name), append(rows, f.Doc.Text())
	}
	for i := range rows {
		rows[i] = row(names[i], own[i], noValue.ReplaceAllString(rows[i], "absent"), replaced)
	}
	return strings.Join(rows, "")
}

func rowsOfKeys(keys []*ast.ValueSpec) string {
	var replaced []string
	for _, k := range keys {
		replaced = append(replaced, k.Names[0].Name, keyOf(k))
	}
	var rows string
	for _, k := range keys {
		if _, is := k.Values[0].(*ast.BinaryExpr); is {
			name := k.Names[0].Name
			rows += row(keyOf(k), name, strings.TrimPrefix(k.Doc.Text(), name+", "), replaced)
		}
	}
	return rows
}

// keyOf returns the key of a constant, such as Group + "/nodejob", or its value.
func keyOf(k *ast.ValueSpec) string {
	prefix, value := "", k.Values[0]
	if sum, is := value.(*ast.BinaryExpr); is {
		prefix, value = "everynode.dev", sum.Y
	}
	return "`" + prefix + strings.Trim(value.(*ast.BasicLit).Value, `"`) + "`"
}

// begin is what follows the name at the begin of a comment, and is no part of what the comment says.
var begin = regexp.MustCompile(`^ (is|are) `)

// row returns a row of a table in which the names of Go are those that users see, without the name that the comment begins with.
func row(name, own, text string, replaced []string) string {
	if after, is := strings.CutPrefix(text, own); is && begin.MatchString(after) {
		text = begin.ReplaceAllString(after, "")
	}
	for i := 0; i < len(replaced); i += 2 {
		if replaced[i] == own && strings.ToLower(own[1:]) == own[1:] {
			continue // a word of the language
		}
		text = regexp.MustCompile(`\b`+replaced[i]+`\b`).ReplaceAllString(text, replaced[i+1])
	}
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
	return "| " + name + " | " + text + " |\n"
}
