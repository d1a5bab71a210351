// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestAllowedNodes(t *testing.T) {
	const key = "node-restriction.kubernetes.io/team"
	team := func(name string) map[string]string { return map[string]string{key: name, "pool": "a"} }
	tests := map[string]struct {
		value   string
		invalid bool
		node    map[string]string
		want    bool
	}{
		"one label that the node has":      {value: key + "=a", node: team("a"), want: true},
		"one label with another value":     {value: key + "=a", node: team("b")},
		"one label that the node lacks":    {value: key + "=a"},
		"two labels, and the node has one": {value: key + "=a,x.node-restriction.kubernetes.io/b=c", node: team("a")},
		"two values of a label":            {value: key + "=a," + key + "=b", node: team("a")},
		"a label below a domain": {
			value: "x.example.node-restriction.kubernetes.io/b=c",
			node:  map[string]string{"x.example.node-restriction.kubernetes.io/b": "c"},
			want:  true,
		},
		"empty":                                 {invalid: true, node: team("a")},
		"no value":                              {value: key, invalid: true, node: team("a")},
		"an empty value":                        {value: key + "=", invalid: true},
		"a set":                                 {value: key + " in (a)", invalid: true, node: team("a")},
		"not equal":                             {value: key + "!=a", invalid: true},
		"a label that a kubelet may set":        {value: "pool=a", invalid: true, node: team("a")},
		"a second label that a kubelet may set": {value: key + "=a,pool=a", invalid: true, node: team("a")},
		"a domain that only ends like that":     {value: "my-node-restriction.kubernetes.io/team=a", invalid: true},
		"spaces":                                {value: key + "=a, " + key + "=a", invalid: true, node: team("a")},
		"a trailing comma":                      {value: key + "=a,", invalid: true, node: team("a")},
		"a line break":                          {value: key + "=a\n", invalid: true, node: team("a")},
		"as large as it may be":                 {value: strings.Repeat(key+"=a,", 25) + key + "=a", node: team("a"), want: true},
		"too large, although each part of it is useful": {
			value:   strings.Repeat(key+"=a,", 30) + key + "=a",
			invalid: true,
			node:    team("a"),
		},
	}
	policy := syntaxOfPolicy(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kept := BoundNodesAnnotation(map[string]string{v1alpha1.NodesAnnotation: tt.value, "other": "x"})
			nodes, obstacle := AllowedNodes("ns", kept)
			if small := len(tt.value) <= MaxAllowedNodes; small && policy.MatchString(tt.value) == tt.invalid {
				t.Errorf("config/authorization/namespaces.yaml accepts it: %v", tt.invalid)
			}
			if (obstacle != nil) != tt.invalid {
				t.Fatalf("%q: the obstacle is %+v", tt.value, obstacle)
			}
			if obstacle != nil &&
				(obstacle.Reason != v1alpha1.ReasonInvalidNamespaceNodes || !strings.Contains(obstacle.Message, "kubectl annotate namespace ns everynode.dev/nodes=")) {
				t.Errorf("the obstacle is %+v", obstacle)
			}
			if got := AllowsNode(nodes, tt.node); got != tt.want {
				t.Errorf("%q allows %v: %v, want %v", tt.value, tt.node, got, tt.want)
			}
		})
	}
	if nodes, obstacle := AllowedNodes("ns", map[string]string{"other": "x"}); nodes != nil || obstacle != nil || !AllowsNode(nodes, nil) {
		t.Errorf("without the annotation: %v, %v", nodes, obstacle)
	}
	if kept := BoundNodesAnnotation(map[string]string{"other": "x"}); kept != nil {
		t.Errorf("it keeps %v", kept)
	}
}

// syntaxOfPolicy is the expression by which the API server checks the annotation.
func syntaxOfPolicy(t *testing.T) *regexp.Regexp {
	policy, err := os.ReadFile("../../config/authorization/namespaces.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(policy), `["everynode.dev/nodes"].matches("`)
	syntax, _, found := strings.Cut(after, `")`)
	if !found {
		t.Fatal("config/authorization/namespaces.yaml does not check the annotation")
	}
	return regexp.MustCompile(syntax)
}
