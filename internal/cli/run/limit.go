// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// limit restricts the selected nodes, as --limit of Ansible does. The zero value is no restriction.
type limit struct {
	// patterns are the parts of the flag, for messages.
	patterns []string
	// include and exclude are names of nodes or globs. saved maps the part of the flag that names a saved run to the
	// nodes on which that run did not succeed; again has the nodes of all these runs.
	include, exclude []string
	saved            map[string][]string
	again            map[string]bool
}

// maxIndexBytes limits an index that is read. The index of 15,000 nodes has less than 10 MB.
const maxIndexBytes = 64 << 20

// limitPattern matches what names of nodes and globs consist of.
var limitPattern = regexp.MustCompile(`^[a-z0-9.*?\[\]^-]+$`)

// parseLimit returns the limit with these patterns. read returns the nodes of a saved run on which it did not succeed.
func parseLimit(patterns []string, read func(path string) ([]string, error)) (limit, error) {
	l := limit{patterns: patterns, saved: map[string][]string{}, again: map[string]bool{}}
	for _, pattern := range patterns {
		if dir, saved := strings.CutPrefix(pattern, "@"); saved {
			nodes, err := read(dir)
			if err != nil {
				return limit{}, err
			}
			l.saved[pattern] = nodes
			for _, node := range nodes {
				l.again[node] = true
			}
			continue
		}
		glob, excluded := strings.CutPrefix(pattern, "!")
		if _, err := path.Match(glob, ""); err != nil || !limitPattern.MatchString(glob) {
			return limit{}, cmdutil.Failf(cmdutil.ExitUsage, "--limit %q: give names of nodes or globs (* ? [a-c] [^a-c]), separated by commas; !NAME excludes; @DIR is a directory of --save", pattern)
		}
		if excluded {
			l.exclude = append(l.exclude, glob)
		} else {
			l.include = append(l.include, glob)
		}
	}
	return l, nil
}

// keeps reports whether the limit leaves a node. If it only excludes nodes, it leaves all others.
func (l limit) keeps(node string) bool {
	if matchesAny(l.exclude, node) {
		return false
	}
	return len(l.include)+len(l.saved) == 0 || l.again[node] || matchesAny(l.include, node)
}

func matchesAny(globs []string, node string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		matches, _ := path.Match(glob, node) // its only error is that of the pattern, which was checked
		return matches
	})
}

// unused returns what the limit names that is not among the selected nodes, such as a misspelled name.
func (l limit) unused(selected []string) []string {
	known := map[string]bool{}
	for _, node := range selected {
		known[node] = true
	}
	var unused []string
	for _, pattern := range l.patterns {
		glob := strings.TrimPrefix(pattern, "!")
		if _, saved := l.saved[pattern]; !saved && !slices.ContainsFunc(selected, func(node string) bool { return matchesAny([]string{glob}, node) }) {
			unused = append(unused, pattern)
		}
		for _, node := range l.saved[pattern] {
			if !known[node] {
				unused = append(unused, node+" of "+pattern)
			}
		}
	}
	return unused
}

func (l limit) String() string { return strings.Join(l.patterns, ",") }

// empty returns the error if the limit leaves none of the selected nodes.
func (l limit) empty(selected []string) error {
	return cmdutil.Failf(cmdutil.ExitNotFound, "--limit %s leaves no node; selected: %s. Give names of nodes or globs such as 'worker-*'",
		text.Safe(l.String()), cmdutil.JoinNames(selected))
}

// parseLimits reads --limit. An empty one is an error, as of a variable that is not set: it would select all nodes.
func (o *options) parseLimits() (err error) {
	if o.limited && len(o.limits) == 0 {
		return cmdutil.Failf(cmdutil.ExitUsage, "--limit is empty: give names of nodes, globs or @DIR, or leave it out")
	}
	o.limit, err = parseLimit(o.limits, unsuccessfulNodes)
	return err
}

// unsuccessfulNodes returns the nodes on which a saved run did not succeed. The path is that of the directory or of its
// index.
func unsuccessfulNodes(dir string) ([]string, error) {
	file := dir
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(dir, indexFile)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "reading --limit @%s: %w", dir, err)
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxIndexBytes))
	if err != nil {
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "reading --limit @%s: %w", dir, err)
	}
	nodes, err := unsuccessful(content)
	switch {
	case err != nil:
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "reading --limit @%s: %w: give the directory of an earlier --save", dir, err)
	case len(nodes) == 0:
		return nil, cmdutil.Failf(cmdutil.ExitNotFound, "--limit @%s leaves no node: that run succeeded on every node", dir)
	}
	return nodes, nil
}

// unsuccessful returns the nodes of an index on which the run did not succeed.
func unsuccessful(index []byte) ([]string, error) {
	var saved struct {
		Nodes []struct{ Node, Outcome string }
	}
	if err := json.Unmarshal(index, &saved); err != nil {
		return nil, fmt.Errorf("it is not an index of a run: %w", err)
	}
	var nodes []string
	for _, n := range saved.Nodes {
		if n.Node == "" || n.Outcome == "" {
			return nil, fmt.Errorf("it is not an index of a run: an entry has no node or no outcome")
		}
		if n.Outcome != outcomes[view.RunSucceeded] {
			nodes = append(nodes, n.Node)
		}
	}
	if len(saved.Nodes) == 0 {
		return nil, fmt.Errorf("it is not an index of a run: it has no nodes")
	}
	return nodes, nil
}

// tellUnused warns about what the limit names and is not selected.
func (o *options) tellUnused(found targets) {
	if unused := o.limit.unused(found.selected); len(unused) > 0 {
		o.Tell(text.Toned(text.Warn, "--limit: ").With("not among the selected nodes: " + cmdutil.JoinNames(unused)))
	}
}
