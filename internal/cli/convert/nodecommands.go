// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"slices"
	"strings"
)

// nodeChange is a label, annotation or taint that a script sets on its node, or removes.
type nodeChange struct {
	// kind is label, annotate or taint.
	kind       string
	key, value string
	remove     bool
}

// isDynamic reports whether the value is only known when the script runs.
func (c nodeChange) isDynamic() bool { return strings.ContainsAny(c.value, "$`") }

var (
	kubectlNode = regexp.MustCompile(`(?s)^(?:\S*/)?(?:kubectl|oc|k3s\s+kubectl)\s+(?:.*?\s)?(label|annotate|taint)\s+(?:.*?\s)?(?:nodes?|no)[\s/]+(.*)$`)
	curlNode    = regexp.MustCompile(`(?s)^(?:\S*=\S*\s+)*(?:\S*/)?curl\s.*\bPATCH\b.*/api/v1/nodes/|^(?:\S*/)?curl\s.*/api/v1/nodes/.*\bPATCH\b`)
	// patchedKey matches keys of metadata.labels or metadata.annotations in a patch.
	patchedKey  = regexp.MustCompile(`\\?"([\w.-]+/?[\w.-]*)\\?"\s*:\s*\\?"([^"\\]*)\\?"`)
	patchedKind = regexp.MustCompile(`\\?"(labels|annotations)\\?"\s*:\s*\{`)
	credential  = regexp.MustCompile(`^(?:export\s+|local\s+)?\w+=.*/var/run/secrets/kubernetes\.io/serviceaccount`)
)

// dropNodeChanges removes the commands that change the Node object.
func dropNodeChanges(script string) (string, []nodeChange) {
	var changes []nodeChange
	patched := false
	script = dropCommands(script, func(command string) bool {
		if m := kubectlNode.FindStringSubmatch(command); m != nil {
			changes = append(changes, kubectlChanges(m[1], m[2])...)
			return true
		}
		if curlNode.MatchString(command) {
			if found := patchChanges(command); len(found) > 0 {
				changes, patched = append(changes, found...), true
				return true
			}
		}
		return false
	})
	if patched {
		script = dropCommands(script, credential.MatchString)
	}
	return script, changes
}

// kubectlChanges reads the arguments of kubectl label, annotate or taint.
func kubectlChanges(kind, arguments string) []nodeChange {
	var changes []nodeChange
	for _, word := range words(beforePipe(arguments)) {
		change, ok := labelArgument(word)
		if kind == "taint" {
			change, ok = taintArgument(word)
		}
		if ok && !strings.HasPrefix(word, "-") && !strings.Contains(change.key, ">") {
			change.kind = kind
			changes = append(changes, change)
		}
	}
	return changes
}

// beforePipe returns a command without the commands that read its output.
func beforePipe(command string) string {
	s := scanner{}
	for i := range len(command) {
		if s.next(command, i) && command[i] == '|' {
			return command[:i]
		}
	}
	return command
}

// labelArgument reads KEY=VALUE or KEY-.
func labelArgument(word string) (nodeChange, bool) {
	if key, value, ok := strings.Cut(word, "="); ok {
		return nodeChange{key: key, value: value}, true
	}
	key, ok := strings.CutSuffix(word, "-")
	return nodeChange{key: key, remove: true}, ok && !strings.HasPrefix(word, "$")
}

// taintArgument reads KEY[=VALUE]:EFFECT, with a dash at the end if the taint is removed, or KEY-.
func taintArgument(word string) (nodeChange, bool) {
	key, value, hasValue := strings.Cut(word, "=")
	name, _, hasEffect := strings.Cut(key, ":")
	remove := strings.HasSuffix(word, "-")
	return nodeChange{key: strings.TrimSuffix(name, "-"), value: value, remove: remove}, hasValue || hasEffect || remove && !strings.HasPrefix(word, "$")
}

// patchChanges reads the labels and annotations in a patch.
func patchChanges(command string) []nodeChange {
	var changes []nodeChange
	for _, at := range patchedKind.FindAllStringSubmatchIndex(command, -1) {
		kind := "label"
		if command[at[2]:at[3]] == "annotations" {
			kind = "annotate"
		}
		inner, _, _ := strings.Cut(command[at[1]:], "}")
		for _, m := range patchedKey.FindAllStringSubmatch(inner, -1) {
			changes = append(changes, nodeChange{kind: kind, key: m[1], value: m[2]})
		}
	}
	return changes
}

// labelsSet returns the labels that are set, and those that are removed.
func labelsSet(changes []nodeChange, key string) (nodeChange, bool) {
	i := slices.IndexFunc(changes, func(c nodeChange) bool { return c.kind == "label" && c.key == key })
	if i < 0 {
		return nodeChange{}, false
	}
	return changes[i], true
}

// result returns the name of the result that has the value of a label or annotation.
func (c nodeChange) result() string { return c.key[strings.LastIndexByte(c.key, '/')+1:] }

// report returns the command that reports the value as a result.
func (c nodeChange) report() string {
	line := c.result() + "=" + c.value
	if c.isDynamic() {
		return `echo "` + line + `" >> "$EVERYNODE_RESULTS"`
	}
	return "echo " + shellQuote(line) + ` >> "$EVERYNODE_RESULTS"`
}

// isReserved reports whether a NodeJob must not publish or remove a key.
func (c nodeChange) isReserved() bool {
	return reservedKey.MatchString(c.key) && !ownKey.MatchString(c.key) || !validKey.MatchString(c.key)
}

// The rules of publish[].label, publish[].annotation and removeLabels in the API.
var (
	reservedKey = regexp.MustCompile(`^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/`)
	ownKey      = regexp.MustCompile(`^(node|kubelet)[.]kubernetes[.]io/`)
	validKey    = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)
