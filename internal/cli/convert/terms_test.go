// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/everynode/everynode/api/v1alpha1"
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

// selected returns what a NodeJob selects for the terms, and its TODOs.
func selected(terms []corev1.NodeSelectorTerm) (nodes v1alpha1.NodesSpec, todos []string, err error) {
	pod := corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}}
	d := &draft{template: &corev1.PodTemplateSpec{Spec: pod}, job: &v1alpha1.NodeJob{}}
	err = d.selectNodes()
	return d.job.Spec.Nodes, d.todos, err
}

func TestTermsAreSelected(t *testing.T) {
	const (
		less = "does not run on all of its nodes"
		more = "runs on more nodes"
	)
	tests := map[string]struct {
		terms string
		// want is the selector, and the names after an @. todos are parts of the messages.
		want  string
		todos []string
	}{
		"one term":                      {"pool In a", "pool in (a)", nil},
		"values of a label":             {"pool In a | pool In b,a | pool In c", "pool in (a)", []string{less}},
		"values beside the same":        {"zone In z and pool In a | zone In z and pool In b", "pool in (a),zone in (z)", []string{less}},
		"the same":                      {"pool In a and zone Exists | pool In a and zone Exists", "pool in (a),zone", []string{less}},
		"different labels":              {"pool In a | zone In z", "pool in (a)", []string{less}},
		"two differences":               {"pool In a and zone In y | pool In b and zone In z", "pool in (a),zone in (y)", []string{less}},
		"one that is stricter":          {"pool In a and zone In z | pool In a", "pool in (a),zone in (z)", []string{less}},
		"all but some":                  {"pool NotIn a,b | pool NotIn b,c", "pool notin (a,b)", []string{less}},
		"numbers":                       {"cores Gt 8 | cores Gt 16", "", []string{more, less}},
		"the same number":               {"cores Gt 8 and pool In a | cores Gt 8 and pool In b", "pool in (a)", []string{more, less}},
		"a number and a label":          {"cores Gt 8 | pool In a", "pool in (a)", []string{less}},
		"names":                         {"@metadata.name In a | @metadata.name In b", "@a", []string{less}},
		"a name and a label":            {"@metadata.name In a | metadata.name In b", "@a", []string{less}},
		"all names but one":             {"@metadata.name NotIn a and pool In a", "pool in (a)", []string{more}},
		"an empty term matches nothing": {" | pool In a", "pool in (a)", nil},
		"names that contradict":         {"@metadata.name In a and @metadata.name In b | pool In a", "pool in (a)", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var required []corev1.NodeSelectorTerm
			for text := range strings.SplitSeq(tt.terms, "|") {
				required = append(required, parseTerm(strings.TrimSpace(text)))
			}
			nodes, todos, err := selected(required)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if nodes.Selector != nil {
				got = metav1.FormatLabelSelector(nodes.Selector)
			}
			for _, name := range nodes.Names {
				got += "@" + name
			}
			if got != tt.want || len(todos) != len(tt.todos) {
				t.Errorf("%q with the TODOs %q", got, todos)
			}
			for i := range min(len(todos), len(tt.todos)) {
				if !strings.Contains(todos[i], tt.todos[i]) {
					t.Errorf("%q does not contain %q", todos[i], tt.todos[i])
				}
			}
		})
	}
}

// TestSelectedNodesAreThoseOfTheTerms asks the package of the scheduler, with random terms and all nodes that they can
// distinguish. A TODO says whether the NodeJob has more nodes or less.
func TestSelectedNodesAreThoseOfTheTerms(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all := distinctNodes()
	exact := 0
	for range 1000 {
		terms := randomTerms(random)
		required, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: terms})
		if err != nil {
			t.Fatal(err)
		}
		nodes, todos, none := selected(terms)
		text := strings.Join(todos, "\n")
		mayHaveMore, mayHaveLess := strings.Contains(text, "more nodes"), strings.Contains(text, "does not run on all")
		if !mayHaveMore && !mayHaveLess {
			exact++
		}
		for i := range all {
			want, got := required.Match(&all[i]), none == nil && selects(t, nodes, &all[i])
			if got && !want && !mayHaveMore || want && !got && !mayHaveLess {
				t.Fatalf(
					"%v became %+v, and the node %s %v matches: %v, want %v (%q)",
					terms,
					nodes,
					all[i].Name,
					all[i].Labels,
					got,
					want,
					todos,
				)
			}
		}
	}
	if exact < 100 {
		t.Errorf("only %d terms were converted exactly", exact)
	}
}

// selects reports whether a NodeJob selects a node.
func selects(tb testing.TB, nodes v1alpha1.NodesSpec, node *corev1.Node) bool {
	tb.Helper()
	selector, err := metav1.LabelSelectorAsSelector(nodes.Selector)
	if err != nil {
		tb.Fatal(err)
	}
	return (nodes.Selector == nil || selector.Matches(labels.Set(node.Labels))) &&
		(nodes.Names == nil || slices.Contains(nodes.Names, node.Name))
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
