// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
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
	types, _, err := parse(root, "internal/nodejob/record/*.go")
	if err != nil {
		return err
	}
	_, keys, err := parse(root, "api/v1alpha1/keys.go")
	if err != nil {
		return err
	}
	page := bytes.NewBufferString(recordHead)
	for _, name := range recordTypes {
		writeFields(page, name, types[name])
	}
	fmt.Fprintf(page, "## Labels, annotations and finalizers\n\n| Key | |\n|---|---|\n%s", rowsOfKeys(keys))
	return save(path, page.Bytes())
}

const outputHead = "# Output for programs\n\n" +
	"`make generate` writes this page from the comments of the code. New fields may be added. [cli.md](../cli.md) explains the commands.\n\n"

// outputTypes are the objects that commands print for programs, by the title of their table.
var outputTypes = [][2]string{
	{"run -o jsonl, and nodes of run -o json", "nodeResult"}, {"index.json of run --save", "savedRun"}, {"Nodes of index.json", "savedNode"},
	{"nodeOutcome, of each node of a run", "nodeOutcome"},
	{"nodeJobs of plan -o json", "PlanData"}, {"steps of plan", "StepData"}, {"nodes of plan", "NodeData"}, {"drains of plan", "DrainData"},
	{"conflicts of plan", "ConflictData"},
}

// outputs writes the fields of what commands print for programs.
func outputs(root, path string) error {
	types, _, err := parse(root, "internal/cli/run/result.go", "internal/cli/run/saveindex.go", "internal/ui/view/plandata.go")
	if err != nil {
		return err
	}
	page := bytes.NewBufferString(outputHead)
	for _, t := range outputTypes {
		writeFields(page, t[0], types[t[1]])
	}
	return save(path, page.Bytes())
}

const reasonHead = "# Reasons\n\n" +
	"`make generate` writes this page from the comments of the code. Conditions, events, metrics, records, `explain` and the dashboard use the\n" +
	"same reasons. A link leads to what you can do.\n\n| Reason | Meaning |\n|---|---|\n"

var (
	meaning = regexp.MustCompile(`^\w+(:| means that) `)
	heading = regexp.MustCompile(`(?m)^## (.*)$`)
)

// reasons writes what each reason means, with a link to the section of docs/troubleshooting.md that has its name.
func reasons(root, path string) error {
	_, constants, err := parse(root, "api/v1alpha1/*reasons.go", "internal/outcome/outcome.go")
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(root, "docs/troubleshooting.md"))
	if err != nil {
		return err
	}
	sections, rows := map[string]string{}, map[string]string{}
	for _, h := range heading.FindAllStringSubmatch(string(content), -1) {
		for name := range strings.SplitSeq(h[1], ", ") {
			sections["`"+name+"`"] = strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(h[1]), ",", ""), " ", "-")
		}
	}
	for _, k := range constants {
		if !strings.HasPrefix(k.Names[0].Name, "Reason") {
			continue
		}
		if name := keyOf(k); rows[name] == "" {
			rows[name] = meaning.ReplaceAllString(k.Doc.Text(), "")
		}
	}
	page := bytes.NewBufferString(reasonHead)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		shown := name
		if anchor, has := sections[name]; has {
			shown = "[" + name + "](../troubleshooting.md#" + anchor + ")"
		}
		page.WriteString(row(shown, "", rows[name], nil))
	}
	return save(path, page.Bytes())
}

// parse returns the structs, and the constants with a comment, of Go files.
func parse(root string, patterns ...string) (map[string]*ast.StructType, []*ast.ValueSpec, error) {
	types, values := map[string]*ast.StructType{}, []*ast.ValueSpec{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				return nil, nil, err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if s, is := n.(*ast.TypeSpec); is {
					types[s.Name.Name], _ = s.Type.(*ast.StructType)
				} else if k, is := n.(*ast.ValueSpec); is && k.Doc != nil {
					values = append(values, k)
				}
				return true
			})
		}
	}
	return types, values, nil
}

// writeFields writes the table of the fields of a type.
func writeFields(page *bytes.Buffer, title string, fields *ast.StructType) {
	fmt.Fprintf(page, "## %s\n\n| Field | |\n|---|---|\n%s\n", title, rowsOf(fields))
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
	var rows strings.Builder
	for _, k := range keys {
		if _, is := k.Values[0].(*ast.BinaryExpr); is {
			name := k.Names[0].Name
			rows.WriteString(row(keyOf(k), name, strings.TrimPrefix(k.Doc.Text(), name+", "), replaced))
		}
	}
	return rows.String()
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
var begin = regexp.MustCompile(`^ (is|are|reports) `)

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
