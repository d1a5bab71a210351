// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// ParseResults reads a results file: either one JSON object or lines of key=value.
//
// In lines, blank lines and lines that start with # are skipped, and white space around key and value is ignored;
// quotes are not special. In JSON, a value that is not a string is kept as compact JSON text. If a key occurs twice,
// the later one counts.
//
// Keys follow the grammar of a label's name part ([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?, at most 63 bytes), so they
// need no escaping anywhere. Values are cleaned; newlines and tabs in them become \n and \t. If there are too many
// results, the first in the order of their keys are kept (RebootKey before all others), so that the same file always
// has the same results.
//
// Truncated is true if a limit omitted or truncated something, or the input was longer than MaxInputBytes. An error
// describes the first part that is invalid and how many more there are; the results are then the valid ones. The error
// is meant for Outcome.Note: a task does not fail because of it.
func ParseResults(b []byte) (results map[string]string, truncated bool, err error) {
	cut := len(b) > MaxInputBytes
	if cut {
		b = b[:MaxInputBytes]
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	all := map[string]string{}
	if bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) {
		err = parseObject(b, cut, all)
	} else {
		err = parseLines(b, cut, all)
	}
	results, left := boundedResults(all)
	return results, cut || left, err
}

// parseObject adds the members of one JSON object. Members before a syntax error count, because a script that was
// killed while it wrote has still reported them.
func parseObject(b []byte, cut bool, into map[string]string) error {
	var bad problems
	err := walkObject(b, func(key string, value json.RawMessage) error {
		if !validKey(key) {
			bad.add("%s is no key: %s", quoted(key), keyRule)
			return nil
		}
		into[key] = valueText(value)
		return nil
	})
	if err != nil && !cut { // we truncated the object, and truncated is already set
		bad.add("reading a JSON object: %w", err)
	}
	return bad.err()
}

func parseLines(b []byte, cut bool, into map[string]string) error {
	if cut { // the last line may be incomplete, and half a value is a wrong value
		b = b[:bytes.LastIndexByte(b, '\n')+1]
	}
	var bad problems
	number := 0
	for line := range strings.Lines(string(b)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		switch {
		case !found:
			bad.add("line %d: %s is not key=value", number, quoted(line))
		case !validKey(key):
			bad.add("line %d: %s is no key: %s", number, quoted(key), keyRule)
		default:
			into[key] = strings.TrimSpace(value)
		}
	}
	return bad.err()
}

// walkObject calls member for each member of the one JSON object in b, in order, and stops at the first error. It reads
// tokens because a map or a struct would hide duplicates and lose everything at the first error. encoding/json limits
// the depth of nesting (10,000), and its cost is linear.
func walkObject(b []byte, member func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if start, _ := d.Token(); start != json.Delim('{') { // nil with an error
		return errors.New("expected an object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return atEnd(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return atEnd(err)
		}
		name, _ := key.(string) // what else is in its place is an error of Token
		if err := member(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return atEnd(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

// atEnd returns a readable error for an unexpected end of the input.
func atEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends in the middle")
	}
	return err
}

// valueText returns a string's content, or the compact text of any other value. The value is valid JSON.
func valueText(value json.RawMessage) string {
	if value[0] == '"' {
		var s string
		_ = json.Unmarshal(value, &s)
		return s
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, value)
	return compact.String()
}

// Bound returns the results within all limits, and whether some were omitted or truncated. It bounds results that were
// merged from several attempts.
func Bound(results map[string]string) (map[string]string, bool) { return boundedResults(results) }

// boundedResults returns the results within all limits, and whether some were omitted or truncated. The kept results
// are the first ones in the order of keys: omitting a large one in favor of smaller ones after it would be harder to
// predict.
func boundedResults(all map[string]string) (map[string]string, bool) {
	kept, truncated, total := map[string]string{}, false, 0
	for _, key := range sortedKeys(all) {
		if !validKey(key) {
			truncated = true
			continue
		}
		value, cut := cleanValue(all[key])
		total += len(key) + len(value)
		if len(kept) == MaxResults || total > MaxResultsBytes {
			truncated = true
			break
		}
		kept[key] = value
		truncated = truncated || cut
	}
	if len(kept) == 0 {
		return nil, truncated
	}
	return kept, truncated
}

// sortedKeys returns the order in which results are kept: RebootKey, then the others sorted as strings.
func sortedKeys(m map[string]string) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		switch {
		case a == RebootKey:
			return -1
		case b == RebootKey:
			return 1
		}
		return strings.Compare(a, b)
	})
}

const keyRule = "use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"

func validKey(key string) bool {
	if key == "" || len(key) > MaxKeyBytes {
		return false
	}
	for i := range len(key) {
		switch c := key[i]; {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
		case c != '-' && c != '_' && c != '.', i == 0, i == len(key)-1:
			return false
		}
	}
	return true
}

// problems stores the first of many problems and counts the rest: a file with 10,000 invalid lines is one line in the
// message.
type problems struct {
	first error
	more  int
}

func (p *problems) add(format string, args ...any) {
	if p.first != nil {
		p.more++
		return
	}
	p.first = fmt.Errorf(format, args...)
}

func (p *problems) err() error {
	if p.more > 0 {
		return fmt.Errorf("%w (and %d more)", p.first, p.more)
	}
	return p.first
}

// quoted returns the beginning of an untrusted text on one line.
func quoted(s string) string {
	s, _ = cutValue(s, 40)
	return `"` + s + `"`
}
