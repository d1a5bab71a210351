// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/cli/text"
)

// columns is the width at which comments are wrapped.
const columns = 100

// object is a YAML object with comments. Its fields are written in the order of fieldOrder.
type object struct{ fields []*field }

type field struct {
	key string
	// notes are the comments above the field.
	notes []string
	// value is a scalar, a list, a map or an *object; nil for a comment without a field.
	value any
	// off writes the field as a comment.
	off bool
}

func (o *object) field(key string) *field {
	for _, f := range o.fields {
		if f.key == key {
			return f
		}
	}
	f := &field{key: key}
	o.fields = append(o.fields, f)
	return f
}

// has reports whether the object has a field that is not a comment.
func (o *object) has(key string) bool {
	return slices.ContainsFunc(o.fields, func(f *field) bool { return f.key == key && f.value != nil && !f.off })
}

// set sets a field, with comments.
func (o *object) set(key string, value any, notes ...string) {
	f := o.field(key)
	f.value, f.off, f.notes = value, false, append(f.notes, notes...)
}

// suggest writes a field as a comment, with a comment that says when to use it.
func (o *object) suggest(key string, value any, notes ...string) {
	if f := o.field(key); f.value == nil {
		o.set(key, value, notes...)
		f.off = true
	}
}

// note adds a comment above a field, or at its place if the object does not have it.
func (o *object) note(key, note string) {
	if f := o.field(key); !slices.Contains(f.notes, note) {
		f.notes = append(f.notes, note)
	}
}

// todo adds a comment about a field of the source that has no equivalent.
func (o *object) todo(key, format string, args ...any) {
	o.note(key, "TODO: "+fmt.Sprintf(format, args...))
}

// in returns the object in a field.
func (o *object) in(key string) *object {
	f := o.field(key)
	if inner, ok := f.value.(*object); ok {
		return inner
	}
	inner := &object{}
	f.value = inner
	return inner
}

// fieldOrder is the order in which users write fields. Other fields follow in alphabetical order.
var fieldOrder = rank(
	"apiVersion", "kind", "metadata", "spec",
	"name", "namespace", "labels", "annotations",
	"suspend", "nodes", "dependsOn", "task", "rollback", "retry", "maintenance",
	"rollout", "publish", "removeLabels", "gate", "rerun", "startingDeadlineSeconds", "ttlSecondsAfterFinished",
	"selector", "names", "tolerations", "assumeDone", "interpreter", "script", "scriptFrom", "configMapKeyRef", "template", "hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "initContainers", "containers",
	"image", "imagePullPolicy", "command", "args", "env", "inputs", "timeoutSeconds", "resources", "requests", "limits",
	"key", "operator", "value", "values", "effect", "matchLabels", "matchExpressions",
	"result", "label", "annotation", "adopt", "cordon", "drain", "maxUnavailable", "maxConcurrent", "maxFailures",
	"securityContext", "volumeMounts", "mountPath", "volumes",
)

func rank(keys ...string) map[string]int {
	order := map[string]int{}
	for i, key := range keys {
		order[key] = i + 1
	}
	return order
}

func byRank(a, b string) int {
	ra, rb := fieldOrder[a], fieldOrder[b]
	switch {
	case ra != 0 && rb != 0:
		return ra - rb
	case ra != 0:
		return -1
	case rb != 0:
		return 1
	}
	return strings.Compare(a, b)
}

// lines returns the object as lines of YAML.
func (o *object) lines(indent int) []string {
	fields := slices.Clone(o.fields)
	slices.SortStableFunc(fields, func(a, b *field) int { return byRank(a.key, b.key) })
	var lines []string
	for _, f := range fields {
		for _, note := range f.notes {
			lines = append(lines, comment(note, columns-indent)...)
		}
		if f.value == nil {
			continue
		}
		rendered := entry(f.key, f.value, indent)
		if f.off {
			for i, line := range rendered {
				rendered[i] = "# " + line
			}
		}
		lines = append(lines, rendered...)
	}
	return lines
}

// entry returns a field as lines, relative to its own indentation.
func entry(key string, value any, indent int) []string {
	name := scalar(key)
	switch value := value.(type) {
	case *object:
		if !value.hasValue() {
			return value.lines(indent)
		}
		return append([]string{name + ":"}, indented(value.lines(indent+2))...)
	case map[string]any:
		if len(value) == 0 {
			return []string{name + ": {}"}
		}
		return append([]string{name + ":"}, indented(mapLines(value, indent+2))...)
	case []any:
		if len(value) == 0 {
			return []string{name + ": []"}
		}
		lines := []string{name + ":"}
		for _, item := range value {
			lines = append(lines, itemLines(item, indent+2)...)
		}
		return lines
	case string:
		if isBlock(value) {
			return append([]string{name + ": " + blockHeader(value)}, blockLines(value)...)
		}
	}
	return []string{name + ": " + scalar(value)}
}

// hasValue reports whether the object has a field that is not a comment.
func (o *object) hasValue() bool {
	return slices.ContainsFunc(o.fields, func(f *field) bool {
		inner, ok := f.value.(*object)
		return f.value != nil && !f.off && (!ok || inner.hasValue())
	})
}

func mapLines(value map[string]any, indent int) []string {
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(value), byRank) {
		lines = append(lines, entry(key, value[key], indent)...)
	}
	return lines
}

func itemLines(item any, indent int) []string {
	var lines []string
	switch item := item.(type) {
	case *object:
		lines = item.lines(indent)
	case map[string]any:
		lines = mapLines(item, indent)
	case string:
		if isBlock(item) {
			return append([]string{"- " + blockHeader(item)}, blockLines(item)...)
		}
	}
	if len(lines) == 0 {
		return []string{"- " + scalar(item)}
	}
	lines = indented(lines)
	lines[0] = "- " + strings.TrimPrefix(lines[0], "  ")
	return lines
}

// indented indents lines by one level.
func indented(lines []string) []string {
	for i, line := range lines {
		if line != "" {
			lines[i] = "  " + line
		}
	}
	return lines
}

// isBlock reports whether a text can be written as a literal block, which is how users write scripts.
func isBlock(s string) bool {
	if !strings.Contains(s, "\n") || strings.TrimSpace(s) == "" || strings.ContainsAny(s[:1], " \t\n") {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsPrint(r)
	})
}

func blockHeader(s string) string {
	switch {
	case strings.HasSuffix(s, "\n\n"):
		return "|+"
	case strings.HasSuffix(s, "\n"):
		return "|"
	}
	return "|-"
}

func blockLines(s string) []string {
	return indented(strings.Split(strings.TrimSuffix(s, "\n"), "\n"))
}

// scalar returns a value that is not an object or a list in one line.
func scalar(value any) string {
	if s, ok := value.(string); ok && strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quoted(s)
	}
	y, err := yaml.Marshal(value)
	if line := strings.TrimSuffix(string(y), "\n"); err == nil && !strings.Contains(line, "\n") {
		return line
	}
	return quoted(fmt.Sprint(value))
}

// quoted returns a text with all characters that are not printable escaped, in one line.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// comment wraps a text into comment lines. Lines after the first one are kept as they are, such as commands, or wrapped
// if they are items of a list. Nothing in a name from the source can end a comment.
func comment(note string, width int) []string {
	var lines []string
	for i, paragraph := range strings.Split(note, "\n") {
		switch {
		case i == 0:
			lines = append(lines, wrapped("# ", "# ", paragraph, width)...)
		case strings.HasPrefix(paragraph, "- "):
			lines = append(lines, wrapped("#   - ", "#     ", paragraph[2:], width)...)
		default:
			lines = append(lines, "#   "+text.Safe(paragraph))
		}
	}
	return lines
}

// wrapped returns a text as lines, with one prefix for the first line and another for the others.
func wrapped(first, others, paragraph string, width int) []string {
	var lines []string
	line, prefix := "", first
	for word := range strings.FieldsSeq(text.Safe(paragraph)) {
		if line != "" && len([]rune(prefix+line))+1+len([]rune(word)) > width {
			lines, line, prefix = append(lines, prefix+line), "", others
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, strings.TrimRight(prefix+line, " "))
}
