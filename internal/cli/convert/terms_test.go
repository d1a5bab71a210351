// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// parseTerm reads requirements such as "pool In a,b and zone Exists". Those of a key with an @ are about fields.
func parseTerm(text string) corev1.NodeSelectorTerm {
	t := corev1.NodeSelectorTerm{}
	if text == "" {
		return t
	}
	for part := range strings.SplitSeq(text, " and ") {
		words := strings.Fields(part)
		r := corev1.NodeSelectorRequirement{Key: words[0], Operator: corev1.NodeSelectorOperator(words[1])}
		if len(words) > 2 {
			r.Values = strings.Split(words[2], ",")
		}
		if key, isField := strings.CutPrefix(r.Key, "@"); isField {
			r.Key = key
			t.MatchFields = append(t.MatchFields, r)
			continue
		}
		t.MatchExpressions = append(t.MatchExpressions, r)
	}
	return t
}

func TestTermsAreMerged(t *testing.T) {
	tests := map[string]struct {
		terms string
		// want are the terms that remain. An empty one matches all nodes.
		want string
	}{
		"one term":               {"pool In a", "pool In a"},
		"values of a label":      {"pool In a | pool In b,a | pool In c", "pool In a,b,c"},
		"values beside the same": {"zone In z and pool In a | zone In z and pool In b", "pool In a,b and zone In z"},
		"the same":               {"pool In a and zone Exists | pool In a and zone Exists", "pool In a and zone Exists"},
		"different labels":       {"pool In a | zone In z", "pool In a | zone In z"},
		"two differences": {
			"pool In a and zone In y | pool In b and zone In z",
			"pool In a and zone In y | pool In b and zone In z",
		},
		"one that is stricter":          {"pool In a and zone In z | pool In a", "pool In a and zone In z | pool In a"},
		"all but some":                  {"pool NotIn a,b | pool NotIn b,c", "pool NotIn a,b | pool NotIn b,c"},
		"numbers":                       {"cores Gt 8 | cores Gt 16", "cores Gt 8 | cores Gt 16"},
		"the same number":               {"cores Gt 8 and pool In a | cores Gt 8 and pool In b", "cores Gt 8 and pool In a,b"},
		"names":                         {"@metadata.name In a | @metadata.name In b", "metadata.name In a,b"},
		"a name and a label":            {"@metadata.name In a | metadata.name In b", "metadata.name In a | metadata.name In b"},
		"an empty term matches nothing": {" | pool In a", "pool In a"},
		"names that contradict":         {"@metadata.name In a and @metadata.name In b | pool In a", "pool In a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var required []corev1.NodeSelectorTerm
			for text := range strings.SplitSeq(tt.terms, "|") {
				required = append(required, parseTerm(strings.TrimSpace(text)))
			}
			var got []string
			for _, merged := range merge(termsOf(required)) {
				got = append(got, merged.String())
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " | ")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestMergedTermsMatchTheSameNodes asks the package of the scheduler, with random terms and all nodes that they can
// distinguish.
func TestMergedTermsMatchTheSameNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	nodes := distinctNodes()
	merged := 0
	for range 1000 {
		before := randomTerms(random)
		terms := merge(termsOf(before))
		if len(terms) < len(before) {
			merged++
		}
		selector, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: before})
		if err != nil {
			t.Fatal(err)
		}
		for i := range nodes {
			node := &nodes[i]
			got := slices.ContainsFunc(terms, func(m term) bool { return m.matches(t, node) })
			if want := selector.Match(node); got != want {
				t.Fatalf("%v became %v, and the node %s %v matches: %v, want %v", before, terms, node.Name, node.Labels, got, want)
			}
		}
	}
	if merged < 50 {
		t.Errorf("terms were merged %d times", merged)
	}
}

// matches reports whether a node matches a term. Kubernetes does not accept several names in a term.
func (t term) matches(tb testing.TB, node *corev1.Node) bool {
	tb.Helper()
	labels := corev1.NodeSelectorTerm{}
	for _, r := range t {
		switch {
		case !strings.HasPrefix(r.Key, fieldMark):
			labels.MatchExpressions = append(labels.MatchExpressions, r)
		case slices.Contains(r.Values, node.Name) != (r.Operator == corev1.NodeSelectorOpIn):
			return false
		}
	}
	if len(labels.MatchExpressions) == 0 {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{labels}})
	if err != nil {
		tb.Fatalf("%v: %v", t, err)
	}
	return selector.Match(node)
}

// distinctNodes returns a node for each combination of values, one of them without the label.
func distinctNodes() []corev1.Node {
	var nodes []corev1.Node
	for _, name := range []string{"n1", "n2"} {
		for _, a := range []string{"", "1", "2", "3"} {
			for _, b := range []string{"", "1", "2", "3"} {
				node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
				for key, value := range map[string]string{"a": a, "b": b} {
					if value != "" {
						node.Labels[key] = value
					}
				}
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}

func randomTerms(random *rand.Rand) []corev1.NodeSelectorTerm {
	terms := make([]corev1.NodeSelectorTerm, 1+random.IntN(4))
	for i := range terms {
		for range random.IntN(4) {
			key := []string{"a", "b"}[random.IntN(2)]
			switch random.IntN(7) {
			case 0:
				name := fmt.Sprintf("n%d", 1+random.IntN(2))
				operator := []corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn}[random.IntN(2)]
				terms[i].MatchFields = append(
					terms[i].MatchFields,
					corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: operator, Values: []string{name}},
				)
			case 1:
				terms[i].MatchExpressions = append(
					terms[i].MatchExpressions,
					corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists},
				)
			case 2:
				terms[i].MatchExpressions = append(
					terms[i].MatchExpressions,
					corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist},
				)
			case 3:
				terms[i].MatchExpressions = append(
					terms[i].MatchExpressions,
					corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpGt, Values: []string{"1"}},
				)
			default:
				operator := []corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn}[random.IntN(2)]
				values := []string{"1", "2", "3"}[random.IntN(2) : 2+random.IntN(2)]
				terms[i].MatchExpressions = append(
					terms[i].MatchExpressions,
					corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values},
				)
			}
		}
	}
	return terms
}
