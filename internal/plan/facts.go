package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// factsOf are the facts that a run publishes, by their keys. A result that it did not report is none.
func (s *survey) factsOf(r *record.Record) (labelled, annotated map[string]string, problem string) {
	labelled, annotated = map[string]string{}, map[string]string{}
	for i := range s.in.Job.Spec.Publish {
		fact := &s.in.Job.Spec.Publish[i]
		value, reported := r.Results[fact.Result]
		switch {
		case r.Truncated && (!reported || len(value) > outcome.MaxValueBytes-4):
			return nil, nil, fmt.Sprintf("the result %s cannot be published, since results were left out or cut: one may have %d bytes, and all together %d",
				fact.Result, outcome.MaxValueBytes, outcome.MaxResultsBytes)
		case !reported:
		case fact.Label == "":
			annotated[fact.Annotation] = value
		default:
			if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
				return nil, nil, fmt.Sprintf("the result %s cannot be published as label %s, since %q is no valid label value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
					fact.Result, fact.Label, outcome.Clean(value, 80))
			}
			labelled[fact.Label] = value
		}
	}
	return labelled, annotated, ""
}

// publish is the change that brings what is published on a node in line with a run; nil when it is. What
// somebody else has put there is not overwritten: then the reason and the message say so.
func (s *survey) publish(node *Node, r *record.Record) (facts *record.Facts, reason, message string) {
	if s.isPublished(node, r) {
		return nil, "", ""
	}
	labelled, annotated, problem := s.factsOf(r)
	if problem != "" {
		return nil, v1alpha1.ReasonInvalidResult, problem
	}
	facts, conflict := s.factsChange(node, labelled, annotated)
	switch {
	case conflict != "":
		return nil, v1alpha1.ReasonPublishConflict, conflict
	case facts != nil && !facts.Published.Fits():
		return nil, v1alpha1.ReasonPublishConflict, "the node has no room for more facts: publish fewer"
	}
	return facts, "", ""
}

// factsChange is the change after which the NodeJob has published these labels and annotations on the node, and no
// others; nil when that is so. What is in the way is the conflict.
func (s *survey) factsChange(node *Node, labelled, annotated map[string]string) (facts *record.Facts, conflict string) {
	f := &record.Facts{Labels: map[string]*string{}, Annotations: map[string]*string{}, Published: node.Published.Clone()}
	conflict = firstOf(
		s.publishKind("label", labelled, node.Labels, f.Published.Labels, f.Labels),
		s.publishKind("annotation", annotated, node.Annotations, f.Published.Annotations, f.Annotations))
	if conflict != "" || len(f.Labels)+len(f.Annotations) == 0 {
		return nil, conflict
	}
	return f, ""
}

// isPublished is true when all is as it should be, which it nearly always is: a pass asks for every node.
func (s *survey) isPublished(node *Node, r *record.Record) bool {
	spec, reported := s.in.Job.Spec.Publish, 0
	for i := range spec {
		fact := &spec[i]
		value, ok := r.Results[fact.Result]
		if !ok {
			continue
		}
		reported++
		key, have, owners := fact.Annotation, node.Annotations, node.Published.Annotations
		if fact.Label != "" {
			key, have, owners = fact.Label, node.Labels, node.Published.Labels
		}
		if is, there := have[key]; !there || is != value || owners[key] != s.key {
			return false
		}
	}
	return reported == s.owned(node) && !r.Truncated
}

// publishKind notes in owners and change what is to become of the labels, or of the annotations.
func (s *survey) publishKind(kind string, want, have, owners map[string]string, change map[string]*string) (conflict string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value := want[key]
		is, there := have[key]
		owner := owners[key]
		switch {
		case owner != "" && owner != s.key:
			return fmt.Sprintf("%s %s of the node is published by another NodeJob (%s): publish under another key", kind, key, outcome.Clean(owner, 317))
		case owner == "" && there:
			return fmt.Sprintf("the node has the %s %s already, which this NodeJob has not put there: publish under another key, or take it off the node", kind, key)
		case !there || is != value || owner == "":
			owners[key], change[key] = s.key, &value
		}
	}
	s.unpublishKind(want, owners, change)
	return ""
}

// unpublishKind notes what of our own is to go.
func (s *survey) unpublishKind(want, owners map[string]string, change map[string]*string) {
	for key, owner := range owners {
		// Who has published what is on the node, where its kubelet may write as well: nobody may have us take away
		// what a NodeJob could not have published.
		if _, wanted := want[key]; owner == s.key && !wanted && mayPublish(key) {
			delete(owners, key)
			change[key] = nil
		}
	}
}

// mayPublish is true for keys that the API lets a NodeJob publish.
func mayPublish(key string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	if !prefixed || prefix == "node.kubernetes.io" || prefix == "kubelet.kubernetes.io" {
		return true
	}
	return !slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", v1alpha1.Group}, func(domain string) bool {
		return prefix == domain || strings.HasSuffix(prefix, "."+domain)
	})
}

// unpublish is the change that takes all facts of the NodeJob off a node; nil when there are none.
func (s *survey) unpublish(node *Node) *record.Facts {
	facts, _ := s.factsChange(node, nil, nil) // nothing is wanted, so nothing is in the way
	return facts
}

// owned counts what the NodeJob has published on the node.
func (s *survey) owned(node *Node) int {
	n := 0
	for _, owners := range []map[string]string{node.Published.Labels, node.Published.Annotations} {
		for _, owner := range owners {
			if owner == s.key {
				n++
			}
		}
	}
	return n
}

// unlisted is the change that takes off a node what spec.publish does not name any more; nil when there is nothing.
func (s *survey) unlisted(node *Node) *record.Facts {
	labelled, annotated := map[string]string{}, map[string]string{}
	for _, fact := range s.in.Job.Spec.Publish {
		// What is named stays as it is.
		if is, there := node.Labels[fact.Label]; there && node.Published.Labels[fact.Label] == s.key {
			labelled[fact.Label] = is
		}
		if is, there := node.Annotations[fact.Annotation]; there && node.Published.Annotations[fact.Annotation] == s.key {
			annotated[fact.Annotation] = is
		}
	}
	facts, _ := s.factsChange(node, labelled, annotated) // what is wanted is ours already
	return facts
}

// selects is true when the NodeJob is for a node with these labels, or would be with those that its own
// success has taken off.
func (s *survey) selects(node *Node) bool {
	return s.named.has(node) && task.FitsOS(s.self.OS, node.Labels) && matchesWith(s.selector, s.in.Job.Spec.RemoveLabels, node, node.On.Record)
}

// names are those of spec.nodeNames; nil for all nodes.
type names map[string]bool

func namesOf(list []string) names {
	if len(list) == 0 {
		return nil
	}
	set := make(names, len(list))
	for _, name := range list {
		set[name] = true
	}
	return set
}

func (n names) has(node *Node) bool { return n == nil || n[node.Name] }

// matchesWith is true when the selector matches the node, as it is or with the labels that a success has taken off it.
func matchesWith(selector labels.Selector, removeLabels []string, node *Node, rec *record.Record) bool {
	if selector.Matches(labels.Set(node.Labels)) {
		return true
	}
	if rec == nil || len(rec.RemovedLabels) == 0 {
		return false
	}
	had := make(map[string]string, len(node.Labels)+len(rec.RemovedLabels))
	for key, value := range rec.RemovedLabels {
		if slices.Contains(removeLabels, key) {
			had[key] = value
		}
	}
	maps.Copy(had, node.Labels)
	return selector.Matches(labels.Set(had))
}

// relabelled is a label that a success has taken off the node, and that is there again: somebody asks for
// another run; "" when there is none.
func (s *survey) relabelled(node *Node) string {
	for _, key := range s.in.Job.Spec.RemoveLabels {
		_, was := node.On.Record.RemovedLabels[key]
		if _, is := node.Labels[key]; is && was {
			return key
		}
	}
	return ""
}

// removeLabels notes in a change and in its record which labels a success takes off the node.
func (s *survey) removeLabels(node *Node, c *record.Change) {
	removed := map[string]string{}
	for _, key := range s.in.Job.Spec.RemoveLabels {
		if value, ok := c.Record.RemovedLabels[key]; ok {
			removed[key] = value
		}
		if value, ok := node.Labels[key]; ok {
			removed[key] = value
			c.RemoveLabels = append(c.RemoveLabels, key)
		}
	}
	if len(removed) > 0 {
		c.Record.RemovedLabels = removed
	}
}
